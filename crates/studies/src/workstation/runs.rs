//! Configurations are run several times, and what came of them is put into tables and curves.

use measure::Estimate;
use sim::Replications;
use units::Duration;

use super::config::Config;
use super::model::{self, Measured};
use crate::outcome::{Column, Row, Sensitivity, Series};
use crate::{Cell, Effort, Options};

/// What came of a configuration.
pub(super) struct Point {
    pub(super) throughput: Estimate,
    pub(super) delay: Estimate,
    pub(super) access: Estimate,
    pub(super) small_delay: Estimate,
    pub(super) runs: Vec<Measured>,
    confidence: f64,
}

impl Point {
    /// The estimate of any other figure.
    pub(super) fn of(&self, figure: impl Fn(&Measured) -> f64) -> Estimate {
        let values: Vec<f64> = self.runs.iter().map(figure).collect();
        Estimate::of(&values, self.confidence)
    }

    /// Mean share of time that components of this name were busy.
    pub(super) fn utilisation(&self, begin: &str, part: &str) -> Estimate {
        self.of(|run| run.utilisation(begin, part).unwrap_or(0.0))
    }
}

/// Runs `config` as long and as often as the options ask.
///
/// # Panics
/// If it cannot be: the studies build their own machines.
pub(super) fn point(options: &Options, config: &Config) -> Point {
    let mut config = config.clone();
    let runs = match options.effort {
        Effort::Quick => {
            (config.warm_up, config.measured) = (Duration::from_millis(15), Duration::from_millis(70));
            options.replications.clamp(1, 2)
        }
        Effort::Full => options.replications.max(1),
    };
    let replications = Replications {
        seed: options.seed,
        runs_min: u64::from(runs),
        runs_max: u64::from(runs),
        confidence: options.confidence,
        precision: None,
        threads: options.threads,
    };
    let runs = replications.run(|seed, run| match model::run(&config, seed, run) {
        Ok(measured) => measured,
        Err(error) => panic!("a study's own machine: {error}"),
    });
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

/// The columns of most tables here.
pub(super) fn throughput_and_delay() -> Vec<Column> {
    vec![Column::new("throughput", "Mb/s"), Column::new("delay per segment", "us")]
}

/// A row of [`throughput_and_delay`] that the paper has not.
pub(super) fn ours(label: impl Into<String>, point: &Point) -> Row {
    Row { label: label.into(), cells: vec![Cell::ours(point.throughput), Cell::ours(point.delay)] }
}

/// A curve of one figure over many configurations.
pub(super) fn series<'a>(
    name: &str,
    points: impl IntoIterator<Item = (f64, &'a Point)>,
    figure: fn(&Point) -> Estimate,
) -> Series {
    Series { name: name.to_owned(), points: points.into_iter().map(|(x, point)| (x, figure(point))).collect() }
}

/// What the throughput becomes with another value of an assumption.
pub(super) fn throughput_with(
    options: &Options,
    config: &Config,
    value: impl Into<String>,
    figure: &str,
) -> Sensitivity {
    Sensitivity {
        value: value.into(),
        figure: format!("throughput, {figure}, Mb/s"),
        ours: point(options, config).throughput,
    }
}

/// `12.3 ± 0.4` for checks.
pub(super) fn shown(estimate: Estimate) -> String {
    match estimate.plus_minus {
        Some(half) => format!("{:.1} ± {half:.1}", estimate.mean),
        None => format!("{:.1}", estimate.mean),
    }
}
