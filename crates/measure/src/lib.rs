//! How results are stated: means with confidence intervals.
//!
//! | module | what |
//! |---|---|
//! | [`statistics`] | [`Estimate`]: a mean and Student's interval around it |
#![forbid(unsafe_code)]

pub mod statistics;

pub use statistics::Estimate;
