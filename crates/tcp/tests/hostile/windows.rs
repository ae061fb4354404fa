//! Peers whose windows are closed, shrink, or are silly.

use tcp::{CloseReason, Event, State, TcpConfig};
use units::{Duration, Instant};
use wire::tcp::Flags;

use crate::support::peer::{Peer, Sent, offer};

const MINUTE: Duration = Duration::from_secs(60);

fn peer() -> Peer {
    Peer::opens(&TcpConfig::default(), offer())
}

/// Answers every segment with an acknowledgement of everything before `limit`, and a closed window.
fn answer_closed(peer: &mut Peer, span: Duration, limit: u32) -> Vec<Instant> {
    let (end, mut times) = (peer.now + span, Vec::new());
    while let Some(sent) = peer.pass_until_sent(end.saturating_since(peer.now)) {
        times.push(peer.now);
        assert_eq!(sent.len(), 1, "{sent:?}");
        peer.send(peer.segment().ack(limit).window(0));
        assert_eq!(peer.connection.state(), State::Established);
    }
    times
}

/// Returns the times between neighbours.
fn gaps(times: &[Instant]) -> Vec<u64> {
    times.windows(2).map(|pair| pair[1].saturating_since(pair[0]).as_millis()).collect()
}

#[test]
fn a_closed_window_is_probed_ever_more_slowly_and_for_ever() {
    let mut peer = peer();
    peer.send(peer.segment().window(0));
    peer.write(10_000);
    assert_eq!(peer.sent().len(), 0);
    let times = answer_closed(&mut peer, MINUTE * 60, 1);
    let gaps = gaps(&times);
    assert!(gaps.len() > 60, "{gaps:?}");
    assert!(gaps.windows(2).all(|pair| pair[0] <= pair[1]), "{gaps:?}");
    assert!(gaps[1] >= 2 * gaps[0] && gaps.last() == Some(&60_000), "{gaps:?}");
    peer.send(peer.segment().window(60_000));
    assert_eq!(peer.sent().iter().map(|sent| sent.data.len()).sum::<usize>(), 10_000);
}

#[test]
fn a_peer_with_a_closed_window_that_answers_no_probes_is_given_up() {
    let mut peer = peer();
    peer.send(peer.segment().window(0));
    peer.write(10_000);
    let sent = peer.pass(MINUTE * 60);
    assert_eq!(sent.len(), TcpConfig::default().timeouts_max as usize - 1);
    assert_eq!(peer.events.last(), Some(&Event::Closed(CloseReason::TimedOut)));
}

#[test]
fn data_written_into_a_closed_window_are_probed_for() {
    let mut peer = peer();
    peer.write(1000);
    peer.receive();
    peer.send(peer.segment().window(0));
    peer.pass(MINUTE);
    peer.write(1000);
    assert_eq!(peer.sent().len(), 0);
    let probe = peer.pass_until_sent(MINUTE).expect("a probe");
    assert!(probe.len() == 1 && probe[0].data.len() == 1 && probe[0].seq == 1001, "{probe:?}");
    // The update that opens the window was lost, and the answer to the probe repeats it.
    peer.note(&probe);
    peer.send_ack();
    let rest = peer.sent();
    assert!(rest.len() == 1 && rest[0].seq == 1002 && rest[0].data.len() == 999, "{rest:?}");
}

#[test]
fn a_probe_that_the_peer_did_not_take_is_sent_with_the_rest() {
    let mut peer = peer();
    peer.send(peer.segment().window(0));
    peer.write(1000);
    peer.pass_until_sent(MINUTE).expect("a probe");
    peer.send(peer.segment().window(5000));
    let all = peer.receive();
    assert!(all.len() == 1 && all[0].seq == 1 && all[0].data.len() == 1000, "{all:?}");
}

#[test]
fn a_probe_has_no_mark_and_no_sign_of_a_reduction() {
    let mut peer = Peer::opens_with(
        &TcpConfig::default(),
        offer(),
        Flags::SYN | Flags::ECE | Flags::CWR,
        (crate::support::peer::INITIAL, crate::support::peer::PEER_INITIAL),
    );
    peer.write(1460);
    let sent = peer.receive();
    assert!(sent.iter().all(|sent| sent.ecn.is_some()));
    peer.send(peer.segment().flags(Flags::ACK | Flags::ECE).window(0));
    peer.write(1460);
    let probe = peer.pass_until_sent(MINUTE).expect("a probe");
    assert!(probe[0].ecn.is_none() && !probe[0].has(Flags::CWR), "RFC 3168, section 6.1.6: {probe:?}");
    peer.send(peer.segment().window(60_000));
    assert!(peer.receive().iter().any(|sent| sent.has(Flags::CWR)), "the first new data");
}

#[test]
fn a_window_that_shrinks_below_what_was_sent_does_not_end_the_connection() {
    let mut peer = peer();
    peer.write(10_000);
    let sent = peer.sent();
    assert_eq!(sent.iter().map(|sent| sent.data.len()).sum::<usize>(), 10_000);
    // Only the first segment was received, and the window is closed there.
    peer.expected = 1461;
    peer.window = 0;
    peer.send_ack();
    let times = answer_closed(&mut peer, MINUTE * 60, 1461);
    assert!(times.len() > 30 && times.len() < 100, "{}", times.len());
    peer.window = 60_000;
    peer.send_ack();
    deliver(&mut peer, 10_001);
}

/// Receives and acknowledges everything until `end` at the peer.
fn deliver(peer: &mut Peer, end: u32) -> Vec<Sent> {
    let mut all = Vec::new();
    for _ in 0..1000 {
        if peer.expected >= end {
            return all;
        }
        let sent = peer.pass_until_sent(MINUTE * 2).expect("something is sent");
        peer.note(&sent);
        all.extend(sent);
        peer.send_ack();
    }
    panic!("only {} of {end} were sent", peer.expected);
}

#[test]
fn an_end_that_a_closed_window_refuses_does_not_end_the_connection() {
    let mut peer = peer();
    peer.write(1000);
    peer.receive();
    peer.send(peer.segment().window(0));
    peer.connection.finish();
    let end = peer.sent();
    assert!(end.len() == 1 && end[0].has(Flags::FIN), "{end:?}");
    let stop = peer.now + MINUTE * 60;
    while let Some(sent) = peer.pass_until_sent(stop.saturating_since(peer.now)) {
        assert!(sent.len() == 1 && sent[0].has(Flags::FIN), "{sent:?}");
        peer.send(peer.segment().window(0));
    }
    assert_eq!(peer.connection.state(), State::FinWait1);
    peer.send(peer.segment().ack(1002).window(0));
    assert_eq!(peer.connection.state(), State::FinWait2);
}

#[test]
fn a_peer_that_answers_and_never_takes_what_its_window_permits_is_given_up() {
    let mut peer = peer();
    peer.write(1000);
    peer.sent();
    let end = peer.now + MINUTE * 60;
    while let Some(_sent) = peer.pass_until_sent(end.saturating_since(peer.now)) {
        peer.send(peer.segment().ack(1));
    }
    assert_eq!(peer.connection.close_reason(), Some(CloseReason::TimedOut));
}

#[test]
fn a_window_below_a_segment_is_used_after_a_while() {
    let mut peer = peer();
    // Once wide; after that never more than a little.
    peer.send(peer.segment().window(60_000));
    peer.send(peer.segment().window(500));
    peer.write(3000);
    assert_eq!(peer.sent().len(), 0, "a silly window waits for a better one");
    let sent = peer.pass_until_sent(MINUTE).expect("RFC 9293, section 3.8.6.2.1, the override timeout");
    assert!(sent.len() == 1 && sent[0].data.len() == 500, "{sent:?}");
    peer.note(&sent);
    peer.window = 500;
    peer.send_ack();
    deliver(&mut peer, 3001);
}

#[test]
fn a_window_beyond_the_space_of_sequence_numbers_is_harmless() {
    let mut peer = Peer::opens(
        &TcpConfig { send_buffer: 1 << 20, ..TcpConfig::default() },
        wire::tcp::Options { window_scale: Some(15), ..offer() },
    );
    peer.window = u16::MAX;
    peer.send_ack();
    peer.write(1 << 20);
    deliver(&mut peer, (1 << 20) + 1);
}

#[test]
fn a_wider_window_is_announced_once_it_is_wider_by_a_segment() {
    let mut peer = Peer::opens(&TcpConfig { receive_buffer: 10_000, ..TcpConfig::default() }, offer());
    peer.send_data(10_000);
    assert_eq!(peer.pass(MINUTE).last().map(|sent| sent.window), Some(0));
    let mut free = 0;
    while free + 100 < 2920 {
        assert!(matches!(peer.connection.read(100), tcp::Read::Bytes(_)));
        free += 100;
        assert_eq!(peer.sent().len(), 0, "{free}");
        // A probe of the closed window; at the end, a probe of a window that is wide enough.
        peer.send(peer.segment().len(1));
        let answer = peer.sent();
        let announced = answer.last().expect("an answer").window;
        assert!(announced == 0 || announced >= 1460, "{announced} of {free}: RFC 9293, section 3.8.6.2.2");
        if announced > 0 {
            return;
        }
    }
    panic!("a window of two segments is announced");
}

#[test]
fn sides_that_have_taken_each_others_probe_go_on() {
    let mut peer = peer();
    peer.write(1000);
    peer.send(peer.segment().window(0));
    let probe = peer.pass_until_sent(MINUTE).expect("a probe");
    assert_eq!((probe[0].seq, probe[0].data.len()), (1, 1));
    // The peer's own probe, which is accepted; the peer drops its acknowledgement.
    peer.send(peer.segment().ack(1).window(0).len(1));
    peer.pass(Duration::from_millis(100));
    assert_eq!(peer.read().len(), 1);
    // The peer has accepted the probe, and opens its window. Its own byte is not acknowledged for
    // it.
    peer.send(peer.segment().ack(2));
    let rest = peer.sent();
    assert!(rest.iter().any(|sent| sent.seq == 2 && sent.data.len() == 999), "{rest:?}");
}
