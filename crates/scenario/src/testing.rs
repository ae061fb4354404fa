//! Builders of scenarios for unit tests.

use netem::Trace;

use crate::model::Scenario;
use crate::parse::{ParseError, parse};

/// Completes `body`, which has the links and the keys under test, to a valid file: adds the head,
/// and a workload if `body` has none.
pub(crate) fn with_head(body: &str) -> String {
    let head = "version = 1\n[scenario]\nname = 'test'\nabout = 'A test.'\nduration = '10s'\n";
    let workload = if body.contains("[[workload]]") { "" } else { "[[workload]]\nkind = 'file'\nsize = '1MB'\n" };
    format!("{head}{body}\n{workload}")
}

/// Parses a completed `body`.
pub(crate) fn scenario(body: &str) -> Scenario {
    parsed(&with_head(body)).unwrap_or_else(|error| panic!("{error}"))
}

/// Parses `text` as a whole file.
pub(crate) fn parsed(text: &str) -> Result<Scenario, ParseError> {
    parse("test.toml", text, &|name| match name {
        "one-a-millisecond" => Ok(Trace::from_millis([1]).expect("a trace")),
        _ => Err(format!("there is no trace {name:?}")),
    })
}
