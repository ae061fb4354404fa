//! The handshake: SYNs and their negotiation (RFC 9293, sections 3.5 and 3.10.7.3).

use std::sync::Arc;

use units::{Ecn, Instant, Seq32};
use wire::tcp::{Flags, HEADER_LEN, Header, Options};

use super::{CloseReason, Connection, Reset, timers};
use crate::accurate_ecn::{self, Feedback, Offer};
use crate::arrival::Arrival;
use crate::config::{SCALE_MAX, TcpConfig};
use crate::event::Events;
use crate::journal::begin::Seed;
use crate::md5::MD5_LEN;
use crate::negotiated::Negotiated;
use crate::plan::IP_PACKET_MAX;
use crate::position::FIRST_BYTE;
use crate::receive::ReceiveHalf;
use crate::send::SendHalf;
use crate::send::ack_info::AckInfo;
use crate::state::State;
use crate::timestamps::TimestampClock;
use crate::tuple::Tuple;

/// Maximum segment size of a peer that announces none (RFC 9293, section 3.7.1), over IPv4 and
/// IPv6.
const DEFAULT_MSS: [u16; 2] = [536, 1220];

/// Smallest accepted segment size; a smaller one would make a peer send a packet for a few bytes.
const MSS_MIN: u16 = 88;

/// Length of the timestamps option with padding, in bytes.
const TIMESTAMPS_LEN: u16 = 12;

impl Connection {
    /// Opens a connection: the first plan is a SYN. `initial` is the initial sequence number (RFC
    /// 6528), `timestamp_offset` a number that differs from connection to connection.
    pub fn connect(
        now: Instant,
        config: impl Into<Arc<TcpConfig>>,
        tuple: Tuple,
        initial: Seq32,
        timestamp_offset: u32,
    ) -> Self {
        Self::begin(now, Seed { config: config.into(), tuple, initial, timestamp_offset }, None)
    }

    /// Accepts a connection: `syn` is the peer's SYN, and the first plan is the answer.
    pub fn accept(
        now: Instant,
        config: impl Into<Arc<TcpConfig>>,
        syn: &Arrival,
        initial: Seq32,
        timestamp_offset: u32,
    ) -> Self {
        Self::begin(now, Seed { config: config.into(), tuple: syn.tuple, initial, timestamp_offset }, Some(syn))
    }

    /// Creates a connection from `seed`, and processes the peer's SYN, if any.
    pub(crate) fn begin(now: Instant, mut seed: Seed, syn: Option<&Arrival>) -> Self {
        let journal = seed.begin_journal(now, syn);
        let mut connection = Self::new(seed, if syn.is_some() { State::SynReceived } else { State::SynSent });
        if let Some(syn) = syn {
            connection.is_passive = true;
            connection.on_peer_syn(now, &syn.header, syn.ecn);
            connection.keep_syn_text(syn);
        }
        Self { journal, ..connection }
    }

    fn new(seed: Seed, state: State) -> Self {
        let Seed { config, tuple, initial, timestamp_offset } = seed;
        let segment = u64::from(DEFAULT_MSS[usize::from(tuple.local.is_ipv6())]);
        Self {
            send: SendHalf::new(&config, initial, segment),
            is_passive: false,
            receive: None,
            detached: None,
            timestamp_offset,
            negotiated: Negotiated::default(),
            timers: timers::Timers::default(),
            syn_text: None,
            reset_due: None,
            events: Events::default(),
            close_reason: None,
            soft_error: None,
            is_orphan: false,
            dscp: 0,
            journal: None,
            config,
            tuple,
            state,
        }
    }

    /// Returns the options and flags of our SYN, or of our answer to the peer's.
    pub(super) fn syn(&self, now: Instant) -> (Options, Flags) {
        let is_answer = self.receive.is_some();
        let has = |offered: bool, negotiated: bool| if is_answer { negotiated } else { offered };
        let accurate = self.receive.as_ref().and_then(ReceiveHalf::accurate_ecn);
        let options = Options {
            mss: Some(self.announced_mss()),
            window_scale: has(self.config.window_scaling, self.negotiated.has_scaling)
                .then(|| self.config.window_shift()),
            sack_permitted: has(self.config.sack, self.negotiated.sack),
            timestamps: has(self.config.timestamps, self.negotiated.timestamps).then(|| self.stamp(now)),
            // A repeated answer omits the option: some paths drop unknown options. There is no
            // space for it beside a digest.
            accecn: accurate.filter(|_| self.send.timeouts() == 0 && self.config.md5.is_none()).map(Feedback::counters),
            ..Options::default()
        };
        let flags = match (is_answer, has(self.config.ecn, self.negotiated.ecn)) {
            (true, true) if let Some(feedback) = accurate => Flags::SYN | Flags::ACK | feedback.answer(),
            (true, true) => Flags::SYN | Flags::ACK | Flags::ECE,
            (true, false) => Flags::SYN | Flags::ACK,
            // RFC 3168, section 6.1.1. A repeated SYN requests no ECN: some paths drop it.
            (false, true) if self.send.timeouts() > 0 => Flags::SYN,
            (false, true) if self.config.accurate_ecn => Flags::SYN | accurate_ecn::REQUEST,
            (false, true) => Flags::SYN | Flags::ECE | Flags::CWR,
            (false, _) => Flags::SYN,
        };
        (options, flags)
    }

    /// Returns the length of the options in a segment with data, in bytes.
    pub(super) fn options_len(&self) -> u16 {
        let timestamps = if self.negotiated.timestamps { TIMESTAMPS_LEN } else { 0 };
        timestamps + if self.config.md5.is_some() { MD5_LEN } else { 0 }
    }

    /// Processes the peer's SYN: a feature is used if both sides offer it.
    pub(super) fn on_peer_syn(&mut self, now: Instant, header: &Header, ecn: Option<Ecn>) {
        let options = &header.options;
        let is_answer = header.flags.contains(Flags::ACK);
        let offer = self.ecn_offer(header.flags);
        let scaling = options.window_scale.filter(|_| self.config.window_scaling);
        self.negotiated = Negotiated {
            timestamps: options.timestamps.is_some() && self.config.timestamps,
            sack: options.sack_permitted && self.config.sack,
            ecn: offer != Offer::None,
            accurate_ecn: offer == Offer::Accurate,
            has_scaling: scaling.is_some(),
            // A larger shift counts as 14 (RFC 7323, section 2.3).
            peer_scale: scaling.unwrap_or(0).min(SCALE_MAX),
            scale: if scaling.is_some() { self.config.window_shift() } else { 0 },
        };
        let mut clock = TimestampClock::new(self.timestamp_offset);
        if let Some(timestamps) = options.timestamps.filter(|_| self.negotiated.timestamps) {
            clock.update(now, timestamps.value);
        }
        let default = DEFAULT_MSS[usize::from(self.tuple.local.is_ipv6())];
        let announced_mss = self.announced_mss();
        let mss = options.mss.unwrap_or(default).max(MSS_MIN).min(announced_mss);
        let segment = u64::from(mss.saturating_sub(self.options_len())).max(1);
        let terms = self.negotiated;
        let headers_len = if self.tuple.local.is_ipv6() { 40 } else { 20 } + HEADER_LEN as u16 + self.options_len();
        // A segment too large for a plan would never leave.
        assert!(segment + u64::from(headers_len) <= IP_PACKET_MAX as u64, "a full segment fits into a packet");
        self.send.negotiated(segment, terms.sack, terms.timestamps, terms.ecn);
        if self.config.path_probing {
            self.send.probe_path(headers_len);
        }
        let (ours, segments) = (self.send.space(), (segment, announced_mss));
        let mut receive = ReceiveHalf::new(&self.config, header, terms, clock, ours, segments);
        if terms.accurate_ecn {
            receive.count_marks(ecn, is_answer);
            // A SYN without a request was sent, too (RFC 9768, section 3.1.5).
            self.send.set_accurate_ecn(is_answer && self.send.timeouts() > 0);
        }
        self.receive = Some(receive);
    }

    /// Returns the ECN offer in the flags of the peer's SYN, or of its answer to ours.
    fn ecn_offer(&self, flags: Flags) -> Offer {
        let is_answer = flags.contains(Flags::ACK);
        match (self.config.ecn, self.config.accurate_ecn) {
            (false, _) => Offer::None,
            (true, true) if is_answer => accurate_ecn::answered(flags),
            (true, true) => accurate_ecn::requested(flags),
            // RFC 3168, section 6.1.1.
            (true, false) if flags.contains(Flags::ECE) && flags.contains(Flags::CWR) != is_answer => Offer::Classic,
            (true, false) => Offer::None,
        }
    }

    /// Processes a segment in state SYN-SENT (RFC 9293, section 3.10.7.3).
    pub(super) fn on_segment_syn_sent(&mut self, now: Instant, arrival: Arrival) {
        let header = &arrival.header;
        let ack = self.send.space().position(header.ack, self.send.una());
        let acks_our_syn = arrival.has(Flags::ACK) && ack == Some(1) && self.send.sent_end() == 1;
        if arrival.has(Flags::ACK) && !acks_our_syn {
            if !arrival.has(Flags::RST) {
                self.reset_due = Some(Reset::Unacceptable(header.ack));
                self.open_again(&arrival);
            }
            return;
        }
        if arrival.has(Flags::RST) {
            if acks_our_syn {
                self.close(CloseReason::Refused);
            }
            return;
        }
        if !arrival.has(Flags::SYN) {
            return;
        }
        self.on_peer_syn(now, header, arrival.ecn);
        if let Some(receive) = &mut self.receive {
            receive.set_ack_due();
        }
        if acks_our_syn {
            self.on_handshake_ack(now, &arrival);
            self.connected();
            self.take_content(now, 0, arrival);
        } else {
            // Both sides have opened at once (section 3.5): our SYN is repeated with an acknowledgement.
            self.state = State::SynReceived;
            self.keep_syn_text(&arrival);
            self.send.repeat_syn();
        }
    }

    /// Resends the SYN after an answer that belongs to an earlier connection; a reset ends that one
    /// (RFC 9293, section 3.5.1, figure 9). The peer has not accepted our SYN, so it is resent at
    /// once, as in Linux, and not a second later. This happens only once: forged answers must not
    /// double the number of packets.
    fn open_again(&mut self, arrival: &Arrival) {
        if !arrival.has(Flags::SYN) && self.send.is_syn_sent_once() {
            self.send.repeat_syn();
        }
    }

    /// Processes the acknowledgement of our SYN.
    pub(super) fn on_handshake_ack(&mut self, now: Instant, arrival: &Arrival) {
        let Some(receive) = &mut self.receive else { return };
        let window = u64::from(arrival.header.window);
        // The window of a SYN segment is never scaled (RFC 7323, section 2.2).
        let scale = if arrival.has(Flags::SYN) { 0 } else { self.negotiated.peer_scale };
        // The flags of a SYN negotiate; they report no mark (RFC 3168, section 6.1.1).
        let is_marked = arrival.has(Flags::ECE) && !arrival.has(Flags::SYN) && !self.negotiated.accurate_ecn;
        let info = AckInfo { window: window << scale, is_marked, ace: None, ..receive.ack_info(now, arrival) };
        receive.note_acked(FIRST_BYTE, info.window);
        // The answer to a SYN, and a segment without data, report how our SYN arrived (RFC 9768,
        // section 3.2.2.1).
        let has_code = arrival.has(Flags::SYN) || arrival.data.is_empty();
        self.send.on_accurate_handshake(accurate_ecn::ace(arrival.header.flags), has_code);
        self.send.handle_ack(now, &info);
        self.timers.on_heard(now);
        self.soft_error = None;
    }

    pub(super) fn connected(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.writer.release();
        }
        self.state = State::Established;
        (self.events.connected, self.events.writable) = (true, true);
    }
}
