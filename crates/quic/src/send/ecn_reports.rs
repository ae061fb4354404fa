//! What acknowledgements say of ECN, passed to the path's congestion controller.

use recovery::LossEvent;
use units::Instant;
use wire::quic::frame::EcnCounts;

use super::ecn::EcnReport;
use super::path::PathRecovery;

impl PathRecovery {
    /// Takes the ECN counts of an acknowledgement. `newest_sent_at` is when the newest packet left
    /// that it acknowledges, and `reported` what the peer reported before for the number space.
    pub(super) fn on_ecn_report(
        &mut self,
        now: Instant,
        newest_sent_at: Instant,
        report: &EcnReport,
        reported: &mut EcnCounts,
    ) {
        let marked = self.ecn.on_report(report, reported);
        self.congestion.on_ecn_report(report.newly_acked, marked);
        if marked > 0 {
            // RFC 9002, section 7.1: as a loss.
            self.congestion.on_loss(&LossEvent {
                now,
                newest_lost_sent_at: newest_sent_at,
                bytes: 0,
                in_flight: self.in_flight,
                persistent: false,
                ecn: true,
            });
        }
    }
}
