//! Scenarios for tests.

use netem::Trace;

use crate::model::Scenario;
use crate::parse::{ParseError, parse};

/// What every scenario needs beside its links, and no test is about. `body` gives the links and what the test is about; a
/// workload is added if it has none.
pub(crate) fn whole(body: &str) -> String {
    let head = "version = 1\n[scenario]\nname = 'test'\nabout = 'A test.'\nduration = '10s'\n";
    let workload = if body.contains("[[workload]]") { "" } else { "[[workload]]\nkind = 'file'\nsize = '1MB'\n" };
    format!("{head}{body}\n{workload}")
}

/// The scenario.
pub(crate) fn scenario(body: &str) -> Scenario {
    parsed(&whole(body)).unwrap_or_else(|error| panic!("{error}"))
}

/// `text` as a file of its own.
pub(crate) fn parsed(text: &str) -> Result<Scenario, ParseError> {
    parse("test.toml", text, &|name| match name {
        "one-a-millisecond" => Ok(Trace::from_millis([1]).expect("a trace")),
        _ => Err(format!("there is no trace {name:?}")),
    })
}
