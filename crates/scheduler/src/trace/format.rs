//! Encoding of trace lines, as specified in `docs/spec/scheduler-trace.md`.

use core::fmt::Write;

use units::Instant;

use crate::scheduler::Choice;
use crate::strategy::Strategy;
use crate::view::{Demand, PathView, Straggler};

/// The first line of a trace: name and version of the format.
pub const VERSION_LINE: &str = "litz-scheduler-trace 1";

/// Length of the longest line without its line feed: 32 paths of at most 180 bytes each (eight
/// numbers of 20 digits, ID, flags and separators), and about 200 for the rest.
pub const LINE_BYTES_MAX: usize = 8192;

/// The separator between the sections of a line.
pub(super) const SECTION: &str = " | ";

pub(super) fn write_strategy(line: &mut String, strategy: Strategy) {
    line.clear();
    put(line, format_args!("strategy {strategy}"));
}

pub(super) fn write_choose(line: &mut String, now: Instant, demand: &Demand, paths: &[PathView], choice: Choice) {
    let is_last = u8::from(demand.is_last);
    put(line, format_args!("choose {} {} {is_last}", now.as_nanos(), demand.ready_bytes));
    write_paths(line, paths);
    line.push_str(SECTION);
    write_choice(line, choice);
}

pub(super) fn write_reinject(
    line: &mut String,
    now: Instant,
    straggler: &Straggler,
    on: usize,
    paths: &[PathView],
    reinjects: bool,
) {
    let Straggler { path, sent_at, bytes } = straggler;
    put(line, format_args!("reinject {} {path} {} {bytes} {on}", now.as_nanos(), sent_at.as_nanos()));
    write_paths(line, paths);
    line.push_str(SECTION);
    line.push_str(answer_text(reinjects));
}

fn write_paths(line: &mut String, paths: &[PathView]) {
    for path in paths {
        line.push_str(SECTION);
        put(line, format_args!("{} ", path.id));
        write_flags(line, path);
        let [srtt, rttvar, min_rtt] = [path.srtt, path.rttvar, path.min_rtt].map(|span| span.as_nanos());
        put(line, format_args!(" {srtt} {rttvar} {min_rtt} {} {}", path.window_bytes, path.in_flight_bytes));
        let (rate_bps, release_ns) = (path.rate.as_bps(), path.release_at.as_nanos());
        put(line, format_args!(" {rate_bps} {release_ns} {}", path.datagram_bytes));
    }
}

fn write_flags(line: &mut String, path: &PathView) {
    let before = line.len();
    let flags = [(path.is_backup, 'b'), (path.is_suspect, 's'), (path.accepts_datagrams, 'r')];
    line.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| letter));
    if line.len() == before {
        line.push('-');
    }
}

fn write_choice(line: &mut String, choice: Choice) {
    match choice {
        Choice::Send { path, bytes_max, copies } => put(line, format_args!("send {path} {bytes_max} {copies}")),
        Choice::Wait { until: Some(until) } => put(line, format_args!("wait {}", until.as_nanos())),
        Choice::Wait { until: None } => line.push_str("wait -"),
    }
}

/// Returns the text form of a choice in a line.
pub(super) fn choice_text(choice: Choice) -> String {
    let mut text = String::new();
    write_choice(&mut text, choice);
    text
}

/// Returns the text form of an answer about a straggler in a line.
pub(super) const fn answer_text(reinjects: bool) -> &'static str {
    if reinjects { "yes" } else { "no" }
}

/// Appends to the line, which cannot fail.
fn put(line: &mut String, text: core::fmt::Arguments<'_>) {
    let _ = line.write_fmt(text);
}
