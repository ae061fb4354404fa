//! Accurate ECN (RFC 9768): the data receiver counts the marks it sees, and the sender learns how
//! many there were instead of only whether there was one.
//!
//! The three flags AE, CWR and ECE negotiate it in the handshake. After the handshake they form one
//! number, ACE: the count of received marked packets, modulo eight. An option carries byte counts
//! per codepoint, for acknowledgements that cover many packets.

use units::Ecn;
use wire::tcp::{AccEcn, Flags};

/// Flags of a SYN that requests accurate ECN (section 3.1.1).
pub(crate) const REQUEST: Flags = Flags(Flags::AE.0 | Flags::CWR.0 | Flags::ECE.0);

/// Initial count of marked packets (section 3.2.1): not zero, so that a path that clears the flags
/// is detected.
const PACKETS_INITIAL: u64 = 5;

/// Initial ECT(0) and ECT(1) byte counts (section 3.2.1), nonzero for the same reason.
const BYTES_INITIAL: u64 = 1;

/// Number of marked packets that triggers an immediate acknowledgement (section 3.2.2.5.1
/// recommends 2).
const MARKS_MAX: u64 = 2;

/// Number of acknowledgements from one option to the next while no counter changes (section 3.2.3.3
/// asks for three in a round trip).
const OPTION_PERIOD: u32 = 8;

/// Modulus of the option's counters.
const OPTION_MODULUS: u64 = 1 << 24;

/// ECN mode that the flags of a SYN offer or accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    /// No ECN.
    None,
    /// ECN of RFC 3168.
    Classic,
    /// Accurate ECN.
    Accurate,
}

/// Parses the ECN request in the flags of a peer's SYN (section 3.1.2). Unassigned combinations
/// count as a request for accurate ECN (section 3.1.3).
pub(crate) fn requested(flags: Flags) -> Offer {
    match ace(flags) {
        0b000 => Offer::None,
        0b011 => Offer::Classic,
        _ => Offer::Accurate,
    }
}

/// Parses the peer's answer to our request (section 3.1.2, table 2).
pub(crate) fn answered(flags: Flags) -> Offer {
    match ace(flags) {
        // The last value echoes our own request: the peer copies flags.
        0b000 | 0b111 => Offer::None,
        0b001 => Offer::Classic,
        _ => Offer::Accurate,
    }
}

/// Encodes the three flags as the number ACE (section 3.2.2).
pub(crate) fn ace(flags: Flags) -> u8 {
    let bit = |flag: Flags, value| if flags.contains(flag) { value } else { 0 };
    bit(Flags::AE, 4) | bit(Flags::CWR, 2) | bit(Flags::ECE, 1)
}

/// Decodes a number into the three flags.
pub(crate) fn flags(ace: u64) -> Flags {
    let flag = |bit: u64, flag: Flags| if ace & bit != 0 { flag } else { Flags::empty() };
    flag(4, Flags::AE) | flag(2, Flags::CWR) | flag(1, Flags::ECE)
}

/// Encodes the codepoint of a received SYN for the answer, and that of the answer for the following
/// segments (section 3.1.1, table 2, and section 3.2.2.1, table 3).
const fn handshake_code(ecn: Option<Ecn>) -> u64 {
    match ecn {
        None => 0b010,
        Some(Ecn::Ect1) => 0b011,
        Some(Ecn::Ect0) => 0b100,
        Some(Ecn::Ce) => 0b110,
    }
}

/// Counters of the data receiver.
#[derive(Debug, Clone)]
pub(crate) struct Feedback {
    /// Number of marked packets: r.cep.
    packets: u64,
    /// Bytes of data received with CE, ECT(0) and ECT(1): r.ceb, r.e0b, r.e1b.
    bytes: [u64; 3],
    /// Codepoint of the peer's SYN.
    syn: Option<Ecn>,
    /// Number of the demand to report this codepoint to the peer; zero if there was none.
    code_number: u64,
    /// Codepoint of the last packet.
    last: Option<Ecn>,
    /// Marks since the last demand for an acknowledgement.
    undemanded: u64,
    /// Number of codepoint changes and marks, modulo 2^32.
    changes: u32,
}

impl Feedback {
    /// Creates the counters of a connection whose peer's SYN had this codepoint.
    pub(crate) const fn new(syn: Option<Ecn>) -> Self {
        let packets = PACKETS_INITIAL + if matches!(syn, Some(Ecn::Ce)) { 1 } else { 0 };
        let bytes = [0, BYTES_INITIAL, BYTES_INITIAL];
        Self { packets, bytes, syn, code_number: 0, last: None, undemanded: 0, changes: 0 }
    }

    /// Returns the flags of the answer to the peer's SYN.
    pub(crate) fn answer(&self) -> Flags {
        flags(handshake_code(self.syn))
    }

    /// Records the codepoint of the peer's answer to our SYN, and the `number` of the demand to
    /// report it.
    pub(crate) const fn demand_code(&mut self, syn: Option<Ecn>, number: u64) {
        (self.syn, self.code_number) = (syn, number);
    }

    /// Returns the number of the demand to report the codepoint of the peer's answer.
    pub(crate) const fn code_number(&self) -> u64 {
        self.code_number
    }

    /// Counts `packets` with this codepoint and `bytes` of data. Returns true if an acknowledgement
    /// is due at once: for data with a mark after a packet with another codepoint, and for each
    /// `MARKS_MAX` marks (section 3.2.2.5.1).
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

    /// Returns the flags of the next segment (section 3.2.2). With `is_code`, they encode the
    /// codepoint of the peer's answer to our SYN.
    pub(crate) fn flags(&self, is_code: bool) -> Flags {
        flags(if is_code { handshake_code(self.syn) } else { self.packets & 7 })
    }

    /// Returns a number that changes whenever there is something new to report.
    pub(crate) const fn changes(&self) -> u32 {
        self.changes
    }

    /// Returns the counters in the form of the option.
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

/// Schedule of the option.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CountersDue {
    /// Number of changes reported so far.
    told: u32,
    /// Acknowledgements left until the next option if nothing changes.
    left: u32,
}

impl CountersDue {
    /// Counts an acknowledgement sent after `changes` changes, and returns whether it carries the
    /// option.
    pub(crate) const fn take(&mut self, changes: u32) -> bool {
        if self.left > 0 && self.told == changes {
            self.left -= 1;
            return false;
        }
        *self = Self { told: changes, left: OPTION_PERIOD - 1 };
        true
    }
}

/// The data sender's knowledge of its peer's counters.
#[derive(Debug, Clone)]
pub(crate) struct Marks {
    /// Number of marked packets: s.cep.
    packets: u64,
    /// Marked bytes at the last option: s.ceb.
    bytes: u64,
    /// Marked packets since that option.
    since_option: u64,
    /// Whether segments are sent without a codepoint, because a node on the path changes it or the
    /// feedback (section 3.2.2.3).
    is_mangled: bool,
    /// Whether the path changes the options (section 3.2.3.2).
    is_option_mangled: bool,
    /// Whether the first number was seen.
    has_begun: bool,
}

impl Marks {
    /// `is_mangled`: send segments without a codepoint.
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

    /// Returns whether segments carry a codepoint.
    pub(crate) const fn may_mark(&self) -> bool {
        !self.is_mangled
    }

    /// Processes the peer's report of the codepoint with which our SYN, or our answer to its SYN,
    /// arrived. It left without one, so any other value is the work of the path (section 3.2.2.3),
    /// and further segments carry none. A mark still counts.
    pub(crate) fn on_handshake(&mut self, ace: u8) {
        self.has_begun = true;
        if u64::from(ace) == handshake_code(Some(Ecn::Ce)) {
            self.packets += 1;
        }
        let is_changed = [Ecn::Ect0, Ecn::Ect1, Ecn::Ce].iter().any(|ecn| u64::from(ace) == handshake_code(Some(*ecn)));
        self.is_mangled |= ace == 0 || is_changed;
    }

    /// Processes an acknowledgement of `packets` new packets of up to `segment` bytes, and returns
    /// how many of them were marked, as far as the three-bit number and the option tell (section
    /// 3.2.2.5.2).
    pub(crate) fn on_ack(&mut self, ace: u8, option: Option<&AccEcn>, packets: u64, segment: u64) -> u64 {
        if !std::mem::replace(&mut self.has_begun, true) && ace == 0 {
            // The path clears the flags (section 3.2.2.4).
            self.is_mangled = true;
            return 0;
        }
        let seen = u64::from(ace).wrapping_sub(self.packets) & 7;
        let bytes = self.bytes_of(option);
        let before = if bytes.is_some() { std::mem::take(&mut self.since_option) } else { self.since_option };
        let marked = match bytes {
            // The smallest number with these three bits that covers this many bytes.
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
        // A surplus belongs to packets without data, or is a lie.
        marked.min(packets)
    }

    /// Returns the number of marked bytes since the last option; `None` without a credible option.
    fn bytes_of(&mut self, option: Option<&AccEcn>) -> Option<u64> {
        let option = option.filter(|_| !self.is_option_mangled)?;
        // ECT counters never start at zero.
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
        // A sender that uses only ECT(1) gets its counter first.
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
        // The path must have zeroed this option, too; the flags still count.
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
