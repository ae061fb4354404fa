//! Round trips of packets (Figures 11 to 13, whose histograms are lost), and when the timer of RFC
//! 793 would have fired.

use measure::Estimate;

use super::assumptions::MainFigure;
use super::config::Config;
use super::paper::{DATA, Kind, paper};
use super::round_trip::RoundTrip;
use super::runs::{Point, point, shown};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Outcome};
use crate::outcome::{Column, Plot, Row, Series, Table};
use crate::study::{Options, Study};

/// Number of bins of a histogram.
const CLASSES: usize = 40;

pub(super) struct RoundTrips;

impl Study for RoundTrips {
    fn id(&self) -> &'static str {
        "004-rtt"
    }

    fn title(&self) -> &'static str {
        "Round trips under nonuniform load, and hypothetical timeouts (Figures 11 to 13)"
    }

    fn data(&self) -> &'static [&'static str] {
        DATA
    }

    fn choices(&self) -> Vec<Choice> {
        let with =
            |alpha| move |options: &Options| timeouts_per_thousand(&point(options, &main_figure().config), alpha);
        let filter = Choice::new(
            "alpha",
            "0.2 for the old estimate, as printed",
            "RFC 793 also applies alpha to the old estimate, but recommends 0.8 to 0.9; the weights may have been \
             swapped, so both are counted",
        );
        let mut all = super::assumptions::choices(&[main_figure()]);
        all.push(filter.or("0.8", TIMEOUTS, with(0.8)).or("0.9", TIMEOUTS, with(0.9)));
        all
    }

    fn run(&self, options: &Options) -> Outcome {
        let cases: Vec<(String, Point)> = [
            ("2-bus, nonuniform", Config::new(Kind::TwoBus).nonuniform()),
            ("2-bus, uniform", Config::new(Kind::TwoBus)),
            ("1-bus, nonuniform", Config::new(Kind::OneBus).nonuniform()),
            ("1-bus, uniform", Config::new(Kind::OneBus)),
            ("serial, nonuniform", Config::new(Kind::Serial).nonuniform()),
            ("serial, uniform", Config::new(Kind::Serial)),
        ]
        .into_iter()
        .map(|(name, config)| (name.to_owned(), point(options, &config)))
        .collect();
        Outcome {
            tables: vec![table(&cases)],
            plots: vec![histogram(&cases)],
            checks: checks(&cases),
            assumptions: choices::assumptions(&self.choices(), options),
            notes: vec![
                "As in the report, no timer is active in the runs: the formula is applied to their round trips \
                 afterwards."
                    .to_owned(),
            ],
        }
    }
}

/// The hypothetical timeouts in the case with most of them.
const TIMEOUTS: &str = "hypothetical timeouts, 2-bus, nonuniform, per 1000";

fn main_figure() -> MainFigure {
    let figure = |point: &Point| timeouts_per_thousand(point, paper().common.alpha);
    MainFigure { name: TIMEOUTS, config: Config::new(Kind::TwoBus).nonuniform(), figure }
}

/// Returns the number of these round trips for which RFC 793's timer would have fired.
fn timeouts(round_trips_us: &[f64], alpha: f64, beta: f64) -> u64 {
    let known = RoundTrip::default();
    let mut fired = 0;
    for &round_trip in round_trips_us {
        if known.timeout_us(beta).is_some_and(|timeout| round_trip > timeout) {
            fired += 1;
        }
        known.measure(round_trip, alpha);
    }
    fired
}

/// Returns the number of hypothetical timeouts per thousand packets, over all connections of a run.
fn timeouts_per_thousand(point: &Point, alpha: f64) -> Estimate {
    let beta = paper().common.beta;
    point.of(|run| {
        let packets: usize = run.round_trips_us.iter().map(Vec::len).sum();
        let fired: u64 = run.round_trips_us.iter().map(|of_connection| timeouts(of_connection, alpha, beta)).sum();
        1e3 * fired as f64 / packets.max(1) as f64
    })
}

/// Returns the standard deviation divided by the mean, for the first connection.
fn spread(point: &Point) -> Estimate {
    point.of(|run| {
        let mut tally = sim::Tally::default();
        run.round_trips_us.first().into_iter().flatten().for_each(|&round_trip| tally.add(round_trip));
        if tally.count() == 0 { 0.0 } else { tally.variance().sqrt() / tally.mean() }
    })
}

/// Returns the mean round trip of the first connection.
fn mean(point: &Point) -> Estimate {
    point.of(|run| {
        let first = run.round_trips_us.first().map_or(&[][..], Vec::as_slice);
        first.iter().sum::<f64>() / first.len().max(1) as f64
    })
}

fn table(cases: &[(String, Point)]) -> Table {
    let alpha = paper().common.alpha;
    Table {
        title: "Round trips of packets".to_owned(),
        columns: vec![
            Column::new("mean, first processor", "us"),
            Column::new("standard deviation / mean, first processor", ""),
            Column::new("hypothetical timeouts, alpha 0.2, all processors", "per 1000"),
            Column::new("hypothetical timeouts, alpha 0.8, all processors", "per 1000"),
            Column::new("retransmitted after errors, all processors", "packets"),
        ],
        rows: cases
            .iter()
            .map(|(name, point)| Row {
                label: name.clone(),
                cells: vec![
                    Cell::ours(mean(point)),
                    Cell::ours(spread(point)),
                    Cell::ours(timeouts_per_thousand(point, alpha)),
                    Cell::ours(timeouts_per_thousand(point, 1.0 - alpha)),
                    Cell::ours(point.of(|run| run.resent as f64)),
                ],
            })
            .collect(),
    }
}

fn histogram(cases: &[(String, Point)]) -> Plot {
    let most = cases
        .iter()
        .flat_map(|(_, point)| point.runs.iter().flat_map(|run| run.round_trips_us.iter().flatten()))
        .fold(1.0_f64, |most, &round_trip| most.max(round_trip));
    let width = most / CLASSES as f64;
    let series = |(name, point): &(String, Point)| {
        let share = |class: usize| {
            point.of(|run| {
                let all = run.round_trips_us.first().map_or(&[][..], Vec::as_slice);
                let inside = all.iter().filter(|&&us| ((us / width) as usize).min(CLASSES - 1) == class).count();
                100.0 * inside as f64 / all.len().max(1) as f64
            })
        };
        Series {
            name: name.clone(),
            points: (0..CLASSES).map(|class| ((class as f64 + 0.5) * width, share(class))).collect(),
        }
    };
    Plot {
        title: "Round trips of packets, first processor".to_owned(),
        x: Column::new("round trip", "us"),
        y: Column::new("packets", "%"),
        series: cases.iter().map(series).collect(),
    }
}

fn checks(cases: &[(String, Point)]) -> Vec<Check> {
    let alpha = paper().common.alpha;
    let [two_non, two_uni, one_non, one_uni, serial_non, _] = cases else { unreachable!("six cases") };
    let wider = |statement: &str, wide: &(String, Point), narrow: &(String, Point)| {
        let (wide, narrow) = (spread(&wide.1).mean, spread(&narrow.1).mean);
        Check::new(statement, wide > narrow, format!("{wide:.2} and {narrow:.2} of the mean"))
    };
    let fired = timeouts_per_thousand(&two_non.1, alpha);
    let serial_fired = timeouts_per_thousand(&serial_non.1, alpha);
    let slow = timeouts_per_thousand(&two_non.1, 1.0 - alpha);
    vec![
        wider("2-bus: nonuniform load spreads round trips more than uniform load", two_non, two_uni),
        wider("1-bus: nonuniform load spreads round trips more than uniform load", one_non, one_uni),
        wider("the serial machine's spread is smaller than the 2-bus machine's", two_non, serial_non),
        wider("the serial machine's spread is smaller than the 1-bus machine's", one_non, serial_non),
        Check::new(
            "2-bus, nonuniform: the timer would fire by mistake, and more often than on the serial machine",
            fired.mean > serial_fired.mean && fired.mean > 0.0,
            format!("{} and {} of 1000 packets", shown(fired), shown(serial_fired)),
        ),
        Check::new(
            "2-bus, nonuniform: which of the two filters alpha refers to changes the number of timeouts",
            (fired.mean - slow.mean).abs() > 0.1 * fired.mean.max(slow.mean),
            format!("alpha 0.2: {}, 0.8: {} of 1000 packets", shown(fired), shown(slow)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timer_fires_when_a_round_trip_exceeds_beta_times_the_smoothed_one() {
        assert_eq!(timeouts(&[100.0, 199.0, 100.0, 100.0], 0.2, 2.0), 0);
        assert_eq!(timeouts(&[100.0, 201.0, 100.0], 0.2, 2.0), 1);
        // The old estimate has weight 0.2: after 300 it is 260, so 500 is within twice of it; with
        // 0.8 it is 140, so 500 is not.
        assert_eq!(timeouts(&[100.0, 300.0, 500.0], 0.2, 2.0), 1);
        assert_eq!(timeouts(&[100.0, 300.0, 500.0], 0.8, 2.0), 2);
        assert_eq!(timeouts(&[], 0.2, 2.0), 0);
    }
}
