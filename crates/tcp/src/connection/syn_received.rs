//! Segments in state SYN-RECEIVED (RFC 9293, section 3.10.7.4): both sides have sent a SYN, and
//! ours is not acknowledged.
//!
//! | segment | answer |
//! |---|---|
//! | the peer's SYN repeated, also with data | our SYN, repeated |
//! | outside the window, no reset | an acknowledgement |
//! | a reset with the next number | none: the connection is refused |
//! | another reset in the window | an acknowledgement |
//! | another SYN in the window | if the peer has opened, our SYN: the connection restarts |
//! |  | if this side has opened, an acknowledgement |
//! | without an acknowledgement | none |
//! | a wrong acknowledgement | a reset |
//!
//! All but the last are rate-limited, like answers to unacceptable segments (RFC 5961, section 7).

use bytes::Bytes;
use units::Instant;
use wire::tcp::Flags;

use super::{CloseReason, Connection, Reset};
use crate::arrival::Arrival;
use crate::receive::Judgement;

impl Connection {
    pub(super) fn on_segment_syn_received(&mut self, now: Instant, arrival: Arrival) {
        let Some(receive) = &mut self.receive else { return };
        receive.set_sent_end(self.send.sent_end());
        let is_reset = arrival.has(Flags::RST);
        let position = match receive.judge(now, &arrival) {
            Judgement::Dropped => return,
            _ if !is_reset && arrival.has(Flags::SYN) && receive.is_syn(arrival.header.seq) => {
                return self.on_syn_again(now, arrival);
            }
            Judgement::Outside if is_reset => return,
            Judgement::Outside => return receive.challenge(now),
            Judgement::Acceptable { position } => position,
        };
        if is_reset && receive.is_next(arrival.header.seq) {
            return self.close(CloseReason::Refused);
        }
        if is_reset {
            return receive.challenge(now);
        }
        if arrival.has(Flags::SYN) {
            return self.on_other_syn(now, &arrival);
        }
        if arrival.has(Flags::ACK) && self.on_ack_of_syn(now, &arrival) {
            if let Some(receive) = &mut self.receive {
                receive.note_timestamp(now, position, &arrival);
            }
            self.take_syn_text(now);
            self.on_content(now, position, arrival);
        }
    }

    /// Processes a repeated SYN: our answer was lost, or crossed it. An acknowledgement, which the
    /// text of the RFC requires, would not help a peer in SYN-SENT.
    fn on_syn_again(&mut self, now: Instant, arrival: Arrival) {
        self.keep_syn_text(&arrival);
        if arrival.has(Flags::ACK) {
            // Both sides have opened at once, and the peer answers our SYN (RFC 9293, section 3.5,
            // figure 7).
            if self.on_ack_of_syn(now, &arrival) {
                self.take_syn_text(now);
                self.acknowledge();
            }
        } else if self.receive.as_mut().is_some_and(|receive| receive.may_challenge(now)) {
            self.send.repeat_syn();
        }
    }

    /// Performs the fourth check: another SYN in the window. The connection of a peer that opened
    /// it returns to LISTEN, where the repeated SYN would begin a connection: it begins one now.
    /// Our initial number stays the same, because the peer has not acknowledged it.
    fn on_other_syn(&mut self, now: Instant, arrival: &Arrival) {
        let Some(receive) = &mut self.receive else { return };
        if !self.is_passive || arrival.has(Flags::ACK) {
            // RFC 5961, section 4.2: answered, never accepted.
            return receive.challenge(now);
        }
        if !receive.may_challenge(now) {
            return;
        }
        let challenges = receive.take_challenges();
        self.syn_text = None;
        self.on_peer_syn(now, &arrival.header, arrival.ecn);
        self.keep_syn_text(arrival);
        if let Some(receive) = &mut self.receive {
            receive.set_challenges(challenges);
        }
        self.send.repeat_syn();
    }

    /// Performs the fifth check: a segment that acknowledges our SYN completes the handshake.
    /// Otherwise the peer gets a reset (RFC 9293, section 3.5.2, group 2), and the connection
    /// stays.
    fn on_ack_of_syn(&mut self, now: Instant, arrival: &Arrival) -> bool {
        let (una, end) = (self.send.una(), self.send.sent_end());
        let ack = self.send.space().position(arrival.header.ack, una);
        if !ack.is_some_and(|ack| una < ack && ack <= end) {
            self.reset_due = Some(Reset::Unacceptable(arrival.header.ack));
            return false;
        }
        self.on_handshake_ack(now, arrival);
        self.connected();
        true
    }

    /// Keeps the data and FIN of a SYN until the handshake is complete (RFC 9293, sections 3.10.7.2
    /// and 3.10.7.3). Keeps at most a segment, and a copy instead of the buffer that it came in.
    pub(super) fn keep_syn_text(&mut self, syn: &Arrival) {
        let has_text = !syn.data.is_empty() || syn.has(Flags::FIN);
        if !has_text || self.syn_text.is_some() {
            return;
        }
        let len = syn.data.len().min(self.announced_mss().into());
        let mut kept = Arrival { data: Bytes::copy_from_slice(&syn.data[..len]), segment: len, ..syn.clone() };
        if len < syn.data.len() {
            kept.header.flags = kept.header.flags.without(Flags::FIN);
        }
        self.syn_text = Some(Box::new(kept));
    }

    /// Takes the data of the SYN, with an acknowledgement: the peer does not know that they were
    /// taken, and would resend them.
    fn take_syn_text(&mut self, now: Instant) {
        if let Some(text) = self.syn_text.take() {
            self.take_content(now, 0, *text);
            self.acknowledge();
        }
    }

    fn acknowledge(&mut self) {
        if let Some(receive) = &mut self.receive {
            receive.set_ack_due();
        }
    }
}
