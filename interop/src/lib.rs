//! Other people's QUIC against ours, both as client and as server.
//!
//! [`certificates`] makes the X.509 certificates that peers want, and [`pattern`] the bytes that
//! the other side checks. quinn and noq have test files of their own. [`matrix`] runs one list of
//! cases against programs in `peers/`, which all speak one test
//! protocol. [`h3`](mod@h3) carries HTTP/3.
#![forbid(unsafe_code)]

pub mod certificates;
pub mod h3;
pub mod matrix;
pub mod pattern;
