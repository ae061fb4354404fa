//! Data and FINs where none belong.

use tcp::{Event, State, TcpConfig};
use units::Duration;
use wire::tcp::{Flags, Options, Timestamps};

use crate::support::peer::{PEER_INITIAL, Peer, offer};

const BUFFER: usize = 10_000;

fn peer() -> Peer {
    Peer::opens(&TcpConfig { receive_buffer: BUFFER, ..TcpConfig::default() }, offer())
}

#[test]
fn the_first_copy_of_a_byte_counts() {
    let mut peer = peer();
    peer.send(peer.segment().seq(5).data("efgh"));
    peer.send(peer.segment().seq(3).data("CDEFGHIJ"));
    peer.send(peer.segment().seq(1).data("ab"));
    peer.send(peer.segment().seq(1).data("YYYYYYYYYYYYYY"));
    assert_eq!(peer.read(), b"abCDefghIJYYYY");
}

#[test]
fn bytes_beyond_the_window_are_cut_off_and_the_end_with_them() {
    let mut peer = peer();
    peer.send(peer.segment().seq(2).len(BUFFER + 5).flags(Flags::ACK | Flags::FIN));
    peer.send(peer.segment().seq(1).len(1));
    assert_eq!(peer.read().len(), BUFFER);
    assert_eq!(peer.connection.state(), State::Established);
}

#[test]
fn an_end_at_the_edge_of_the_window_is_taken_and_what_follows_it_is_not() {
    let mut peer = peer();
    peer.send(peer.segment().len(BUFFER).flags(Flags::ACK | Flags::FIN));
    assert_eq!(peer.connection.state(), State::CloseWait);
    // Before the window is announced again.
    let end = 2 + BUFFER as u32;
    peer.send(peer.segment().seq(end).len(5));
    peer.send(peer.segment().seq(end + 70_000).len(5));
    peer.send(peer.segment().seq(end));
    assert_eq!(peer.read().len(), BUFFER);
    assert!(peer.sent().iter().all(|sent| sent.ack == end));
}

#[test]
fn an_end_without_data_is_taken_although_the_window_is_closed() {
    let mut peer = peer();
    peer.send_data(BUFFER);
    assert!(peer.sent().last().is_some_and(|sent| sent.window == 0));
    peer.send(peer.segment().flags(Flags::ACK | Flags::FIN));
    assert_eq!(peer.connection.state(), State::CloseWait);
    let answer = peer.sent();
    assert!(answer.len() == 1 && answer[0].ack == 2 + BUFFER as u32, "{answer:?}");
}

#[test]
fn data_after_the_end_are_dropped() {
    let mut peer = peer();
    peer.send(peer.segment().seq(11).len(100));
    peer.send(peer.segment().seq(6).len(5).flags(Flags::ACK | Flags::FIN));
    peer.send(peer.segment().seq(13).len(100));
    peer.send(peer.segment().seq(1).len(5));
    assert_eq!(peer.connection.state(), State::CloseWait);
    peer.send(peer.segment().seq(12).len(100));
    assert_eq!(peer.read().len(), 10);
}

#[test]
fn an_end_before_received_data_is_no_end() {
    let mut peer = peer();
    peer.send_data(100);
    peer.send(peer.segment().seq(1).len(50).flags(Flags::ACK | Flags::FIN));
    assert_eq!(peer.connection.state(), State::Established);
    peer.assert_works();
}

#[test]
fn the_first_end_of_two_counts() {
    let mut peer = peer();
    peer.send(peer.segment().seq(50).flags(Flags::ACK | Flags::FIN));
    peer.send(peer.segment().seq(20).flags(Flags::ACK | Flags::FIN));
    peer.send(peer.segment().len(100));
    assert_eq!((peer.read().len(), peer.connection.state()), (49, State::CloseWait));
}

#[test]
fn segments_without_an_acknowledgement_are_dropped() {
    let mut peer = peer();
    for flags in [Flags::empty(), Flags::PSH, Flags::FIN, Flags::URG] {
        peer.send(peer.segment().flags(flags).len(10));
    }
    assert_eq!((peer.connection.readable(), peer.connection.state()), (0, State::Established));
    peer.assert_works();
}

#[test]
fn all_flags_at_once_do_nothing() {
    for flags in [Flags(0x1ff), Flags(0x1ff).without(Flags::RST)] {
        let mut peer = peer();
        peer.send(peer.segment().seq(7).flags(flags).len(10));
        assert_eq!((peer.connection.readable(), peer.connection.state()), (0, State::Established), "{flags}");
        peer.assert_works();
    }
}

#[test]
fn urgent_data_stay_in_the_stream() {
    let mut peer = peer();
    peer.send(peer.segment().data("abc").urgent(1));
    assert_eq!(peer.read(), b"abc");
    peer.nxt += 3;
    // Whatever the pointer, no byte is lost and none is repeated.
    for pointer in [0, 1, 3, 4, 1000, u16::MAX] {
        peer.send(peer.segment().data("defg").urgent(pointer));
        assert_eq!(peer.read(), b"defg", "{pointer}");
        peer.nxt += 4;
    }
    peer.assert_works();
}

#[test]
fn the_application_learns_where_urgent_data_end() {
    let mut peer = peer();
    let told = |peer: &mut Peer| std::mem::take(&mut peer.events).contains(&Event::Urgent);
    // The pointer refers to the byte after them; they are longer than the data received.
    peer.send(peer.segment().len(100).urgent(150));
    assert!(told(&mut peer));
    assert_eq!(peer.connection.urgent_left(), 150);
    peer.read();
    assert_eq!(peer.connection.urgent_left(), 50);
    peer.nxt += 100;
    // A smaller or equal pointer is no news; a larger one is, even without data.
    for (pointer, is_news, left) in [(20, false, 50), (50, false, 50), (51, true, 51), (u16::MAX, true, 65_535)] {
        peer.send(peer.segment().urgent(pointer));
        assert_eq!((told(&mut peer), peer.connection.urgent_left()), (is_news, left), "{pointer}");
    }
    // Longer than the reach of a pointer.
    peer.send(peer.segment().len(1000).urgent(u16::MAX));
    peer.nxt += 1000;
    peer.send(peer.segment().len(1000).urgent(u16::MAX));
    peer.nxt += 1000;
    assert_eq!((told(&mut peer), peer.connection.urgent_left()), (true, 67_535 - 1000));
    assert_eq!(peer.read().len(), 2000);
    // Data already read are not urgent any more.
    peer.send(peer.segment().seq(50).len(10).urgent(5));
    peer.sent();
    peer.send(peer.segment().flags(Flags::FIN | Flags::ACK).urgent(0));
    assert_eq!((told(&mut peer), peer.connection.urgent_left()), (false, 65_535 - 1000));
}

#[test]
fn urgent_data_behind_a_closed_window_are_told_of() {
    let mut peer = peer();
    peer.send_data(BUFFER);
    peer.sent();
    peer.events.clear();
    // A window probe.
    peer.send(peer.segment().len(1).urgent(7));
    assert_eq!((&peer.events[..], peer.connection.urgent_left()), (&[Event::Urgent][..], BUFFER as u64 + 7));
    assert_eq!(peer.read().len(), BUFFER);
    assert_eq!(peer.connection.urgent_left(), 7);
}

#[test]
fn data_with_an_acknowledgement_of_unsent_or_old_data_are_not_taken() {
    let mut peer = peer();
    peer.write(1000);
    peer.receive();
    peer.send_ack();
    // Acknowledgements of data never sent, and of data older than the largest window of the peer.
    for ack in [1002, 1 << 30, 1 << 31, 1001_u32.wrapping_sub(65_536)] {
        peer.send(peer.segment().ack(ack).data("evil"));
        let answer = peer.sent();
        assert!(answer.len() == 1 && answer[0].flags == Flags::ACK && answer[0].ack == 1, "{ack}: {answer:?}");
    }
    assert_eq!(peer.connection.readable(), 0);
    // An old acknowledgement may have been overtaken.
    peer.send(peer.segment().ack(1).data("good"));
    assert_eq!(peer.read(), b"good");
}

#[test]
fn a_segment_outside_the_window_is_answered() {
    let mut peer = peer();
    for seq in [1 + BUFFER as u32, 1 << 30, 1 << 31, u32::MAX] {
        peer.send(peer.segment().seq(seq).len(1));
        let answer = peer.sent();
        assert!(answer.len() == 1 && answer[0].ack == 1, "{seq}: {answer:?}");
    }
    peer.assert_works();
}

#[test]
fn a_segment_of_64_kilobytes_that_the_device_has_joined_counts_as_many() {
    let mut peer = Peer::opens(&TcpConfig::default(), offer());
    // Until the window is wider than a SYN can say.
    peer.send_data(1460);
    peer.pass(Duration::from_millis(40));
    let mut segment = peer.segment().len(65_495);
    segment.joined = Some(1460);
    peer.send(segment);
    let answer = peer.sent();
    assert!(answer.len() == 1 && answer[0].ack == 1 + 1460 + 65_495, "{answer:?}");
    // The joining is not announced: still not larger than the announced segment.
    peer.nxt = 1 + 1460 + 65_495;
    peer.read();
    peer.sent();
    peer.send_data(65_000);
    peer.sent();
    peer.send_data(2 * 1460);
    assert_eq!(peer.sent().len(), 1);
}

#[test]
fn repeated_data_are_reported_and_answered_without_a_limit() {
    let mut peer = peer();
    peer.send_data(2000);
    peer.read();
    peer.sent();
    for _ in 0..50 {
        // Like after a lost acknowledgement, however often that happens.
        peer.send(peer.segment().seq(1).len(500));
        let answer = peer.sent();
        assert!(answer.len() == 1 && answer[0].ack == 2001, "{answer:?}");
        let block = answer[0].options.sack.iter().next().map(|(start, end)| (start.get(), end.get()));
        let initial = PEER_INITIAL;
        assert_eq!(block, Some((initial + 1, initial + 501)), "RFC 2883, section 4");
    }
    // A segment without data might be an answer itself.
    let answers = (0..50).map(|_| {
        peer.send(peer.segment().seq(1));
        peer.sent().len()
    });
    assert_eq!(answers.sum::<usize>(), 10);
}

#[test]
fn a_timestamp_counts_only_with_a_credible_acknowledgement() {
    let mut peer = Peer::opens(&TcpConfig::default(), Options { timestamps: Some(Timestamps::default()), ..offer() });
    let later = peer.clock() + (1 << 30);
    peer.send(peer.segment().ack(1 << 30).len(10).stamp(later, 0));
    peer.sent();
    peer.assert_works();
}
