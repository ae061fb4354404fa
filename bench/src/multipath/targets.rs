//! Our targets, and whether they are met.

use std::collections::BTreeSet;

use serde::Serialize;

use super::case::Case;
use super::contender::Contender;
use super::run::{Row, Run, name};
use crate::compare::statistics::{Spread, paired_ratios};

/// The longest silence that a cut link may cause, in addition to three round trips, ms.
const GAP_MS: f64 = 100.0;
/// Share of the other links' capacity, from a second after the cut on.
const REST_SHARE: f64 = 0.8;
/// The time within which a recovered link must carry its share, in addition to ten round trips, ms.
const SHARE_AGAIN_MS: f64 = 1000.0;
/// Round trips over several links, as a multiple of those over the best one.
const ROUND_TRIP_RATIO: f64 = 1.05;
/// Goodput with multipath negotiated, as a multiple of that without, over one path.
const COST_RATIO: f64 = 0.98;

/// The bound of a figure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// The median of the rounds and its bound. A round that failed, or whose data did not arrive as
/// they were sent, counts with the worst possible value.
#[derive(Serialize)]
pub struct Verdict {
    pub case: Case,
    #[serde(flatten)]
    pub row: Row,
    pub figure: &'static str,
    pub bound: Bound,
    /// Absent if no round had a figure.
    #[serde(flatten)]
    pub spread: Option<Spread>,
    /// Rounds without a figure.
    pub failed: usize,
    pub is_met: bool,
}

/// A failed round of a row.
#[derive(Clone, Debug, Serialize)]
pub struct FailedRound {
    pub case: Case,
    #[serde(flatten)]
    pub row: Row,
    pub round: usize,
    pub error: String,
}

impl Bound {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

/// Every target of the rows that took part.
pub fn evaluate(runs: &[Run], failures: &[FailedRound]) -> Vec<Verdict> {
    let failed = failures.iter().map(|failure| (failure.case, failure.row));
    let rows: BTreeSet<(Case, Row)> = runs.iter().map(|run| (run.case, run.row)).chain(failed).collect();
    let intact: Vec<&Run> = runs.iter().filter(|run| run.figures.is_intact).collect();
    let rounds = |row: (Case, Row)| {
        let failed = failures.iter().filter(|failure| (failure.case, failure.row) == row).count();
        failed + runs.iter().filter(|run| (run.case, run.row) == row).count()
    };
    rows.into_iter().flat_map(|(case, row)| of_row(&intact, &rounds, case, row)).collect()
}

/// `rounds` is the number of rounds in which a row took part, failed ones included.
fn of_row(runs: &[&Run], rounds: &dyn Fn((Case, Row)) -> usize, case: Case, row: Row) -> Vec<Verdict> {
    let values = |of: &dyn Fn(&Run) -> Option<f64>| -> Vec<f64> {
        runs.iter().filter(|run| (run.case, run.row) == (case, row)).filter_map(|run| of(run)).collect()
    };
    let mut verdicts = Vec::new();
    let mut compare = |figure, bound: Bound, values: Vec<f64>| {
        let failed = rounds((case, row)).saturating_sub(values.len());
        let worst = match bound {
            Bound::AtLeast(_) => f64::NEG_INFINITY,
            Bound::AtMost(_) => f64::INFINITY,
        };
        let all = values.iter().copied().chain(std::iter::repeat_n(worst, failed));
        let is_met = Spread::of(all).is_some_and(|all| bound.is_met(all.median));
        verdicts.push(Verdict { case, row, figure, bound, spread: Spread::of(values), failed, is_met });
    };
    if let Some(wanted) = case.wanted().into_iter().find(|wanted| wanted.contender == row.contender) {
        let shares = values(&|run| run.figures.steady_share);
        compare("steady share of capacity", Bound::AtLeast(wanted.share), shares);
    }
    if case.is_failover() && row.contender == Contender::LitzStream {
        let round_trip_ms = case.round_trip_s() * 1e3;
        let of =
            |figure: fn(&super::figures::Failover) -> f64| values(&|run| run.figures.failover.as_ref().map(figure));
        compare("gap, ms", Bound::AtMost(GAP_MS + 3.0 * round_trip_ms), of(|failover| failover.gap_ms));
        compare("rest, share of the other links", Bound::AtLeast(REST_SHARE), of(|failover| failover.rest_share));
        let never = |failover: &super::figures::Failover| failover.until_share_ms.unwrap_or(f64::INFINITY);
        compare("share again, ms", Bound::AtMost(SHARE_AGAIN_MS + 10.0 * round_trip_ms), of(never));
    }
    // Compared with another contender, round by round.
    let relative = |other: Contender, of: &dyn Fn(&Run) -> Option<f64>| {
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
    let took_part = |contender| rounds((case, Row { contender, ..row })) > 0;
    if let Some(best) = best.filter(|best| took_part(*best)) {
        let bound = Bound::AtMost(ROUND_TRIP_RATIO);
        compare("median relative to the best link alone", bound, relative(best, &|run| run.figures.median_us));
        compare("p99 relative to the best link alone", bound, relative(best, &|run| run.figures.p99_us));
    }
    if (case, row.contender) == (Case::Cost, Contender::LitzStream) && took_part(Contender::LitzPlain) {
        let ratios = relative(Contender::LitzPlain, &|run| run.figures.steady_bps);
        compare("goodput relative to no multipath", Bound::AtLeast(COST_RATIO), ratios);
    }
    verdicts
}

/// One line per target.
pub fn print(verdicts: &[Verdict]) {
    println!();
    for Verdict { case, row, figure, bound, spread, failed, is_met } in verdicts {
        let word = if *is_met { "met   " } else { "MISSED" };
        let wanted = match bound {
            Bound::AtLeast(least) => format!("at least {least:.2}"),
            Bound::AtMost(most) => format!("at most {most:.2}"),
        };
        let value = spread.as_ref().map_or_else(
            || "without a value".to_owned(),
            |Spread { median, min, max }| format!("{median:.3} [{min:.3} .. {max:.3}]"),
        );
        let failed = if *failed > 0 { format!(", {failed} rounds failed") } else { String::new() };
        println!("{word} {}, {row}: {figure} {value}, {wanted} wanted{failed}", name(case));
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
        let figures =
            |us| Figures { median_us: Some(us), p99_us: Some(2.0 * us), is_intact: true, ..Figures::default() };
        // The second round was slow for both; the third has no partner.
        let runs = [
            run(Case::Messages, Contender::LitzMessage, 0, figures(102.0)),
            run(Case::Messages, Contender::LitzMessageBest, 0, figures(100.0)),
            run(Case::Messages, Contender::LitzMessage, 1, figures(1020.0)),
            run(Case::Messages, Contender::LitzMessageBest, 1, figures(1000.0)),
            run(Case::Messages, Contender::LitzMessage, 2, figures(9000.0)),
        ];
        let verdicts = evaluate(&runs, &[]);
        let of_both: Vec<&Verdict> =
            verdicts.iter().filter(|verdict| verdict.row.contender == Contender::LitzMessage).collect();
        assert_eq!(of_both.len(), 2);
        let is_close =
            |verdict: &Verdict| verdict.spread.as_ref().is_some_and(|spread| (spread.max - 1.02).abs() < 1e-9);
        assert!(of_both.iter().all(|verdict| verdict.is_met && is_close(verdict) && verdict.failed == 1));
    }

    #[test]
    fn a_link_that_never_carries_its_share_again_misses_the_target() {
        let failover = Failover { gap_ms: 114.0, usual_gap_ms: 3.0, rest_share: 0.9, until_share_ms: None };
        let figures = Figures { failover: Some(failover), is_intact: true, ..Figures::default() };
        let verdicts = evaluate(&[run(Case::Failover5, Contender::LitzStream, 0, figures)], &[]);
        // 100 ms and three round trips of 5 ms are 115 ms.
        assert_eq!(verdicts.iter().map(|verdict| verdict.is_met).collect::<Vec<_>>(), [true, true, false]);
    }

    #[test]
    fn rounds_that_fail_or_break_data_count_as_missed() {
        let figures = |is_intact| Figures { steady_share: Some(0.99), is_intact, ..Figures::default() };
        let good = |round| run(Case::Equal4, Contender::LitzFile, round, figures(true));
        let broken = run(Case::Equal4, Contender::LitzFile, 2, figures(false));
        let failed = |round| FailedRound { case: Case::Equal4, row: good(0).row, round, error: "it hung".to_owned() };
        let is_met = |runs: &[Run], failures: &[FailedRound]| {
            evaluate(runs, failures).iter().map(|verdict| (verdict.failed, verdict.is_met)).collect::<Vec<_>>()
        };
        assert_eq!(is_met(&[good(0), good(1), broken], &[]), [(1, true)], "the median of three");
        assert_eq!(is_met(&[good(0)], &[failed(1), failed(2)]), [(2, false)]);
        assert_eq!(is_met(&[], &[failed(0)]), [(1, false)], "a target without a value is missed");
    }
}
