//! Our targets, and whether they are met.

use std::collections::BTreeSet;

use serde::Serialize;

use super::case::Case;
use super::contender::Contender;
use super::run::{Row, Run, name};
use crate::compare::statistics::{Spread, paired_ratios};

/// A cut link may silence the stream for so long, beside three round trips.
const GAP_MS: f64 = 100.0;
/// Of the other links' capacity, from a second after the cut on.
const REST_SHARE: f64 = 0.8;
/// A link that works again may take so long until it carries its share, beside ten round trips.
const SHARE_AGAIN_MS: f64 = 1000.0;
/// Round trips over several links beside those over the best one.
const ROUND_TRIP_RATIO: f64 = 1.05;
/// Multipath negotiated beside not, over one path.
const COST_RATIO: f64 = 0.98;

/// What is wanted of a figure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// The median of the rounds beside what is wanted.
#[derive(Serialize)]
pub struct Verdict {
    pub case: Case,
    #[serde(flatten)]
    pub row: Row,
    pub figure: &'static str,
    pub bound: Bound,
    #[serde(flatten)]
    pub spread: Spread,
    pub is_met: bool,
}

impl Bound {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

/// Every target that the runs tell of.
pub fn judge(runs: &[Run]) -> Vec<Verdict> {
    let rows: BTreeSet<(Case, Row)> = runs.iter().map(|run| (run.case, run.row)).collect();
    rows.into_iter().flat_map(|(case, row)| of_row(runs, case, row)).collect()
}

fn of_row(runs: &[Run], case: Case, row: Row) -> Vec<Verdict> {
    let values = |of: &dyn Fn(&Run) -> Option<f64>| -> Vec<f64> {
        runs.iter().filter(|run| (run.case, run.row) == (case, row)).filter_map(of).collect()
    };
    let mut verdicts = Vec::new();
    let mut judge = |figure, bound: Bound, values: Vec<f64>| {
        if let Some(spread) = Spread::of(values) {
            let is_met = bound.is_met(spread.median);
            verdicts.push(Verdict { case, row, figure, bound, spread, is_met });
        }
    };
    if let Some(wanted) = case.wanted().into_iter().find(|wanted| wanted.contender == row.contender) {
        let shares = values(&|run| run.figures.steady_share);
        judge("steady share of capacity", Bound::AtLeast(wanted.share), shares);
    }
    if case.is_failover() && row.contender == Contender::LitzStream {
        let round_trip_ms = case.round_trip_s() * 1e3;
        let of =
            |figure: fn(&super::figures::Failover) -> f64| values(&|run| run.figures.failover.as_ref().map(figure));
        judge("gap, ms", Bound::AtMost(GAP_MS + 3.0 * round_trip_ms), of(|failover| failover.gap_ms));
        judge("rest, share of the other links", Bound::AtLeast(REST_SHARE), of(|failover| failover.rest_share));
        let never = |failover: &super::figures::Failover| failover.until_share_ms.unwrap_or(f64::INFINITY);
        judge("share again, ms", Bound::AtMost(SHARE_AGAIN_MS + 10.0 * round_trip_ms), of(never));
    }
    // In round after round beside another contender.
    let beside = |other: Contender, of: &dyn Fn(&Run) -> Option<f64>| {
        let series = |contender| -> Vec<(usize, f64)> {
            let row = Row { contender, ..row };
            let of_row = runs.iter().filter(|run| (run.case, run.row) == (case, row));
            of_row.filter_map(|run| Some((run.round, of(run)?))).collect()
        };
        paired_ratios(&series(row.contender), &series(other))
    };
    let best = match (case, row.contender) {
        (Case::Messages, Contender::LitzMessage) => Some(Contender::LitzMessageBest),
        (Case::Messages, Contender::LitzStream) => Some(Contender::LitzBest),
        _ => None,
    };
    if let Some(best) = best {
        let bound = Bound::AtMost(ROUND_TRIP_RATIO);
        judge("median beside the best link alone", bound, beside(best, &|run| run.figures.median_us));
        judge("p99 beside the best link alone", bound, beside(best, &|run| run.figures.p99_us));
    }
    if (case, row.contender) == (Case::Cost, Contender::LitzStream) {
        let ratios = beside(Contender::LitzPlain, &|run| run.figures.steady_bps);
        judge("goodput beside multipath not spoken of", Bound::AtLeast(COST_RATIO), ratios);
    }
    verdicts
}

/// One line a target.
pub fn print(verdicts: &[Verdict]) {
    println!();
    for Verdict { case, row, figure, bound, spread, is_met } in verdicts {
        let word = if *is_met { "met   " } else { "MISSED" };
        let wanted = match bound {
            Bound::AtLeast(least) => format!("at least {least:.2}"),
            Bound::AtMost(most) => format!("at most {most:.2}"),
        };
        let Spread { median, min, max } = spread;
        println!("{word} {}, {row}: {figure} {median:.3} [{min:.3} .. {max:.3}], {wanted} wanted", name(case));
    }
}

#[cfg(test)]
mod tests {
    use super::super::contender::Controller;
    use super::super::figures::{Failover, Figures};
    use super::*;

    fn run(case: Case, contender: Contender, round: usize, figures: Figures) -> Run {
        Run {
            case,
            row: Row { contender, controller: Controller::Cubic },
            round,
            place: 0,
            load: String::new(),
            figures,
            carried: Vec::new(),
            lateness: None,
            faults: None,
            received: super::super::side::Received::default(),
            sent: super::super::side::Sent::default(),
        }
    }

    #[test]
    fn round_trips_are_compared_within_their_round() {
        let figures = |us| Figures { median_us: Some(us), p99_us: Some(2.0 * us), ..Figures::default() };
        // The second round was slow for both; the third has no partner.
        let runs = [
            run(Case::Messages, Contender::LitzMessage, 0, figures(102.0)),
            run(Case::Messages, Contender::LitzMessageBest, 0, figures(100.0)),
            run(Case::Messages, Contender::LitzMessage, 1, figures(1020.0)),
            run(Case::Messages, Contender::LitzMessageBest, 1, figures(1000.0)),
            run(Case::Messages, Contender::LitzMessage, 2, figures(9000.0)),
        ];
        let verdicts = judge(&runs);
        assert_eq!(verdicts.len(), 2);
        assert!(verdicts.iter().all(|verdict| verdict.is_met && (verdict.spread.max - 1.02).abs() < 1e-9));
    }

    #[test]
    fn a_link_that_never_carries_its_share_again_misses_the_target() {
        let failover = Failover { gap_ms: 114.0, usual_gap_ms: 3.0, rest_share: 0.9, until_share_ms: None };
        let figures = Figures { failover: Some(failover), ..Figures::default() };
        let verdicts = judge(&[run(Case::Failover5, Contender::LitzStream, 0, figures)]);
        // 100 ms and three round trips of 5 ms are 115 ms.
        assert_eq!(verdicts.iter().map(|verdict| verdict.is_met).collect::<Vec<_>>(), [true, true, false]);
    }
}
