//! Peers, and others on the path, that break the rules.

mod data;
mod resets;
mod windows;
