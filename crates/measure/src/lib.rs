//! How results are stated: means with confidence intervals, and the pictures of them.
//!
//! | module | what |
//! |---|---|
//! | [`plot`] | curves with error bars as SVG |
//! | [`program`] | [`Program`]: version and commit of what made a result |
//! | [`statistics`] | [`Estimate`]: a mean and Student's interval around it |
#![forbid(unsafe_code)]

pub mod plot;
pub mod program;
pub mod statistics;

pub use program::Program;
pub use statistics::Estimate;
