//! Rendering of outcomes as text, CSV, JSON and SVG. Nothing here writes files.
//!
//! | module | contents |
//! |---|---|
//! | [`csv`] | tables and curves, one value per line |
//! | [`numbers`] | formatting of numbers |
//! | [`picture`] | curves as SVG |
//! | [`report`] | the JSON format of `docs/spec/study.md` |
//! | [`text`] | studies as text |
//! | [`verdicts`] | claims and decisions |

pub mod csv;
pub mod numbers;
pub mod picture;
pub mod report;
pub mod text;
pub mod verdicts;

mod lines;

pub use report::{Conditions, StudiesReport, StudyReport, Summary};
