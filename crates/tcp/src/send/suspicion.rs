//! Timeouts that may be due to a delay.
//!
//! After a timeout, only the first segment is resent, and the congestion controller is not notified
//! yet. The next acknowledgement shows whether anything was lost. If not, nothing else is resent
//! and the window stays: no reduction needs to be undone.
//!
//! With timestamps, the first acknowledgement identifies its transmission (Eifel, RFC 3522).
//! Without them, or if the peer stops sending them, but with SACK, new data leave after it, and the
//! second acknowledgement shows whether data sent before the timeout arrive or only the new ones
//! (F-RTO, RFC 5682, section 3).

use std::ops::Range;

use units::Instant;

use super::SendHalf;
use super::acknowledge::Delivered;
use super::log::{Run, RunState};
use super::lost::Lost;
use crate::config::LossRecovery;

/// Number of new data segments sent to find out (RFC 5682, section 3.1, step 2b).
const PROBE_SEGMENTS: u64 = 2;

/// A timeout that may be due to a delay.
#[derive(Debug)]
pub(super) struct Suspicion {
    /// The first segment, as it was before the timeout.
    first: Run,
    /// Upper bound of the positions sent before the timeout (RFC 5682, RecoveryPoint).
    point: u64,
    stage: Stage,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// The first segment is due; with a time, it was resent before, first at that time.
    Due(Option<Instant>),
    /// The first segment was first resent at this time.
    Sent(Instant),
    /// The first segment has arrived. This many bytes of new data may leave.
    Arrived(u64),
}

impl SendHalf {
    /// Handles a retransmission timeout. Returns whether it may be due to a delay, and the
    /// acknowledgement of the first segment can help to tell.
    pub(super) fn suspect(&mut self) -> bool {
        if let Some(suspicion) = &mut self.suspicion {
            let Stage::Sent(at) = suspicion.stage else { return matches!(suspicion.stage, Stage::Due(_)) };
            suspicion.stage = Stage::Due(Some(at));
            return true;
        }
        // In a recovery, the late data may be retransmissions (RFC 5682, section 3.1, step 1).
        let can_tell = self.has_timestamps || (self.has_sack && !self.is_recovering());
        let Some(first) = self.first_segment().filter(|run| run.state == RunState::Outstanding) else { return false };
        let is_selective = self.recovery == LossRecovery::Selective;
        if !is_selective || !can_tell || !self.is_syn_acked() || self.timers.backoff != 1 {
            return false;
        }
        self.suspicion = Some(Box::new(Suspicion { first, point: self.nxt, stage: Stage::Due(None) }));
        true
    }

    /// Returns the first unacknowledged segment; a FIN adds no byte to it.
    fn first_segment(&self) -> Option<Run> {
        let run = self.log.runs().next()?;
        let data_end = run.end.min(self.buffer.end());
        let is_whole = data_end.saturating_sub(run.start) <= self.segment;
        Some(Run { end: if is_whole { run.end } else { run.start + self.segment }, ..*run })
    }

    /// Returns the data to send while it is unknown whether anything was lost: the first segment,
    /// or new data.
    pub(super) fn next_of_suspicion(&mut self, now: Instant) -> Option<Range<u64>> {
        let suspicion = self.suspicion.as_mut()?;
        match suspicion.stage {
            Stage::Due(first_at) => {
                suspicion.stage = Stage::Sent(first_at.unwrap_or(now));
                let first = self.first_segment()?;
                let range = first.start..first.end;
                // It leaves the bytes in flight without counting as lost, and is resent.
                self.log.lose_range(range.clone(), |_| {});
                Some(range)
            }
            Stage::Sent(_) => None,
            Stage::Arrived(left) => {
                let range = self.new_data(left, left)?;
                if let Some(Suspicion { stage: Stage::Arrived(left), .. }) = self.suspicion.as_deref_mut() {
                    *left = left.saturating_sub(range.end - range.start);
                }
                Some(range)
            }
        }
    }

    /// Decides, if possible, whether the timeout was due to a delay. Returns true if it was due to
    /// losses.
    pub(super) fn judge_timeout(
        &mut self,
        now: Instant,
        has_advanced: bool,
        echo: Option<Instant>,
        delivered: &Delivered,
    ) -> bool {
        let Some(suspicion) = &self.suspicion else { return false };
        let point = suspicion.point;
        let is_loss = match suspicion.stage {
            Stage::Due(Some(at)) | Stage::Sent(at) if has_advanced && let Some(echo) = echo => echo >= at,
            // No echo; the peer may also have stopped sending the negotiated timestamps.
            Stage::Due(Some(_)) | Stage::Sent(_) if has_advanced && self.can_await_second(point) => {
                return self.await_second();
            }
            // Nothing else to wait for, or nothing to send to find out (step 2a).
            Stage::Due(Some(_)) | Stage::Sent(_) if has_advanced => true,
            // It was acknowledged before it was resent.
            Stage::Due(None) if has_advanced => false,
            // Step 3a: only data sent after the timeout arrive.
            Stage::Arrived(_) if delivered.end > point => true,
            // Step 3b: data arrive that were not resent.
            Stage::Arrived(_) if delivered.has_original => false,
            _ => return false,
        };
        if is_loss {
            self.confirm_timeout(now)
        } else {
            self.suspicion = None
        }
        is_loss
    }

    /// Returns whether new data can show what has arrived: this requires SACK, and in a recovery
    /// the arriving data may be retransmissions (RFC 5682, section 3.1, step 1).
    fn can_await_second(&self, point: u64) -> bool {
        self.has_sack && !self.is_recovering() && self.una < point && self.is_granted()
    }

    /// Records the arrival of the first segment. New data leave (step 2b).
    fn await_second(&mut self) -> bool {
        if let Some(suspicion) = &mut self.suspicion {
            suspicion.stage = Stage::Arrived(PROBE_SEGMENTS * self.segment);
        }
        false
    }

    /// Declares lost the first segment, and everything that was sent before the timeout and is not
    /// acknowledged.
    fn confirm_timeout(&mut self, now: Instant) {
        let Some(suspicion) = self.suspicion.take() else { return };
        let mut lost = Lost::default();
        lost.add(&suspicion.first, &mut self.delivery);
        self.lose_until(now, suspicion.point, lost);
    }
}
