//! How results are stated: means with confidence intervals, and the pictures of them.
//!
//! | module | what |
//! |---|---|
//! | [`plot`] | curves with error bars as SVG |
//! | [`statistics`] | [`Estimate`]: a mean and Student's interval around it |
#![forbid(unsafe_code)]

pub mod plot;
pub mod statistics;

pub use statistics::Estimate;
