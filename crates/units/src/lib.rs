//! Quantities used by every other crate: time, rates, sizes, sequence numbers, the seeded random
//! generator, and printable forms of texts from other programs.
//!
//! Nothing in this crate reads a clock or asks the system for randomness. An [`Instant`] counts
//! nanoseconds since the start of the run, so the same seed gives the same times. An [`Rng`] is
//! built from a seed and split by name, so a new draw in one component does not shift the draws of
//! another.
//!
//! | module | holds |
//! |---|---|
//! | [`time`] | [`Instant`] and [`Duration`], in nanoseconds |
//! | [`rate`] | [`Rate`] (bits per second) and [`ByteSize`] |
//! | [`ecn`] | [`Ecn`], the congestion marks of IP packets |
//! | [`parse`] | quantities with units, such as `400Mb/s`, `64KiB` and `30ms` |
//! | [`random`] | [`Rng`] (xoshiro256++) and [`Ratio`], an exact probability |
//! | [`sequence`] | [`Seq32`], sequence numbers that wrap |
//! | [`text`] | printable forms of texts from other programs |
//!
//! Start with [`time`] and [`rate`].
#![forbid(unsafe_code)]

pub mod ecn;
pub mod parse;
pub mod random;
pub mod rate;
pub mod sequence;
pub mod text;
pub mod time;

pub use ecn::Ecn;
pub use random::{Ratio, Rng};
pub use rate::{ByteSize, Rate};
pub use sequence::Seq32;
pub use time::{Duration, Instant};

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
