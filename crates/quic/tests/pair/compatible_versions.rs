//! Two versions of QUIC, and the change between them during the handshake (RFC 9368, RFC 9369).

use quic::session::deterministic::DeterministicFactory;
use quic::{AddressValidation, Addresses, ConnectionError, ErrorCode, Event, Side, TransportConfig, Version, Versions};
use units::{Duration, Instant, Ratio, Rng};
use wire::quic::{PacketType, Parsed, TransportParameters, VersionInformation, parse_packet};

use crate::support::hostile::{HOSTILE, Hostile, client_parameters, encode};
use crate::support::{Node, Pair, Setup, apps};

const SECOND: Duration = Duration::from_secs(1);

/// The types and versions of the long headers in a datagram.
fn long_headers(mut datagram: &[u8]) -> Vec<(PacketType, Version)> {
    let mut found = Vec::new();
    while let Ok(Parsed::Protected(header)) = parse_packet(datagram, 8) {
        if header.ty != PacketType::OneRtt {
            found.push((header.ty, header.version));
        }
        datagram = &datagram[header.end..];
    }
    found
}

fn setup(seed: u64, client: Versions, server: Versions) -> Setup {
    let mut setup = Setup::new(seed);
    (setup.client.versions, setup.server.versions) = (client, server);
    setup
}

/// The version that both sides report.
fn version(pair: &mut Pair) -> Version {
    let [client, server] = [&mut pair.client, &mut pair.server].map(|node| node.connection(0).stats().session.version);
    assert_eq!(client, server);
    client
}

#[test]
fn both_sides_agree_on_the_version_that_the_server_prefers() {
    let (v1, v2) = (Version::V1, Version::V2);
    for (client, server, original, negotiated) in [
        (Versions::V1, Versions::V1, v1, v1),
        (Versions::V1, Versions::PreferV2, v1, v1),
        (Versions::PreferV1, Versions::V1, v1, v1),
        (Versions::PreferV1, Versions::PreferV1, v1, v1),
        (Versions::PreferV1, Versions::PreferV2, v1, v2),
        (Versions::PreferV2, Versions::PreferV2, v1, v2),
        (Versions::PreferV2, Versions::PreferV1, v1, v1),
        (Versions::PreferV2, Versions::V1, v1, v1),
        (Versions::V2, Versions::PreferV1, v2, v2),
        (Versions::V2, Versions::V2, v2, v2),
    ] {
        let mut pair = setup(1, client, server).with_config(|config| config.key_update_interval = 50).build();
        pair.record = Some(Vec::new());
        pair.connect();
        apps::transfer(&mut pair, 300_000, SECOND * 5);
        assert_eq!(version(&mut pair), negotiated, "{client:?} to {server:?}");
        let updates = [&mut pair.client, &mut pair.server].map(|node| node.connection(0).stats().send.key_updates);
        assert!(updates[0] > 0 && updates[1] > 0, "{updates:?} key updates");
        let record = pair.record.take().expect("recording");
        let headers = |direction| {
            let sent = record.iter().filter(move |(_, sent, _)| *sent == direction);
            sent.flat_map(|(.., datagram)| long_headers(datagram)).collect::<Vec<_>>()
        };
        let [by_client, by_server] = [headers(0), headers(1)];
        assert_eq!(by_client[0], (PacketType::Initial, original), "the client's first packet");
        assert_eq!(by_server[0], (PacketType::Initial, negotiated), "the server's first packet");
        let handshake = by_client.iter().chain(&by_server).filter(|(ty, _)| *ty == PacketType::Handshake);
        assert!(handshake.clone().count() >= 2);
        assert!(handshake.into_iter().all(|(_, version)| *version == negotiated), "Handshake packets");
        // "Once the client has processed a packet using the negotiated version, it SHOULD send
        // subsequent Initial packets using that version" (RFC 9369, section 4.1).
        let last = by_client.iter().rfind(|(ty, _)| *ty == PacketType::Initial);
        assert_eq!(last, Some(&(PacketType::Initial, negotiated)));
    }
}

#[test]
fn a_change_of_the_version_costs_no_round_trip() {
    let time = |server| {
        let mut pair = setup(1, Versions::PreferV1, server).build();
        pair.connect();
        pair.client.connection(0).stats().handshake_time.expect("it is complete")
    };
    assert_eq!(time(Versions::PreferV2), time(Versions::PreferV1));
}

#[test]
fn peers_without_a_common_version_end_the_attempt_at_once() {
    for (client, server) in [(Versions::V1, Versions::V2), (Versions::V2, Versions::V1)] {
        let mut pair = setup(1, client, server).build();
        pair.start();
        let is_mismatch = |event: &Event| *event == Event::Closed(ConnectionError::VersionMismatch);
        let ended = pair.run_until(SECOND, |pair| pair.client.take_event(0, is_mismatch).is_some());
        assert!(ended, "{client:?} to {server:?}");
        assert!(pair.server.connections.is_empty());
    }
}

#[test]
fn the_version_changes_under_loss_reordering_and_duplication() {
    let mut lost = 0;
    for seed in 0..60 {
        let mut pair = setup(seed, Versions::PreferV1, Versions::PreferV2)
            .with_loss(20)
            .with_links(|link| {
                link.reorder = Ratio::new(30, 100);
                link.reorder_by = Duration::from_millis(15);
                link.duplicate = Ratio::new(20, 100);
                link.corrupt = Ratio::new(5, 100);
            })
            .build();
        pair.connect();
        apps::transfer(&mut pair, 20_000, SECOND * 60);
        assert_eq!(version(&mut pair), Version::V2, "seed {seed}");
        lost += pair.link_stats().iter().map(|stats| stats.lost).sum::<u64>();
    }
    assert!(lost > 200, "{lost} lost");
}

#[test]
fn a_retry_packet_has_the_original_version_and_the_connection_the_negotiated_one() {
    for (client, original) in [(Versions::PreferV1, Version::V1), (Versions::V2, Version::V2)] {
        let mut pair = Setup { reset_key: Some([7; 32]), ..setup(1, client, Versions::PreferV2) }.build();
        pair.server.endpoint.set_address_validation(AddressValidation::Always);
        pair.record = Some(Vec::new());
        pair.connect();
        assert_eq!(version(&mut pair), Version::V2);
        let record = pair.record.take().expect("recording");
        let retries: Vec<_> = record
            .iter()
            .filter_map(|(.., datagram)| match parse_packet(datagram, 8) {
                Ok(Parsed::Retry { version, .. }) => Some(version),
                _ => None,
            })
            .collect();
        assert_eq!(retries, [original]);
        // "The client MUST NOT use a different version in the subsequent Initial packet that contains
        // the Retry token" (RFC 9369, section 4.1).
        let with_token = record.iter().find_map(|(.., datagram)| match parse_packet(datagram, 8) {
            Ok(Parsed::Protected(header)) if !header.token.is_empty() => Some(header.version),
            _ => None,
        });
        assert_eq!(with_token, Some(original));
    }
}

fn information(chosen: u32, available: &[u32]) -> Option<VersionInformation> {
    Some(VersionInformation { chosen, available: available.to_vec() })
}

/// The server's answer to a hostile client with this version information: its error.
fn server_refuses(version_information: Option<VersionInformation>) -> Option<ErrorCode> {
    let rng = Rng::from_seed(1).split("server");
    let factory = std::sync::Arc::new(DeterministicFactory::new(Side::Server, rng.split("session")));
    let mut server = Node::new(Side::Server, TransportConfig::default(), &rng, Some(factory));
    let mut client =
        Hostile::client(3, |id| encode(&TransportParameters { version_information, ..client_parameters(id) }));
    for _ in 0..4 {
        for datagram in client.flight() {
            server.receive(Instant::ZERO, &datagram, HOSTILE);
        }
        server.flush(Instant::ZERO);
        for (_, datagram) in std::mem::take(&mut server.outbox) {
            client.receive(&datagram.bytes);
        }
    }
    client.close().map(|(code, _)| code)
}

#[test]
fn a_client_whose_version_information_does_not_fit_its_packets_is_disconnected() {
    assert_eq!(server_refuses(None), None, "it need not send any");
    assert_eq!(server_refuses(information(1, &[1])), None);
    assert_eq!(server_refuses(information(0x6b33_43cf, &[0x6b33_43cf, 1])), Some(ErrorCode::VERSION_NEGOTIATION_ERROR));
    assert_eq!(server_refuses(information(1, &[0x6b33_43cf])), Some(ErrorCode::TRANSPORT_PARAMETER_ERROR));
    assert_eq!(server_refuses(information(1, &[1, 0])), Some(ErrorCode::TRANSPORT_PARAMETER_ERROR));
}

/// A client, and a hostile server that continues in `version` with this version information: the
/// client's error.
fn client_refuses(
    versions: Versions,
    version: Version,
    version_information: Option<VersionInformation>,
) -> (Option<ErrorCode>, Node) {
    let rng = Rng::from_seed(1).split("client");
    let factory = DeterministicFactory::new(Side::Client, rng.split("session"));
    let config = TransportConfig::default().with_versions(versions);
    let mut client = Node::new(Side::Client, config, &rng, None);
    let connection = client.endpoint.connect(Instant::ZERO, &factory, "", Addresses::of(HOSTILE));
    client.add(connection.expect("sessions start"));
    client.flush(Instant::ZERO);
    let first = std::mem::take(&mut client.outbox).remove(0).1.bytes;
    let mut server = Hostile::server(7, &first, |id, original| {
        encode(&TransportParameters {
            original_destination_connection_id: Some(original),
            version_information,
            ..client_parameters(id)
        })
    });
    server.continue_in(version, &first);
    for _ in 0..4 {
        for datagram in server.flight() {
            client.receive(Instant::ZERO, &datagram, HOSTILE);
        }
        client.flush(Instant::ZERO);
        for (_, datagram) in std::mem::take(&mut client.outbox) {
            server.receive(&datagram.bytes);
        }
    }
    (server.close().map(|(code, _)| code), client)
}

#[test]
fn a_server_whose_version_information_does_not_fit_its_packets_is_disconnected() {
    let both = [1, 0x6b33_43cf];
    let refuses = |version, information| client_refuses(Versions::PreferV1, version, information).0;
    assert_eq!(refuses(Version::V1, None), None, "it need not know the extension");
    assert_eq!(refuses(Version::V1, information(1, &both)), None);
    assert_eq!(refuses(Version::V2, information(0x6b33_43cf, &both)), None);
    assert_eq!(refuses(Version::V2, information(0x6b33_43cf, &[])), None, "the list may be empty");
    let error = Some(ErrorCode::VERSION_NEGOTIATION_ERROR);
    assert_eq!(refuses(Version::V2, None), error, "nothing confirms the change");
    assert_eq!(refuses(Version::V2, information(1, &both)), error);
    assert_eq!(refuses(Version::V1, information(0x6b33_43cf, &both)), error);
}

#[test]
fn a_client_with_one_version_drops_packets_of_the_other() {
    let (error, mut client) = client_refuses(Versions::V1, Version::V2, information(0x6b33_43cf, &[0x6b33_43cf]));
    assert_eq!(error, None);
    let stats = client.connection(0).stats();
    assert_eq!((stats.receive.packets_received, stats.receive.packets_unauthentic), (0, 0));
    assert!(stats.receive.packets_dropped > 0 && client.connection(0).is_handshaking());
}
