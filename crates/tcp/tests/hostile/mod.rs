//! Peers, and others on the path, that break the rules.

mod acknowledgements;
mod data;
mod deviations;
mod floods;
mod random;
mod resets;
mod windows;
