//! Accurate ECN (RFC 9768): the receiver of data counts marks, and the sender learns how many there
//! were, instead of whether there was one.
//!
//! The three flags AE, CWR and ECE negotiate it in the handshake. Afterwards they are one number, ACE:
//! how many packets with a mark have arrived, modulo eight. An option has the bytes of each codepoint,
//! for acknowledgements that stand for many packets.

use units::Ecn;
use wire::tcp::{AccEcn, Flags};

/// The flags of a SYN that asks for it (section 3.1.1).
pub(crate) const REQUEST: Flags = Flags(Flags::AE.0 | Flags::CWR.0 | Flags::ECE.0);

/// The number of marked packets at the beginning (section 3.2.1): not zero, so that a path that clears
/// the flags is found.
const PACKETS_INITIAL: u64 = 5;

/// The number of bytes with ECT(0) and ECT(1) at the beginning (section 3.2.1), for the same reason.
const BYTES_INITIAL: u64 = 1;

/// Marked packets after which an acknowledgement is due at once (section 3.2.2.5.1: 2 is recommended).
const MARKS_MAX: u64 = 2;

/// Acknowledgements without news of marks between two with the option (section 3.2.3.3 asks for three
/// in a round trip).
const OPTION_PERIOD: u32 = 8;

/// Counters in the option are modulo this.
const OPTION_MODULUS: u64 = 1 << 24;

/// What one side offers or answers with the flags of a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    /// No ECN.
    None,
    /// ECN of RFC 3168.
    Classic,
    /// Accurate ECN.
    Accurate,
}

/// What the SYN of a peer asks for (section 3.1.2). Combinations without a meaning yet ask for accurate
/// ECN (section 3.1.3).
pub(crate) fn requested(flags: Flags) -> Offer {
    match ace(flags) {
        0b000 => Offer::None,
        0b011 => Offer::Classic,
        _ => Offer::Accurate,
    }
}

/// What the answer to our request says (section 3.1.2, table 2).
pub(crate) fn answered(flags: Flags) -> Offer {
    match ace(flags) {
        // The last one is our own request, from a peer that copies flags.
        0b000 | 0b111 => Offer::None,
        0b001 => Offer::Classic,
        _ => Offer::Accurate,
    }
}

/// The three flags as a number: ACE (section 3.2.2).
pub(crate) fn ace(flags: Flags) -> u8 {
    let bit = |flag: Flags, value| if flags.contains(flag) { value } else { 0 };
    bit(Flags::AE, 4) | bit(Flags::CWR, 2) | bit(Flags::ECE, 1)
}

/// The flags of a number.
pub(crate) fn flags(ace: u64) -> Flags {
    let flag = |bit: u64, flag: Flags| if ace & bit != 0 { flag } else { Flags::empty() };
    flag(4, Flags::AE) | flag(2, Flags::CWR) | flag(1, Flags::ECE)
}

/// How the codepoint of a SYN is told in the answer, and that of the answer in what follows (section
/// 3.1.1, table 2, and section 3.2.2.1, table 3).
const fn handshake_code(ecn: Option<Ecn>) -> u64 {
    match ecn {
        None => 0b010,
        Some(Ecn::Ect1) => 0b011,
        Some(Ecn::Ect0) => 0b100,
        Some(Ecn::Ce) => 0b110,
    }
}

/// The counters of a receiver of data.
#[derive(Debug, Clone)]
pub(crate) struct Feedback {
    /// Packets with a mark: r.cep.
    packets: u64,
    /// Bytes of data with a mark, ECT(0) and ECT(1): r.ceb, r.e0b, r.e1b.
    bytes: [u64; 3],
    /// The codepoint of the peer's SYN.
    syn: Option<Ecn>,
    /// The number of the demand that the peer learns it; zero if there was none.
    code_number: u64,
    /// The codepoint of the last packet.
    last: Option<Ecn>,
    /// Marks since an acknowledgement was demanded for them.
    undemanded: u64,
    /// How often the codepoint has changed or a mark has come, modulo 2^32.
    changes: u32,
}

impl Feedback {
    /// The counters of a connection whose peer's SYN had this codepoint.
    pub(crate) const fn new(syn: Option<Ecn>) -> Self {
        let packets = PACKETS_INITIAL + if matches!(syn, Some(Ecn::Ce)) { 1 } else { 0 };
        let bytes = [0, BYTES_INITIAL, BYTES_INITIAL];
        Self { packets, bytes, syn, code_number: 0, last: None, undemanded: 0, changes: 0 }
    }

    /// The flags of the answer to the peer's SYN.
    pub(crate) fn answer(&self) -> Flags {
        flags(handshake_code(self.syn))
    }

    /// The peer has answered our SYN, with this codepoint. The demand that it learns it has this number.
    pub(crate) const fn demand_code(&mut self, syn: Option<Ecn>, number: u64) {
        (self.syn, self.code_number) = (syn, number);
    }

    /// The number of the demand that the peer learns the codepoint of its answer.
    pub(crate) const fn code_number(&self) -> u64 {
        self.code_number
    }

    /// `packets` with this codepoint and `bytes` of data have arrived. True if an acknowledgement is due at
    /// once: several have marks, or the first one has (section 3.2.2.5.1).
    pub(crate) fn on_received(&mut self, ecn: Option<Ecn>, packets: u64, bytes: u64) -> bool {
        let (is_change, is_marked) = (self.last != ecn, ecn == Some(Ecn::Ce));
        self.last = ecn;
        if let Some(ecn) = ecn {
            self.bytes[index(ecn)] += bytes;
        }
        self.changes = self.changes.wrapping_add(u32::from(is_change || is_marked));
        if !is_marked {
            return false;
        }
        self.packets += packets;
        self.undemanded += packets;
        let is_due = bytes > 0 && (is_change || self.undemanded >= MARKS_MAX);
        if is_due {
            self.undemanded = 0;
        }
        is_due
    }

    /// The flags of the next segment (section 3.2.2). `is_code`: they tell the codepoint of the peer's
    /// answer to our SYN.
    pub(crate) fn flags(&self, is_code: bool) -> Flags {
        flags(if is_code { handshake_code(self.syn) } else { self.packets & 7 })
    }

    /// Differs from an earlier number if there is something to tell.
    pub(crate) const fn changes(&self) -> u32 {
        self.changes
    }

    /// The counters as the option has them.
    pub(crate) fn counters(&self) -> AccEcn {
        let [ce, e0, e1] = self.bytes.map(|bytes| Some((bytes % OPTION_MODULUS) as u32));
        let is_used = |ecn| self.bytes[index(ecn)] != BYTES_INITIAL;
        match (is_used(Ecn::Ect0), is_used(Ecn::Ect1)) {
            (true, true) => AccEcn { e0_bytes: e0, ce_bytes: ce, e1_bytes: e1 },
            (false, true) => AccEcn { e0_bytes: None, ce_bytes: ce, e1_bytes: e1 },
            (_, false) => AccEcn { e0_bytes: e0, ce_bytes: ce, e1_bytes: None },
        }
    }
}

const fn index(ecn: Ecn) -> usize {
    match ecn {
        Ecn::Ce => 0,
        Ecn::Ect0 => 1,
        Ecn::Ect1 => 2,
    }
}

/// When the option is due.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CountersDue {
    /// The number of changes that it has told of.
    told: u32,
    /// Acknowledgements until then, if nothing changes.
    left: u32,
}

impl CountersDue {
    /// An acknowledgement leaves after so many changes. Whether it has the option.
    pub(crate) const fn take(&mut self, changes: u32) -> bool {
        if self.left > 0 && self.told == changes {
            self.left -= 1;
            return false;
        }
        *self = Self { told: changes, left: OPTION_PERIOD - 1 };
        true
    }
}

/// What a sender of data knows of the counters of its peer.
#[derive(Debug, Clone)]
pub(crate) struct Marks {
    /// Packets with a mark: s.cep.
    packets: u64,
    /// Bytes with a mark at the last option: s.ceb.
    bytes: u64,
    /// Packets with a mark since then.
    since_option: u64,
    /// Segments carry no codepoint: a node on the path changes it, or the feedback (section 3.2.2.3).
    is_mangled: bool,
    /// So are the options (section 3.2.3.2).
    is_option_mangled: bool,
    /// The first number was seen.
    has_begun: bool,
}

impl Marks {
    /// `is_mangled`: segments are not to carry a codepoint.
    pub(crate) const fn new(is_mangled: bool) -> Self {
        Self {
            packets: PACKETS_INITIAL,
            bytes: 0,
            since_option: 0,
            is_mangled,
            is_option_mangled: false,
            has_begun: false,
        }
    }

    /// Whether segments carry a codepoint.
    pub(crate) const fn may_mark(&self) -> bool {
        !self.is_mangled
    }

    /// The peer tells which codepoint our SYN, or our answer to its SYN, had when it arrived. It left
    /// without one, so anything else is the work of the path (section 3.2.2.3), and segments carry none
    /// from now on. A mark counts all the same.
    pub(crate) fn on_handshake(&mut self, ace: u8) {
        self.has_begun = true;
        if u64::from(ace) == handshake_code(Some(Ecn::Ce)) {
            self.packets += 1;
        }
        let is_changed = [Ecn::Ect0, Ecn::Ect1, Ecn::Ce].iter().any(|ecn| u64::from(ace) == handshake_code(Some(*ecn)));
        self.is_mangled |= ace == 0 || is_changed;
    }

    /// An acknowledgement for `packets` packets of up to `segment` bytes, which had not been acknowledged.
    /// How many of them had a mark, as far as the number of three bits and the option tell (section
    /// 3.2.2.5.2).
    pub(crate) fn on_ack(&mut self, ace: u8, option: Option<&AccEcn>, packets: u64, segment: u64) -> u64 {
        if !std::mem::replace(&mut self.has_begun, true) && ace == 0 {
            // A path that clears the flags (section 3.2.2.4).
            self.is_mangled = true;
            return 0;
        }
        let seen = u64::from(ace).wrapping_sub(self.packets) & 7;
        let bytes = self.bytes_of(option);
        let before = if bytes.is_some() { std::mem::take(&mut self.since_option) } else { self.since_option };
        let marked = match bytes {
            // Of the numbers with these three bits, the least one that has so many bytes.
            Some(bytes) if packets > 7 => {
                let least = bytes.div_ceil(segment.max(1)).saturating_sub(before);
                seen + least.saturating_sub(seen).next_multiple_of(8)
            }
            _ => seen,
        };
        self.packets = self.packets.wrapping_add(marked);
        if bytes.is_none() {
            self.since_option = before.saturating_add(marked);
        }
        // More than were acknowledged were others, which had no data, or lies.
        marked.min(packets)
    }

    /// Bytes with a mark since the last option, if there is one and it can be believed.
    fn bytes_of(&mut self, option: Option<&AccEcn>) -> Option<u64> {
        let option = option.filter(|_| !self.is_option_mangled)?;
        // Counters of ECT never are zero at the beginning.
        if option.e0_bytes == Some(0) && option.e1_bytes.is_none_or(|bytes| bytes == 0) && option.ce_bytes == Some(0) {
            self.is_option_mangled = true;
            return None;
        }
        let bytes = u64::from(option.ce_bytes?).wrapping_sub(self.bytes) % OPTION_MODULUS;
        self.bytes = self.bytes.wrapping_add(bytes);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 1000;

    #[test]
    fn the_flags_negotiate_what_both_sides_know() {
        let codes = |of: fn(Flags) -> Offer| (0..8).map(|ace| of(flags(ace))).collect::<Vec<_>>();
        let (none, classic, accurate) = (Offer::None, Offer::Classic, Offer::Accurate);
        assert_eq!(codes(requested), [none, accurate, accurate, classic, accurate, accurate, accurate, accurate]);
        assert_eq!(codes(answered), [none, classic, accurate, accurate, accurate, accurate, accurate, none]);
        assert_eq!(requested(REQUEST), accurate);
        (0..8).for_each(|number| assert_eq!(u64::from(ace(flags(number))), number));
    }

    #[test]
    fn each_mark_counts_and_the_first_and_each_second_are_told_at_once() {
        let mut feedback = Feedback::new(None);
        assert_eq!((feedback.answer(), ace(feedback.flags(false))), (Flags::CWR, 5));
        assert!(!feedback.on_received(Some(Ecn::Ect0), 1, 1000));
        assert!(feedback.on_received(Some(Ecn::Ce), 1, 1000), "the first");
        assert!(!feedback.on_received(Some(Ecn::Ce), 1, 1000));
        assert!(feedback.on_received(Some(Ecn::Ce), 1, 1000), "two");
        assert_eq!(ace(feedback.flags(false)), 0, "8, modulo 8");
        assert!(!feedback.on_received(None, 1, 0), "nor what has no codepoint");
        assert_eq!(feedback.counters(), AccEcn { e0_bytes: Some(1001), ce_bytes: Some(3000), e1_bytes: None });
        feedback.on_received(Some(Ecn::Ect1), 1, 500);
        let all = AccEcn { e0_bytes: Some(1001), ce_bytes: Some(3000), e1_bytes: Some(501) };
        assert_eq!(feedback.counters(), all);
        let changes = feedback.changes();
        feedback.on_received(Some(Ecn::Ect1), 1, 500);
        assert_eq!(feedback.changes(), changes);
        // Who uses ECT(1) alone gets that first.
        let mut feedback = Feedback::new(Some(Ecn::Ce));
        assert_eq!([true, false].map(|is_code| ace(feedback.flags(is_code))), [0b110, 6]);
        feedback.on_received(Some(Ecn::Ect1), 1, 9);
        assert_eq!(feedback.counters(), AccEcn { e0_bytes: None, ce_bytes: Some(0), e1_bytes: Some(10) });
    }

    #[test]
    fn a_sender_counts_what_its_receiver_counts_whatever_is_joined_or_lost() {
        let mut rng = units::Rng::from_seed(3);
        for _ in 0..200 {
            let (mut feedback, mut marks) = (Feedback::new(None), Marks::new(false));
            marks.on_handshake(0b010);
            let (mut told, mut counted) = (0, 0);
            for _ in 0..200 {
                // An acknowledgement for up to forty packets, some of them marked.
                let packets = 1 + rng.below(40);
                let mut marked = 0;
                for _ in 0..packets {
                    let is_marked = rng.below(4) == 0;
                    feedback.on_received(Some(if is_marked { Ecn::Ce } else { Ecn::Ect0 }), 1, SEGMENT);
                    marked += u64::from(is_marked);
                }
                told += marked;
                // Without the option, the number of three bits must be enough.
                let option = (marked > 7 || rng.below(3) == 0).then(|| feedback.counters());
                counted += marks.on_ack(ace(feedback.flags(false)), option.as_ref(), packets, SEGMENT);
                assert_eq!(counted, told);
            }
        }
    }

    #[test]
    fn a_path_that_clears_or_changes_codepoints_gets_none() {
        for (code, may_mark) in
            [(0, false), (0b010, true), (0b011, false), (0b100, false), (0b110, false), (0b101, true)]
        {
            let mut marks = Marks::new(false);
            marks.on_handshake(code);
            assert_eq!(marks.may_mark(), may_mark, "{code:03b}");
        }
        let mut marks = Marks::new(false);
        assert_eq!((marks.on_ack(0, None, 10, SEGMENT), marks.may_mark()), (0, false));
        // Later, zero is a number like others.
        let mut marks = Marks::new(false);
        assert_eq!((marks.on_ack(5, None, 2, SEGMENT), marks.on_ack(0, None, 10, SEGMENT)), (0, 3));
        assert!(marks.may_mark());
        // An option of zeros is the work of the path, too; the flags count.
        let zero = AccEcn { e0_bytes: Some(0), ce_bytes: Some(0), e1_bytes: Some(0) };
        assert_eq!(marks.on_ack(2, Some(&zero), 20, SEGMENT), 2);
        let lie = AccEcn { e0_bytes: Some(1), ce_bytes: Some(9000), e1_bytes: None };
        assert_eq!(marks.on_ack(2, Some(&lie), 20, SEGMENT), 0);
    }

    #[test]
    fn impossible_numbers_are_limited_to_what_was_acknowledged() {
        let mut marks = Marks::new(false);
        let huge = AccEcn { e0_bytes: Some(1), ce_bytes: Some((1 << 24) - 1), e1_bytes: None };
        assert_eq!(marks.on_ack(4, Some(&huge), 9, 1), 9);
        assert_eq!(marks.on_ack(3, None, 0, SEGMENT), 0);
    }
}
