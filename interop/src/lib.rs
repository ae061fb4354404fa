//! Other people's QUIC against ours, both as client and as server.
//!
//! [`certificates`] makes the X.509 that peers want; [`pattern`] the bytes that are checked on the other side. Each peer has
//! a test file of its own.
#![forbid(unsafe_code)]

pub mod certificates;
pub mod pattern;
