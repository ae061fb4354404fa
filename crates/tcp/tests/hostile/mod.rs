//! Peers, and others on the path, that break the rules.

mod acknowledgements;
mod data;
mod floods;
mod resets;
mod windows;
