//! DATAGRAM frames: may be lost, are never retransmitted, never too large.

use bytes::Bytes;
use quic::{DatagramPaths, Event, SendDatagramError};
use recovery::Algorithm;
use units::{Duration, Instant, Rate, Ratio};

use crate::support::{Pair, Setup};

fn connected(setup: Setup) -> Pair {
    let mut pair = setup.build();
    pair.connect();
    pair
}

fn received(pair: &mut Pair) -> Vec<Bytes> {
    std::iter::from_fn(|| pair.server.connection(0).recv_datagram()).collect()
}

#[test]
fn every_length_that_fits_arrives_and_no_other_is_accepted() {
    let mut pair = connected(Setup::new(1));
    let max = pair.client.connection(0).datagram_len_max().expect("the peer accepts datagrams");
    assert!(max > 1100 && max < 1200, "{max}");
    let too_large = pair.client.connection(0).send_datagram(Bytes::from(vec![0; max + 1]));
    assert_eq!(too_large, Err(SendDatagramError::TooLarge(max)));
    for len in (0..=max).rev().step_by(37).chain([0, 1, 2, max - 1, max]) {
        pair.client.connection(0).send_datagram(Bytes::from(vec![len as u8; len])).expect("the queue has space");
        pair.run_for(Duration::from_millis(15));
        let got = received(&mut pair);
        assert_eq!(got.iter().map(Bytes::len).collect::<Vec<_>>(), [len]);
        assert!(got[0].iter().all(|byte| *byte == len as u8));
    }
    assert_eq!(pair.client.connection(0).stats().send.datagrams_lost, 0);
}

#[test]
fn the_largest_datagrams_leave_beside_acknowledgements_and_streams() {
    let mut pair = connected(Setup::new(2));
    let id = pair.client.connection(0).open(quic::Dir::Uni).expect("allowed");
    pair.client.connection(0).write(id, Bytes::from(vec![1; 500_000])).expect("the send buffer has space");
    let max = pair.client.connection(0).datagram_len_max().expect("the peer accepts datagrams");
    let mut got = 0;
    for round in 0..200_u64 {
        pair.client.connection(0).send_datagram(Bytes::from(vec![round as u8; max])).expect("the queue has space");
        // The server sends too, so that the client has something to acknowledge.
        pair.server.connection(0).send_datagram(Bytes::from_static(b"noise")).expect("the queue has space");
        pair.run_for(Duration::from_millis(3));
        got += received(&mut pair).len();
    }
    pair.run_for(Duration::from_secs(1));
    assert_eq!(got + received(&mut pair).len(), 200);
}

#[test]
fn lost_datagrams_are_counted_and_not_retransmitted() {
    let mut pair = connected(Setup::new(3));
    pair.set_links(|link| link.loss = Ratio::new(30, 100));
    let mut got = Vec::new();
    for number in 0..1000_u32 {
        pair.client
            .connection(0)
            .send_datagram(Bytes::copy_from_slice(&number.to_be_bytes()))
            .expect("the queue has space");
        pair.run_for(Duration::from_millis(5));
        got.extend(received(&mut pair));
    }
    pair.set_links(|link| link.loss = Ratio::ZERO);
    pair.run_for(Duration::from_secs(10));
    got.extend(received(&mut pair));
    let mut numbers: Vec<u32> = got.iter().map(|d| u32::from_be_bytes(d[..].try_into().expect("four bytes"))).collect();
    numbers.sort_unstable();
    let count = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "one arrived twice");
    assert!((600..800).contains(&count), "{count} of 1000 at 30 % loss");
    let lost = pair.client.connection(0).stats().send.datagrams_lost;
    assert_eq!(lost + count as u64, 1000, "each arrives or counts as lost");
}

#[test]
fn a_full_queue_refuses_and_an_unread_one_drops_the_oldest() {
    let mut setup = Setup::new(4);
    setup.client.datagram_send_buffer = 10_000;
    setup.server.datagram_receive_buffer = 5_000;
    let mut pair = connected(setup);
    let client = pair.client.connection(0);
    let mut taken = 0_u32;
    let refusal = loop {
        match client.send_datagram(Bytes::from(vec![taken as u8; 1000])) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((taken, refusal), (10, SendDatagramError::QueueFull));
    pair.run_for(Duration::from_secs(1));
    let got = received(&mut pair);
    assert_eq!(got.iter().map(|data| data[0]).collect::<Vec<_>>(), [5, 6, 7, 8, 9], "the newest five are kept");
    assert_eq!(pair.server.connection(0).stats().receive.datagrams_dropped, 5);
    let reports = pair.server.events[0].iter().filter(|event| **event == Event::DatagramReceived).count();
    assert_eq!(reports, 1, "reported once until all are read");
    // Larger than the whole receive buffer: dropped.
    let mut setup = Setup::new(4);
    setup.server.datagram_receive_buffer = 100;
    let mut pair = connected(setup);
    pair.client.connection(0).send_datagram(Bytes::from(vec![1; 101])).expect("the queue has space");
    pair.run_for(Duration::from_secs(1));
    assert!(received(&mut pair).is_empty());
    assert_eq!(pair.server.connection(0).stats().receive.datagrams_dropped, 1);
}

#[test]
fn empty_datagrams_are_limited_in_number() {
    let mut pair = connected(Setup::new(4));
    let mut taken = 0;
    while pair.client.connection(0).send_datagram(Bytes::new()).is_ok() {
        taken += 1;
        assert!(taken < 100_000, "empty datagrams fill no queue");
    }
    pair.run_for(Duration::from_secs(5));
    assert_eq!(received(&mut pair).len(), taken);
}

#[test]
fn a_peer_that_accepts_no_datagrams_gets_none() {
    let mut setup = Setup::new(5);
    setup.server.datagram_receive_buffer = 0;
    let mut pair = connected(setup);
    assert_eq!(pair.client.connection(0).datagram_len_max(), None);
    assert_eq!(pair.client.connection(0).send_datagram(Bytes::new()), Err(SendDatagramError::Unsupported));
    assert!(pair.server.connection(0).datagram_len_max().is_some(), "the directions are independent");
}

/// Sends `count` datagrams of `len` bytes at once; returns how many plans they took.
fn send_at_once(pair: &mut Pair, count: usize, len: usize) -> u64 {
    let before = pair.client.connection(0).stats().send.plans;
    for number in 0..count {
        let data = Bytes::from(vec![number as u8; len]);
        pair.client.connection(0).send_datagram(data).expect("the queue has space");
    }
    pair.run_for(Duration::from_secs(1));
    pair.client.connection(0).stats().send.plans - before
}

#[test]
fn datagrams_of_one_length_leave_in_batches_whatever_the_length() {
    let mut pair = connected(Setup::new(6));
    let max = pair.client.connection(0).datagram_len_max().expect("the peer accepts datagrams");
    // Grows the window.
    send_at_once(&mut pair, 400, max);
    received(&mut pair);
    for len in [max, max - 1, 900, max / 2 + 20] {
        let plans = send_at_once(&mut pair, 400, len);
        let got = received(&mut pair);
        assert_eq!(got.len(), 400);
        assert!(got.iter().enumerate().all(|(number, data)| data[..] == vec![number as u8; len]), "in order, whole");
        assert!(plans < 100, "{plans} plans for datagrams of {len} bytes");
    }
}

#[test]
fn runs_of_datagrams_end_where_the_length_changes_and_the_peer_is_acknowledged_meanwhile() {
    let mut pair = connected(Setup::new(7));
    let max = pair.client.connection(0).datagram_len_max().expect("the peer accepts datagrams");
    let lens: Vec<usize> = (0..600).map(|n| [max, max, max, 700, 700, 40, max - 9][n % 7]).collect();
    for (number, len) in lens.iter().enumerate() {
        let data = Bytes::from(vec![number as u8; *len]);
        pair.client.connection(0).send_datagram(data).expect("the queue has space");
        // The other direction is acknowledged in the last packets of the plans.
        pair.server.connection(0).send_datagram(Bytes::from(vec![1; 900])).expect("the queue has space");
        if number % 50 == 0 {
            pair.run_for(Duration::from_millis(4));
        }
    }
    pair.run_for(Duration::from_secs(2));
    let got = received(&mut pair);
    assert_eq!(got.iter().map(Bytes::len).collect::<Vec<_>>(), lens);
    let stats = pair.server.connection(0).stats();
    assert_eq!((stats.send.datagrams_lost, stats.send.packets_lost), (0, 0), "acknowledgements were not held back");
}

#[test]
fn lost_packets_of_a_run_count_one_datagram_each() {
    let mut pair = connected(Setup::new(8));
    pair.set_links(|link| link.loss = Ratio::new(10, 100));
    let mut got = 0;
    for _ in 0..20 {
        send_at_once(&mut pair, 50, 1000);
        got += received(&mut pair).len();
    }
    pair.set_links(|link| link.loss = Ratio::ZERO);
    pair.run_for(Duration::from_secs(10));
    got += received(&mut pair).len();
    let lost = pair.client.connection(0).stats().send.datagrams_lost;
    assert!(lost > 30, "{lost}");
    assert_eq!(lost as usize + got, 1000, "each arrives or counts as lost");
}

/// Controllers remember the highest rate for a while. The bytes that wait must follow the link at once.
#[test]
fn few_datagrams_wait_when_the_link_becomes_slower_than_the_controller_believes() {
    for congestion in [Algorithm::Bbr, Algorithm::Cubic] {
        let setup = Setup::new(6).with_config(|config| config.congestion = congestion).with_links(|link| {
            (link.rate, link.delay, link.queue_bytes) = (Some(Rate::from_mbps(1000)), Duration::from_millis(1), 30_000);
        });
        let mut pair = connected(setup);
        offer_for(&mut pair, Duration::from_secs(2));
        pair.set_links(|link| link.rate = Some(Rate::from_mbps(50)));
        offer_for(&mut pair, Duration::from_millis(100));
        let (count, oldest) = offer_for(&mut pair, Duration::from_millis(500));
        assert!(count * 1000 > 45_000_000 / 8 / 2, "{count} datagrams in half a second");
        // Of that, 5 ms are the queue of the link and 1 ms its delay.
        assert!(oldest < Duration::from_millis(12), "{congestion:?}: {oldest} from the offer to the arrival");
    }
}

/// Offers as many datagrams of 1000 bytes as should wait. Returns how many arrived, and the longest time since the
/// offer.
fn offer_for(pair: &mut Pair, span: Duration) -> (u64, Duration) {
    let (end, mut count, mut oldest) = (pair.now + span, 0, Duration::ZERO);
    while pair.now < end {
        let mut data = vec![0; 1000];
        data[..8].copy_from_slice(&pair.now.as_nanos().to_be_bytes());
        while pair.client.connection(0).has_datagram_space(data.len(), None) {
            pair.client.connection(0).send_datagram(Bytes::from(data.clone())).expect("the queue has space");
        }
        pair.run_for(Duration::from_micros(100));
        for datagram in received(pair) {
            let offered = Instant::from_nanos(u64::from_be_bytes(datagram[..8].try_into().expect("eight bytes")));
            oldest = oldest.max(pair.now.saturating_since(offered));
            count += 1;
        }
    }
    (count, oldest)
}

#[test]
fn a_datagram_that_passes_others_arrives_before_them_and_they_are_counted() {
    let mut pair = connected(Setup::new(7).with_links(|link| link.rate = Some(Rate::from_mbps(2))));
    let client = pair.client.connection(0);
    (0..50).for_each(|_| client.send_datagram(Bytes::from(vec![0; 1000])).expect("the queue has space"));
    for number in 1..=3 {
        client.send_datagram_on(Bytes::from(vec![number; 10]), DatagramPaths::Any).expect("the queue has space");
    }
    assert_eq!(client.datagrams_waiting(None), 50);
    pair.run_for(Duration::from_millis(500));
    let first: Vec<u8> = received(&mut pair).iter().take(4).map(|data| data[0]).collect();
    assert_eq!(first, [1, 2, 3, 0]);
    // No more than leave at a time pass others.
    let client = pair.client.connection(0);
    (0..100).for_each(|_| client.send_datagram(Bytes::from(vec![0; 1000])).expect("the queue has space"));
    for _ in 0..100 {
        client.send_datagram_on(Bytes::from(vec![7; 10]), DatagramPaths::Any).expect("the queue has space");
    }
    assert_eq!(client.datagrams_waiting(None), 100, "the others stand in line, and are not counted as those");
    pair.run_for(Duration::from_secs(2));
    assert_eq!((received(&mut pair).len(), pair.client.connection(0).datagrams_waiting(None)), (200, 0));
}
