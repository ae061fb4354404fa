//! The handshake under faults.

use std::sync::Arc;

use quic::session::deterministic::DeterministicFactory;
use quic::session::{HandshakeVersions, LevelKeys, Session, SessionFactory};
use quic::{ConnectionId, Event, Side, TransportConfig, Version};
use units::{Duration, Ratio, Rng};
use wire::quic::{Parsed, parse_packet};

use crate::support::{Sessions, Setup, apps};

/// First byte of a long header.
const LONG: u8 = 0x80;

/// Sessions whose flights are enlarged by an unknown transport parameter, as by a certificate
/// chain.
struct LargeFlights {
    inner: DeterministicFactory,
    bytes: usize,
}

impl SessionFactory for LargeFlights {
    fn start(
        &self,
        server_name: &str,
        parameters: &[u8],
        versions: HandshakeVersions,
    ) -> Result<Box<dyn Session>, String> {
        let mut parameters = parameters.to_vec();
        wire::quic::put_varint(&mut parameters, 31 * 1_000_000 + 27);
        wire::quic::put_varint(&mut parameters, self.bytes as u64);
        parameters.resize(parameters.len() + self.bytes, 0xbb);
        self.inner.start(server_name, &parameters, versions)
    }

    fn initial_keys(&self, id: &ConnectionId, side: Side, version: Version) -> LevelKeys {
        self.inner.initial_keys(id, side, version)
    }
}

/// Flights of about this many bytes from the client and from the server.
fn large_flights(seed: u64, client: usize, server: usize) -> Setup {
    let make = |side, bytes| {
        let rng = Rng::from_seed(seed).split(if side == Side::Client { "client" } else { "server" });
        Arc::new(LargeFlights { inner: DeterministicFactory::new(side, rng), bytes })
    };
    Setup::new(seed).with_sessions(Sessions {
        client: make(Side::Client, client),
        server: make(Side::Server, server),
        server_name: "server".to_owned(),
    })
}

#[test]
fn handshakes_complete_under_loss() {
    for percent in [5, 15, 30] {
        let mut lost = 0;
        for seed in 0..30 {
            let mut pair = large_flights(seed, 1500, 6000).with_loss(percent).build();
            pair.connect();
            lost += pair.link_stats().iter().map(|stats| stats.lost).sum::<u64>();
        }
        assert!(lost > percent, "{lost} packets were lost at {percent} %");
    }
}

#[test]
fn handshakes_complete_over_reordering_duplication_and_corruption() {
    let mut fired = [0_u64; 3];
    for seed in 0..30 {
        let mut pair = large_flights(seed, 3000, 8000)
            .with_links(|link| {
                link.reorder = Ratio::new(40, 100);
                link.reorder_by = Duration::from_millis(15);
                link.duplicate = Ratio::new(30, 100);
                link.corrupt = Ratio::new(10, 100);
            })
            .build();
        pair.connect();
        for stats in pair.link_stats() {
            fired.iter_mut().zip([stats.reordered, stats.duplicated, stats.corrupted]).for_each(|(sum, n)| *sum += n);
        }
    }
    assert!(fired.iter().all(|count| *count > 20), "{fired:?}");
}

#[test]
fn a_client_hello_of_several_packets_arrives() {
    for bytes in [1200, 5000, 15_000] {
        let mut pair = large_flights(1, bytes, 100).build();
        pair.connect();
        let datagrams = pair.server.connection(0).stats().receive.datagrams_received;
        assert!(datagrams > (bytes / 1200) as u64, "{datagrams} datagrams for {bytes} bytes");
    }
}

#[test]
fn a_server_flight_beyond_the_amplification_limit_waits_for_the_client() {
    let mut pair = large_flights(1, 100, 10_000).build();
    pair.record = Some(Vec::new());
    pair.connect();
    // Before the client's second flight the server may send three times 1200 bytes.
    let record = pair.record.take().expect("recording");
    let second = record.iter().filter(|(_, direction, _)| *direction == 0).nth(1).expect("the client continues").0;
    let before: usize =
        record.iter().filter(|(at, direction, _)| *direction == 1 && *at < second).map(|(.., d)| d.len()).sum();
    assert!((2000..=3600).contains(&before), "{before} bytes");
}

#[test]
fn a_client_breaks_the_deadlock_of_an_amplification_limited_server() {
    for seed in 0..5 {
        // All that the server may send is lost, so only the client can continue (RFC 9002, section
        // 6.2.2.1).
        let mut pair = large_flights(seed, 100, 10_000).build();
        let mut left = 3;
        pair.tap(1, move |_, _| {
            left -= 1;
            left < 0
        });
        pair.connect();
        assert_eq!(pair.tapped[1], 3);
        assert!(pair.client.connection(0).stats().send.probe_timeouts > 0, "seed {seed}");
    }
    // The same after the client has received the first datagram: it has Handshake keys and nothing
    // to acknowledge with them.
    let mut pair = large_flights(9, 100, 10_000).build();
    let mut count = 0;
    pair.tap(1, move |_, _| {
        count += 1;
        !(2..=4).contains(&count)
    });
    pair.connect();
    assert!(pair.tapped[1] >= 2);
}

#[test]
fn a_lost_handshake_done_is_repeated() {
    let mut pair = Setup::new(4).build();
    let mut left = 5;
    pair.tap(1, move |_, datagram| {
        let is_short = datagram[0] & LONG == 0;
        left -= i32::from(is_short);
        !is_short || left < 0
    });
    pair.connect();
    assert_eq!(pair.tapped[1], 5);
    assert!(pair.client.events[0].contains(&Event::Connected));
    apps::transfer(&mut pair, 100_000, Duration::from_secs(5));
}

#[test]
fn a_client_sends_data_before_it_knows_that_the_handshake_is_confirmed() {
    let mut pair = Setup::new(4).build();
    // No 1-RTT packet of the server arrives for a second, so no HANDSHAKE_DONE.
    pair.tap(1, |now, datagram| datagram[0] & LONG != 0 || now.since_start() > Duration::from_secs(1));
    pair.start();
    assert!(pair.run_until(Duration::from_secs(1), |pair| pair.client.connection(0).is_established()));
    let id = pair.client.connection(0).open(quic::Dir::Uni).expect("streams are allowed");
    let mut writer = apps::Writer::new(id, 5_000);
    let mut reader = apps::Reader::new(id);
    let done = pair.run_until(Duration::from_millis(500), |pair| {
        writer.pump(pair.client.connection(0));
        let now = pair.now;
        if let Some(Some(server)) = pair.server.connections.first_mut()
            && server.is_established()
        {
            let _ = server.accept(quic::Dir::Uni);
            reader.pump_if_known(now, server);
        }
        reader.ended
    });
    assert!(done, "{} bytes arrived", reader.read);
    assert!(pair.client.take_event(0, |event| *event == Event::Confirmed).is_none());
    assert!(pair.run_until(Duration::from_secs(20), |pair| {
        pair.client.take_event(0, |event| *event == Event::Confirmed).is_some()
    }));
    assert!(pair.tapped[1] > 0);
}

#[test]
fn a_large_datagram_sent_before_confirmation_is_not_dropped() {
    let mut pair = Setup::new(4).build();
    pair.start();
    assert!(pair.run_until(Duration::from_secs(1), |pair| {
        let client = pair.client.connection(0);
        // Queued at once, so that it competes with the client's last Handshake packet for space.
        client.datagram_len_max().is_some_and(|len| client.send_datagram(vec![7; len].into()).is_ok())
    }));
    assert!(pair.run_until(Duration::from_secs(5), |pair| {
        pair.server
            .connections
            .first_mut()
            .is_some_and(|server| server.as_mut().is_some_and(|server| server.recv_datagram().is_some()))
    }));
    assert_eq!(pair.client.connection(0).stats().send.datagrams_lost, 0);
}

#[test]
fn hundreds_of_handshakes_share_one_endpoint() {
    let mut pair = Setup::new(8).with_links(|link| link.loss = Ratio::new(5, 100)).build();
    for _ in 0..200 {
        pair.start();
    }
    let done = pair.run_until(Duration::from_secs(60), |pair| {
        pair.client.connections.iter().flatten().filter(|connection| connection.is_established()).count() == 200
    });
    assert!(done);
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.server.connections.iter().flatten().filter(|c| c.is_established()).count(), 200);
    assert!(pair.link_stats()[0].lost > 0);
    let now = pair.now;
    for connection in pair.client.connections.iter_mut().flatten() {
        connection.close(now, 0, "");
    }
    pair.run_for(Duration::from_secs(40));
    assert_eq!(pair.server.endpoint.route_count() + pair.client.endpoint.route_count(), 0, "routes are left behind");
}

#[test]
fn both_ends_take_the_smaller_datagram_size_and_larger_ones_work() {
    let setup = Setup::new(2).with_config(|config: &mut TransportConfig| config.datagram_size = 9000);
    let mut pair = setup.build();
    pair.connect();
    assert_eq!(pair.client.connection(0).stats().datagram_size, 9000);
    apps::transfer(&mut pair, 2_000_000, Duration::from_secs(5));
    let largest = pair.client.connection(0).stats().send;
    assert!(largest.bytes_sent / largest.datagrams_sent > 5000, "{largest:?}");
}

#[test]
fn a_rate_cap_holds_before_the_handshake_is_confirmed() {
    const BURST: u64 = 2_400;
    let mut setup = Setup::new(11);
    setup.client.rate_cap = Some(recovery::RateCap { rate: units::Rate::from_mbps(1), burst: BURST });
    let mut pair = setup.build();
    pair.start();
    assert!(pair.run_until(Duration::from_secs(5), |pair| pair.client.connection(0).is_established()));
    let id = pair.client.connection(0).open(quic::Dir::Uni).expect("allowed");
    pair.client.connection(0).write(id, vec![7; 12_000].into()).expect("the send buffer has space");
    let before = pair.links[0].stats().offered_bytes;
    // Less than the round trip in which the server's confirmation would arrive.
    pair.run_for(Duration::from_millis(5));
    assert!(pair.client.take_event(0, |event| *event == quic::Event::Confirmed).is_none(), "not confirmed yet");
    let sent = pair.links[0].stats().offered_bytes - before;
    // The bytes that 1 Mb/s allows in 5 ms, the burst, and the datagram that completes the
    // handshake.
    assert!(sent <= 625 + BURST + 1_200, "{sent} bytes");
}

#[test]
fn datagrams_of_the_handshake_name_one_connection_id_and_hold_one_packet_of_each_level() {
    // RFC 9000, section 12.2, and RFC 9001, section 4. Lost datagrams are sent again in others.
    let mut coalesced = 0;
    for seed in 0..30 {
        let mut pair = Setup::new(seed).with_loss(seed % 4 * 8).build();
        pair.record = Some(Vec::new());
        pair.connect();
        apps::transfer(&mut pair, 50_000, Duration::from_secs(60));
        for (_, _, datagram) in pair.record.take().expect("recording") {
            let (mut rest, mut ids, mut types) = (&datagram[..], Vec::new(), Vec::new());
            while let Ok(Parsed::Protected(header)) = parse_packet(rest, 8) {
                ids.push(header.dcid);
                types.push(header.ty);
                rest = &rest[header.end..];
            }
            coalesced += u32::from(ids.len() > 1);
            assert!(ids.iter().all(|id| *id == ids[0]), "seed {seed}: {ids:?}");
            assert!(types.is_sorted_by(|one, next| one.space() < next.space()), "seed {seed}: {types:?}");
        }
    }
    assert!(coalesced >= 60, "{coalesced} datagrams of several packets: at least one in each direction");
}

#[test]
fn a_path_that_carries_no_1200_bytes_carries_no_connection() {
    // RFC 9000, section 14: the padding of the first datagrams finds out, in both directions.
    for direction in 0..2 {
        let mut pair = Setup::new(1).with_config(|config| config.handshake_timeout = Duration::from_secs(5)).build();
        pair.tap(direction, |_, datagram| datagram.len() < 1200);
        pair.start();
        pair.run_for(Duration::from_secs(10));
        assert!(pair.tapped[direction] > 0);
        assert_eq!(pair.client.events[0].back(), Some(&Event::Closed(quic::ConnectionError::HandshakeTimedOut)));
        assert!(!pair.server.events.iter().flatten().any(|event| *event == Event::Connected), "{direction}");
    }
}
