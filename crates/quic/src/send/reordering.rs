//! What arrives after all: packets that were declared lost and are acknowledged later tell how much a path reorders.
//!
//! RFC 9002, sections 6.1.1 and 6.1.2, starts with three packets and an eighth of a round trip and leaves more to the sender.
//! As RACK does (RFC 8985, section 6.2), patience grows with what was seen, and ends when nothing of the kind is seen for a
//! while. Without it a radio link that shuffles packets looks like one that loses them.

use std::collections::VecDeque;

use recovery::{LossDetector, PACKET_THRESHOLD, RttEstimator};
use units::{Duration, Instant};

use super::sent_log::Run;

/// Rows of lost packets remembered: the newest. A late packet is late by a fraction of a round trip, so old ones tell nothing.
const LOST_MAX: usize = 64;

/// Patience in packets, at most: the time threshold finds what it would miss.
const PACKETS_MAX: u64 = 1024;

/// How long patience lasts after the last packet that needed it.
const MEMORY: Duration = Duration::from_secs(16);

/// How much one path reorders, as far as it has shown. Nothing until something was lost.
#[derive(Debug, Default)]
pub(crate) struct Reordering(Option<Box<Seen>>);

#[derive(Debug)]
struct Seen {
    lost: VecDeque<Run>,
    /// Numbers later, and how long after it was sent, that a packet may still arrive.
    packets: u64,
    delay: Duration,
    until: Instant,
}

/// Packets that had been declared lost and have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) newest_sent_at: Instant,
}

impl Reordering {
    /// What counts as lost now.
    #[inline]
    pub(crate) fn detector(&mut self, largest: u64, now: Instant, rtt: &RttEstimator) -> LossDetector {
        let detector = LossDetector::new(largest, now, rtt);
        let Some(seen) = &mut self.0 else { return detector };
        if seen.until <= now {
            (seen.packets, seen.delay) = (PACKET_THRESHOLD, Duration::ZERO);
        }
        // Later than twice the round trip a packet is of no use any more.
        detector.tolerating(seen.packets, seen.delay.min(rtt.smoothed() * 2))
    }

    /// A row of packets is declared lost.
    pub(crate) fn on_lost(&mut self, run: Run) {
        let seen = self.0.get_or_insert_with(|| {
            Box::new(Seen {
                lost: VecDeque::new(),
                packets: PACKET_THRESHOLD,
                delay: Duration::ZERO,
                until: Instant::ZERO,
            })
        });
        if seen.lost.len() == LOST_MAX {
            seen.lost.pop_front();
        }
        seen.lost.push_back(run);
    }

    /// Whether anything is remembered that could arrive after all.
    #[inline]
    pub(crate) fn has_lost(&self) -> bool {
        self.0.as_ref().is_some_and(|seen| !seen.lost.is_empty())
    }

    /// An acknowledgement of `ranges`, ascending: shows what of it had been declared lost to `sink`.
    pub(crate) fn on_acked(&mut self, now: Instant, ranges: &[(u64, u64)], mut sink: impl FnMut(Run)) -> Option<Late> {
        let seen = self.0.as_mut().filter(|seen| !seen.lost.is_empty())?;
        let largest = ranges.last()?.1;
        let mut late: Option<Late> = None;
        let mut left = VecDeque::with_capacity(seen.lost.len());
        for lost in seen.lost.drain(..) {
            let mut rest = Some(lost);
            for range in ranges.iter().filter(|range| range.1 >= lost.first) {
                let Some(run) = rest else { break };
                let (from, until) = (run.first.max(range.0), run.end().min(range.1 + 1));
                if from >= until {
                    break;
                }
                let arrived = run.part(from..until);
                seen.packets = seen.packets.max((largest.saturating_sub(arrived.first) + 1).min(PACKETS_MAX));
                seen.delay = seen.delay.max(now.saturating_since(arrived.sent_at));
                seen.until = now + MEMORY;
                let so_far = late.unwrap_or(Late { packets: 0, bytes: 0, newest_sent_at: Instant::ZERO });
                late = Some(Late {
                    packets: so_far.packets + u64::from(arrived.count),
                    bytes: so_far.bytes + arrived.in_flight_bytes(),
                    newest_sent_at: so_far.newest_sent_at.max(arrived.sent_at),
                });
                sink(arrived);
                // What lies before and behind it may still come.
                left.extend((run.first < from).then(|| run.part(run.first..from)));
                rest = (until < run.end()).then(|| run.part(until..run.end()));
            }
            left.extend(rest);
        }
        let excess = left.len().saturating_sub(LOST_MAX);
        left.drain(..excess);
        seen.lost = left;
        late
    }

    /// Forgets what was seen: nothing is sent for a while.
    pub(crate) fn shrink(&mut self) {
        self.0 = None;
    }
}
