//! Results for people and for programs. Names in JSON are stable; they stand in `docs/spec/scenario.md`.

mod json;
mod table;

pub use json::{FORMAT, FORMAT_VERSION, Report, scenario_json};
pub use table::table;
