//! The classic profile: the effect of each of its fields, and the joint effect of Nagle's algorithm
//! and delayed acknowledgements.

use tcp::{AckPolicy, AckThreshold, AckTimer, LossRecovery, Nagle, RtoFormula, TcpConfig, WindowGrowth};
use units::Duration;
use wire::tcp::{Flags, Options};

use crate::support::peer::{Peer, Sent, offer};
use crate::support::{Pair, link};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns a peer with segments of 1000 bytes, a round trip of `rtt` away.
fn peer(config: &TcpConfig, rtt: Duration) -> Peer {
    let options = Options { mss: Some(1000), ..offer() };
    let mut peer = Peer::sends_syn(config, options, Flags::SYN, (1, 2));
    peer.receive();
    peer.now += rtt;
    peer.send_ack();
    peer
}

fn starts(all: &[Sent]) -> Vec<u32> {
    all.iter().map(|sent| sent.seq).collect()
}

#[test]
fn nothing_but_the_segment_size_is_negotiated() {
    let config = TcpConfig::classic();
    let mut peer = Peer::awaits(&config);
    let syn = peer.sent();
    assert_eq!((syn[0].flags, syn[0].window), (Flags::SYN, 65_535));
    assert_eq!(syn[0].options, Options { mss: Some(1460), ..Options::default() });
    let mut peer = Peer::sends_syn(&config, offer(), Flags::SYN | Flags::ECE | Flags::CWR, (1, 2));
    let answer = peer.sent();
    assert_eq!(answer[0].options, Options { mss: Some(1460), ..Options::default() });
    assert_eq!(answer[0].flags, Flags::SYN | Flags::ACK);
}

#[test]
fn without_a_congestion_window_the_first_flight_fills_the_window_of_the_peer() {
    for (congestion, segments) in [(None, 65), (TcpConfig::default().congestion, 10)] {
        let mut peer = peer(&TcpConfig { congestion, ..TcpConfig::classic() }, ms(10));
        peer.write(65_535);
        assert_eq!(peer.sent().len(), segments);
    }
}

#[test]
fn go_back_n_sends_everything_again_and_only_after_a_timeout() {
    for recovery in [LossRecovery::GoBackN, LossRecovery::Selective] {
        let mut peer = peer(&TcpConfig { recovery, ..TcpConfig::classic() }, ms(10));
        peer.write(6000);
        assert_eq!(peer.sent().len(), 6);
        // The second one is lost, the others arrive.
        peer.now += ms(10);
        let mut again = Vec::new();
        for _ in 0..5 {
            peer.send(peer.segment().ack(1001));
            again.extend(peer.sent());
        }
        match recovery {
            LossRecovery::Selective => assert_eq!(starts(&again), [1001], "RFC 5681, section 3.2"),
            LossRecovery::GoBackN => {
                assert_eq!(starts(&again), []);
                let all = peer.pass_until_sent(ms(5000)).expect("a timeout");
                assert_eq!(starts(&all), [1001, 2001, 3001, 4001, 5001]);
                // The hole and the data kept by the peer are acknowledged together.
                peer.send(peer.segment().ack(6001));
                assert_eq!(peer.pass(ms(5000)).len(), 0);
            }
        }
    }
}

#[test]
fn the_timeout_is_beta_times_the_round_trip_and_doubles() {
    let formula = RtoFormula::Rfc793 { alpha_percent: 90, beta_percent: 150 };
    for (rtt, first) in [(2000, 3000), (100, 1000)] {
        let mut peer = peer(&TcpConfig { rto_formula: formula, ..TcpConfig::classic() }, ms(rtt));
        peer.write(100);
        let start = peer.now;
        let sent = peer.pass(ms(first * 4));
        let times: Vec<_> = sent.iter().map(|sent| sent.at.saturating_since(start).as_millis()).collect();
        assert_eq!(times, [0, first, 3 * first], "a round trip of {rtt} ms");
    }
}

#[test]
fn the_rest_of_a_long_write_waits_for_what_is_outstanding() {
    for (nagle, sent) in [(Nagle::Rfc896, 3), (Nagle::Minshall, 4), (Nagle::Off, 4)] {
        let mut peer = peer(&TcpConfig { nagle, ..TcpConfig::classic() }, ms(10));
        peer.write(3500);
        assert_eq!(peer.receive().len(), sent, "{nagle:?}");
        // An acknowledgement of a part is not enough.
        peer.send(peer.segment().ack(2001));
        assert_eq!(peer.receive().len(), 0);
        peer.expected = 3001.max(peer.expected);
        peer.send_ack();
        assert_eq!(peer.receive().len(), 4 - sent);
        // The end of the stream does not change that either.
        peer.write(10);
        peer.connection.finish();
        assert_eq!(peer.receive().len(), usize::from(sent > 3 || nagle != Nagle::Rfc896), "{nagle:?}");
    }
}

#[test]
fn what_the_application_has_read_is_acknowledged_by_two_segments_or_half_the_buffer() {
    for (buffer, expected) in [(10_000, [0, 1, 0, 1]), (3000, [0, 1, 0, 1]), (2000, [1, 1, 1, 1])] {
        let acks = AckPolicy { threshold: AckThreshold::Read, delay_max: ms(200), timer: AckTimer::Periodic };
        let mut peer = peer(&TcpConfig { acks, receive_buffer: buffer, ..TcpConfig::classic() }, ms(10));
        let counts = expected.map(|_| {
            peer.send_data(1000);
            assert_eq!(peer.sent().len(), 0, "nothing was read");
            peer.read();
            peer.sent().len()
        });
        assert_eq!(counts, expected, "{buffer}");
        peer.send_data(999);
        let start = peer.now;
        let ack = peer.pass(ms(1000));
        // The first multiple of 200 ms.
        let due = 200 - start.as_nanos() / 1_000_000 % 200;
        assert_eq!((ack.len(), ack[0].at), (1, start + ms(due)), "{buffer}");
    }
}

#[test]
fn every_segment_announces_what_is_free_unless_that_is_little() {
    for (growth, windows) in [(WindowGrowth::Any, [8000, 7600, 8000]), (WindowGrowth::Segment, [8000, 7600, 7599])] {
        let config = TcpConfig { window_growth: growth, receive_buffer: 8000, ..TcpConfig::classic() };
        let mut peer = peer(&config, ms(10));
        let mut window = |len: usize, is_read: bool| {
            peer.send_data(len);
            if is_read {
                peer.read();
            }
            peer.pass(ms(200)).last().expect("an acknowledgement").window
        };
        // A whole segment is read; half of one is not, and then it is.
        assert_eq!([window(1000, true), window(400, false), window(1, true)], windows, "{growth:?}");
    }
}

#[test]
fn a_buffer_with_less_than_a_segment_and_a_quarter_free_is_closed() {
    let mut peer = peer(&TcpConfig { receive_buffer: 3000, ..TcpConfig::classic() }, ms(10));
    peer.send_data(1000);
    peer.send_data(1000);
    assert_eq!(peer.sent().last().map(|ack| ack.window), Some(1000));
    peer.send_data(800);
    // The announced window is not revoked.
    assert_eq!(peer.pass(ms(200)).last().map(|ack| ack.window), Some(200));
}

#[test]
fn nagle_and_a_delayed_acknowledgement_stall_a_request_and_either_alone_does_not() {
    // Two small writes: the second waits for the acknowledgement of the first, which the other side
    // delays because it has nothing to answer yet.
    let classic = TcpConfig::classic;
    let cases = [
        (classic(), true),
        (TcpConfig { nagle: Nagle::Minshall, ..classic() }, true),
        (TcpConfig { nagle: Nagle::Off, ..classic() }, false),
        (TcpConfig { acks: AckPolicy { delay_max: Duration::ZERO, ..classic().acks }, ..classic() }, false),
    ];
    for (config, stalls) in cases {
        let mut pair = Pair::with(1, [link(100, 1), link(100, 1)], [config.clone(), config.clone()]);
        pair.connect();
        let start = pair.now;
        for _ in 0..2 {
            pair.hosts[0].send(vec![1; 100], false);
            pair.run_for(Duration::ZERO);
        }
        pair.run_for(ms(1000));
        let sent = &pair.hosts[0].sent;
        let times: Vec<_> = sent.iter().filter(|(_, _, len)| *len == 100).map(|(at, ..)| *at).collect();
        assert_eq!(times.len(), 2, "{config:?}");
        let spent = times[1].saturating_since(start).as_millis();
        assert_eq!(spent >= 190, stalls, "{config:?}: {spent}");
        assert!(spent <= 205, "{config:?}: {spent}");
    }
}
