//! What acknowledgements say of ECN, passed to the path and its congestion controller.

use recovery::LossEvent;
use units::Instant;
use wire::quic::frame::EcnCounts;

use super::SendHalf;
use super::ecn::EcnReport;
use crate::spaces::DATA;

impl SendHalf {
    /// Takes the ECN counts of an acknowledgement. `newest_sent_at` is when the newest packet left
    /// that it acknowledges, and `packets` of these count.
    pub(super) fn on_ecn_report(
        &mut self,
        now: Instant,
        index: usize,
        newest_sent_at: Instant,
        counts: Option<EcnCounts>,
        packets: u64,
    ) {
        let is_mixed = index >= DATA && !self.off_paths.is_empty();
        let (space, path) = (&mut self.spaces[index], &mut self.paths[index.saturating_sub(DATA)]);
        let report = EcnReport { counts, newly_acked: packets, sent: space.next_number, is_mixed };
        let marked = path.recovery.ecn.on_report(&report, &mut space.ecn_reported);
        path.recovery.congestion.on_ecn_report(packets, marked);
        if marked > 0 {
            // RFC 9002, section 7.1: as a loss.
            path.recovery.congestion.on_loss(&LossEvent {
                now,
                newest_lost_sent_at: newest_sent_at,
                bytes: 0,
                in_flight: path.recovery.in_flight,
                persistent: false,
                ecn: true,
            });
        }
    }

    /// The path leads elsewhere: its validation starts anew.
    pub(super) fn restart_ecn(&mut self, at: usize) {
        self.paths[at].recovery.ecn.restart(self.spaces[DATA + at].next_number);
    }
}
