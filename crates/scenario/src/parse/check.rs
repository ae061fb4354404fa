//! Parses `[[check]]`.

use super::names::read_index;
use super::reader::Table;
use crate::model::{Check, CheckKind, Counter, Link, Part, Window, Work};
use crate::outcome::GAP_MIN;

/// The names that checks can refer to.
pub(super) struct Known<'a> {
    pub(super) parts: &'a [Part],
    pub(super) paths: &'a [&'a str],
    pub(super) links: &'a [Link],
}

/// The kind of workload parts to which a check applies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Bulk,
    Timed,
    Stream,
    Ended,
    Any,
    Nothing,
}

#[derive(Clone, Copy)]
enum Kind {
    Share,
    Goodput,
    Gap,
    Latency,
    NothingLost,
    OrderKept,
    Complete,
    PathShare,
    Happened,
    Against,
}

const KINDS: [(Kind, &str); 10] = [
    (Kind::Share, "share-of-capacity"),
    (Kind::Goodput, "goodput"),
    (Kind::Gap, "gap"),
    (Kind::Latency, "latency"),
    (Kind::NothingLost, "nothing-lost"),
    (Kind::OrderKept, "order-kept"),
    (Kind::Complete, "complete"),
    (Kind::PathShare, "path-share"),
    (Kind::Happened, "happened"),
    (Kind::Against, "against-best-path"),
];

/// Default bound of `against-best-path`: an additional path must not reduce performance.
const AGAINST_AT_LEAST: f64 = 0.97;

pub(super) fn read(table: &Table<'_, '_>, known: &Known<'_>) -> Option<Check> {
    let Some(kind) = table.required("kind", table.keyword("kind", &KINDS)) else {
        table.finish_unknown_kind(&[
            "of",
            "at-least",
            "at-most",
            "from",
            "until",
            "percentile",
            "within",
            "path",
            "link",
            "counter",
        ]);
        return None;
    };
    let about = match kind {
        Kind::Share | Kind::Goodput | Kind::Gap => About::Bulk,
        Kind::Latency => About::Timed,
        Kind::OrderKept => About::Stream,
        Kind::NothingLost | Kind::Complete => About::Ended,
        Kind::Against => About::Any,
        Kind::PathShare | Kind::Happened => About::Nothing,
    };
    let of = if about == About::Nothing { None } else { read_of(table, about, known.parts) };
    let kind = read_kind(table, kind, known);
    table.finish();
    Some(Check { kind: kind?, of, line: table.line })
}

fn read_kind(table: &Table<'_, '_>, kind: Kind, known: &Known<'_>) -> Option<CheckKind> {
    Some(match kind {
        Kind::Share => {
            if let Some(link) = known.links.iter().find(|link| !has_rate(link)) {
                let message =
                    format!("share-of-capacity needs the capacity: link {:?} has no rate and no trace", link.name);
                table.add_problem("kind", message);
            }
            let window = read_window(table);
            CheckKind::ShareOfCapacity { at_least: table.required("at-least", table.share("at-least"))?, window }
        }
        Kind::Goodput => {
            let window = read_window(table);
            CheckKind::Goodput { at_least: table.required("at-least", table.rate("at-least"))?, window }
        }
        Kind::Gap => {
            let window = read_window(table);
            let at_most = table.required("at-most", table.duration("at-most"));
            if at_most.is_some_and(|at_most| at_most < GAP_MIN) {
                table.add_problem("at-most", format!("must be at least {GAP_MIN}: shorter gaps are not measured"));
            }
            CheckKind::Gap { at_most: at_most?, window }
        }
        Kind::Latency => {
            // Read both keys before returning, because keys that are not read are reported as
            // unknown.
            let percentile = table.required("percentile", table.hundredths("percentile", 10_000));
            let at_most = table.required("at-most", table.duration_above_zero("at-most"));
            CheckKind::Latency { percentile_hundredths: percentile?, at_most: at_most? }
        }
        Kind::NothingLost => CheckKind::NothingLost,
        Kind::OrderKept => CheckKind::OrderKept,
        Kind::Complete => {
            CheckKind::Complete { within: table.required("within", table.duration_above_zero("within"))? }
        }
        Kind::PathShare => {
            let path = table.required("path", read_index(table, "path", "path", known.paths));
            if !table.has("at-least") && !table.has("at-most") {
                table.add_problem("at-least", "is missing: give at-least, at-most or both");
            }
            let at_least = table.share("at-least").unwrap_or(0.0);
            let at_most = table.share("at-most").unwrap_or(1.0);
            if at_least > 1.0 || at_most < at_least {
                table.add_problem("at-least", "must not exceed at-most, and neither may exceed 1");
            }
            CheckKind::PathShare { path: path?, at_least, at_most }
        }
        Kind::Happened => {
            let names: Vec<_> = known.links.iter().map(|link| link.name.as_str()).collect();
            let link = table.required("link", read_index(table, "link", "link", &names));
            let counter = table.required("counter", table.keyword("counter", &Counter::ALL));
            let at_least = table.integer("at-least", 1..1 << 40).unwrap_or(1);
            CheckKind::Happened { link: link?, counter: counter?, at_least }
        }
        Kind::Against => CheckKind::AgainstBestPath {
            at_least: table.share("at-least").unwrap_or(AGAINST_AT_LEAST),
            percentile_hundredths: table.hundredths("percentile", 10_000).unwrap_or(5_000),
        },
    })
}

const fn has_rate(link: &Link) -> bool {
    link.forward.rate.is_some() || link.forward.trace.is_some()
}

/// Returns the part that `of` names. Reports a problem if the check applies to no part.
fn read_of(table: &Table<'_, '_>, about: About, parts: &[Part]) -> Option<usize> {
    let applies = |part: &Part| match about {
        About::Bulk => part.work.is_bulk(),
        About::Timed => part.work.times().is_some(),
        About::Stream => matches!(part.work, Work::Stream { .. }),
        About::Ended => part.work.has_end(),
        About::Any | About::Nothing => true,
    };
    let wanted = match about {
        About::Bulk => "a file or a stream",
        About::Timed => "messages or request-response",
        About::Stream => "a stream",
        About::Ended => "a part that has an end: give it a size",
        About::Any | About::Nothing => "a part",
    };
    let names: Vec<_> = parts.iter().map(|part| part.name.as_str()).collect();
    let of = read_index(table, "of", "part of the workload", &names);
    // An invalid workload has already been reported.
    let misses = !parts.is_empty() && !parts.iter().any(applies);
    if of.is_some_and(|of| !applies(&parts[of])) || (of.is_none() && misses) {
        table.add_problem(if of.is_some() { "of" } else { "kind" }, format!("this check applies to {wanted}"));
    }
    of
}

fn read_window(table: &Table<'_, '_>) -> Window {
    let window = Window { from: table.duration("from"), until: table.duration("until") };
    if let Window { from, until: Some(until) } = window
        && until <= from.unwrap_or_default()
    {
        table.add_problem("until", "must be later than from");
    }
    window
}
