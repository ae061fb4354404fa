//! Congestion marks: echoed (RFC 3168, section 6.1.3) or counted (RFC 9768).

use units::Ecn;
use wire::tcp::{AccEcn, Flags};

use super::ReceiveHalf;
use crate::accurate_ecn::Feedback;
use crate::arrival::Arrival;

impl ReceiveHalf {
    /// Starts counting marks. `syn` is the codepoint of the peer's SYN; if that answered ours, it
    /// is reported to the peer first.
    pub(crate) fn count_marks(&mut self, syn: Option<Ecn>, is_answer: bool) {
        self.received.feedback = Some(Box::new(Feedback::new(syn)));
        if is_answer {
            self.demand_code(syn);
        }
    }

    /// Returns the counters of marks, if they are counted.
    pub(crate) fn accurate_ecn(&self) -> Option<&Feedback> {
        self.received.feedback.as_deref()
    }

    /// Demands that the next segment report the codepoint of the peer's answer to our SYN.
    fn demand_code(&mut self, syn: Option<Ecn>) {
        if self.received.feedback.is_some() {
            self.received.demand();
        }
        let number = self.received.latest();
        if let Some(feedback) = &mut self.received.feedback {
            feedback.demand_code(syn, number);
        }
    }

    /// Processes a repeated answer to our SYN: our acknowledgement, and its report, were lost.
    pub(super) fn note_answer_again(&mut self, arrival: &Arrival) {
        if arrival.has(Flags::SYN | Flags::ACK) && self.is_syn(arrival.header.seq) {
            self.demand_code(arrival.ecn);
        }
    }

    /// Processes the congestion marks of a segment with a credible acknowledgement.
    pub(crate) fn note_marks_of(&mut self, arrival: &Arrival) {
        let is_marked = arrival.ecn == Some(Ecn::Ce);
        if let Some(feedback) = &mut self.received.feedback {
            let bytes = arrival.data.len();
            let packets = bytes.div_ceil(arrival.segment.max(1)).max(1) as u64;
            self.stats.marked += if is_marked { packets } else { 0 };
            if feedback.on_received(arrival.ecn, packets, bytes as u64) {
                self.received.demand();
            }
        } else if self.terms.ecn {
            if arrival.has(Flags::CWR) {
                self.received.is_marked = false;
            }
            if is_marked {
                self.received.is_marked = true;
                self.stats.marked += 1;
            }
        }
    }

    /// Returns the flags that report marks to the peer.
    pub(crate) fn mark_flags(&self) -> Flags {
        match &self.received.feedback {
            Some(feedback) => feedback.flags(self.is_code_due()),
            None if self.received.is_marked => Flags::ECE,
            None => Flags::empty(),
        }
    }

    /// Returns whether a segment without data is due to report the codepoint of the answer to our
    /// SYN.
    pub(crate) fn is_code_due(&self) -> bool {
        self.received.feedback.as_ref().is_some_and(|feedback| self.announced.is_unanswered(feedback.code_number()))
    }

    /// Returns the counters of marks if an acknowledgement should carry them: after a change, or if
    /// they were not sent for some time.
    pub(crate) fn mark_counters(&mut self) -> Option<AccEcn> {
        let feedback = self.received.feedback.as_ref()?;
        self.counters_due.take(feedback.changes()).then(|| feedback.counters())
    }
}
