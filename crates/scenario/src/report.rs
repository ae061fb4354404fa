//! Results as a table and as JSON. Names in JSON are stable and defined in `docs/spec/scenario.md`.

mod json;
mod table;

pub use json::{FORMAT, FORMAT_VERSION, ResultFile, scenario_json};
pub use table::table;
