//! The handshake and its negotiation (RFC 9293, section 3.5; RFC 7323, section 2; RFC 3168, section
//! 6.1.1).

use bytes::Bytes;
use tcp::{Arrival, CloseReason, Connection, Event, Nagle, Plan, State, SuperPacket, TcpConfig, Tuple};
use units::{Duration, Ecn, Instant, Seq32};
use wire::tcp::{Flags, Header, Options, Timestamps};

use crate::support::peer::{INITIAL, PEER_INITIAL, Peer, Segment, Sent, offer};
use crate::support::{CLIENT, Pair, SERVER, link};

const SYN_ACK: Flags = Flags(Flags::SYN.0 | Flags::ACK.0);

#[test]
fn both_sides_may_open_at_once() {
    let mut peer = Peer::awaits(&TcpConfig::default());
    let syn = peer.receive();
    assert!(syn.len() == 1 && !syn[0].has(Flags::ACK));
    peer.send(peer.segment().flags(Flags::SYN).ack(0));
    assert_eq!(peer.connection.state(), State::SynReceived);
    let answer = peer.receive();
    assert!(answer.len() == 1 && answer[0].has(SYN_ACK) && (answer[0].seq, answer[0].ack) == (0, 1), "{answer:?}");
    // The peer answers our SYN in the same way: a segment that begins before the window.
    peer.send(peer.segment().flags(SYN_ACK));
    assert_eq!(peer.connection.state(), State::Established);
    assert_eq!(peer.events, [Event::Connected, Event::Writable]);
    peer.nxt = 1;
    peer.assert_works();
}

#[test]
fn connections_that_open_at_once_connect_whatever_is_lost() {
    // Each bit drops one of the first segments.
    for lost in 0..64_u32 {
        let mut pair = Pair::new(lost.into(), &link(100, 10));
        pair.open_both();
        let mut count = 0;
        pair.tamper = Some(Box::new(move |_, packet| {
            count += 1;
            if count <= 6 && lost & 1 << (count - 1) != 0 { Vec::new() } else { vec![packet.clone()] }
        }));
        let bytes = crate::support::pattern(50_000, 1);
        pair.hosts.iter_mut().for_each(|host| host.send(bytes.clone(), true));
        let is_done = pair.run_until(Duration::from_secs(30), |pair| pair.hosts.iter().all(|host| host.has_ended));
        assert!(is_done, "{lost:b}: {:?}", pair.hosts.each_ref().map(crate::support::Host::state));
        assert!(pair.hosts.iter().all(|host| host.received == bytes));
    }
}

#[test]
fn a_connection_to_itself_works() {
    let tuple = Tuple { local: CLIENT, remote: CLIENT };
    let (mut plan, mut packet, now) = (Plan::default(), SuperPacket::default(), Instant::ZERO);
    let mut connection = Connection::connect(now, TcpConfig::default(), tuple, Seq32::new(1), 2);
    connection.write(&mut Bytes::from_static(b"to me")).expect("there is space");
    for _ in 0..20 {
        while connection.poll_plan(now, 1, &mut plan) {
            plan.seal(&mut packet);
            let mut all = Vec::new();
            packet.packets(|packet| all.push(Bytes::copy_from_slice(packet)));
            for packet in all {
                connection.handle_segment(now, Arrival::open(&packet, None, false).expect("valid"));
            }
        }
    }
    assert_eq!(connection.state(), State::Established);
    assert_eq!(connection.read(10), tcp::Read::Bytes(Bytes::from_static(b"to me")));
}

#[test]
fn a_syn_is_sent_again_and_given_up() {
    let mut peer = Peer::awaits(&TcpConfig::default());
    let start = peer.now;
    let all = peer.pass(Duration::from_secs(180));
    assert_eq!(peer.connection.state(), State::SynSent, "RFC 9293, section 3.8.3: at least three minutes");
    peer.pass(Duration::from_secs(10));
    let times: Vec<_> = all.iter().map(|sent| sent.at.saturating_since(start).as_millis()).collect();
    let expected = [0, 1000, 3000, 7000, 15_000, 31_000, 63_000, 123_000];
    assert_eq!(times, expected, "RFC 6298, sections 2.1 and 5.5");
    assert!(all.iter().all(|sent| sent.has(Flags::SYN) && sent.seq == 0));
    // Some paths drop a SYN that requests ECN.
    assert!(all[0].has(Flags::ECE | Flags::CWR) && all[1..].iter().all(|sent| sent.flags == Flags::SYN));
    assert_eq!(peer.events.last(), Some(&Event::Closed(CloseReason::TimedOut)));
}

#[test]
fn an_answer_to_a_syn_is_sent_again_and_given_up() {
    let mut peer = Peer::sends_syn(&TcpConfig::default(), offer(), Flags::SYN, (INITIAL, PEER_INITIAL));
    let all = peer.pass(Duration::from_secs(600));
    assert_eq!(all.len(), 8);
    assert!(all.iter().all(|sent| sent.flags == SYN_ACK && sent.ack == 1));
    assert_eq!(peer.connection.close_reason(), Some(CloseReason::TimedOut));
}

#[test]
fn data_complete_a_handshake_whose_last_acknowledgement_was_lost() {
    let mut peer = Peer::sends_syn(&TcpConfig::default(), offer(), Flags::SYN, (INITIAL, PEER_INITIAL));
    peer.receive();
    peer.send(peer.segment().data("first"));
    assert_eq!((peer.connection.state(), peer.read()), (State::Established, b"first".to_vec()));
}

#[test]
fn the_first_timeout_for_data_is_three_seconds_if_the_syn_was_sent_again() {
    let mut peer = Peer::awaits(&TcpConfig::default());
    peer.sent();
    peer.pass(Duration::from_secs(2));
    peer.expected = 1;
    peer.send(peer.segment().flags(SYN_ACK));
    peer.nxt = 1;
    peer.write(100);
    let start = peer.now;
    let data: Vec<_> = peer.pass(Duration::from_secs(4)).into_iter().filter(|sent| !sent.data.is_empty()).collect();
    let times: Vec<_> = data.iter().map(|sent| sent.at.saturating_since(start).as_millis()).collect();
    assert_eq!(times, [0, 3000], "RFC 6298, section 5.7");
}

/// Returns the numbers of segments in the first flights of a connection whose SYN was lost `losses`
/// times. `echo` is the number of the copy whose timestamp the peer echoes.
fn first_flights(is_opener: bool, losses: u32, echo: Option<usize>) -> Vec<usize> {
    let stamps = echo.map(|_| Timestamps::default());
    let options = Options { mss: Some(1000), timestamps: stamps, ..offer() };
    let config = TcpConfig { mtu: 1040, ..TcpConfig::default() };
    let mut peer = if is_opener {
        Peer::awaits(&config)
    } else {
        Peer::sends_syn(&config, options, Flags::SYN, (INITIAL, PEER_INITIAL))
    };
    let mut syns = peer.sent();
    while syns.len() <= losses as usize {
        syns.extend(peer.pass_until_sent(Duration::from_secs(100)).expect("another SYN"));
    }
    peer.now += Duration::from_millis(10);
    peer.expected = 1;
    peer.echo = echo.map(|copy| syns[copy].options.timestamps.expect("timestamps").value);
    if is_opener {
        let stamps = peer.segment().options.timestamps;
        peer.send(Segment { options: Options { timestamps: stamps, ..options }, ..peer.segment().flags(SYN_ACK) });
        peer.nxt = 1;
    } else {
        peer.send_ack();
    }
    peer.write(60_000);
    let flights = (0..3).map(|_| {
        // The pacer spreads them over half of the assumed round trip.
        let sent = peer.pass(peer.connection.rtt().mul_ratio(9, 10));
        peer.note(&sent);
        peer.send_ack();
        sent.iter().filter(|sent| !sent.data.is_empty()).count()
    });
    flights.collect()
}

#[test]
fn the_first_window_is_one_segment_if_the_syn_was_lost() {
    for is_opener in [true, false] {
        // Perhaps the path is long (RFC 6928, section 2).
        assert_eq!(first_flights(is_opener, 1, None)[0], 10);
        assert_eq!(first_flights(is_opener, 1, Some(0))[0], 10, "the first copy has arrived");
        // RFC 5681, section 3.1; then slow start.
        assert_eq!(first_flights(is_opener, 1, Some(1)), [1, 2, 4]);
        assert_eq!(first_flights(is_opener, 2, None), [1, 2, 4]);
        assert_eq!(first_flights(is_opener, 4, Some(3)), [1, 2, 4]);
    }
}

/// Negotiates with a peer that offers `options`, whichever side opens.
fn both(config: &TcpConfig, options: Options) -> [(Peer, Sent); 2] {
    let mut opened = Peer::sends_syn(config, options, Flags::SYN, (INITIAL, PEER_INITIAL));
    let answer = opened.receive().remove(0);
    opened.send_ack();
    let mut opens = Peer::awaits(config);
    let syn = opens.receive().remove(0);
    let stamps = options.timestamps.and(syn.options.timestamps);
    opens.echo = stamps.map(|stamps| stamps.value);
    let answered = Peer::answers(config, options, SYN_ACK);
    drop(opens);
    [(opened, answer), (answered, syn)]
}

#[test]
fn what_only_one_side_wants_is_not_used() {
    for bits in 0..64_u32 {
        let is_set = |bit: u32| bits & 1 << bit != 0;
        let config = TcpConfig {
            timestamps: is_set(0),
            sack: is_set(1),
            window_scaling: is_set(2),
            receive_buffer: 1 << 20,
            ..TcpConfig::default()
        };
        let options = Options {
            mss: Some(1000),
            timestamps: is_set(3).then(Timestamps::default),
            sack_permitted: is_set(4),
            window_scale: is_set(5).then_some(3),
            ..Options::default()
        };
        let (stamps, sack, scale) = (is_set(0) && is_set(3), is_set(1) && is_set(4), is_set(2) && is_set(5));
        for (number, (mut peer, first)) in both(&config, options).into_iter().enumerate() {
            let is_answer = number == 0;
            let text = format!("{bits:06b} {is_answer}");
            // An answer has the features offered by both sides, a first SYN those offered by this
            // side.
            assert_eq!(first.options.timestamps.is_some(), if is_answer { stamps } else { is_set(0) }, "{text}");
            assert_eq!(first.options.sack_permitted, if is_answer { sack } else { is_set(1) }, "{text}");
            assert_eq!(first.options.window_scale.is_some(), if is_answer { scale } else { is_set(2) }, "{text}");
            if !stamps {
                peer.echo = None;
            }
            // Segments have the size that the peer accepts, less the timestamps (RFC 9293, section
            // 3.7.1).
            peer.window = 20_000;
            peer.send_ack();
            peer.write(3000);
            let sent = peer.receive();
            assert_eq!(sent[0].data.len(), if stamps { 988 } else { 1000 }, "{text}");
            assert_eq!(sent[0].options.timestamps.is_some(), stamps, "{text}");
            // A window of 20,000 in units of 1 or 8 bytes.
            peer.send_ack();
            peer.write(100_000);
            let mut bytes = 0;
            for _ in 0..50 {
                let before = bytes;
                bytes += peer.pass(Duration::from_millis(2)).iter().map(|sent| sent.data.len()).sum::<usize>();
                if before == bytes {
                    break;
                }
            }
            assert!(bytes <= if scale { 160_000 } else { 20_000 }, "{text}: {bytes}");
            // A hole is reported if both sides support that.
            peer.send(peer.segment().seq(peer.nxt + 100).len(10));
            let ack = peer.sent().into_iter().find(|sent| sent.data.is_empty()).expect("an acknowledgement");
            assert_eq!(ack.options.sack.len(), usize::from(sack), "{text}");
            let announced = u64::from(ack.window) << if scale { first.options.window_scale.unwrap_or(0) } else { 0 };
            assert!(announced <= 1 << 20 && announced > if scale { 1_000_000 } else { 60_000 }, "{text}: {announced}");
        }
    }
}

#[test]
fn ecn_is_used_if_both_ask_for_it_as_the_rfc_says() {
    let ask = Flags::SYN | Flags::ECE | Flags::CWR;
    let cases =
        [(ask, true, true), (ask, false, false), (Flags::SYN | Flags::ECE, true, false), (Flags::SYN, true, false)];
    for (flags, ecn, is_used) in cases {
        let config = TcpConfig { ecn, ..TcpConfig::default() };
        let mut peer = Peer::sends_syn(&config, offer(), flags, (INITIAL, PEER_INITIAL));
        let answer = peer.receive();
        assert_eq!(answer[0].has(Flags::ECE), is_used, "{flags}");
        assert!(!answer[0].has(Flags::CWR) && answer[0].ecn.is_none());
        peer.send_ack();
        peer.write(10);
        assert_eq!(peer.receive()[0].ecn, is_used.then_some(Ecn::Ect0));
    }
    let cases = [
        (SYN_ACK | Flags::ECE, true, true),
        (SYN_ACK | Flags::ECE | Flags::CWR, true, false),
        (SYN_ACK, true, false),
        (SYN_ACK | Flags::ECE, false, false),
    ];
    for (flags, ecn, is_used) in cases {
        let mut peer = Peer::answers(&TcpConfig { ecn, ..TcpConfig::default() }, offer(), flags);
        peer.write(10);
        let sent = peer.receive();
        assert_eq!(sent[0].ecn, is_used.then_some(Ecn::Ect0), "{flags}");
        assert_eq!(peer.connection.stats().send.marks, 0, "the flag of a SYN is no mark");
    }
}

#[test]
fn segments_have_the_announced_size_whatever_the_peer_says() {
    // The peer's size, ours by the MTU, and the data of a segment without timestamps.
    let cases = [(Some(1460), 1500, 1460), (Some(9000), 1500, 1460), (None, 1500, 536), (Some(0), 1500, 88)];
    for (mss, mtu, len) in cases {
        let config = TcpConfig { mtu, timestamps: false, ..TcpConfig::default() };
        for (mut peer, first) in both(&config, Options { mss, ..Options::default() }) {
            assert_eq!(first.options.mss, Some(1460));
            peer.write(3000);
            assert_eq!(peer.receive()[0].data.len(), len, "{mss:?}");
        }
    }
    // A device whose packets cannot hold data causes no panic.
    for mtu in [0, 40, 52, 60, 68] {
        let config = TcpConfig { mtu, ..TcpConfig::default() };
        let options = Options { timestamps: Some(Timestamps::default()), ..offer() };
        for (mut peer, _) in both(&config, options) {
            peer.write(3);
            assert!(!peer.receive().is_empty());
        }
    }
}

/// Covers text and a FIN that come with a SYN, whichever side opens, or both (RFC 9293, sections
/// 3.10.7.2 and 3.10.7.3).
#[test]
fn data_and_an_end_that_come_with_a_syn_are_taken_once_the_handshake_is_complete() {
    for (end, len) in [(Flags::empty(), 100), (Flags::FIN, 0), (Flags::FIN, 5)] {
        let opens = |peer: &Peer, flags: Flags| peer.segment().flags(flags | end).seq(0).len(len);
        let check = |mut peer: Peer, text: &str| {
            let expected = 1 + len as u32 + u32::from(end == Flags::FIN);
            let state = if end == Flags::FIN { State::CloseWait } else { State::Established };
            assert_eq!(peer.connection.state(), state, "{text} {end} {len}");
            let answer = peer.sent();
            assert!(answer.len() == 1 && answer[0].flags == Flags::ACK, "{text}: {answer:?}");
            assert_eq!((answer[0].ack, peer.read().len()), (expected, len), "{text} {end}");
        };
        // This side opens.
        let mut peer = Peer::awaits(&TcpConfig::default());
        peer.receive();
        peer.send(opens(&peer, SYN_ACK));
        check(peer, "client");
        // Both sides open: the text waits for the acknowledgement.
        let mut peer = Peer::awaits(&TcpConfig::default());
        peer.receive();
        peer.send(opens(&peer, Flags::SYN).ack(0));
        assert!(peer.connection.state() == State::SynReceived && peer.connection.readable() == 0);
        let answer = peer.receive();
        assert!(answer.len() == 1 && answer[0].has(SYN_ACK) && answer[0].ack == 1, "{answer:?}");
        peer.send(peer.segment().seq(1 + len as u32).ack(1));
        check(peer, "both");
        // The peer opens, and repeats its SYN, with the text only in the repetition.
        let mut peer = Peer::sends_syn(&TcpConfig::default(), offer(), Flags::SYN, (INITIAL, PEER_INITIAL));
        peer.receive();
        for _ in 0..2 {
            peer.send(opens(&peer, Flags::SYN));
            let answer = peer.receive();
            assert!(answer.len() == 1 && answer[0].has(SYN_ACK) && answer[0].ack == 1, "{answer:?}");
        }
        assert_eq!(peer.connection.readable(), 0);
        peer.send(peer.segment().seq(1 + len as u32));
        check(peer, "server");
        // At once.
        let mut peer = Peer::sends_syn(&TcpConfig::default(), offer(), Flags::SYN, (INITIAL, PEER_INITIAL));
        let syn = peer.arrival(&opens(&peer, Flags::SYN));
        peer.connection = Connection::accept(peer.now, TcpConfig::default(), &syn, Seq32::new(INITIAL), 77);
        let answer = peer.receive();
        assert!(answer.len() == 1 && answer[0].has(SYN_ACK) && answer[0].ack == 1, "{answer:?}");
        peer.send_ack();
        check(peer, "accepted");
    }
    // No more than a segment is kept, whatever arrives.
    let mut peer = Peer::sends_syn(&TcpConfig::default(), offer(), Flags::SYN, (INITIAL, PEER_INITIAL));
    peer.receive();
    peer.send(peer.segment().flags(Flags::SYN | Flags::FIN).seq(0).len(60_000));
    peer.receive();
    peer.send_ack();
    assert_eq!((peer.read().len(), peer.connection.state()), (1460, State::Established));
}

/// A peer that restarts with another number, in the window or not, is connected without waiting for
/// a timer.
#[test]
fn a_peer_that_begins_anew_is_answered_at_once() {
    for other in [100, 60_000, 70_000, 1 << 31, u32::MAX - 5] {
        let mut peer = Peer::sends_syn(&TcpConfig::default(), offer(), Flags::SYN, (INITIAL, PEER_INITIAL));
        peer.sent();
        let syn =
            Segment { options: Options { mss: Some(700), ..offer() }, ..peer.segment().flags(Flags::SYN).seq(other) };
        peer.send(syn.clone());
        let answer = peer.sent();
        if other < 65_535 {
            assert!(answer.len() == 1 && answer[0].flags.contains(SYN_ACK), "{answer:?}");
        } else {
            // RFC 9293, section 3.5.1, figure 9: the peer resets the unknown connection, and
            // repeats its SYN.
            assert!(answer.len() == 1 && answer[0].flags == Flags::ACK && answer[0].ack == 1, "{answer:?}");
            peer.send(peer.segment().flags(Flags::RST).seq(answer[0].ack));
            assert_eq!(peer.connection.close_reason(), Some(CloseReason::Refused));
            continue;
        }
        assert_eq!((answer[0].seq, answer[0].ack), (0, other + 1));
        peer.nxt = other + 1;
        peer.expected = 1;
        peer.send_ack();
        assert_eq!(peer.connection.state(), State::Established);
        // The offer of the second SYN holds.
        peer.write(3000);
        assert_eq!(peer.receive()[0].data.len(), 700, "{other}");
        peer.assert_works();
    }
}

/// The peer of a client has an earlier connection, which the reset ends. The SYN follows it.
#[test]
fn an_answer_for_an_earlier_connection_is_reset_and_the_syn_repeated_once() {
    let mut peer = Peer::awaits(&TcpConfig::default());
    peer.receive();
    for round in 0..5 {
        peer.send(peer.segment().flags(Flags::ACK).seq(900).ack(5000));
        let flags: Vec<_> = peer.sent().iter().map(|sent| (sent.flags.contains(Flags::SYN), sent.seq)).collect();
        let expected = if round == 0 { vec![(false, 5000), (true, 0)] } else { vec![(false, 5000)] };
        assert_eq!(flags, expected, "{round}");
    }
    peer.send(peer.segment().flags(SYN_ACK).ack(1));
    peer.nxt = 1;
    peer.expected = 1;
    peer.assert_works();
}

/// Each answer to an unaccepted segment counts (RFC 5961, section 7), also for a peer that
/// restarts.
#[test]
fn a_flood_before_the_handshake_is_complete_gets_few_answers() {
    type Make<'a> = &'a dyn Fn(&Peer, u32) -> Segment;
    let flood = |segment: Make<'_>| {
        let mut peer = Peer::sends_syn(&TcpConfig::default(), offer(), Flags::SYN, (INITIAL, PEER_INITIAL));
        peer.sent();
        let mut count = 0;
        for number in 0..1000 {
            peer.send(segment(&peer, number));
            count += peer.sent().len();
        }
        count
    };
    let all: [Make<'_>; 5] = [
        &|peer, _| peer.segment().flags(Flags::SYN).seq(0),
        &|peer, number| peer.segment().flags(Flags::SYN).seq(1 + number),
        &|peer, number| peer.segment().flags(Flags::SYN).seq(1 << 30 | number),
        &|peer, number| peer.segment().flags(Flags::RST).seq(2 + number),
        &|peer, number| peer.segment().seq(1 << 30 | number).len(100),
    ];
    for (at, segment) in all.iter().enumerate() {
        let count = flood(*segment);
        assert!((1..=10).contains(&count), "{at}: {count}");
    }
}

#[test]
fn a_segment_to_the_port_of_its_sender_is_a_syn_like_any_other() {
    // The land attack: source and destination are the same.
    let tuple = Tuple { local: SERVER, remote: SERVER };
    let mut peer = Peer::sends_syn(&TcpConfig::default(), offer(), Flags::SYN, (INITIAL, PEER_INITIAL));
    peer.tuple = tuple;
    let all = peer.segment().flags(Flags::SYN).seq(0);
    for _ in 0..100 {
        peer.send(all.clone());
    }
    assert_eq!(peer.connection.state(), State::SynReceived);
}

#[test]
fn the_segment_that_ends_what_was_written_is_pushed() {
    let mut peer = Peer::opens(&TcpConfig::default(), offer());
    peer.write(3000);
    peer.write(1000);
    let signs: Vec<_> = peer.receive().iter().map(|sent| (sent.data.len(), sent.has(Flags::PSH))).collect();
    assert_eq!(signs, [(1460, false), (1460, false), (1080, true)], "RFC 9293, section 3.9.1.2");
}

#[test]
fn only_a_syn_announces_a_segment_size() {
    let mut peer = Peer::opens(&TcpConfig::default(), offer());
    peer.write(3000);
    peer.send_data(100);
    peer.connection.finish();
    let sent = peer.pass(Duration::from_secs(1));
    assert!(sent.len() > 2 && sent.iter().all(|sent| sent.options.mss.is_none()), "RFC 9293, section 3.2");
}

#[test]
fn the_defaults_are_those_of_the_rfc() {
    let config = TcpConfig::default();
    assert!(config.keep_alive.is_none(), "RFC 9293, section 3.8.4");
    assert!(config.nagle != Nagle::Off && config.ecn && config.timestamps && config.sack && config.window_scaling);
    assert!(config.acks.delay_max < Duration::from_millis(500), "section 3.8.6.3");
    // With the shortest timeout, R2 is more than a hundred seconds (section 3.8.3).
    let timeouts = (0..config.timeouts_max).map(|count| (200_u64 << count).min(60_000)).sum::<u64>();
    assert!(timeouts > 100_000, "{timeouts}");
}

#[test]
fn without_a_segment_size_of_the_peer_the_least_of_ipv6_holds() {
    let [local, remote] = [1, 2].map(|host| (std::net::Ipv6Addr::from(host), 80).into());
    let header = Header { source_port: 80, destination_port: 80, flags: Flags::SYN, window: 9000, ..Header::default() };
    let syn = Arrival { tuple: Tuple { local, remote }, header, data: Bytes::new(), segment: 0, ecn: None };
    let now = Instant::ZERO;
    let mut connection = Connection::accept(now, TcpConfig::default(), &syn, Seq32::new(5), 6);
    let mut plan = Plan::default();
    assert!(connection.poll_plan(now, 1, &mut plan));
    assert_eq!(open(&plan).header.options.mss, Some(1440), "1500 - 60");
    let header = Header { seq: Seq32::new(1), ack: Seq32::new(6), flags: Flags::ACK, ..header };
    connection.handle_segment(now, Arrival { header, ..syn });
    connection.write(&mut Bytes::from(vec![0; 5000])).expect("there is space");
    assert!(connection.poll_plan(now, 1, &mut plan));
    assert_eq!(plan.data_len(), 1220, "RFC 9293, section 3.7.1");
}

fn open(plan: &Plan) -> Arrival {
    let (mut packet, mut arrival) = (SuperPacket::default(), None);
    plan.seal(&mut packet);
    packet.packets(|packet| arrival = Arrival::open(&Bytes::copy_from_slice(packet), None, false).ok());
    arrival.expect("a valid segment")
}
