//! Our targets, and whether they are met.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

use super::dips;
use super::figures::{self, Reader};
use super::run::{Case, Run, value_name};
use super::statistics::{Spread, paired_ratios};
use crate::contender::Name;
use crate::work::Test;

/// The target of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Reported only.
    None,
}

impl Target {
    /// Whether `value` meets the target.
    fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtLeast(bound) => Some(value >= bound),
            Self::AtMost(bound) => Some(value <= bound),
            Self::None => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => f.pad(&format!(">= {bound}")),
            Self::AtMost(bound) => f.pad(&format!("<= {bound}")),
            Self::None => f.pad(""),
        }
    }
}

/// A figure compared with its target.
#[derive(Debug, Serialize)]
pub struct Verdict {
    case: String,
    figure: String,
    target: Target,
    /// Absent if the run did not include it.
    measured: Option<Spread>,
    met: Option<bool>,
}

const LITZ: [Name; 2] = [Name::LitzInline, Name::LitzThread];
const BULK: Case = Case { test: Test::Bulk, mtu: 1500 };
const BULK_JUMBO: Case = Case { test: Test::Bulk, mtu: 9000 };

const fn on_loopback(test: Test) -> Case {
    Case { test, mtu: 1500 }
}

/// All verdicts on `runs`, those with a target first in each test.
pub fn evaluate(runs: &[Run]) -> Vec<Verdict> {
    let targets = Targets { runs };
    let mut verdicts = Vec::new();
    for case in [BULK, BULK_JUMBO] {
        verdicts.extend(targets.goodput(case));
        verdicts.extend(targets.processor_time(case));
    }
    verdicts.extend(targets.latency());
    verdicts.extend(targets.connections());
    verdicts.extend(targets.memory());
    verdicts.extend(targets.file());
    verdicts.extend(targets.key_updates());
    verdicts
}

struct Targets<'a> {
    runs: &'a [Run],
}

impl Targets<'_> {
    /// A figure of one contender, by round.
    fn rounds(&self, case: Case, contender: Name, read: Reader) -> Vec<(usize, f64)> {
        let of = self.runs.iter().filter(|run| run.case == case && run.contender == contender);
        of.filter_map(|run| read(run).map(|value| (run.round, value))).collect()
    }

    fn verdict(&self, case: Case, figure: String, target: Target, values: Vec<f64>) -> Verdict {
        let measured = Spread::of(values);
        let met = measured.and_then(|spread| target.is_met(spread.median));
        Verdict { case: case.to_string(), figure, target, measured, met }
    }

    /// A figure of one contender as a multiple of another's.
    fn ratio(&self, case: Case, (what, read): (&str, Reader), pair: [Name; 2], target: Target) -> Verdict {
        let [numerators, denominators] = pair.map(|contender| self.rounds(case, contender, read));
        let [ours, theirs] = pair.map(|contender| value_name(&contender));
        let ratios = paired_ratios(&numerators, &denominators);
        self.verdict(case, format!("{what}, {ours} / {theirs}"), target, ratios)
    }

    fn goodput(&self, case: Case) -> Vec<Verdict> {
        let others = Name::value_variants().iter().filter(|name| name.does(Test::Bulk) && !LITZ.contains(name));
        let target = |other: Name| match (other, case.mtu) {
            (Name::Blaster, 1500) => Target::AtLeast(0.8),
            (Name::Blaster, _) => Target::AtLeast(0.9),
            (Name::Quinn, 1500) => Target::AtLeast(2.3),
            (Name::TcpTls, 1500) => Target::AtLeast(1.2),
            _ => Target::None,
        };
        let pairs = others.flat_map(|&other| LITZ.map(|litz| (litz, other)));
        pairs
            .map(|(litz, other)| self.ratio(case, ("goodput", figures::goodput_gbps), [litz, other], target(other)))
            .collect()
    }

    fn processor_time(&self, case: Case) -> Vec<Verdict> {
        let target = if case == BULK { Target::AtMost(0.45) } else { Target::None };
        LITZ.map(|litz| self.ratio(case, ("CPU s/GB", figures::cpu_s_per_gb), [litz, Name::Quinn], target)).into()
    }

    fn latency(&self) -> Vec<Verdict> {
        let case = on_loopback(Test::RequestResponse);
        let mut verdicts = Vec::new();
        for (what, read) in [("median", figures::median_us as Reader), ("p99", figures::p99_us)] {
            let pairs = [
                ([Name::LitzInline, Name::Udp], Target::AtMost(1.2)),
                ([Name::LitzThread, Name::LitzInline], Target::AtMost(1.5)),
                ([Name::LitzInline, Name::Quinn], Target::None),
                ([Name::LitzPolling, Name::Udp], Target::None),
            ];
            verdicts.extend(pairs.map(|(pair, target)| self.ratio(case, (what, read), pair, target)));
        }
        verdicts
    }

    fn connections(&self) -> Vec<Verdict> {
        let case = on_loopback(Test::Connect);
        let rate: (&str, Reader) = ("connections/s and core", figures::connections_per_cpu_s);
        LITZ.map(|litz| self.ratio(case, rate, [litz, Name::Quinn], Target::AtLeast(1.0))).into()
    }

    fn memory(&self) -> Vec<Verdict> {
        let figures: [(Test, &str, Reader, f64); 4] = [
            (Test::Idle, "server", figures::server_kib, 16.0),
            (Test::Idle, "client", figures::client_kib, 16.0),
            (Test::IdleParked, "server", figures::server_kib, 8.0),
            (Test::IdleParked, "client", figures::client_kib, 8.0),
        ];
        let pairs = figures.into_iter().flat_map(|figure| LITZ.map(|litz| (figure, litz)));
        pairs
            .map(|((test, side, read, bound), litz)| {
                let case = on_loopback(test);
                let values = self.rounds(case, litz, read).into_iter().map(|(_, value)| value).collect();
                let figure = format!("KiB/connection, {side}, {}", value_name(&litz));
                self.verdict(case, figure, Target::AtMost(bound), values)
            })
            .collect()
    }

    fn file(&self) -> Vec<Verdict> {
        let case = on_loopback(Test::File);
        let values = self.rounds(case, Name::LitzThread, figures::file_of_bound);
        let values = values.into_iter().map(|(_, value)| value).collect();
        vec![self.verdict(case, "rate / bound".to_owned(), Target::AtLeast(0.9), values)]
    }

    /// Every run must have its updates, so the smallest number counts, not the median.
    fn key_updates(&self) -> Vec<Verdict> {
        let case = on_loopback(Test::KeyUpdate);
        let seen: Vec<_> = self.runs.iter().filter(|run| run.case == case).filter_map(dips::of).collect();
        let of = |read: fn(&dips::Dips) -> f64| seen.iter().map(read).collect::<Vec<f64>>();
        let mut updates =
            self.verdict(case, "updates, every run".to_owned(), Target::AtLeast(3.0), of(|dips| dips.updates as f64));
        updates.met = updates.measured.and_then(|spread| updates.target.is_met(spread.min));
        let lows = "lows around updates / 5th percentile of lows elsewhere".to_owned();
        let lowest = "lowest bin around updates / 5th percentile of bins elsewhere".to_owned();
        vec![
            updates,
            self.verdict(case, lows, Target::AtLeast(1.0), of(|dips| dips.lows_ratio)),
            self.verdict(case, lowest, Target::None, of(|dips| dips.lowest_ratio)),
        ]
    }
}

/// Prints the verdicts on measured figures, and names figures with a target that were not measured.
pub fn print(verdicts: &[Verdict]) {
    println!("\n{:<18} {:<62} {:>8} {:>9}   [min .. max]", "test", "figure", "target", "median");
    for verdict in verdicts {
        let Verdict { case, figure, target, measured, met } = verdict;
        match measured {
            Some(Spread { median, min, max }) => {
                let met = met.map_or("", |met| if met { "met" } else { "not met" });
                println!("{case:<18} {figure:<62} {target:>8} {median:>9.3}   [{min:.3} .. {max:.3}]   {met}");
            }
            None if *target != Target::None => println!("{case:<18} {figure:<62} {target:>8} {:>9}", "not measured"),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Figures;

    fn run(contender: Name, round: usize, gbps: f64) -> Run {
        let server = Figures { goodput_bps: Some(gbps * 1e9), ..Figures::default() };
        Run { case: BULK, contender, round, load: String::new(), server, client: Figures::default() }
    }

    fn of<'a>(verdicts: &'a [Verdict], figure: &str) -> &'a Verdict {
        verdicts.iter().find(|verdict| verdict.case == "bulk-1500" && verdict.figure == figure).expect("a verdict")
    }

    #[test]
    fn ratios_are_compared_by_the_median_of_their_rounds() {
        // A slow round for both changes nothing; one good round alone does not meet a target.
        let runs = [
            (Name::LitzInline, 0, 9.0),
            (Name::Blaster, 0, 10.0),
            (Name::Quinn, 0, 3.0),
            (Name::LitzInline, 1, 1.7),
            (Name::Blaster, 1, 2.0),
            (Name::Quinn, 1, 1.0),
            (Name::LitzInline, 2, 6.0),
            (Name::Blaster, 2, 10.0),
            (Name::Quinn, 2, 3.0),
        ];
        let runs: Vec<Run> = runs.into_iter().map(|(name, round, gbps)| run(name, round, gbps)).collect();
        let verdicts = evaluate(&runs);
        let blaster = of(&verdicts, "goodput, litz-inline / blaster");
        assert_eq!(blaster.met, Some(true));
        assert!((blaster.measured.expect("measured").median - 0.85).abs() < 1e-9);
        assert_eq!(of(&verdicts, "goodput, litz-inline / quinn").met, Some(false));
        assert_eq!(of(&verdicts, "goodput, litz-thread / quinn").met, None);
    }
}
