//! Parses `[[fault]]`.

use netem::{Change, LineState};

use super::link::{read_bursts, read_jitter, read_reorder};
use super::names::read_index;
use super::reader::Table;
use crate::model::Fault;

pub(super) fn read(table: &Table<'_, '_>, links: &[&str]) -> Option<Fault> {
    let at = table.required("at", table.duration("at"));
    let until = table.duration("until");
    let every = table.duration_above_zero("every");
    let link = table.required("link", read_index(table, "link", "link", links));
    let directions = table
        .keyword("direction", &[([true, true], "both"), ([true, false], "forward"), ([false, true], "back")])
        .unwrap_or([true, true]);
    let changes = read_changes(table);
    table.finish();
    let at = at?;
    if until.is_some_and(|until| until <= at) {
        table.add_problem("until", format!("must be later than at, which is {at}"));
        return None;
    }
    if every.is_some() && until.is_none() {
        table.add_problem("every", "needs until, the end of the first occurrence");
        return None;
    }
    if let (Some(every), Some(until)) = (every, until)
        && at + every <= until
    {
        table.add_problem(
            "every",
            "must be longer than the time from at to until: an occurrence must end before the next begins",
        );
        return None;
    }
    if changes.is_empty() {
        // Invalid values have already been reported.
        if KEYS.iter().any(|key| table.has(key)) {
            return None;
        }
        let message = "changes nothing: give state, rate, delay, jitter, loss, bursts, duplicate, corrupt or reorder";
        table.source.add_problem(table.line, "fault", message);
        return None;
    }
    Some(Fault { at, until, every, link: link?, directions, changes, line: table.line })
}

/// The settings that a fault can change.
const KEYS: [&str; 9] = ["state", "rate", "delay", "jitter", "loss", "bursts", "duplicate", "corrupt", "reorder"];

fn read_changes(table: &Table<'_, '_>) -> Vec<Change> {
    let states = [(LineState::Silent, "silent"), (LineState::Held, "held"), (LineState::Up, "up")];
    let read = [
        table.keyword("state", &states).map(Change::State),
        table.rate("rate").map(|rate| Change::Rate(Some(rate))),
        table.duration("delay").map(Change::Delay),
        table.table("jitter").map(|jitter| Change::Jitter(read_jitter(&jitter))),
        table.ratio("loss").map(Change::Loss),
        table.table("bursts").map(|bursts| Change::BurstLoss(read_bursts(&bursts))),
        table.ratio("duplicate").map(Change::Duplicate),
        table.ratio("corrupt").map(Change::Corrupt),
        table.table("reorder").and_then(|reorder| read_reorder(&reorder)).map(|(share, by)| Change::Reorder(share, by)),
    ];
    read.into_iter().flatten().collect()
}
