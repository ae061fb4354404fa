//! Presentation of results: means with confidence intervals, and plots.
//!
//! | module | holds |
//! |---|---|
//! | [`plot`] | [`plot::svg`]: curves with error bars as SVG |
//! | [`program`] | [`Program`]: version and commit of the build that produced a result |
//! | [`statistics`] | [`Estimate`]: a mean with Student's confidence interval |
//!
//! Start with [`statistics`].
#![forbid(unsafe_code)]

pub mod plot;
pub mod program;
pub mod statistics;

pub use program::Program;
pub use statistics::Estimate;

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
