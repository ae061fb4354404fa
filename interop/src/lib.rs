//! Other people's QUIC against ours, both as client and as server.
//!
//! [`certificates`] makes the X.509 certificates that peers want, and [`pattern`] the bytes that
//! the other side checks. Each peer has its own test file.
#![forbid(unsafe_code)]

pub mod certificates;
pub mod pattern;
