//! Accurate ECN (RFC 9768).

use recovery::Algorithm;
use tcp::TcpConfig;
use units::{Duration, Ecn};
use wire::tcp::{AccEcn, Flags, Options};

use crate::support::peer::{INITIAL, PEER_INITIAL, Peer, Segment, Sent, offer};

const RTT: Duration = Duration::from_millis(50);
const REQUEST: Flags = Flags(Flags::SYN.0 | ACE);
const SYN_ACK: Flags = Flags(Flags::SYN.0 | Flags::ACK.0);
const ACE: u16 = Flags::AE.0 | Flags::CWR.0 | Flags::ECE.0;

fn config() -> TcpConfig {
    TcpConfig { accurate_ecn: true, ..TcpConfig::default() }
}

/// Returns the three flags as a number.
fn ace_of(flags: Flags) -> u8 {
    let bit = |flag: Flags, value| if flags.contains(flag) { value } else { 0 };
    bit(Flags::AE, 4) | bit(Flags::CWR, 2) | bit(Flags::ECE, 1)
}

fn ace(sent: &Sent) -> u8 {
    ace_of(sent.flags)
}

/// Returns a segment with this number in the three flags.
fn with_ace(segment: Segment, ace: u8) -> Segment {
    let flag = |bit: u8, flag: Flags| if ace & bit != 0 { flag } else { Flags::empty() };
    let flags = segment.flags | flag(4, Flags::AE) | flag(2, Flags::CWR) | flag(1, Flags::ECE);
    segment.flags(flags)
}

/// Returns a peer that has negotiated accurate ECN; segments have 1000 bytes.
fn accurate(congestion: Algorithm) -> Peer {
    let config = TcpConfig { congestion: Some(congestion), ..config() };
    let mut peer = Peer::sends_syn(&config, Options { mss: Some(1000), ..offer() }, REQUEST, (INITIAL, PEER_INITIAL));
    let answer = peer.receive();
    assert_eq!(ace(&answer[0]), 0b010, "our SYN came without a codepoint");
    let counters = AccEcn { e0_bytes: Some(1), ce_bytes: Some(0), e1_bytes: None };
    assert_eq!(answer[0].options.accecn, Some(counters), "section 3.2.3.2.1");
    peer.now += RTT;
    let answer = with_ace(peer.segment(), 0b010);
    peer.send(answer);
    peer
}

#[test]
fn a_peer_that_asks_gets_it_and_others_get_what_they_know() {
    let answer = |config: &TcpConfig, flags: u16| {
        let mut peer = Peer::sends_syn(config, offer(), Flags(Flags::SYN.0 | flags), (INITIAL, PEER_INITIAL));
        ace(&peer.sent()[0])
    };
    let (ecn, cwr, ae) = (Flags::ECE.0, Flags::CWR.0, Flags::AE.0);
    assert_eq!(answer(&config(), 0), 0);
    assert_eq!(answer(&config(), ecn | cwr), 0b001, "RFC 3168");
    // Unassigned combinations request it, too (section 3.1.3).
    for flags in [ACE, ae, cwr, ecn, ae | cwr, ae | ecn] {
        assert_eq!(answer(&config(), flags), 0b010, "{flags:03x}");
    }
    assert_eq!(answer(&TcpConfig::default(), ACE), 0b001, "RFC 3168 is what a side without it knows");
    assert_eq!(answer(&TcpConfig { ecn: false, ..config() }, ACE), 0);
}

#[test]
fn the_answer_decides_what_the_side_that_asks_uses() {
    for (code, codepoint, next) in [
        (0b010, Some(Ecn::Ect0), 5),
        // The codepoint was changed on the way: feedback is given, but no codepoint is sent
        // (section 3.2.2.3).
        (0b011, None, 5),
        (0b100, None, 5),
        (0b110, None, 5),
        // Reserved (section 3.1.3).
        (0b101, Some(Ecn::Ect0), 5),
        // RFC 3168.
        (0b001, Some(Ecn::Ect0), 0),
        // No ECN, and a peer that copies flags.
        (0b000, None, 0),
        (0b111, None, 0),
    ] {
        let mut peer = Peer::awaits(&config());
        let syn = peer.receive();
        assert_eq!(syn[0].flags, REQUEST);
        let answer = with_ace(Segment { options: offer(), ..peer.segment().flags(SYN_ACK) }, code);
        peer.send(answer);
        peer.nxt = 1;
        peer.write(3000);
        let sent = peer.receive();
        assert_eq!(sent.last().map(|sent| (sent.ecn, ace(sent))), Some((codepoint, next)), "{code:03b}: {sent:?}");
        if next == 5 {
            // The report of how the answer arrived, before any data (section 3.2.2.1).
            assert!(sent[0].data.is_empty() && ace(&sent[0]) == 0b010, "{sent:?}");
            assert!(sent[0].options.accecn.is_some());
        }
    }
}

#[test]
fn the_codepoint_of_the_answer_is_told_and_told_again() {
    for (ecn, code, next) in
        [(None, 0b010, 5), (Some(Ecn::Ect1), 0b011, 5), (Some(Ecn::Ect0), 0b100, 5), (Some(Ecn::Ce), 0b110, 6)]
    {
        let mut peer = Peer::awaits(&config());
        peer.receive();
        let answer = with_ace(Segment { options: offer(), ecn, ..peer.segment().flags(SYN_ACK) }, 0b010);
        peer.send(answer.clone());
        assert_eq!(peer.sent().iter().map(ace).collect::<Vec<_>>(), [code]);
        // Our answer was lost.
        peer.send(answer);
        assert_eq!(peer.sent().iter().map(ace).collect::<Vec<_>>(), [code]);
        peer.nxt = 1;
        peer.write(10);
        assert_eq!(peer.sent().iter().map(ace).collect::<Vec<_>>(), [next]);
    }
}

#[test]
fn a_repeated_request_asks_for_nothing_and_marks_are_not_risked_then() {
    let mut peer = Peer::awaits(&config());
    let all = peer.pass(Duration::from_secs(2));
    assert_eq!(all.iter().map(ace).collect::<Vec<_>>(), [7, 0]);
    // The answer is to the first one.
    peer.expected = 1;
    let answer = with_ace(Segment { options: offer(), ..peer.segment().flags(SYN_ACK) }, 0b010);
    peer.send(answer);
    peer.nxt = 1;
    peer.write(1000);
    let sent = peer.receive();
    assert!(sent.iter().all(|sent| sent.ecn.is_none()), "RFC 9768, section 3.1.5");
    assert_eq!(sent.last().map(ace), Some(5), "feedback is given");
}

#[test]
fn marks_are_counted_for_the_peer() {
    let mut peer = accurate(Algorithm::Cubic);
    let mut count = 5_u64;
    for (index, marked) in [true, false, true, true, true, false, true, true].into_iter().cycle().take(50).enumerate() {
        count += u64::from(marked);
        let ecn = if marked { Ecn::Ce } else { Ecn::Ect0 };
        peer.send(peer.segment().len(1000).ecn(ecn));
        peer.nxt += 1000;
        peer.read();
        let sent = peer.sent();
        // The first mark in a row is reported at once.
        let is_first = marked && (index % 8 == 0 && index == 0 || index % 8 == 2 || index % 8 == 6);
        assert!(!is_first || sent.len() == 1, "{index}: {sent:?}");
        sent.iter().for_each(|sent| assert_eq!(u64::from(ace(sent)), count & 7, "{index}"));
    }
    let bytes = 1000 * (count as u32 - 5);
    peer.send(peer.segment().seq(peer.nxt + 5000).len(1000).ecn(Ecn::Ce));
    let sent = peer.sent();
    assert_eq!(sent[0].options.accecn.and_then(|counters| counters.ce_bytes), Some(bytes + 1000), "{sent:?}");
    assert_eq!(peer.connection.stats().receive.marked, u64::from(bytes) / 1000 + 1);
}

#[test]
fn data_in_both_directions_have_the_count_in_each_segment() {
    let mut peer = accurate(Algorithm::Cubic);
    // Six: CWR is set, which a segmenting device would clear.
    peer.send(peer.segment().len(1000).ecn(Ecn::Ce));
    peer.nxt += 1000;
    peer.write(5000);
    let sent = peer.sent();
    let data: Vec<_> = sent.iter().filter(|sent| !sent.data.is_empty()).collect();
    assert!(data.len() == 5 && data.iter().all(|sent| ace(sent) == 6), "{sent:?}");
    assert!(data.iter().all(|sent| sent.data.len() == 1000 && sent.options.accecn.is_none()));
}

/// Acknowledges ten sent segments in two halves, with these numbers.
fn acknowledged(peer: &mut Peer, numbers: [u8; 2], options: [Option<AccEcn>; 2]) {
    peer.write(30_000);
    let sent = peer.receive();
    assert_eq!(sent.len(), 10);
    peer.now += RTT;
    for ((number, option), ack) in numbers.into_iter().zip(options).zip([5001, 10_001]) {
        let mut answer = with_ace(peer.segment().ack(ack), number);
        answer.options.accecn = option;
        peer.send(answer);
    }
}

#[test]
fn each_mark_counts_and_the_window_shrinks_once_in_a_round_trip() {
    let mut peer = accurate(Algorithm::NewReno);
    acknowledged(&mut peer, [7, 0], [None, None]);
    let stats = peer.connection.stats().send;
    assert_eq!((stats.packets_marked, stats.marks), (3, 1));
    assert!(peer.sent().iter().all(|sent| !sent.has(Flags::CWR)), "CWR is a bit of the number");
    // An old acknowledgement has an old number.
    peer.send(with_ace(peer.segment().ack(5001), 7));
    assert_eq!(peer.connection.stats().send.packets_marked, 3);
    // The option reports nine packets, which three bits cannot.
    let mut peer = accurate(Algorithm::NewReno);
    peer.write(30_000);
    peer.receive();
    peer.now += RTT;
    let mut answer = with_ace(peer.segment(), 6);
    answer.options.accecn = Some(AccEcn { e0_bytes: Some(1001), ce_bytes: Some(9000), e1_bytes: None });
    peer.send(answer);
    assert_eq!(peer.connection.stats().send.packets_marked, 9);
}

#[test]
fn prague_answers_in_proportion_and_says_so() {
    let mut peer = accurate(Algorithm::Prague);
    peer.write(100_000);
    let (mut nxt, mut number, mut codepoints) = (1, 5, Vec::new());
    let mut windows = Vec::new();
    for round in 0..60 {
        let sent = peer.pass(RTT / 2);
        codepoints.extend(sent.iter().filter(|sent| !sent.data.is_empty()).map(|sent| sent.ecn));
        peer.note(&sent);
        peer.now += RTT / 2;
        // One packet of each round has a mark.
        if peer.expected > nxt {
            (nxt, number) = (peer.expected, (number + 1) & 7);
            peer.send(with_ace(peer.segment(), number));
            windows.push(peer.connection.congestion().0);
        }
        peer.write(if round < 50 { 20_000 } else { 0 });
    }
    assert!(codepoints.iter().all(|ecn| *ecn == Some(Ecn::Ect1)), "L4S");
    // The first mark may halve the window; with a small share the average falls, and with it the reductions.
    let last = windows.windows(2).rev().take(20).map(|pair| pair[1] as f64 / pair[0] as f64);
    let deepest = last.fold(1.0_f64, f64::min);
    assert!(deepest > 0.7, "{deepest}: {windows:?}");
    assert!(windows.windows(2).any(|pair| pair[1] < pair[0]), "{windows:?}");
}

#[test]
fn prague_without_it_uses_the_other_codepoint() {
    let config = TcpConfig { congestion: Some(Algorithm::Prague), ..config() };
    let flags = Flags::SYN | Flags::ECE | Flags::CWR;
    let mut peer = Peer::opens_with(&config, offer(), flags, (INITIAL, PEER_INITIAL));
    peer.write(1000);
    assert_eq!(peer.sent()[0].ecn, Some(Ecn::Ect0));
}

#[test]
fn a_path_that_clears_the_flags_gets_no_codepoints() {
    let mut peer = Peer::sends_syn(&config(), Options { mss: Some(1000), ..offer() }, REQUEST, (INITIAL, PEER_INITIAL));
    peer.receive();
    peer.send(peer.segment());
    peer.write(5000);
    let sent = peer.sent();
    assert!(sent.iter().all(|sent| sent.ecn.is_none() && ace(sent) == 5), "section 3.2.2.4: {sent:?}");
}

#[test]
fn numbers_that_lie_cost_their_sender_alone() {
    let mut peer = accurate(Algorithm::Cubic);
    peer.write(1_000_000);
    let mut rng = units::Rng::from_seed(5);
    for _ in 0..2000 {
        let sent = peer.pass(Duration::from_millis(5));
        peer.note(&sent);
        let mut answer = with_ace(peer.segment(), rng.below(8) as u8);
        let mut counter = || (rng.below(2) == 0).then(|| rng.below(1 << 24) as u32);
        answer.options.accecn = Some(AccEcn { e0_bytes: counter(), ce_bytes: counter(), e1_bytes: counter() });
        peer.send(answer);
        if peer.expected > 1_000_000 {
            break;
        }
    }
    let stats = peer.connection.stats().send;
    assert!(peer.expected > 1_000_000 && stats.packets_marked <= 1001, "{} {stats:?}", peer.expected);
    peer.assert_works();
}
