//! The table of one end of a connection: its rows, their sums, and the bounds.

use std::collections::BTreeMap;

use litz::Activity;
use serde::Serialize;
use units::Duration;

use super::bound::{Bound, Shares};
use super::calibrate::payload_len;
use super::fit::{Fit, median};
use super::row::{End, Kind, Part, Source, Subject};
use super::run::Spent;

/// One row of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) label: String,
    pub(crate) kind: Kind,
    pub(crate) source: Source,
    /// Nanoseconds per packet of the requested size.
    pub(crate) ns: f64,
    /// Share of the sum, from 0 to 1.
    pub(crate) share: f64,
    #[serde(flatten)]
    pub(crate) fit: Fit,
}

/// The measurements at one size.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Point {
    pub(crate) datagram_bytes: usize,
    /// Data packets, over all runs.
    pub(crate) packets: f64,
    pub(crate) packets_lost: u64,
    pub(crate) packets_per_batch: f64,
    /// Goodput in bits per second: the median of the runs.
    pub(crate) goodput_bps: f64,
    /// The share of the thread's active time in which other programs had the processor, which is in
    /// no row: the maximum of the runs.
    pub(crate) taken_away_share: f64,
    /// The metered time divided by the thread's CPU time according to the system: the median of the
    /// runs. Sleeping and waking are in no row, while short interruptions are in the rows but not
    /// in the CPU time.
    pub(crate) booked_share: f64,
    /// Nanoseconds per packet, by row.
    pub(crate) ns: BTreeMap<String, f64>,
}

/// The table of one end.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Side {
    pub(crate) rows: Vec<Row>,
    /// The sum of all rows.
    pub(crate) total_ns: f64,
    #[serde(flatten)]
    pub(crate) shares: Shares,
    /// The sum of the rows other than cipher, copy, system calls and files.
    pub(crate) besides_ns: f64,
    pub(crate) bounds: Vec<Bound>,
    pub(crate) points: Vec<Point>,
}

/// The result of one metered run and its calibration for one end.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) spent: Spent,
    /// Nanoseconds per packet.
    pub(crate) costs: Vec<(Subject, f64)>,
}

impl Measured {
    /// Divides the activities of a metered run. `absorb_batch_ns` is the cost of absorbing a batch.
    pub(crate) fn new(end: End, spent: Spent, absorb_batch_ns: f64) -> Self {
        let (booked, alone) = (spent.costs.unwrap_or_default(), spent.alone.unwrap_or_default());
        let mut costs = Vec::new();
        for activity in Activity::ALL {
            let not_ours = if activity == Activity::Application { spent.calibrating } else { Duration::ZERO };
            let mut left_ns = booked.spent(activity).saturating_sub(not_ours).as_nanos() as f64 / spent.packets;
            for part in end.parts(activity) {
                let ns = match part {
                    Part::Copy => alone.copy,
                    Part::Cipher => alone.cipher,
                    Part::HeaderCipher => alone.header_cipher,
                    Part::Absorb => absorb_batch_ns * booked.received.batches as f64 / spent.packets,
                    // Negative if the separately measured parts cost more than the activity. The sum
                    // remains the metered time.
                    _ => left_ns,
                };
                left_ns -= ns;
                costs.push((Subject { activity, part: *part }, ns));
            }
        }
        Self { spent, costs }
    }

    fn taken_away_share(&self) -> f64 {
        let taken_ns = self.spent.costs.unwrap_or_default().spent(Activity::TakenAway).as_nanos() as f64;
        taken_ns / (taken_ns + self.spent.busy().as_nanos().max(1) as f64)
    }

    fn booked_share(&self) -> f64 {
        self.spent.busy().as_nanos() as f64 / self.spent.cpu.as_nanos().max(1) as f64
    }
}

impl Point {
    /// The medians of the runs at one size.
    pub(crate) fn new(end: End, datagram_bytes: usize, runs: &[Measured]) -> (Self, Vec<(Subject, f64)>) {
        let over_runs = |of: &dyn Fn(&Measured) -> f64| median(&runs.iter().map(of).collect::<Vec<_>>());
        let subjects = runs.first().map_or(&[][..], |run| &run.costs).iter().map(|(subject, _)| *subject);
        let costs: Vec<_> =
            subjects.enumerate().map(|(index, subject)| (subject, over_runs(&|run| run.costs[index].1))).collect();
        let point = Self {
            datagram_bytes,
            packets: runs.iter().map(|run| run.spent.packets).sum(),
            packets_lost: runs.iter().map(|run| run.spent.packets_lost).sum(),
            packets_per_batch: over_runs(&|run| {
                let costs = run.spent.costs.unwrap_or_default();
                let traffic = if end == End::Sending { costs.sent } else { costs.received };
                traffic.datagrams as f64 / traffic.batches.max(1) as f64
            }),
            goodput_bps: over_runs(&|run| goodput_bps(datagram_bytes, run.spent.packets, run.spent.wall)),
            taken_away_share: runs.iter().map(Measured::taken_away_share).fold(0.0, f64::max),
            booked_share: over_runs(&Measured::booked_share),
            ns: costs.iter().map(|(subject, ns)| (subject.id(), *ns)).collect(),
        };
        (point, costs)
    }
}

fn goodput_bps(datagram_bytes: usize, packets: f64, wall: Duration) -> f64 {
    packets * payload_len(datagram_bytes) as f64 * 8.0 / wall.as_secs_f64()
}

impl Side {
    /// Creates the table of one end. `points` are the sizes in order, each with the same rows; `at`
    /// is the index of the requested size.
    pub(crate) fn new(end: End, points: Vec<(Point, Vec<(Subject, f64)>)>, at: usize) -> Self {
        let total_ns: f64 = points[at].1.iter().map(|(_, ns)| ns).sum();
        let mut side = Self {
            rows: Vec::new(),
            total_ns,
            shares: Shares::default(),
            besides_ns: 0.0,
            bounds: Vec::new(),
            points: Vec::new(),
        };
        for (index, (subject, ns)) in points[at].1.iter().enumerate() {
            let line: Vec<_> =
                points.iter().map(|(point, costs)| (point.datagram_bytes as f64, costs[index].1)).collect();
            side.rows.push(Row {
                id: subject.id(),
                label: subject.label(end),
                kind: subject.kind(),
                source: subject.source(),
                ns: *ns,
                share: if total_ns > 0.0 { ns / total_ns } else { 0.0 },
                fit: Fit::through(&line),
            });
            let share = match subject.kind() {
                Kind::Serial => &mut side.shares.serial_ns,
                Kind::Parallel => &mut side.shares.parallel_ns,
                Kind::System => &mut side.shares.system_ns,
            };
            *share += ns;
            if subject.is_besides() {
                side.besides_ns += ns;
            }
        }
        side.bounds = side.shares.bounds();
        side.points = points.into_iter().map(|(point, _)| point).collect();
        side
    }

    /// Adds rows for files, from costs in nanoseconds per byte.
    pub(crate) fn with_file(
        end: End,
        mut points: Vec<(Point, Vec<(Subject, f64)>)>,
        at: usize,
        byte_ns: impl Fn(Part) -> f64,
    ) -> Self {
        for (point, costs) in &mut points {
            for part in end.file_parts() {
                let subject = Subject::file(*part);
                let ns = byte_ns(*part) * payload_len(point.datagram_bytes) as f64;
                point.ns.insert(subject.id(), ns);
                costs.push((subject, ns));
            }
        }
        Self::new(end, points, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::calibrate::SeparateCosts;

    fn spent(packets: f64, alone: SeparateCosts) -> Spent {
        let second = Duration::from_secs(1);
        let (costs, calibrating) = (Some(litz::Costs::default()), Duration::ZERO);
        Spent { packets, packets_lost: 0, wall: second, cpu: second, costs, calibrating, alone: Some(alone) }
    }

    /// Points in which every subject costs `packet_ns + byte_ns * size`, with values that depend on
    /// its index.
    fn points(end: End, sizes: &[usize]) -> Vec<(Point, Vec<(Subject, f64)>)> {
        let alone = SeparateCosts::default();
        let point = |size: &usize| {
            let mut measured = Measured::new(end, spent(1000.0, alone), 0.0);
            for (index, (_, ns)) in measured.costs.iter_mut().enumerate() {
                *ns = index as f64 + 0.01 * *size as f64;
            }
            Point::new(end, *size, &[measured])
        };
        sizes.iter().map(point).collect()
    }

    #[test]
    fn the_kinds_and_the_shares_sum_up_to_the_total() {
        for end in [End::Sending, End::Receiving] {
            let side = Side::new(end, points(end, &[1200, 4096]), 1);
            let sum: f64 = side.rows.iter().map(|row| row.ns).sum();
            assert!((sum - side.total_ns).abs() < 1e-6 && (side.shares.total_ns() - sum).abs() < 1e-6);
            assert!((side.rows.iter().map(|row| row.share).sum::<f64>() - 1.0).abs() < 1e-9);
            for (index, row) in side.rows.iter().enumerate() {
                assert!((row.fit.packet_ns - index as f64).abs() < 1e-6 && (row.fit.byte_ns - 0.01).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn a_divided_activity_keeps_its_sum_even_if_a_part_costs_more_separately() {
        let alone = SeparateCosts { copy: 10.0, cipher: 20.0, header_cipher: 5.0 };
        for end in [End::Sending, End::Receiving] {
            let measured = Measured::new(end, spent(10.0, alone), 1.0);
            let sum: f64 = measured.costs.iter().map(|(_, ns)| ns).sum();
            assert!(sum.abs() < 1e-9, "nothing was metered: {sum}");
            assert!(measured.costs.iter().any(|(_, ns)| *ns < 0.0));
        }
    }

    #[test]
    fn files_add_work_outside_the_budget() {
        let plain = Side::new(End::Sending, points(End::Sending, &[1200, 4096]), 0);
        let file = Side::with_file(End::Sending, points(End::Sending, &[1200, 4096]), 0, |_| 0.5);
        let added = 2.0 * 0.5 * payload_len(1200) as f64;
        assert!((file.total_ns - plain.total_ns - added).abs() < 1e-6);
        assert!((file.shares.parallel_ns - plain.shares.parallel_ns - added).abs() < 1e-6);
        assert!((file.besides_ns - plain.besides_ns).abs() < 1e-9);
    }
}
