//! The measurements of a run. Worlds create them, [`crate::check`] evaluates them,
//! [`crate::report`] prints them.

use netem::LinkStats;
use units::{Duration, Instant};

use crate::components::Component;
use crate::model::{CheckKind, Scenario, Window};
use crate::timeline::Timeline;

/// Shorter times without a delivery are not recorded as gaps, so a check cannot demand less.
pub const GAP_MIN: Duration = Duration::from_millis(1);

/// Number of gaps kept for each part: the longest.
pub const GAPS_MAX: usize = 1024;

/// A run and its measurements. Times are since the beginning of the run, before the handshake.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The scenario's name.
    pub scenario: String,
    /// The world that ran it.
    pub world: &'static str,
    /// The seed.
    pub seed: u64,
    /// The indices of the paths that it could use, ascending.
    pub paths: Vec<usize>,
    /// Time at which the handshake completed; `None` if it did not.
    pub connected_at: Option<Instant>,
    /// Time at which all work was complete, or the duration of the run was over.
    pub ended_at: Instant,
    /// Reason why the connection failed, if it did.
    pub failure: Option<String>,
    /// One entry for each part of the scenario.
    pub parts: Vec<PartOutcome>,
    /// One entry for each of `paths`.
    pub path_outcomes: Vec<PathOutcome>,
    /// One entry for each link under the paths, by ascending index.
    pub link_outcomes: Vec<LinkOutcome>,
    /// One entry for each fault of these links, in the order of the scenario.
    pub fault_outcomes: Vec<FaultOutcome>,
    /// Streams without a valid or expected header.
    pub foreign_streams: u64,
    /// Utilisation and waiting times of the components, in virtual time; empty otherwise.
    pub components: Vec<Component>,
    /// A digest of all datagrams sent and delivered over the links, with time and order; in virtual
    /// time only. Equal digests mean that the packets of two runs were equal.
    pub events_digest: Option<u64>,
    /// Caveats about the measurements.
    pub notes: Vec<String>,
}

/// One part of the workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartOutcome {
    /// Time at which the part began, if it did.
    pub started_at: Option<Instant>,
    /// Time at which the part was complete; `None` if it was not. A part without end completes with
    /// the run, if anything was delivered and the connection did not fail.
    pub finished_at: Option<Instant>,
    /// Bytes written to the connection.
    pub sent_bytes: u64,
    /// Bytes that had to arrive by the end of the run: all bytes of a part with an end. For a part
    /// without end, they are the delivered bytes; or all sent bytes, if the connection failed.
    pub due_bytes: u64,
    /// The deliveries to the receiving application; for requests, the responses.
    pub delivered: Deliveries,
    /// The times from the due time of a message or request to the arrival of it, or of the
    /// response; in order of arrival.
    pub latencies: Vec<Duration>,
    /// Items that arrived completely: chunks, the stream, messages or responses.
    pub items_delivered: u64,
    /// Items that arrived completely after an item with a higher number.
    pub items_overtaken: u64,
    /// Bytes with wrong content for their offset.
    pub misplaced_bytes: u64,
    /// Bytes beyond the end of their item.
    pub surplus_bytes: u64,
}

/// Deliveries to an application over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Deliveries {
    /// The bytes.
    pub timeline: Timeline,
    /// The time of the last delivery.
    pub last_at: Option<Instant>,
    /// The longest times without a delivery, at most [`GAPS_MAX`], longest first. The time before
    /// the first delivery counts from the beginning of the part.
    pub gaps: Vec<Gap>,
    /// For each window of a gap check: the longest of all gaps that overlap it, whether or not
    /// `gaps` contains it.
    pub window_gaps: Vec<(Window, Duration)>,
}

/// A time without a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The beginning.
    pub from: Instant,
    /// The duration.
    pub length: Duration,
}

/// The measurements of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathOutcome {
    /// The index of the path in the scenario.
    pub path: usize,
    /// Datagrams from the sending host, and from the receiving host.
    pub datagrams: [u64; 2],
    /// Bytes of UDP payload in these datagrams.
    pub bytes: [u64; 2],
}

/// The measurements of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOutcome {
    /// The index of the link in the scenario.
    pub link: usize,
    /// The counters towards the receiving host, and towards the sending host.
    pub stats: [LinkStats; 2],
    /// UDP payload that the link delivered to the receiving host.
    pub delivered: Timeline,
}

/// The measured effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultOutcome {
    /// The index of the fault in the scenario.
    pub fault: usize,
    /// The number of occurrences.
    pub occurrences: u64,
    /// The number of occurrences that affected packets.
    pub effective: u64,
    /// The number of affected packets: see [`crate::proof`].
    pub packets: u64,
}

impl PartOutcome {
    /// Returns the number of bytes that were due and did not arrive.
    pub const fn missing_bytes(&self) -> u64 {
        self.due_bytes.saturating_sub(self.delivered.timeline.bytes)
    }

    /// Returns the percentile of the latencies, in hundredths of a percent (9900 is the 99th
    /// percentile), by the nearest rank. `None` without latencies.
    pub fn latency(&self, percentile_hundredths: u32) -> Option<Duration> {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() as u64 * u64::from(percentile_hundredths)).div_ceil(10_000).max(1);
        sorted.get(rank as usize - 1).copied()
    }
}

impl Deliveries {
    /// Creates empty deliveries of this part of the scenario.
    pub fn new(scenario: &Scenario, part: usize) -> Self {
        let mut delivered = Self::default();
        for check in scenario.checks.iter().filter(|check| check.of.is_none_or(|of| of == part)) {
            if let CheckKind::Gap { window, .. } = check.kind
                && delivered.longest_gap(window).is_none()
            {
                delivered.window_gaps.push((window, Duration::ZERO));
            }
        }
        delivered
    }

    /// Records a gap.
    pub fn note_gap(&mut self, gap: Gap) {
        for (window, longest) in &mut self.window_gaps {
            let begins_in_time = window.until.is_none_or(|until| gap.from < Instant::ZERO + until);
            let ends_in_time = gap.from + gap.length > Instant::ZERO + window.from.unwrap_or_default();
            if begins_in_time && ends_in_time {
                *longest = (*longest).max(gap.length);
            }
        }
        self.gaps.push(gap);
        if self.gaps.len() >= 2 * GAPS_MAX {
            self.keep_longest_gaps();
        }
    }

    /// Sorts the gaps and keeps the longest.
    pub fn keep_longest_gaps(&mut self) {
        self.gaps.sort_by_key(|gap| (core::cmp::Reverse(gap.length), gap.from));
        self.gaps.truncate(GAPS_MAX);
    }

    /// Returns the longest gap that overlaps a window; zero if no gap reached [`GAP_MIN`]. Returns
    /// `None` if no check has this window.
    pub fn longest_gap(&self, window: Window) -> Option<Duration> {
        self.window_gaps.iter().find(|(known, _)| *known == window).map(|(_, longest)| *longest)
    }
}

impl Outcome {
    /// Returns whether all parts are complete and the connection did not fail.
    pub fn is_complete(&self) -> bool {
        self.failure.is_none() && self.parts.iter().all(|part| part.finished_at.is_some())
    }

    /// Returns the names of its paths, joined by `+`.
    pub fn path_names(&self, scenario: &Scenario) -> String {
        scenario.path_names(&self.paths).join("+")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_the_nearest_rank() {
        let latencies = (1..=200).rev().map(Duration::from_millis).collect();
        let part = PartOutcome { latencies, ..PartOutcome::default() };
        for (hundredths, millis) in [(1, 1), (5_000, 100), (9_900, 198), (9_950, 199), (10_000, 200)] {
            assert_eq!(part.latency(hundredths), Some(Duration::from_millis(millis)), "{hundredths}");
        }
        assert_eq!(PartOutcome::default().latency(5_000), None);
    }
}
