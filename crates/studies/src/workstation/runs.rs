//! Replicated runs of configurations, and tables and curves of their results.

use measure::Estimate;
use units::Duration;

use super::config::Config;
use super::model::Measured;
use super::run;
use crate::outcome::{Cell, Check};
use crate::outcome::{Column, Plot, Row, Series, Table};
use crate::replicate::replicate;
use crate::study::{Effort, Options};
use crate::warm_up;

/// Results of a configuration.
pub(super) struct Point {
    pub(super) throughput: Estimate,
    pub(super) delay: Estimate,
    pub(super) access: Estimate,
    pub(super) small_delay: Estimate,
    pub(super) runs: Vec<Measured>,
    confidence: f64,
}

impl Point {
    /// Returns the estimate of another figure.
    pub(super) fn of(&self, figure: impl Fn(&Measured) -> f64) -> Estimate {
        let values: Vec<f64> = self.runs.iter().map(figure).collect();
        Estimate::of(&values, self.confidence)
    }

    /// Returns the mean utilisation of components of this name.
    pub(super) fn utilisation(&self, begin: &str, part: &str) -> Estimate {
        self.of(|run| run.utilisation(begin, part).unwrap_or(0.0))
    }
}

/// Runs `config` with the length and number of replications of `options`.
///
/// # Panics
/// Panics if it is invalid: the studies build valid machines.
pub(super) fn point(options: &Options, config: &Config) -> Point {
    let mut config = config.clone();
    if options.effort == Effort::Quick {
        (config.warm_up, config.measured) = (Duration::from_millis(15), Duration::from_millis(70));
    }
    let run = |seed, run| match run::run(&config, seed, run) {
        Ok(measured) => measured,
        Err(error) => panic!("invalid machine of a study: {error}"),
    };
    let runs = replicate(options, run, |run| vec![run.throughput_mbps, run.delay_us]);
    let of =
        |figure: fn(&Measured) -> f64| Estimate::of(&runs.iter().map(figure).collect::<Vec<f64>>(), options.confidence);
    Point {
        throughput: of(|run| run.throughput_mbps),
        delay: of(|run| run.delay_us),
        access: of(|run| run.access_us),
        small_delay: of(|run| run.small_delay_us),
        confidence: options.confidence,
        runs,
    }
}

/// Checks that the warm-up of `configs` is long enough, by the delays of their segments.
pub(super) fn warm_up_check(options: &Options, configs: &[Config]) -> Check {
    let few = Options { replications: 2, precision: None, ..*options };
    let mut all = Vec::new();
    for config in configs {
        // With the length of full runs at any effort, because those are checked.
        let whole = Config { warm_up: Duration::ZERO, measured: config.warm_up + config.measured, ..config.clone() };
        let run = |seed, run| match run::run(&whole, seed, run) {
            Ok(measured) => measured.delays_us,
            Err(error) => panic!("invalid machine of a study: {error}"),
        };
        all.extend(replicate(&few, run, |_| Vec::new()).into_iter().map(|series| (config.warm_up, series)));
    }
    warm_up::check("delays of segments", &all)
}

/// Returns the columns of most tables here.
pub(super) fn throughput_and_delay() -> Vec<Column> {
    vec![Column::new("throughput", "Mb/s"), Column::new("delay per segment", "us")]
}

/// Returns a row of [`throughput_and_delay`] without printed values.
pub(super) fn ours(label: impl Into<String>, point: &Point) -> Row {
    Row { label: label.into(), cells: vec![Cell::ours(point.throughput), Cell::ours(point.delay)] }
}

/// Returns a series of one figure over several configurations.
fn series<'a>(
    name: &str,
    points: impl IntoIterator<Item = (f64, &'a Point)>,
    figure: fn(&Point) -> Estimate,
) -> Series {
    Series { name: name.to_owned(), points: points.into_iter().map(|(x, point)| (x, figure(point))).collect() }
}

/// Returns two plots, `title: throughput` and `title: delay per segment`, of the same
/// configurations: named curves of points at places on `x`.
pub(super) fn throughput_and_delay_by(title: &str, x: &Column, curves: &[(&str, Vec<(f64, &Point)>)]) -> [Plot; 2] {
    let plot = |figure: fn(&Point) -> Estimate, y: Column| Plot {
        title: format!("{title}: {}", y.name),
        x: x.clone(),
        y,
        series: curves.iter().map(|(name, points)| series(name, points.iter().copied(), figure)).collect(),
    };
    let [throughput, delay] = [|point: &Point| point.throughput, |point: &Point| point.delay];
    [plot(throughput, Column::new("throughput", "Mb/s")), plot(delay, Column::new("delay per segment", "us"))]
}

/// Returns the same data as a table, with one row per place of each curve.
pub(super) fn table_by(title: &str, x: &Column, curves: &[(&str, Vec<(f64, &Point)>)]) -> Table {
    let label = |name: &str, place: f64| format!("{name}, {} {place} {}", x.name, x.unit).trim_end().to_owned();
    let rows = |(name, points): &(&str, Vec<(f64, &Point)>)| -> Vec<Row> {
        points.iter().map(|&(place, point)| ours(label(name, place), point)).collect()
    };
    Table { title: title.to_owned(), columns: throughput_and_delay(), rows: curves.iter().flat_map(rows).collect() }
}

/// Returns the places of a curve, for [`throughput_and_delay_by`].
pub(super) fn places<K: Copy>(points: &[(K, Point)], place: impl Fn(K) -> f64) -> Vec<(f64, &Point)> {
    points.iter().map(|(at, point)| (place(*at), point)).collect()
}

/// Returns `config` with protocol processors of `mips`. The application's processor keeps the speed
/// of Table 1; otherwise it would be the limit.
pub(super) fn slowed(config: &Config, mips: f64) -> Config {
    let mut slow = Config { mips, ..config.clone() };
    let generate = &mut slow.choices.costs.generate;
    generate.instructions = (generate.instructions as f64 * mips / config.mips).round() as u64;
    slow
}

/// Formats an estimate as `12.3 ± 0.4`, for checks.
pub(super) fn shown(estimate: Estimate) -> String {
    match estimate.plus_minus {
        Some(half) => format!("{:.1} ± {half:.1}", estimate.mean),
        None => format!("{:.1}", estimate.mean),
    }
}
