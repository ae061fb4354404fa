//! The sender's view of one packet number space: which numbers were sent.

use units::Instant;
use wire::quic::frame::{EcnCounts, Frame};

use super::ack_only::AckOnlyTimes;
use super::draft::Draft;
use super::frames::SentFrame;
use super::sent_log::SentLog;
use crate::error::TransportError;
use crate::plan::Plan;
use crate::queue::Queue;
use crate::spaces::Vacant;

/// Skipped numbers remembered: an acknowledgement of one of the last few is detected.
const SKIPPED_MAX: usize = 8;

/// Numbers and outstanding packets of one space: Initial, Handshake, or the application data of one
/// path.
#[derive(Debug, Default)]
pub(crate) struct SendSpace {
    pub(crate) log: SentLog,
    pub(crate) next_number: u64,
    pub(crate) largest_acked: Option<u64>,
    /// When the oldest packet below `largest_acked` will be declared lost.
    pub(crate) loss_time: Option<Instant>,
    /// Ack-eliciting packets to send regardless of the congestion window (RFC 9002, section 6.2.4).
    pub(crate) probes_due: u8,
    /// The packets before this number were 0-RTT packets that the server did not take: it must not
    /// acknowledge them (RFC 9001, section 4.6.2).
    pub(crate) rejected_before: u32,
    /// Skipped numbers, to detect a peer that acknowledges packets it did not receive (RFC 9000,
    /// section 21.4).
    skipped: Queue<u64>,
    pub(crate) ack_only: AckOnlyTimes,
    /// The peer's latest ECN counts.
    pub(crate) ecn_reported: EcnCounts,
}

/// The largest number of an acknowledgement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LargestAcked {
    pub(crate) number: u64,
    /// No larger one was acknowledged before.
    pub(crate) is_newest: bool,
    /// If so: when its packet left, if that had nothing but acknowledgements.
    pub(crate) ack_only_sent_at: Option<Instant>,
}

impl Vacant for SendSpace {
    fn vacant() -> &'static Self {
        static VACANT: SendSpace = SendSpace {
            log: SentLog::new(),
            next_number: 0,
            largest_acked: None,
            loss_time: None,
            probes_due: 0,
            rejected_before: 0,
            skipped: Queue::new(),
            ack_only: AckOnlyTimes::new(),
            ecn_reported: EcnCounts { ect0: 0, ect1: 0, ce: 0 },
        };
        &VACANT
    }
}

impl SendSpace {
    /// Skips one packet number.
    pub(crate) fn skip_number(&mut self) {
        if self.skipped.len() == SKIPPED_MAX {
            self.skipped.pop_front();
        }
        self.skipped.push_back(self.next_number);
        self.next_number += 1;
    }

    /// Adds a PING if a probe is due and the packet has nothing else that elicits an acknowledgement, and
    /// counts the probe.
    pub(crate) fn put_probe_ping(&mut self, draft: &mut Draft, plan: &mut Plan, frames: &mut Vec<SentFrame>) {
        if self.probes_due == 0 {
            return;
        }
        if !draft.eliciting && draft.put(plan, &Frame::Ping) {
            frames.push(SentFrame::Ping);
        }
        self.probes_due -= u8::from(draft.eliciting);
    }

    /// Frees unused memory.
    pub(crate) fn shrink(&mut self) {
        self.log.shrink();
        self.ack_only = AckOnlyTimes::new();
    }

    /// Takes the ranges of an acknowledgement, which ascend. Fails if [packets in
    /// them](Self::check_ranges) were never sent.
    #[inline]
    pub(crate) fn take_ranges(&mut self, ranges: &[(u64, u64)]) -> Result<LargestAcked, TransportError> {
        self.check_ranges(ranges)?;
        let number = ranges.last().map_or(0, |range| range.1);
        let is_newest = self.largest_acked < Some(number);
        let ack_only_sent_at = if is_newest { self.ack_only.sent_at(number) } else { None };
        self.largest_acked = self.largest_acked.max(Some(number));
        Ok(LargestAcked { number, is_newest, ack_only_sent_at })
    }

    /// Refuses acknowledgements of packets that were never sent (RFC 9000, section 13.1). `ranges`
    /// ascend.
    fn check_ranges(&self, ranges: &[(u64, u64)]) -> Result<(), TransportError> {
        let largest = ranges.last().map_or(0, |range| range.1);
        let never_sent = largest >= self.next_number
            || self.skipped.iter().any(|skipped| ranges.iter().any(|range| (range.0..=range.1).contains(skipped)));
        if never_sent {
            return Err(TransportError::violation("a packet was acknowledged that was never sent"));
        }
        if ranges.first().is_some_and(|range| range.0 < u64::from(self.rejected_before)) {
            return Err(TransportError::violation("a 0-RTT packet was acknowledged that was rejected"));
        }
        Ok(())
    }
}
