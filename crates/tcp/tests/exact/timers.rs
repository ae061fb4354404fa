//! Retransmission timeouts (RFC 6298), delayed acknowledgements (RFC 9293, section 3.8.6.3), keep-alive
//! (section 3.8.4).

use tcp::{AckPolicy, AckThreshold, AckTimer, CloseReason, KeepAlive, Nagle, State, TcpConfig};
use units::Duration;
use wire::tcp::{Flags, Options, Timestamps};

use crate::support::peer::{Peer, Sent, offer};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns a peer without options that would change loss detection, a round trip of `rtt` away.
fn plain(config: &TcpConfig, rtt: Duration) -> Peer {
    let mut peer = Peer::sends_syn(config, Options { mss: Some(1460), ..Options::default() }, Flags::SYN, (1, 2));
    peer.receive();
    peer.now += rtt;
    peer.send_ack();
    peer
}

/// Returns when each of these was sent, in milliseconds after `peer.now` at the time of the call.
fn times(start: units::Instant, all: &[Sent]) -> Vec<u64> {
    all.iter().map(|sent| sent.at.saturating_since(start).as_millis()).collect()
}

#[test]
fn the_timeout_follows_the_round_trip_and_doubles() {
    // RTO = SRTT + 4 RTTVAR = 3 R after one measurement (RFC 6298, section 2.2), at least the minimum.
    for (rtt, min, first) in [(100, 1, 300), (100, 1000, 1000), (10, 200, 200), (2000, 200, 6000)] {
        let mut peer = plain(&TcpConfig { rto_min: ms(min), ..TcpConfig::default() }, ms(rtt));
        peer.write(100);
        let start = peer.now;
        let all = peer.pass(ms(first * 8 - 1));
        assert_eq!(times(start, &all), [0, first, 3 * first, 7 * first], "{rtt}");
    }
}

#[test]
fn the_timeout_grows_to_a_minute_and_the_connection_ends() {
    let config = TcpConfig { rto_min: ms(1000), timeouts_max: 10, ..TcpConfig::default() };
    let mut peer = plain(&config, ms(10));
    peer.write(100);
    let start = peer.now;
    let all = peer.pass(ms(3_600_000));
    let expected = [0, 1, 3, 7, 15, 31, 63, 123, 183, 243].map(|secs| secs * 1000);
    assert_eq!(times(start, &all), expected);
    assert_eq!(peer.connection.close_reason(), Some(CloseReason::TimedOut));
}

#[test]
fn the_timer_starts_anew_with_each_acknowledgement_of_something_new() {
    let mut peer = plain(&TcpConfig { rto_min: ms(1000), nagle: Nagle::Off, ..TcpConfig::default() }, ms(10));
    peer.write(100);
    peer.sent();
    peer.now += ms(500);
    peer.write(100);
    peer.sent();
    peer.now += ms(100);
    peer.send(peer.segment().ack(101));
    let start = peer.now;
    let again = peer.pass_until_sent(ms(5000)).expect("a timeout");
    assert_eq!((times(start, &again), again[0].seq), (vec![1000], 101), "RFC 6298, section 5.3");
}

#[test]
fn what_was_sent_twice_is_not_measured_without_timestamps() {
    let mut peer = plain(&TcpConfig::default(), ms(100));
    let before = peer.connection.rtt();
    peer.write(100);
    peer.pass(ms(700));
    peer.expected = 101;
    peer.send_ack();
    assert_eq!(peer.connection.rtt(), before, "Karn's algorithm");
    // The timeout stays doubled until the next measurement.
    peer.write(100);
    let start = peer.now;
    assert_eq!(times(start, &peer.pass(ms(1000))), [0, 600]);
    let peer_now = peer.now;
    peer.expected = 201;
    peer.send_ack();
    peer.write(100);
    peer.receive();
    peer.now = peer_now + ms(100);
    peer.send_ack();
    peer.write(100);
    let start = peer.now;
    let next = times(start, &peer.pass(ms(400)));
    assert!(next.len() == 2 && next[1] < 350, "{next:?}");
}

#[test]
fn what_was_sent_twice_is_measured_by_its_timestamp() {
    let config = TcpConfig { sack: false, ..TcpConfig::default() };
    let mut peer = Peer::opens(&config, Options { timestamps: Some(Timestamps::default()), ..offer() });
    peer.write(100);
    peer.sent();
    let again = peer.pass_until_sent(ms(5000)).expect("a timeout");
    assert_eq!(again[0].seq, 1);
    peer.note(&again);
    peer.now += ms(80);
    peer.send_ack();
    let rtt = peer.connection.rtt().as_millis();
    assert!(rtt < 20, "{rtt}: 80 ms weigh an eighth");
}

#[test]
fn an_acknowledgement_waits_for_a_second_segment_or_the_delay() {
    for delay in [10, 40, 200, 500] {
        let acks = AckPolicy { delay_max: ms(delay), ..TcpConfig::default().acks };
        let mut peer = Peer::opens(&TcpConfig { acks, ..TcpConfig::default() }, offer());
        peer.send_data(1460);
        let start = peer.now;
        assert_eq!(times(start, &peer.pass(ms(1000))), [delay]);
        peer.send_data(1460);
        assert_eq!(peer.sent().len(), 0);
        peer.send_data(1460);
        let ack = peer.sent();
        assert!(ack.len() == 1 && ack[0].ack == 1 + 3 * 1460, "{ack:?}");
        assert_eq!(peer.pass(ms(1000)).len(), 0);
    }
}

#[test]
fn the_threshold_may_be_any_number_of_segments_or_a_share_of_the_buffer() {
    let cases = [
        (AckThreshold::Segments(1), 1),
        (AckThreshold::Segments(8), 8),
        (AckThreshold::BufferPercent(35), 18),
        (AckThreshold::BufferPercent(0), 1),
    ];
    for (threshold, segments) in cases {
        let acks = AckPolicy { threshold, delay_max: ms(200), timer: AckTimer::FromSegment };
        let mut peer = Peer::opens(&TcpConfig { acks, receive_buffer: 50_000, ..TcpConfig::default() }, offer());
        for round in 0..3 {
            for count in 1..=segments {
                peer.send_data(1000);
                peer.read();
                // Full segments count, as large as the peer may send them.
                let is_due = match threshold {
                    AckThreshold::BufferPercent(_) => count == segments,
                    AckThreshold::Segments(_) | AckThreshold::Read => false,
                };
                if matches!(threshold, AckThreshold::BufferPercent(_)) {
                    assert_eq!(peer.sent().len(), usize::from(is_due), "{threshold:?} {round} {count}");
                }
            }
        }
    }
    let acks = AckPolicy { threshold: AckThreshold::Segments(4), ..TcpConfig::default().acks };
    let mut peer = Peer::opens(&TcpConfig { acks, ..TcpConfig::default() }, offer());
    let counts: Vec<_> = (0..8)
        .map(|_| {
            peer.send_data(1460);
            peer.sent().len()
        })
        .collect();
    assert_eq!(counts, [0, 0, 0, 1, 0, 0, 0, 1]);
}

#[test]
fn holes_their_filling_and_the_end_are_acknowledged_at_once() {
    let mut peer = Peer::opens(&TcpConfig::default(), offer());
    peer.send(peer.segment().seq(101).len(100));
    assert_eq!(peer.sent().len(), 1, "RFC 5681, section 4.2");
    peer.send(peer.segment().seq(301).len(100));
    assert_eq!(peer.sent().len(), 1);
    peer.send(peer.segment().len(100));
    assert_eq!(peer.sent()[0].ack, 201);
    peer.send(peer.segment().seq(201).len(100));
    assert_eq!(peer.sent()[0].ack, 401);
    peer.send(peer.segment().seq(401).flags(Flags::FIN | Flags::ACK));
    assert_eq!(peer.sent()[0].ack, 402);
}

#[test]
fn data_that_leave_take_the_acknowledgement_along() {
    let mut peer = Peer::opens(&TcpConfig::default(), offer());
    peer.send_data(100);
    peer.write(10);
    let sent = peer.receive();
    assert!(sent.len() == 1 && sent[0].ack == 101 && sent[0].data.len() == 10, "{sent:?}");
    peer.send_ack();
    assert_eq!(peer.pass(ms(1000)).len(), 0, "nothing is left to acknowledge");
}

#[test]
fn a_small_segment_waits_for_the_acknowledgement_of_what_is_outstanding() {
    let mut peer = Peer::opens(&TcpConfig::default(), offer());
    peer.write(100);
    assert_eq!(peer.receive().len(), 1);
    peer.write(100);
    peer.write(100);
    assert_eq!(peer.sent().len(), 0, "Nagle's algorithm");
    // A full segment does not wait, its rest does.
    peer.write(1460);
    let sent = peer.receive();
    assert!(sent.len() == 1 && sent[0].data.len() == 1460, "{sent:?}");
    peer.send_ack();
    let rest = peer.receive();
    assert!(rest.len() == 1 && rest[0].data.len() == 200 && rest[0].has(Flags::PSH), "{rest:?}");
    // Without the algorithm nothing waits, and neither does the end of the data.
    peer.connection.set_nagle(false);
    peer.write(10);
    assert_eq!(peer.receive().len(), 1);
    peer.connection.set_nagle(true);
    peer.write(10);
    assert_eq!(peer.sent().len(), 0);
    peer.connection.finish();
    let last = peer.receive();
    assert!(last.len() == 1 && last[0].data.len() == 10 && last[0].has(Flags::FIN), "{last:?}");
}

#[test]
fn the_end_of_a_long_write_does_not_wait() {
    // Longer than a plan, so that its end leaves while the rest is outstanding.
    let mut peer = plain(&TcpConfig::default(), ms(50));
    // A window for all of the data.
    peer.write(300_000);
    while peer.connection.buffered() > 0 {
        let sent = peer.pass(ms(50));
        peer.note(&sent);
        sent.iter().for_each(|sent| peer.send(peer.segment().ack(sent.end())));
    }
    for segments in 14..24 {
        let len = 1460 * segments + 100;
        peer.write(len);
        let sent = peer.pass(ms(50));
        peer.note(&sent);
        assert_eq!(sent.iter().map(|sent| sent.data.len()).sum::<usize>(), len);
        sent.iter().for_each(|sent| peer.send(peer.segment().ack(sent.end())));
    }
}

#[test]
fn a_silent_peer_is_probed_and_given_up_whichever_side_has_opened() {
    let keep_alive = KeepAlive { after: ms(60_000), interval: ms(5000), probes_max: 3 };
    let config = TcpConfig { keep_alive: Some(keep_alive), ..TcpConfig::default() };
    for mut peer in [Peer::opens(&config, offer()), Peer::answers(&config, offer(), Flags::SYN | Flags::ACK)] {
        let start = peer.now;
        let all = peer.pass(ms(300_000));
        assert_eq!(times(start, &all), [60_000, 65_000, 70_000]);
        assert!(all.iter().all(|sent| sent.flags == Flags::ACK && sent.seq == 0 && sent.data.is_empty()), "{all:?}");
        assert_eq!(peer.connection.close_reason(), Some(CloseReason::TimedOut));
    }
}

#[test]
fn a_peer_that_answers_is_not_given_up_and_no_probes_are_sent_without_the_option() {
    let keep_alive = KeepAlive { after: ms(60_000), interval: ms(5000), probes_max: 3 };
    let mut peer = Peer::opens(&TcpConfig { keep_alive: Some(keep_alive), ..TcpConfig::default() }, offer());
    for _ in 0..20 {
        let start = peer.now;
        let probe = peer.pass_until_sent(ms(100_000)).expect("a probe");
        assert_eq!(times(start, &probe), [60_000]);
        peer.send_ack();
    }
    assert_eq!(peer.connection.state(), State::Established);
    let mut peer = Peer::opens(&TcpConfig::default(), offer());
    assert_eq!((peer.pass(ms(100_000_000)).len(), peer.connection.poll_timeout()), (0, None));
}

#[test]
fn nothing_is_probed_for_while_data_are_outstanding() {
    let keep_alive = KeepAlive { after: ms(1000), interval: ms(1000), probes_max: 3 };
    let mut peer = Peer::opens(&TcpConfig { keep_alive: Some(keep_alive), ..TcpConfig::default() }, offer());
    peer.write(100);
    let sent = peer.pass(ms(30_000));
    assert!(sent.iter().all(|sent| !sent.data.is_empty()), "RFC 9293, section 3.8.4, MUST-25: {sent:?}");
    assert_eq!(peer.connection.state(), State::Established, "the timeouts decide");
    peer.expected = 101;
    peer.send_ack();
    let probe = peer.pass_until_sent(ms(5000)).expect("a probe");
    assert!(probe[0].data.is_empty());
}

#[test]
fn a_keep_alive_probe_is_answered() {
    let mut peer = Peer::opens(&TcpConfig::default(), offer());
    peer.send_data(100);
    peer.pass(ms(100));
    // With or without a byte of garbage.
    for len in [0, 1] {
        peer.send(peer.segment().seq(100).len(len));
        let answer = peer.sent();
        assert!(answer.len() == 1 && answer[0].ack == 101, "{answer:?}");
    }
}
