//! Outcomes as text, CSV, JSON and SVG. Nothing here writes a file: the command does.
//!
//! | module | what |
//! |---|---|
//! | [`csv`] | tables and curves, a value a line |
//! | [`numbers`] | how many digits a number has |
//! | [`picture`] | curves as SVG |
//! | [`report`] | all of it, as `docs/spec/study.md` has it in JSON |
//! | [`text`] | all of it for people |
//! | [`verdicts`] | claims and what was found out about them |

pub mod csv;
pub mod numbers;
pub mod picture;
pub mod report;
pub mod text;
pub mod verdicts;

mod lines;

pub use report::{Conditions, Report, StudyReport, Summary};
