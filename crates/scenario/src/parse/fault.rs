//! `[[fault]]`.

use netem::{Change, LineState};

use super::link::{read_bursts, read_jitter, read_reorder};
use super::read_index;
use super::reader::Table;
use crate::model::Fault;

pub(super) fn read(table: &Table<'_, '_>, links: &[&str]) -> Option<Fault> {
    let at = table.required("at", table.duration("at"));
    let until = table.duration("until");
    let every = table.duration_above_zero("every");
    let link = table.required("link", read_index(table, "link", "link", links));
    let directions = table
        .word("direction", &[([true, true], "both"), ([true, false], "forward"), ([false, true], "back")])
        .unwrap_or([true, true]);
    let changes = read_changes(table);
    table.finish();
    let at = at?;
    if until.is_some_and(|until| until <= at) {
        table.complain("until", format!("must be later than at, which is {at}"));
        return None;
    }
    if every.is_some() && until.is_none() {
        table.complain("every", "needs until: say for how long it happens each time");
        return None;
    }
    if let (Some(every), Some(until)) = (every, until)
        && at + every <= until
    {
        table.complain("every", "must be longer than from at until until: one time must end before the next begins");
        return None;
    }
    if changes.is_empty() {
        // What is there and wrong has been complained about.
        if KEYS.iter().any(|key| table.has(key)) {
            return None;
        }
        let words = "changes nothing: give state, rate, delay, jitter, loss, bursts, duplicate, corrupt or reorder";
        table.source.complain(table.line, "fault", words);
        return None;
    }
    Some(Fault { at, until, every, link: link?, directions, changes, line: table.line })
}

/// What a fault can change.
const KEYS: [&str; 9] = ["state", "rate", "delay", "jitter", "loss", "bursts", "duplicate", "corrupt", "reorder"];

fn read_changes(table: &Table<'_, '_>) -> Vec<Change> {
    let states = [(LineState::Silent, "silent"), (LineState::Held, "held"), (LineState::Up, "up")];
    let read = [
        table.word("state", &states).map(Change::State),
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
