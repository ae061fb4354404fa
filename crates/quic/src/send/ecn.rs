//! ECN on one path: marks what is sent, and validates that the network keeps the codepoint and that
//! the peer reports it (RFC 9000, section 13.4.2).
//!
//! Every packet has the same codepoint until validation fails, so that all packets of a number space
//! count the same and nothing needs to be remembered of a single one: ECT(0), or ECT(1) if congestion
//! control is scalable (RFC 9331, section 4.1).

use units::Ecn;
use wire::quic::frame::EcnCounts;

use crate::stats::EcnState;

/// Consecutive probe timeouts after which the codepoint is suspected to be the cause: a network may
/// drop marked packets (RFC 9000, section 13.4.2; appendix A.4 waits as long).
const TIMEOUTS_MAX: u32 = 3;

/// ECN on one path.
#[derive(Debug)]
pub(crate) struct PathEcn {
    state: EcnState,
    /// Packets carry ECT(1).
    is_scalable: bool,
    /// The path was capable since the last restart: it deserves another try after a failure.
    is_proved: bool,
    /// A packet of the handshake was lost, and the rest of the handshake is not marked.
    waits_for_handshake: bool,
    /// 1-RTT packets from this number on were sent since the present validation began.
    from: u64,
    /// CE codepoints that the peer has reported.
    pub(crate) ce_packets: u64,
}

/// One acknowledgement, as far as it concerns ECN.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EcnReport {
    /// What the peer says; none if the frame has no counts.
    pub(crate) counts: Option<EcnCounts>,
    /// Packets that it newly acknowledges, of those that count.
    pub(crate) newly_acked: u64,
    /// Packet numbers used so far in its number space: at least as many as packets sent.
    pub(crate) sent: u64,
    /// Packets of the number space also go to other addresses, whose routes may mishandle the
    /// codepoint: only marks count.
    pub(crate) is_mixed: bool,
}

impl PathEcn {
    pub(crate) const fn new(is_enabled: bool, is_scalable: bool) -> Self {
        let state = if is_enabled { EcnState::Testing } else { EcnState::Off };
        Self { state, is_scalable, is_proved: false, waits_for_handshake: false, from: 0, ce_packets: 0 }
    }

    pub(crate) const fn state(&self) -> EcnState {
        self.state
    }

    /// The codepoint of the packets that are sent now.
    pub(crate) const fn codepoint(&self) -> Option<Ecn> {
        match self.state {
            EcnState::Testing | EcnState::Capable if self.is_scalable => Some(Ecn::Ect1),
            EcnState::Testing | EcnState::Capable => Some(Ecn::Ect0),
            EcnState::Off | EcnState::Failed => None,
        }
    }

    /// The first 1-RTT packet number that counts.
    pub(crate) const fn from(&self) -> u64 {
        self.from
    }

    /// The path has another route, or works again: validation starts anew with packet `next` (RFC
    /// 9000, sections 9.3 and 13.4.2).
    pub(crate) const fn restart(&mut self, next: u64) {
        if !matches!(self.state, EcnState::Off) {
            (self.state, self.is_proved, self.from) = (EcnState::Testing, false, next);
        }
        self.waits_for_handshake = false;
    }

    /// A probe timeout has fired before the handshake was confirmed. Both sides wait for several of
    /// them in turn if the network drops marked packets, longer than applications wait for a
    /// connection. So the rest of the handshake is not marked.
    pub(crate) const fn on_handshake_timeout(&mut self) {
        if matches!(self.state, EcnState::Testing) {
            (self.state, self.waits_for_handshake) = (EcnState::Failed, true);
        }
    }

    /// Whether validation starts anew now that the handshake is confirmed.
    pub(crate) const fn waits_for_handshake(&self) -> bool {
        self.waits_for_handshake
    }

    /// Whether the path, which responds, may be marked again: it was capable before it failed, so an
    /// outage may have been the cause. Each proof is good for one more try.
    pub(crate) const fn may_retry(&self) -> bool {
        matches!(self.state, EcnState::Failed) && self.is_proved
    }

    /// `count` probe timeouts have fired in a row.
    pub(crate) fn on_timeouts(&mut self, count: u32) {
        if count < TIMEOUTS_MAX {
            return;
        }
        self.state = match self.state {
            EcnState::Capable => EcnState::Testing,
            EcnState::Testing => EcnState::Failed,
            other => other,
        };
    }

    /// An acknowledgement that increases the largest acknowledged number; others may have been
    /// reordered and must not fail validation (RFC 9000, section 13.4.2.1). `known` is what the
    /// peer reported before for the number space. Returns how many packets the network has marked since
    /// then.
    pub(crate) fn on_report(&mut self, report: &EcnReport, known: &mut EcnCounts) -> u64 {
        let EcnReport { counts, newly_acked, sent, is_mixed } = *report;
        let before = match counts {
            Some(counts) => std::mem::replace(known, counts),
            None => *known,
        };
        if self.codepoint().is_none() || newly_acked == 0 {
            return 0;
        }
        let news = counts.and_then(|counts| increase(&before, &counts));
        if is_mixed {
            // A mark is a sign of congestion on whichever route it was set.
            return self.note_marks(news.map_or(0, |news| news.ce));
        }
        let Some(news) = news else {
            // Without counts, or with fewer than before.
            self.fail("the peer does not report the codepoints");
            return 0;
        };
        let (ours, others, reported) =
            if self.is_scalable { (news.ect1, news.ect0, known.ect1) } else { (news.ect0, news.ect1, known.ect0) };
        let reported = reported.saturating_add(known.ce);
        if others > 0 {
            self.fail("the network changes one codepoint to the other");
        } else if ours.saturating_add(news.ce) < newly_acked {
            self.fail("the network clears the codepoint");
        } else if reported > sent {
            self.fail("the peer reports more packets than were sent");
        } else {
            (self.state, self.is_proved) = (EcnState::Capable, true);
            return self.note_marks(news.ce);
        }
        0
    }

    /// Counts marked packets, and returns their number.
    const fn note_marks(&mut self, packets: u64) -> u64 {
        self.ce_packets = self.ce_packets.saturating_add(packets);
        packets
    }

    fn fail(&mut self, reason: &str) {
        tracing::debug!(reason, "ECN validation fails");
        self.state = EcnState::Failed;
    }
}

/// The counts since `before`; none if one is lower than before.
fn increase(before: &EcnCounts, now: &EcnCounts) -> Option<EcnCounts> {
    Some(EcnCounts {
        ect0: now.ect0.checked_sub(before.ect0)?,
        ect1: now.ect1.checked_sub(before.ect1)?,
        ce: now.ce.checked_sub(before.ce)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(ect0: u64, ect1: u64, ce: u64) -> Option<EcnCounts> {
        Some(EcnCounts { ect0, ect1, ce })
    }

    /// The state after acknowledgements of ten packets each, and whether the last was a sign of
    /// congestion.
    fn after(reports: &[Option<EcnCounts>]) -> (EcnState, bool) {
        let (mut ecn, mut known, mut is_congested) = (PathEcn::new(true, false), EcnCounts::default(), false);
        for (counts, sent) in reports.iter().zip((10..).step_by(10)) {
            is_congested =
                ecn.on_report(&EcnReport { counts: *counts, newly_acked: 10, sent, is_mixed: false }, &mut known) > 0;
        }
        (ecn.state(), is_congested)
    }

    #[test]
    fn complete_reports_prove_the_path_and_ce_is_congestion() {
        assert_eq!(after(&[]), (EcnState::Testing, false));
        assert_eq!(after(&[counts(10, 0, 0)]), (EcnState::Capable, false));
        assert_eq!(after(&[counts(9, 0, 1)]), (EcnState::Capable, true));
        assert_eq!(after(&[counts(9, 0, 1), counts(19, 0, 1)]), (EcnState::Capable, false));
        // Acknowledgements of packets that are not in flight, or whose own were lost, come on top.
        assert_eq!(after(&[counts(0, 0, 0), counts(20, 0, 0)]).0, EcnState::Failed);
        assert_eq!(after(&[counts(10, 0, 0), counts(20, 0, 0)]).0, EcnState::Capable);
    }

    #[test]
    fn every_false_report_fails_validation() {
        for (name, report) in [
            ("no counts", None),
            ("cleared by the network", counts(9, 0, 0)),
            ("changed to ECT(1)", counts(0, 10, 0)),
            ("one of them changed to ECT(1)", counts(10, 1, 0)),
            ("more than were sent", counts(11, 0, 0)),
            ("absurd", counts(u64::MAX, 0, u64::MAX)),
        ] {
            assert_eq!(after(&[report]), (EcnState::Failed, false), "{name}");
        }
        assert_eq!(after(&[counts(10, 0, 0), None]).0, EcnState::Failed);
        assert_eq!(after(&[counts(0, 0, 10), counts(20, 0, 9)]).0, EcnState::Failed, "CE taken back");
    }

    #[test]
    fn a_failed_path_is_not_marked_and_tries_again_on_another_route() {
        let (mut ecn, mut known) = (PathEcn::new(true, false), EcnCounts::default());
        assert_eq!(ecn.codepoint(), Some(Ecn::Ect0));
        let report = |ect0, sent| EcnReport { counts: counts(ect0, 0, 0), newly_acked: 5, sent, is_mixed: false };
        ecn.on_report(&EcnReport { is_mixed: true, ..report(0, 5) }, &mut known);
        assert_eq!(ecn.state(), EcnState::Testing, "packets of another route prove nothing");
        let marked = EcnReport { is_mixed: true, counts: counts(0, 0, 2), ..report(0, 5) };
        assert!(ecn.on_report(&marked, &mut known) == 2 && ecn.ce_packets == 2, "but a mark is a mark");
        known = EcnCounts::default();
        ecn.on_report(&report(3, 5), &mut known);
        assert_eq!((ecn.state(), ecn.codepoint()), (EcnState::Failed, None));
        // What was on its way is still reported, and is no part of the next validation.
        ecn.on_report(&report(7, 10), &mut known);
        assert!(!ecn.may_retry(), "it never worked");
        ecn.restart(10);
        assert_eq!((ecn.state(), ecn.from()), (EcnState::Testing, 10));
        ecn.on_report(&report(12, 15), &mut known);
        assert_eq!(ecn.state(), EcnState::Capable);
        ecn.on_timeouts(3);
        ecn.on_timeouts(4);
        assert!(ecn.state() == EcnState::Failed && ecn.may_retry(), "it worked before");
        ecn.restart(20);
        ecn.on_timeouts(3);
        assert!(ecn.state() == EcnState::Failed && !ecn.may_retry(), "one try for each proof");
    }

    #[test]
    fn scalable_senders_mark_and_count_the_other_codepoint() {
        for (report, expected) in [
            (counts(0, 9, 1), (EcnState::Capable, 1)),
            (counts(0, 8, 1), (EcnState::Failed, 0)),
            (counts(1, 9, 0), (EcnState::Failed, 0)),
            (counts(10, 0, 0), (EcnState::Failed, 0)),
            (counts(0, 11, 0), (EcnState::Failed, 0)),
        ] {
            let (mut ecn, mut known) = (PathEcn::new(true, true), EcnCounts::default());
            assert_eq!(ecn.codepoint(), Some(Ecn::Ect1));
            let report = EcnReport { counts: report, newly_acked: 10, sent: 10, is_mixed: false };
            let marks = ecn.on_report(&report, &mut known);
            assert_eq!((ecn.state(), marks), expected, "{report:?}");
        }
    }

    #[test]
    fn timeouts_end_the_test_of_a_path_that_drops_marked_packets() {
        let mut ecn = PathEcn::new(true, false);
        ecn.on_timeouts(2);
        assert_eq!(ecn.state(), EcnState::Testing);
        ecn.on_timeouts(3);
        assert_eq!(ecn.state(), EcnState::Failed);
        let mut off = PathEcn::new(false, false);
        off.restart(5);
        off.on_timeouts(9);
        assert_eq!((off.state(), off.codepoint()), (EcnState::Off, None));
    }
}
