//! Coding across channels: any m - l of m channels carry all the data.
//!
//! A separate model without machines: a saturated sender on m synchronous channels, with one packet
//! per slot and channel. With coding, each slot has m - l packets of data and l of parity and is
//! lost only if more than l of its packets are. Without coding, each channel carries data packets,
//! and a lost packet is retransmitted with all that followed it in its window: go-back-N, as in the
//! report's machines.

use measure::Estimate;
use sim::Stream;

use super::config::Config;
use super::paper::{DATA, Kind, paper};
use crate::choices;
use crate::choices::Choice;
use crate::conserved::assert_conserved;
use crate::outcome::{Cell, Check, Outcome};
use crate::outcome::{Column, Plot, Row, Series, Table};
use crate::replicate::replicate;
use crate::study::{Effort, Options, Study};

/// Round-trip propagation delay of fibre in microseconds per kilometre.
const ROUND_TRIP_US_PER_KM: f64 = 2.0 * 5.085;
const LENGTHS_KM: [f64; 4] = [20.0, 200.0, 2_000.0, 20_000.0];
const ERROR_RATES: [f64; 4] = [1e-9, 1e-8, 1e-7, 1e-6];
/// Parity packets per slot.
const PARITIES: [usize; 3] = [0, 1, 2];

pub(super) struct Coding;

/// A case.
#[derive(Clone, Copy)]
struct Case {
    channels: usize,
    parity: usize,
    /// Channels that carry nothing from the start.
    broken: usize,
    /// Loss probability of a packet.
    loss: f64,
    /// Loss probability of a packet after a lost one on its channel, if higher.
    loss_after_loss: f64,
    /// Slots from the transmission of a packet until its loss is known; all of them are
    /// retransmitted.
    window: u64,
    slots: u64,
}

/// Results.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Carried {
    /// Delivered new data packets as a fraction of the channel capacity.
    goodput: f64,
    /// Retransmitted packets per 1000 delivered.
    resent: f64,
}

impl Study for Coding {
    fn id(&self) -> &'static str {
        "004-coding"
    }

    fn title(&self) -> &'static str {
        "Coding across channels against go-back-N, by length, errors and broken channels"
    }

    fn data(&self) -> &'static [&'static str] {
        DATA
    }

    fn choices(&self) -> Vec<Choice> {
        let figure = "retransmitted with one of six for parity, 2000 km, 1e-7 per bit, per 1000";
        let with = |change: fn(&mut Case)| {
            move |options: &Options| {
                let mut case = case(options, 2_000.0, 1e-7, 1, 0);
                change(&mut case);
                estimate(options, case)[1]
            }
        };
        vec![
            Choice::new(
                "window",
                "one round trip, at least one packet",
                "the sender never waits; a smaller window retransmits less and idles more",
            )
            .or("half of it", figure, with(|case| case.window = (case.window / 2).max(1)))
            .or("twice as much", figure, with(|case| case.window *= 2))
            .or("none: only the lost slot is retransmitted", figure, with(|case| case.window = 1)),
            Choice::new(
                "errors",
                "bit errors, and thus packet losses, are independent",
                "the report gives a rate and no distribution; correlated errors affect fewer packets",
            )
            .or("ten bits at once", figure, with(|case| case.loss /= 10.0))
            .or(
                "a packet after a lost one of its channel is lost with 50 %",
                figure,
                with(|case| case.loss_after_loss = 0.5),
            ),
        ]
    }

    fn run(&self, options: &Options) -> Outcome {
        let mut rows = Vec::new();
        let mut curves: Vec<Series> = PARITIES
            .iter()
            .map(|parity| Series { name: format!("{parity} of 6 for parity"), points: Vec::new() })
            .collect();
        let mut checks = Vec::new();
        for km in LENGTHS_KM {
            for error_rate in ERROR_RATES {
                let results: Vec<[Estimate; 2]> = PARITIES
                    .iter()
                    .map(|&parity| estimate(options, case(options, km, error_rate, parity, 0)))
                    .collect();
                let cells = results.iter().flatten().map(|&estimate| Cell::ours(estimate)).collect();
                rows.push(Row { label: format!("{km} km, {error_rate:.0e} per bit"), cells });
                if (error_rate - 1e-7).abs() < 1e-12 {
                    for (curve, result) in curves.iter_mut().zip(&results) {
                        curve.points.push((km, result[0]));
                    }
                }
                if km >= 2_000.0 && error_rate >= 1e-7 {
                    checks.push(Check::new(
                        format!(
                            "{km} km, {error_rate:.0e}: one of six for parity avoids more than nine in ten \
                             retransmissions"
                        ),
                        results[1][1].mean < 0.1 * results[0][1].mean,
                        format!("{:.2} instead of {:.2} of 1000", results[1][1].mean, results[0][1].mean),
                    ));
                }
            }
        }
        checks.extend(broken_channels(options));
        let columns = PARITIES.iter().flat_map(|parity| {
            [
                Column::new(&format!("goodput, {parity} parity"), "share"),
                Column::new(&format!("retransmitted, {parity} parity"), "per 1000"),
            ]
        });
        Outcome {
            tables: vec![Table { title: "Six channels".to_owned(), columns: columns.collect(), rows }],
            plots: vec![Plot {
                title: "Goodput of six channels at 1e-7 per bit".to_owned(),
                x: Column::new("length", "km"),
                y: Column::new("goodput", "share of all channels"),
                series: curves,
            }],
            checks,
            assumptions: choices::assumptions(&self.choices(), options),
            ..Outcome::default()
        }
    }
}

fn case(options: &Options, km: f64, error_rate: f64, parity: usize, broken: usize) -> Case {
    let machine = Config::new(Kind::OneBus);
    let packet_us = machine.packet_bits as f64 / machine.ring_mbps as f64;
    Case {
        channels: machine.interfaces,
        parity,
        broken,
        loss: 1.0 - (1.0 - error_rate).powf(machine.packet_bits as f64),
        loss_after_loss: 0.0,
        window: (km * ROUND_TRIP_US_PER_KM / packet_us).ceil().max(1.0) as u64,
        slots: match options.effort {
            Effort::Quick => 5_000,
            Effort::Full => 100_000,
        },
    }
}

fn estimate(options: &Options, case: Case) -> [Estimate; 2] {
    let run = |seed, run| carry(&case, &mut Stream::new(seed, run, "losses"));
    let runs = replicate(options, run, |carried| vec![carried.goodput]);
    let of =
        |figure: fn(&Carried) -> f64| Estimate::of(&runs.iter().map(figure).collect::<Vec<f64>>(), options.confidence);
    [of(|carried| carried.goodput), of(|carried| carried.resent)]
}

fn carry(case: &Case, stream: &mut Stream) -> Carried {
    let (arrived, resent) = if case.parity == 0 { go_back(case, stream) } else { coded(case, stream) };
    let carrying = case.channels - if case.parity == 0 { case.broken } else { case.parity };
    let places = [("arrived", arrived), ("retransmitted", resent)];
    assert_conserved("slots for data packets", case.slots * carrying as u64, &places);
    Carried {
        goodput: arrived as f64 / (case.slots * case.channels as u64) as f64,
        resent: 1e3 * resent as f64 / arrived.max(1) as f64,
    }
}

/// Whether the previous packet of a channel was lost.
#[derive(Clone, Copy, Default)]
struct Channel {
    has_lost: bool,
}

impl Channel {
    /// Returns whether the next packet is lost.
    fn loses(&mut self, case: &Case, stream: &mut Stream) -> bool {
        let probability = if self.has_lost { case.loss.max(case.loss_after_loss) } else { case.loss };
        self.has_lost = stream.chance(probability);
        self.has_lost
    }
}

/// Runs each working channel independently: a loss is known after a window, and everything sent
/// since is retransmitted.
fn go_back(case: &Case, stream: &mut Stream) -> (u64, u64) {
    let (mut arrived, mut resent) = (0, 0);
    for _ in case.broken..case.channels {
        let (mut slot, mut channel) = (0, Channel::default());
        while slot < case.slots {
            if channel.loses(case, stream) {
                let lost = case.window.min(case.slots - slot);
                resent += lost;
                slot += lost;
            } else {
                arrived += 1;
                slot += 1;
            }
        }
    }
    (arrived, resent)
}

/// Runs all channels together: a slot that loses more than its parity is known after a window, and
/// everything since is retransmitted.
fn coded(case: &Case, stream: &mut Stream) -> (u64, u64) {
    let data = (case.channels - case.parity) as u64;
    let (mut arrived, mut resent, mut slot) = (0, 0, 0);
    let mut channels = vec![Channel::default(); case.channels - case.broken];
    while slot < case.slots {
        let lost =
            case.broken + channels.iter_mut().filter_map(|channel| channel.loses(case, stream).then_some(())).count();
        if lost > case.parity {
            let window = case.window.min(case.slots - slot);
            resent += window * data;
            slot += window;
        } else {
            arrived += data;
            slot += 1;
        }
    }
    (arrived, resent)
}

fn broken_channels(options: &Options) -> Vec<Check> {
    let error_rate = paper().common.error_rate;
    let parity = 2;
    (0..=parity + 1)
        .map(|broken| {
            let case = case(options, LENGTHS_KM[0], error_rate, parity, broken);
            let [goodput, _] = estimate(options, case);
            let data = (case.channels - parity) as f64 / case.channels as f64;
            let expected = if broken <= parity { data } else { 0.0 };
            Check::new(
                format!(
                    "two of six for parity: with {broken} channels broken, {}",
                    if broken <= parity { "all data arrive" } else { "none do" }
                ),
                (goodput.mean - expected).abs() < 0.01,
                format!("{:.3} of all channels", goodput.mean),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASE: Case =
        Case { channels: 6, parity: 0, broken: 0, loss: 0.01, loss_after_loss: 0.0, window: 50, slots: 200_000 };

    #[test]
    fn go_back_n_matches_its_formula() {
        // A renewal process: a packet takes one slot, a loss a window: (1 - p) / (1 - p + p w).
        let carried = carry(&CASE, &mut Stream::new(1, 0, "losses"));
        let expected = 0.99 / (0.99 + 0.01 * 50.0);
        assert!((carried.goodput - expected).abs() < 0.01, "{carried:?}, not {expected}");
    }

    #[test]
    fn parity_corrects_as_many_losses_as_it_has_packets() {
        let coded =
            |parity, broken, loss| carry(&Case { parity, broken, loss, ..CASE }, &mut Stream::new(1, 0, "losses"));
        assert_eq!(coded(1, 1, 0.0), Carried { goodput: 5.0 / 6.0, resent: 0.0 });
        assert_eq!(coded(1, 2, 0.0).goodput, 0.0);
        assert_eq!(coded(2, 2, 0.0).goodput, 4.0 / 6.0);
        // More than two of six at 1 %: 20 in a million slots.
        assert!(coded(2, 0, 0.01).resent < 2.0);
    }
}
