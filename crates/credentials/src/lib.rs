//! The storage of keys and tickets: as text, and in files that only their owner may read.
//!
//! | module | content |
//! |---|---|
//! | [`base32`] | bytes as lower-case letters and digits |
//! | [`private_file`] | files that only their owner may read, replaced atomically |
//!
//! The crate is for the library's keys and the file protocol's tickets, which are stored in the
//! same way. It is not part of the interface of `litz`.
#![forbid(unsafe_code)]

pub mod base32;
pub mod private_file;

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
