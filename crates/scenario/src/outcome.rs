//! What a run measured. Worlds make it, [`crate::check`] judges it, [`crate::report`] shows it.

use netem::LinkStats;
use units::{Duration, Instant};

use crate::components::Component;
use crate::model::{CheckKind, Scenario, Window};

/// The width of a step of [`Deliveries::cumulative_bytes`].
pub const BIN: Duration = Duration::from_millis(10);

/// Shorter times without a delivery are no gaps, so none may be demanded to be shorter.
pub const GAP_MIN: Duration = Duration::from_millis(1);

/// Gaps kept of one part: the longest.
pub const GAPS_MAX: usize = 1024;

/// A run and what it measured. All moments are since the run began; the connection is made first.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The scenario's name.
    pub scenario: String,
    /// The world that ran it.
    pub world: &'static str,
    /// The seed.
    pub seed: u64,
    /// The paths it could use, ascending, as indices into the scenario's.
    pub paths: Vec<usize>,
    /// When the connection could be used; `None` if it never could.
    pub connected_at: Option<Instant>,
    /// When everything was done, or the run's duration was over.
    pub ended_at: Instant,
    /// Why the connection ended too early, if it did.
    pub failure: Option<String>,
    /// As the scenario's parts.
    pub parts: Vec<PartOutcome>,
    /// As `paths`.
    pub path_outcomes: Vec<PathOutcome>,
    /// Of the links under the paths, ascending.
    pub link_outcomes: Vec<LinkOutcome>,
    /// Of the faults on those links that began before the run ended, as the scenario's.
    pub fault_outcomes: Vec<FaultOutcome>,
    /// Streams that named nothing that was sent.
    pub foreign_streams: u64,
    /// How busy what is waited for was, in virtual time; empty otherwise.
    pub components: Vec<Component>,
    /// Stands for all that was sent and delivered over the links, when, in which order; in virtual time. Of two runs that have the same,
    /// packets went alike.
    pub events_digest: Option<u64>,
    /// What whoever reads the figures must know about how they came about, in words; nothing in virtual time.
    pub notes: Vec<String>,
}

/// One part of the workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartOutcome {
    /// When it began, if it did.
    pub started_at: Option<Instant>,
    /// When all of it had arrived. One without end is done when the run ends, if anything came and the connection had not
    /// failed. `None` if it was not done.
    pub finished_at: Option<Instant>,
    /// Bytes given to the connection.
    pub sent_bytes: u64,
    /// Bytes that had to arrive by the end: all of it. Of one without end, what arrived, as nobody waits for what is on the
    /// way when the run ends; or all that was sent, if the connection failed.
    pub due_bytes: u64,
    /// What the receiving application got and when; of requests, the answers.
    pub delivered: Deliveries,
    /// From the moment a message or request was due until it, or its answer, was there; as they arrived.
    pub latencies: Vec<Duration>,
    /// Things that arrived whole: chunks, the stream, messages, answers.
    pub items_delivered: u64,
    /// Things that arrived whole after one with a higher number.
    pub items_overtaken: u64,
    /// Bytes that did not belong where they were.
    pub misplaced_bytes: u64,
    /// Bytes of things that had arrived whole before, or beyond their length.
    pub surplus_bytes: u64,
}

/// What an application got, in time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Deliveries {
    /// All bytes.
    pub bytes: u64,
    /// The last moment at which some came.
    pub last_at: Option<Instant>,
    /// All bytes so far at the end of each [`BIN`] since the run began.
    pub cumulative_bytes: Vec<u64>,
    /// The longest times without a byte, at most [`GAPS_MAX`], longest first; the first begins with the part.
    pub gaps: Vec<Gap>,
    /// For each window that a check of gaps has, once: the longest of all gaps that overlap it, kept above or not.
    pub window_gaps: Vec<(Window, Duration)>,
}

/// A time in which nothing was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Since when.
    pub from: Instant,
    /// For how long.
    pub length: Duration,
}

/// One path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathOutcome {
    /// Which of the scenario's.
    pub path: usize,
    /// Datagrams from the sending host, and back.
    pub datagrams: [u64; 2],
    /// Bytes in them, as UDP payload.
    pub bytes: [u64; 2],
}

/// One link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOutcome {
    /// Which of the scenario's.
    pub link: usize,
    /// Towards the receiving host, and back.
    pub stats: [LinkStats; 2],
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultOutcome {
    /// Which of the scenario's.
    pub fault: usize,
    /// Times that it happened.
    pub occurrences: u64,
    /// Times that packets met it.
    pub effective: u64,
    /// Packets that met it: see [`crate::proof`].
    pub packets: u64,
}

impl PartOutcome {
    /// Bytes that should have arrived and did not.
    pub const fn missing_bytes(&self) -> u64 {
        self.due_bytes.saturating_sub(self.delivered.bytes)
    }

    /// The latency that this share of all did not exceed, in hundredths of a percent: 9900 is the 99th percentile. By the
    /// nearest rank; `None` without any.
    pub fn latency(&self, percentile_hundredths: u32) -> Option<Duration> {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() as u64 * u64::from(percentile_hundredths)).div_ceil(10_000).max(1);
        sorted.get(rank as usize - 1).copied()
    }
}

impl Deliveries {
    /// Nothing yet, of this part of the scenario.
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

    /// A gap has ended.
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
            self.shorten_gaps();
        }
    }

    /// Sorts the gaps and keeps the longest.
    pub fn shorten_gaps(&mut self) {
        self.gaps.sort_by_key(|gap| (core::cmp::Reverse(gap.length), gap.from));
        self.gaps.truncate(GAPS_MAX);
    }

    /// The longest gap that overlaps a window; zero without any of [`GAP_MIN`]. `None` if no check has this window.
    pub fn longest_gap(&self, window: Window) -> Option<Duration> {
        self.window_gaps.iter().find(|(known, _)| *known == window).map(|(_, longest)| *longest)
    }

    /// Bytes delivered by `at`, as if those of a [`BIN`] had come evenly over it.
    pub fn bytes_by(&self, at: Instant) -> u64 {
        let bin = (at.as_nanos() / BIN.as_nanos()) as usize;
        let before = if bin == 0 { 0 } else { self.cumulative_bytes.get(bin - 1).copied().unwrap_or(self.bytes) };
        let after = self.cumulative_bytes.get(bin).copied().unwrap_or(self.bytes);
        let into = u128::from(at.as_nanos() % BIN.as_nanos());
        before + (u128::from(after - before) * into / u128::from(BIN.as_nanos())) as u64
    }
}

impl Outcome {
    /// Everything was done.
    pub fn is_complete(&self) -> bool {
        self.failure.is_none() && self.parts.iter().all(|part| part.finished_at.is_some())
    }

    /// The names of its paths.
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

    #[test]
    fn bytes_between_two_steps_come_evenly() {
        let delivered = Deliveries { bytes: 300, cumulative_bytes: vec![0, 100, 300], ..Deliveries::default() };
        let by = |millis| delivered.bytes_by(Instant::ZERO + Duration::from_millis(millis));
        assert_eq!([0, 10, 15, 20, 25, 30, 40].map(by), [0, 0, 50, 100, 200, 300, 300]);
    }
}
