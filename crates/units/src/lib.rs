//! Instant, Duration, Rate, sizes, sequence numbers and the seeded generator: the words every other room speaks.
//!
//! Nothing here reads a clock or draws from the system. An [`Instant`] counts nanoseconds since the run began, so the same
//! seed prints the same times; a [`Rng`] is built from a seed and split by name, so that a new draw in one component does
//! not shift the draws of another.
//!
//! Start with [`time`] and [`rate`].
#![forbid(unsafe_code)]

pub mod parse;
pub mod random;
pub mod rate;
pub mod sequence;
pub mod time;

pub use random::{Ratio, Rng};
pub use rate::{ByteSize, Rate};
pub use sequence::Seq32;
pub use time::{Duration, Instant};
