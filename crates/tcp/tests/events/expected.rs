//! The rules of RFC 9293, sections 3.10.7.3 and 3.10.7.4, in the order of its text: written down a
//! second time, from the variables of a connection and a segment. `Deviation` names each place
//! where ours differ, and the reason.

use tcp::{CloseReason, State};
use wire::tcp::Flags;

use super::situation::{Role, Variables};

/// A segment of the peer. Numbers count from the initial ones, and may lie before them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seg {
    pub(super) flags: Flags,
    pub(super) seq: i64,
    pub(super) ack: i64,
    pub(super) text: i64,
}

impl Seg {
    fn has(&self, flags: Flags) -> bool {
        self.flags.contains(flags)
    }

    fn len(&self) -> i64 {
        self.text + i64::from(self.has(Flags::SYN)) + i64::from(self.has(Flags::FIN))
    }
}

/// Places where an answer differs from the text of RFC 9293.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deviation {
    /// A repeated SYN of the peer gets ours, not an acknowledgement that would not help it.
    SynAgain,
    /// SYN-RECEIVED returns to LISTEN, and the SYN begins a connection at once, not when it is
    /// repeated.
    BeginsAnew,
    /// SYN-RECEIVED of a server: a SYN with an acknowledgement begins nothing, and gets a
    /// challenge.
    SynWithAck,
    /// A reset one before the next number, from a peer that does not count its FIN.
    ResetBeforeEnd,
    /// An acknowledgement in a segment that begins one position too early: its sender does not know
    /// that its probe was accepted.
    AckOneEarly,
    /// A segment that begins before the SYN is outside, even if its end is inside.
    BeforeTheSyn,
    /// After a reset of an answer to an earlier connection, the SYN leaves once more.
    OpensAgain,
}

/// Expected answers, and the connection after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expected {
    /// Flags, SEQ and ACK of each outgoing segment.
    pub(super) answers: Vec<(Flags, i64, i64)>,
    pub(super) state: State,
    pub(super) reason: Option<CloseReason>,
    pub(super) snd_una: i64,
    /// Bytes that the application can read.
    pub(super) readable: i64,
    pub(super) deviations: Vec<Deviation>,
}

struct Run {
    v: Variables,
    seg: Seg,
    out: Expected,
    rcv_nxt: i64,
}

const SYN_ACK: Flags = Flags(Flags::SYN.0 | Flags::ACK.0);

/// Applies the rules to a connection with these variables.
pub(super) fn expected(v: Variables, seg: Seg) -> Expected {
    let reason = (v.state == State::TimeWait).then_some(CloseReason::Finished);
    let (answers, deviations) = (Vec::new(), Vec::new());
    let out = Expected { answers, state: v.state, reason, snd_una: v.snd_una, readable: 0, deviations };
    let mut run = Run { v, seg, out, rcv_nxt: v.rcv_nxt };
    match v.state {
        State::SynSent => run.syn_sent(),
        _ => run.other_states(),
    }
    if run.out.state == State::Closed {
        // A closed connection acknowledges nothing.
        run.out.answers.retain(|(flags, ..)| flags.contains(Flags::RST));
    }
    run.out
}

impl Run {
    fn reset(&mut self) {
        self.out.answers.push((Flags::RST, self.seg.ack, -1));
    }

    /// Sends <SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>, once for all reasons.
    fn acknowledge(&mut self) {
        self.out.answers.retain(|(flags, ..)| *flags != Flags::ACK);
        self.out.answers.push((Flags::ACK, self.v.snd_nxt, self.rcv_nxt));
    }

    fn close(&mut self, reason: CloseReason) {
        self.out.state = State::Closed;
        self.out.reason = self.out.reason.or(Some(reason));
    }

    fn deviate(&mut self, deviation: Deviation) {
        self.out.deviations.push(deviation);
    }

    /// Applies 3.10.7.3.
    fn syn_sent(&mut self) {
        let seg = self.seg;
        let is_ack_ok = seg.has(Flags::ACK) && 0 < seg.ack && seg.ack <= self.v.snd_nxt;
        // First, the ACK bit.
        if seg.has(Flags::ACK) && !is_ack_ok {
            if !seg.has(Flags::RST) {
                self.reset();
                if !seg.has(Flags::SYN) {
                    self.deviate(Deviation::OpensAgain);
                    self.out.answers.push((Flags::SYN, 0, -1));
                }
            }
            return;
        }
        // Second, the RST bit.
        if seg.has(Flags::RST) {
            if is_ack_ok {
                self.close(CloseReason::Refused);
            }
            return;
        }
        // Fourth, the SYN bit; fifth, neither.
        if !seg.has(Flags::SYN) {
            return;
        }
        self.rcv_nxt = seg.seq + 1;
        if is_ack_ok {
            self.out.snd_una = seg.ack;
            self.out.state = State::Established;
            // Continue at the sixth step, in the numbers of the connection that begins.
            self.v.rcv_nxt = self.rcv_nxt;
            self.seg = Seg { seq: seg.seq + 1, flags: seg.flags.without(Flags::SYN), ..seg };
            self.text_and_end();
            self.acknowledge();
        } else {
            self.out.state = State::SynReceived;
            self.out.answers.push((SYN_ACK, 0, self.rcv_nxt));
        }
    }

    /// Applies 3.10.7.4.
    fn other_states(&mut self) {
        let (v, seg) = (self.v, self.seg);
        let is_syn_received = v.state == State::SynReceived;
        if is_syn_received && seg.has(Flags::SYN) && !seg.has(Flags::RST) && seg.seq == 0 {
            return self.syn_again();
        }
        // First, the sequence number.
        let in_window = |number: i64| v.rcv_nxt <= number && number < v.rcv_nxt + v.rcv_wnd;
        let is_acceptable = in_window(seg.seq) || (seg.len() > 0 && in_window(seg.seq + seg.len() - 1));
        let is_before_syn = is_acceptable && seg.seq < 0;
        if is_before_syn {
            self.deviate(Deviation::BeforeTheSyn);
        }
        if !is_acceptable || is_before_syn {
            return self.unacceptable();
        }
        // Second, the RST bit.
        if seg.has(Flags::RST) {
            match seg.seq == v.rcv_nxt {
                true if is_syn_received => self.close(CloseReason::Refused),
                true => self.close(CloseReason::Reset),
                false => self.acknowledge(),
            }
            return;
        }
        // Fourth, the SYN bit.
        if seg.has(Flags::SYN) {
            if !is_syn_received || v.role == Role::Client {
                return self.acknowledge();
            }
            if seg.has(Flags::ACK) {
                self.deviate(Deviation::SynWithAck);
                return self.acknowledge();
            }
            self.deviate(Deviation::BeginsAnew);
            self.out.answers.push((SYN_ACK, 0, seg.seq + 1));
            return;
        }
        // Fifth, the ACK field.
        if !seg.has(Flags::ACK) || !self.ack_field() {
            return;
        }
        self.text_and_end();
    }

    /// Handles a repeated SYN in SYN-RECEIVED: its number is that of the first one.
    fn syn_again(&mut self) {
        if !self.seg.has(Flags::ACK) {
            self.deviate(Deviation::SynAgain);
            self.out.answers.push((SYN_ACK, 0, self.rcv_nxt));
        } else if self.ack_field() {
            // Section 3.5, figure 7.
            self.seg = Seg { seq: 1, flags: self.seg.flags.without(Flags::SYN), ..self.seg };
            self.text_and_end();
            self.acknowledge();
        }
    }

    fn unacceptable(&mut self) {
        let (v, seg) = (self.v, self.seg);
        let has_end = matches!(v.state, State::CloseWait | State::Closing | State::LastAck);
        if seg.has(Flags::RST) {
            if has_end && seg.seq == v.rcv_nxt - 1 {
                self.deviate(Deviation::ResetBeforeEnd);
                self.close(CloseReason::Reset);
            }
            return;
        }
        self.acknowledge();
        let is_early = v.state.is_synchronized() && seg.seq == v.rcv_nxt - 1;
        if is_early && seg.has(Flags::ACK) && !seg.has(Flags::SYN) {
            self.deviate(Deviation::AckOneEarly);
            self.ack_field();
        }
    }

    /// Applies the fifth check. Returns false if the segment is dropped.
    fn ack_field(&mut self) -> bool {
        let (v, ack) = (self.v, self.seg.ack);
        if v.state == State::SynReceived {
            if v.snd_una < ack && ack <= v.snd_nxt {
                (self.out.state, self.out.snd_una) = (State::Established, ack);
                return true;
            }
            self.reset();
            return false;
        }
        // RFC 5961, section 5.2. The peer's window, 65,535 bytes, is larger than all data sent, so
        // the oldest number is the SYN.
        if ack < 0 || ack > v.snd_nxt {
            self.acknowledge();
            return false;
        }
        self.out.snd_una = v.snd_una.max(ack);
        let is_fin_acked = self.out.snd_una == v.snd_nxt;
        self.out.state = match v.state {
            State::FinWait1 if is_fin_acked => State::FinWait2,
            State::Closing if is_fin_acked => State::TimeWait,
            State::LastAck if is_fin_acked => State::Closed,
            other => other,
        };
        if matches!(self.out.state, State::TimeWait | State::Closed) {
            self.out.reason = Some(CloseReason::Finished);
        }
        true
    }

    /// Applies the seventh and eighth checks.
    fn text_and_end(&mut self) {
        let (v, seg) = (self.v, self.seg);
        if seg.len() == 0 || self.out.state == State::Closed {
            return;
        }
        if !matches!(self.out.state, State::Established | State::FinWait1 | State::FinWait2) {
            // The FIN was received before.
            return self.acknowledge();
        }
        let edge = v.rcv_nxt + v.rcv_wnd;
        let end = (seg.seq + seg.text).min(edge);
        if seg.seq <= v.rcv_nxt && end >= v.rcv_nxt {
            self.out.readable = end - v.rcv_nxt;
            self.rcv_nxt = end;
            if seg.has(Flags::FIN) && end == seg.seq + seg.text {
                self.rcv_nxt += 1;
                self.out.state = match self.out.state {
                    State::Established => State::CloseWait,
                    State::FinWait1 => State::Closing,
                    _ => State::TimeWait,
                };
                if self.out.state == State::TimeWait {
                    self.out.reason = Some(CloseReason::Finished);
                }
            }
        }
        self.acknowledge();
    }
}
