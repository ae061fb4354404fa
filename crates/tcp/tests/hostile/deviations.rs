//! Peers that deviate from RFC 7323 and RFC 5961, and which Linux accepts: a row for each, with its
//! clause. Each is answered like in Linux, and the connection continues in both directions.

use tcp::{CloseReason, Event, SoftError, State, TcpConfig};
use units::Duration;
use wire::tcp::{Flags, Timestamps};

use crate::support::peer::{INITIAL, PEER_INITIAL, Peer, Segment, offer};

/// Round trip of all acknowledgements of the peer.
const RTT: Duration = Duration::from_millis(40);

/// Immediate answer to a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Nothing,
    /// An acknowledgement of the peer's data in order.
    Ack,
}

/// State of the connection afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Data flow in both directions, and the peer deviates no more.
    Works,
    /// Data flow; the peer has no timestamps any more.
    WorksUnstamped,
    Ends(CloseReason),
}

struct Row {
    clause: &'static str,
    what: &'static str,
    has_timestamps: bool,
    segments: fn(&Peer) -> Vec<Segment>,
    /// Answer to each segment.
    answer: Answer,
    /// Bytes of data accepted from all of them.
    taken: usize,
    then: Then,
}

const ROW: Row = Row {
    clause: "",
    what: "",
    has_timestamps: true,
    segments: |_| Vec::new(),
    answer: Answer::Nothing,
    taken: 0,
    then: Then::Works,
};

/// Returns a peer that has sent and received data before, in round trips of [`RTT`].
fn peer(has_timestamps: bool) -> Peer {
    let mut options = offer();
    options.timestamps = has_timestamps.then(Timestamps::default);
    let mut peer = Peer::sends_syn(&TcpConfig::default(), options, Flags::SYN, (INITIAL, PEER_INITIAL));
    peer.receive();
    peer.now += RTT;
    peer.send_ack();
    exchange(&mut peer, false);
    peer
}

/// Exchanges data in both directions. `is_bare`: the peer's segments have no timestamps.
fn exchange(peer: &mut Peer, is_bare: bool) {
    let strip = |mut segment: Segment| {
        segment.options.timestamps = segment.options.timestamps.filter(|_| !is_bare);
        segment
    };
    peer.write(2000);
    let sent = peer.receive();
    assert_eq!(sent.iter().map(|sent| sent.data.len()).sum::<usize>(), 2000, "{sent:?}");
    peer.now += RTT;
    peer.send(strip(peer.segment()));
    assert_eq!(peer.sent().len(), 0, "nothing is left to say");
    peer.send(strip(peer.segment().len(100)));
    peer.nxt += 100;
    assert_eq!(peer.read().len(), 100);
    let acks = peer.pass(Duration::from_millis(500));
    assert!(acks.iter().any(|sent| sent.ack == peer.nxt), "{acks:?}");
    peer.note(&acks);
}

fn unstamped(mut segment: Segment) -> Segment {
    segment.options.timestamps = None;
    segment
}

const ROWS: &[Row] = &[
    // RFC 7323, timestamps.
    Row {
        clause: "RFC 7323, 3.2: a segment without timestamps SHOULD be dropped (Linux takes it)",
        what: "data without timestamps",
        segments: |peer| vec![unstamped(peer.segment().len(10)), unstamped(peer.segment().seq(peer.nxt + 10).len(10))],
        taken: 20,
        then: Then::WorksUnstamped,
        ..ROW
    },
    Row {
        clause: "RFC 7323, 3.2",
        what: "a bare acknowledgement without timestamps",
        segments: |peer| vec![unstamped(peer.segment())],
        then: Then::WorksUnstamped,
        ..ROW
    },
    Row {
        clause: "RFC 7323, 3.2: timestamps that were not negotiated are ignored",
        what: "data with timestamps of any value",
        has_timestamps: false,
        segments: |peer| {
            let data = |number: u32, value| peer.segment().seq(peer.nxt + 10 * number).len(10).stamp(value, 77);
            vec![data(0, 1 << 31), data(1, 0), data(2, u32::MAX)]
        },
        taken: 30,
        ..ROW
    },
    Row {
        clause: "RFC 7323, 3.2: RST without timestamps is taken",
        what: "a reset without timestamps",
        segments: |peer| vec![unstamped(peer.segment().flags(Flags::RST))],
        then: Then::Ends(CloseReason::Reset),
        ..ROW
    },
    Row {
        clause: "RFC 7323, 5.2: PAWS is no check of RST",
        what: "a reset with an old timestamp",
        segments: |peer| vec![peer.segment().flags(Flags::RST).stamp(1, 0)],
        then: Then::Ends(CloseReason::Reset),
        ..ROW
    },
    Row {
        clause: "RFC 7323, 5.3, R1",
        what: "data with an old timestamp",
        segments: |peer| vec![peer.segment().len(10).stamp(peer.clock() - 1000, 0)],
        answer: Answer::Ack,
        ..ROW
    },
    Row {
        clause: "RFC 7323, 5.3, R1 (Linux: one tick back is taken)",
        what: "data whose timestamp is one older",
        segments: |peer| {
            vec![peer.segment(), peer.segment().len(10).stamp(peer.clock() - 1, peer.echo.unwrap_or_default())]
        },
        taken: 10,
        ..ROW
    },
    Row {
        clause: "RFC 7323, 3.2: TSecr of zero",
        what: "data and an acknowledgement that echo zero",
        segments: |peer| vec![peer.segment().stamp(peer.clock(), 0), peer.segment().len(10).stamp(peer.clock(), 0)],
        taken: 10,
        ..ROW
    },
    Row {
        clause: "RFC 7323, 4.1: TSecr that was never sent",
        what: "data that echo the future and the far past",
        segments: |peer| {
            let data =
                |number: u32, echo: u32| peer.segment().seq(peer.nxt + 10 * number).len(10).stamp(peer.clock(), echo);
            let echo = peer.echo.unwrap_or_default();
            vec![data(0, echo.wrapping_add(1 << 20)), data(1, echo.wrapping_sub(1 << 30)), data(2, u32::MAX)]
        },
        taken: 30,
        ..ROW
    },
    // RFC 5961.
    Row {
        clause: "RFC 5961, 3.2",
        what: "a reset elsewhere in the window",
        segments: |peer| vec![peer.segment().seq(peer.nxt + 1).flags(Flags::RST)],
        answer: Answer::Ack,
        ..ROW
    },
    Row {
        clause: "RFC 5961, 3.2",
        what: "resets outside the window",
        segments: |peer| {
            [u32::MAX, u32::MAX / 2, 1 << 25]
                .map(|by| peer.segment().seq(peer.nxt.wrapping_add(by)).flags(Flags::RST))
                .to_vec()
        },
        ..ROW
    },
    Row {
        clause: "RFC 5961, 4.2",
        what: "SYNs in the window and outside, with and without an acknowledgement",
        segments: |peer| {
            let syn = |by: u32, flags| peer.segment().seq(peer.nxt.wrapping_add(by)).flags(flags);
            vec![
                syn(0, Flags::SYN),
                syn(5, Flags::SYN | Flags::ACK),
                syn(1 << 30, Flags::SYN),
                syn(u32::MAX, Flags::SYN),
            ]
        },
        answer: Answer::Ack,
        ..ROW
    },
    Row {
        clause: "RFC 5961, 5.2: an acknowledgement beyond SND.NXT",
        what: "data that acknowledge what was never sent",
        segments: |peer| {
            let data = peer.segment().len(10);
            vec![
                data.clone().ack(peer.expected + 1),
                data.clone().ack(peer.expected + (1 << 20)),
                data.ack(peer.expected + (1 << 31)),
            ]
        },
        answer: Answer::Ack,
        ..ROW
    },
    Row {
        clause: "RFC 5961, 5.2: an acknowledgement older than SND.UNA - MAX.SND.WND",
        what: "data with an acknowledgement of long ago",
        segments: |peer| vec![peer.segment().len(10).ack(peer.expected.wrapping_sub(1 << 30))],
        answer: Answer::Ack,
        ..ROW
    },
    Row {
        clause: "RFC 5961, 5.2: an acknowledgement between SND.UNA - MAX.SND.WND and SND.UNA",
        what: "data with an old acknowledgement",
        segments: |peer| vec![peer.segment().len(10).ack(peer.expected - 1500)],
        taken: 10,
        ..ROW
    },
    // Probes, and segments at the edges of the window.
    Row {
        clause: "RFC 9293, 3.8.4: a keep-alive probe with a byte of garbage",
        what: "the last byte once more, with another value",
        segments: |peer| vec![peer.segment().seq(peer.nxt - 1).data(&b"?"[..]); 30],
        answer: Answer::Ack,
        ..ROW
    },
    Row {
        clause: "RFC 9293, 3.8.4: a keep-alive probe without data",
        what: "the number before the next",
        segments: |peer| vec![peer.segment().seq(peer.nxt - 1); 9],
        answer: Answer::Ack,
        ..ROW
    },
    Row {
        clause: "RFC 9293, 3.10.7.4: what lies beyond the window is cut off",
        what: "an end far outside the window",
        segments: |peer| vec![peer.segment().seq(peer.nxt + (1 << 28)).len(10).flags(Flags::FIN | Flags::ACK)],
        answer: Answer::Ack,
        ..ROW
    },
    Row {
        clause: "RFC 9293, 3.8.5: an urgent pointer that points nowhere",
        what: "urgent pointers of 0 and beyond the data, without data",
        segments: |peer| vec![peer.segment().urgent(0), peer.segment().urgent(u16::MAX)],
        ..ROW
    },
    Row {
        clause: "RFC 9293, 3.10.7.4, fifth check",
        what: "data without an acknowledgement",
        segments: |peer| vec![peer.segment().len(10).flags(Flags::PSH), peer.segment().len(10).flags(Flags::empty())],
        ..ROW
    },
];

#[test]
fn peers_that_deviate_are_answered_as_by_linux_and_go_on() {
    for row in ROWS {
        let name = format!("{}: {}", row.clause, row.what);
        let mut peer = peer(row.has_timestamps);
        let rtt = peer.connection.rtt();
        for segment in (row.segments)(&peer) {
            peer.send(segment);
            // The same moment: a delayed acknowledgement is no answer.
            let sent = peer.sent();
            let expected = usize::from(row.answer == Answer::Ack);
            assert_eq!(sent.len(), expected, "{name}: {sent:?}");
            assert!(sent.iter().all(|sent| sent.flags == Flags::ACK && sent.data.is_empty()), "{name}: {sent:?}");
            assert!(sent.iter().all(|sent| sent.ack == peer.nxt && sent.seq == peer.expected), "{name}: {sent:?}");
        }
        if let Then::Ends(reason) = row.then {
            assert_eq!(peer.connection.close_reason(), Some(reason), "{name}");
            continue;
        }
        assert_eq!(peer.connection.state(), State::Established, "{name}");
        assert_eq!(peer.read().len(), row.taken, "{name}");
        peer.nxt += row.taken as u32;
        assert_eq!(peer.connection.rtt(), rtt, "{name}: nothing of it is a measurement");
        let is_bare = row.then == Then::WorksUnstamped;
        for _ in 0..3 {
            exchange(&mut peer, is_bare);
        }
        let difference = peer.connection.rtt().as_nanos().abs_diff(RTT.as_nanos());
        assert!(difference < 2_000_000, "{name}: {:?} measured", peer.connection.rtt());
    }
}

/// RFC 5961, section 7: ten answers in five seconds, and then ten more. Repeated data are answered
/// without a limit, because their sender continues until they are.
#[test]
fn answers_to_what_is_not_believed_are_limited_and_come_again() {
    let kinds: [fn(&Peer) -> Segment; 5] = [
        |peer| peer.segment().flags(Flags::SYN),
        |peer| peer.segment().seq(peer.nxt + 1).flags(Flags::RST),
        |peer| peer.segment().ack(peer.expected + 1),
        |peer| peer.segment().stamp(1, 0),
        |peer| peer.segment().seq(peer.nxt - 1),
    ];
    for (number, kind) in kinds.iter().enumerate() {
        let mut peer = peer(true);
        for period in 0..3 {
            let mut answers = 0;
            for _ in 0..100 {
                peer.send(kind(&peer));
                answers += peer.sent().len();
            }
            assert_eq!(answers, 10, "kind {number}, period {period}");
            peer.now += Duration::from_secs(5);
        }
        exchange(&mut peer, false);
    }
}

/// RFC 7323, section 2.3: a shift above 14 counts as 14.
#[test]
fn a_window_scale_above_14_counts_as_14() {
    for (shift, window) in [(0, 1 << 10), (13, 1 << 13), (14, 1 << 14), (15, 1 << 14), (255, 1 << 14)] {
        let mut options = offer();
        options.window_scale = Some(shift);
        let config = TcpConfig { congestion: None, ..TcpConfig::default() };
        let mut peer = Peer::opens(&config, options);
        let announced = if shift == 0 { 1 << 10 } else { 1 };
        peer.send(peer.segment().window(announced));
        peer.write(60_000);
        // Data sent twice, because the peer does not answer, count once.
        let sent = peer.pass(Duration::from_millis(100)).iter().map(|sent| sent.end() - 1).max().unwrap_or(0);
        // The rest of the window is less than a segment, which may wait.
        assert!(sent <= window && sent + 1460 > window, "shift {shift}: {sent} of {window} bytes");
    }
}

/// RFC 7323, section 5.2: an unaccepted reset does not make later segments look old.
#[test]
fn the_timestamp_of_a_reset_changes_nothing() {
    let mut peer = peer(true);
    let far = peer.clock() + (1 << 30);
    peer.send(peer.segment().seq(peer.nxt + 1).flags(Flags::RST).stamp(far, 0));
    assert_eq!(peer.sent().len(), 1, "a challenge");
    exchange(&mut peer, false);
}

/// A peer whose clock goes back would repeat its data for weeks, which PAWS drops: the application
/// is notified of the reason. A few old segments are usual, and mean nothing.
#[test]
fn a_peer_whose_clock_goes_back_is_named() {
    let mut peer = peer(true);
    let value = peer.clock() - 5000;
    let old = |peer: &Peer| peer.segment().len(10).stamp(value, 0);
    let is_named = |peer: &Peer| peer.events.contains(&Event::SoftError(SoftError::OldTimestamps));
    for round in 0..20 {
        for _ in 0..3 {
            peer.send(old(&peer));
        }
        exchange(&mut peer, false);
        assert!(!is_named(&peer), "round {round}");
    }
    for _ in 0..20 {
        peer.send(old(&peer));
        peer.pass(Duration::from_secs(1));
    }
    assert!(is_named(&peer), "{:?}", peer.events);
    assert_eq!(peer.connection.stats().receive.dropped_by_paws, 80);
    // It continues when the clock has caught up.
    exchange(&mut peer, false);
    assert_eq!(peer.connection.soft_error(), None);
}

/// A peer that was idle for 25 days has a clock that may have wrapped (RFC 7323, section 5.5).
#[test]
fn after_25_days_any_timestamp_is_taken() {
    let mut peer = peer(true);
    peer.now += Duration::from_secs(25 * 24 * 3600);
    let echo = peer.echo.unwrap_or_default();
    peer.send(peer.segment().len(10).stamp(peer.clock().wrapping_sub(1 << 31), echo));
    peer.nxt += 10;
    assert_eq!(peer.read().len(), 10);
}

/// A timeout that is due to a delay is no loss, even if the peer has no timestamps any more: data
/// sent before it show that (RFC 5682). With timestamps one acknowledgement suffices (RFC 3522).
#[test]
fn a_late_acknowledgement_is_no_loss_for_a_peer_that_stops_its_timestamps() {
    let mut peer = peer(true);
    peer.write(60_000);
    let mut flight = peer.sent();
    while peer.connection.stats().send.timeouts == 0 {
        flight.extend(peer.pass_until_sent(RTT * 20).expect("a timeout"));
    }
    assert!(flight.len() >= 10 && flight.last().is_some_and(|last| last.seq == flight[0].seq), "{flight:?}");
    peer.now += RTT;
    for count in 1..=4 {
        peer.expected = flight[count - 1].end();
        peer.send(unstamped(peer.segment()));
        peer.pass(Duration::from_millis(1));
    }
    let stats = peer.connection.stats().send;
    assert_eq!(stats.bytes_lost, 0, "{stats:?}");
}
