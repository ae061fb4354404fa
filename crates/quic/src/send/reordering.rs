//! Spurious losses: packets that were declared lost and are acknowledged later show how much a path
//! reorders.
//!
//! RFC 9002, sections 6.1.1 and 6.1.2, starts with three packets and an eighth of a round trip and
//! leaves more to the sender. As in RACK (RFC 8985, section 6.2), the thresholds grow with the
//! observed reordering and are reset when none is observed for a while. Without this, a radio link
//! that reorders packets looks like one that loses them.

use std::collections::VecDeque;

use recovery::{LossDetector, PACKET_THRESHOLD, RttEstimator};
use units::{Duration, Instant};

use super::sent_log::Run;

/// Runs of lost packets remembered: the newest. A spurious packet is spurious by a fraction of a
/// round trip, so older ones give no information.
const LOST_MAX: usize = 64;

/// The packet threshold, at most: beyond it the time threshold detects the loss.
const PACKET_THRESHOLD_MAX: u64 = 1024;

/// How long a raised threshold lasts after the last packet that needed it.
const THRESHOLD_LIFETIME: Duration = Duration::from_secs(16);

/// The reordering observed on one path. Empty until something is lost.
#[derive(Debug, Default)]
pub(crate) struct Reordering(Option<Box<Observed>>);

#[derive(Debug)]
struct Observed {
    lost: VecDeque<Run>,
    /// How many packet numbers later, and how long after it was sent, a packet may still arrive.
    packets: u64,
    delay: Duration,
    until: Instant,
}

/// Packets that were declared lost and have been acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpuriousLosses {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) newest_sent_at: Instant,
}

impl Reordering {
    /// The loss detector with the current thresholds.
    #[inline]
    pub(crate) fn detector(&mut self, largest: u64, now: Instant, rtt: &RttEstimator) -> LossDetector {
        let detector = LossDetector::new(largest, now, rtt);
        let Some(observed) = &mut self.0 else { return detector };
        if observed.until <= now {
            (observed.packets, observed.delay) = (PACKET_THRESHOLD, Duration::ZERO);
        }
        // A packet later than two round trips is of no use.
        detector.tolerating(observed.packets, observed.delay.min(rtt.smoothed() * 2))
    }

    /// A run of packets is declared lost.
    pub(crate) fn on_lost(&mut self, run: Run) {
        let observed = self.0.get_or_insert_with(|| {
            Box::new(Observed {
                lost: VecDeque::new(),
                packets: PACKET_THRESHOLD,
                delay: Duration::ZERO,
                until: Instant::ZERO,
            })
        });
        if observed.lost.len() == LOST_MAX {
            observed.lost.pop_front();
        }
        observed.lost.push_back(run);
    }

    /// Whether packets are remembered that may still be acknowledged.
    #[inline]
    pub(crate) fn has_lost(&self) -> bool {
        self.0.as_ref().is_some_and(|observed| !observed.lost.is_empty())
    }

    /// Processes an acknowledgement of `ranges`, in ascending order: passes packets among them that
    /// were declared lost to `sink`.
    pub(crate) fn on_acked(
        &mut self,
        now: Instant,
        ranges: &[(u64, u64)],
        mut sink: impl FnMut(Run),
    ) -> Option<SpuriousLosses> {
        let observed = self.0.as_mut().filter(|observed| !observed.lost.is_empty())?;
        let largest = ranges.last()?.1;
        let mut spurious: Option<SpuriousLosses> = None;
        let mut left = VecDeque::with_capacity(observed.lost.len());
        for lost in observed.lost.drain(..) {
            let mut rest = Some(lost);
            for range in ranges.iter().filter(|range| range.1 >= lost.first) {
                let Some(run) = rest else { break };
                let (from, until) = (run.first.max(range.0), run.end().min(range.1 + 1));
                if from >= until {
                    break;
                }
                let arrived = run.part(from..until);
                observed.packets =
                    observed.packets.max((largest.saturating_sub(arrived.first) + 1).min(PACKET_THRESHOLD_MAX));
                observed.delay = observed.delay.max(now.saturating_since(arrived.sent_at));
                observed.until = now + THRESHOLD_LIFETIME;
                let so_far = spurious.unwrap_or(SpuriousLosses { packets: 0, bytes: 0, newest_sent_at: Instant::ZERO });
                spurious = Some(SpuriousLosses {
                    packets: so_far.packets + u64::from(arrived.count),
                    bytes: so_far.bytes + arrived.in_flight_bytes(),
                    newest_sent_at: so_far.newest_sent_at.max(arrived.sent_at),
                });
                sink(arrived);
                // The parts before and after the range may still be acknowledged.
                left.extend((run.first < from).then(|| run.part(run.first..from)));
                rest = (until < run.end()).then(|| run.part(until..run.end()));
            }
            left.extend(rest);
        }
        let excess = left.len().saturating_sub(LOST_MAX);
        left.drain(..excess);
        observed.lost = left;
        spurious
    }

    /// Drops the record: nothing is sent for a while.
    pub(crate) fn shrink(&mut self) {
        self.0 = None;
    }
}
