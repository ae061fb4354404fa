//! Paths that drop large packets without a report (RFC 4821).

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use tcp::{Arrival, Connection, Md5Key, Plan, SuperPacket, TcpConfig, Tuple};
use units::{Duration, Instant, Seq32};
use wire::tcp::{Flags, Header, Options, Timestamps};

use crate::support::{Pair, link, pattern};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns a pair over a path that drops packets of more than `limit` bytes in both directions, and
/// counts them. Counts them.
fn over(limit: usize, config: &TcpConfig) -> (Pair, Rc<RefCell<(usize, u32)>>) {
    let mut pair = Pair::with(1, [link(100, 10), link(100, 10)], [config.clone(), config.clone()]);
    let path = Rc::new(RefCell::new((limit, 0)));
    let shared = Rc::clone(&path);
    pair.tamper = Some(Box::new(move |_, packet| {
        let (limit, dropped) = &mut *shared.borrow_mut();
        let is_lost = packet.bytes.len() > *limit;
        *dropped += u32::from(is_lost);
        if is_lost { Vec::new() } else { vec![packet.clone()] }
    }));
    pair.connect();
    (pair, path)
}

/// Returns the number of bytes of headers of a packet with data.
fn headers(config: &TcpConfig) -> usize {
    if config.timestamps { 52 } else { 40 }
}

#[test]
fn a_link_that_drops_large_packets_silently_stops_no_transfer() {
    for (sack, timestamps) in [(true, true), (true, false), (false, true), (false, false)] {
        for limit in [1280, 1400, 1492] {
            let config = TcpConfig { sack, timestamps, ..TcpConfig::default() };
            let (mut pair, path) = over(limit, &config);
            let spent = pair.transfer(0, 5_000_000, MINUTE);
            let found = pair.hosts[0].connection().segment() as usize + headers(&config);
            assert!(path.borrow().1 > 0, "nothing was dropped");
            assert!(limit - found <= 16 && found <= limit, "{limit}: {found} {sack} {timestamps}");
            // Two timeouts, and 0.4 s at the link's rate. Without SACK a loss costs a round trip
            // each.
            let most = Duration::from_secs(if sack { 4 } else { 10 });
            assert!(spent < most, "{limit} {sack} {timestamps}: {spent}");
        }
    }
}

#[test]
fn a_link_for_very_small_packets_stops_no_transfer_either() {
    let config = TcpConfig::default();
    let (mut pair, _path) = over(600, &config);
    let spent = pair.transfer(0, 1_000_000, MINUTE);
    assert!(spent < Duration::from_secs(10), "{spent}");
    let found = pair.hosts[0].connection().segment() as usize + headers(&config);
    assert!((576..=600).contains(&found), "{found}");
}

#[test]
fn an_outage_of_the_whole_path_leaves_full_segments() {
    let config = TcpConfig::default();
    let (mut pair, path) = over(1500, &config);
    pair.hosts[0].send(vec![7; 6_000_000], false);
    pair.run_for(Duration::from_millis(200));
    path.borrow_mut().0 = 0;
    pair.run_for(Duration::from_secs(3));
    assert!(pair.hosts[0].connection().segment() < 1300, "an outage looks like a black hole");
    path.borrow_mut().0 = 1500;
    assert!(pair.run_until(MINUTE, |pair| pair.hosts[1].received.len() == 6_000_000));
    assert_eq!(pair.hosts[0].connection().segment(), 1448, "the first probe has arrived");
}

#[test]
fn a_path_that_carries_more_later_is_found_after_some_time() {
    let config = TcpConfig::default();
    let (mut pair, path) = over(1280, &config);
    pair.transfer_part(0, 20_000_000);
    let small = pair.hosts[0].connection().segment();
    path.borrow_mut().0 = 1500;
    pair.transfer_part(0, 2_000_000);
    assert_eq!(pair.hosts[0].connection().segment(), small, "the search is over");
    pair.run_for(Duration::from_secs(601));
    pair.transfer_part(0, 2_000_000);
    assert_eq!(pair.hosts[0].connection().segment(), 1448);
}

#[test]
fn without_probing_such_a_path_stops_the_transfer() {
    let config = TcpConfig { path_probing: false, ..TcpConfig::default() };
    let (mut pair, _path) = over(1280, &config);
    pair.hosts[0].send(vec![7; 100_000], false);
    pair.run_for(Duration::from_secs(20));
    assert_eq!(pair.hosts[1].received.len(), 0, "the test has a path that drops large packets");
}

#[test]
fn a_lost_probe_is_no_congestion_and_comes_three_times() {
    for sack in [true, false] {
        // The window leaves the queue of the link empty: nothing else is lost.
        let config = TcpConfig { sack, receive_buffer: 200_000, buffers_initial: 200_000, ..TcpConfig::default() };
        let mut pair = Pair::with(1, [link(100, 10), link(100, 10)], [config.clone(), config]);
        let sizes = Rc::new(RefCell::new(Vec::new()));
        let shared = Rc::clone(&sizes);
        pair.tamper = Some(Box::new(move |_, packet| {
            let is_lost = packet.bytes.len() > 1280;
            if is_lost {
                shared.borrow_mut().push(packet.bytes.len());
            }
            if is_lost { Vec::new() } else { vec![packet.clone()] }
        }));
        pair.connect();
        pair.hosts[0].send(pattern(20_000_000, 3), false);
        let is_small = |pair: &mut Pair| pair.hosts[0].connection().segment() == 1228;
        assert!(pair.run_until(MINUTE, is_small));
        // Full segments that were in flight.
        assert!(pair.run_until(MINUTE, |pair| pair.hosts[1].received.len() > 200_000));
        let before = (pair.hosts[0].connection().stats().send.bytes_lost, pair.hosts[0].connection().congestion().0);
        assert!(pair.run_until(MINUTE, |pair| pair.hosts[1].received.len() == 20_000_000));
        let (lost, window) =
            (pair.hosts[0].connection().stats().send.bytes_lost, pair.hosts[0].connection().congestion().0);
        assert!(lost == before.0 && window >= before.1, "{sack}: {lost} and {window} after {before:?}");
        // Halfway between the largest working size and the smallest failing one, until they are
        // within 16 bytes.
        let sizes = sizes.borrow();
        let expected = [1500, 1390, 1335, 1307, 1293].map(|size| [size; 3]).concat();
        assert_eq!(sizes[sizes.len() - 15..], expected, "{sack}");
    }
}

/// Returns the IP packet of the first full segment to a peer that accepts the largest.
fn first_packet(config: &TcpConfig, tuple: Tuple) -> usize {
    let options = Options { mss: Some(u16::MAX), timestamps: Some(Timestamps::default()), ..Options::default() };
    let header = Header { flags: Flags::SYN, window: u16::MAX, options, ..Header::default() };
    let syn = Arrival { tuple, header, data: Bytes::new(), segment: 0, ecn: None };
    let config = TcpConfig { buffers_initial: usize::MAX, send_buffer: 1 << 20, ..config.clone() };
    let mut connection = Connection::accept(Instant::ZERO, config, &syn, Seq32::new(5), 6);
    let mut plan = Plan::default();
    assert!(connection.poll_plan(Instant::ZERO, 9, &mut plan), "the answer to the SYN");
    let header = Header { seq: Seq32::new(1), ack: Seq32::new(6), flags: Flags::ACK, ..header };
    connection.handle_segment(Instant::ZERO, Arrival { header, ..syn });
    connection.write(&mut Bytes::from(vec![0; 200_000])).expect("there is space");
    assert!(connection.poll_plan(Instant::ZERO, 9, &mut plan), "nothing is sent");
    let (mut packet, mut len) = (SuperPacket::default(), 0);
    plan.seal(&mut packet);
    packet.packets(|packet| len = len.max(packet.len()));
    len
}

/// A device may have any size of packets up to the largest IP packet. A larger size counts as that.
#[test]
fn a_full_segment_is_sent_whatever_the_device_carries() {
    let [v4, v6] = [("10.0.0.1:80", "10.0.0.2:5000"), ("[fd00::1]:80", "[fd00::2]:5000")]
        .map(|(local, remote)| Tuple { local: local.parse().unwrap(), remote: remote.parse().unwrap() });
    let md5 = Md5Key::new(b"secret").expect("a key");
    for mtu in (1280..65_000).step_by(997).chain(65_300..=65_600).chain([100_000]) {
        for tuple in [v4, v6] {
            for (timestamps, md5) in [(true, None), (false, None), (true, Some(&md5))] {
                let config = TcpConfig { mtu, timestamps, md5: md5.cloned(), ..TcpConfig::default() };
                let len = first_packet(&config, tuple);
                // The window of the peer is not scaled: 65,535 bytes of data.
                assert_eq!(len, mtu.min(65_535), "{mtu} {tuple} {timestamps}");
            }
        }
    }
}

#[test]
fn data_cross_links_of_all_packet_sizes() {
    for mtu in [576, 1280, 9000, 32_768, 65_414, 65_415, 65_466, 65_467, 65_468, 65_534, 65_535] {
        for timestamps in [true, false] {
            let config = TcpConfig { mtu, timestamps, ..TcpConfig::default() };
            let mut pair = Pair::with(1, [link(100, 10), link(100, 10)], [config.clone(), config]);
            pair.connect();
            let spent = pair.transfer(0, 3_000_000, MINUTE);
            assert!(spent < Duration::from_secs(2), "{mtu} {timestamps}: {spent}");
        }
    }
}
