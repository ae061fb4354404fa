//! The real session: rustls and aws-lc-rs over the same model links, with raw public keys (RFC
//! 7250).

use std::sync::Arc;

use aws_lc_rs::signature::Ed25519KeyPair;
use quic::session::tls::{TlsClient, TlsServer};
use quic::{ConnectionError, Dir, ErrorCode, Event, Side, TransportConfig, Version, Versions};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, CipherSuite, ClientConfig, DigitallySignedStruct, NamedGroup, ServerConfig, SignatureScheme,
};
use units::{Duration, Ratio, Rng};

use crate::support::{Node, Pair, Sessions, Setup, apps};

/// Accepts the one key it was configured with.
#[derive(Debug)]
struct OneKey(Vec<u8>);

impl ServerCertVerifier for OneKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match end_entity.as_ref() == self.0 {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("QUIC needs TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider::default_provider().signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(
            message,
            &SubjectPublicKeyInfoDer::from(cert.as_ref()),
            signature,
            &algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

pub(crate) fn server_key() -> Arc<CertifiedKey> {
    let pair = Ed25519KeyPair::generate().expect("the system has randomness");
    let der = pair.to_pkcs8v1().expect("it can be written");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der.as_ref().to_vec()));
    let signer = provider::default_provider().key_provider.load_private_key(key).expect("an Ed25519 key");
    let public = signer.public_key().expect("it has a public key").as_ref().to_vec();
    Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], signer))
}

/// Our provider, with this cipher suite first.
fn preferring(suite: CipherSuite) -> Arc<CryptoProvider> {
    let mut provider = provider::default_provider();
    provider.cipher_suites.retain(|candidate| candidate.tls13().is_some());
    provider.cipher_suites.sort_by_key(|candidate| candidate.suite() != suite);
    Arc::new(provider)
}

/// Sessions with 0-RTT: configurations to be changed and made into [`Sessions`].
pub(crate) fn early_configs(key: Arc<CertifiedKey>) -> (ClientConfig, ServerConfig) {
    let alpn = [&b"test"[..]; 2];
    let (mut client, mut server) = configs_of(key, CipherSuite::TLS13_AES_128_GCM_SHA256, true, alpn);
    client.enable_early_data = true;
    server.max_early_data_size = u32::MAX;
    (client, server)
}

/// Sessions that agree on `suite`, for a client that expects the server's key or another one.
fn sessions(suite: CipherSuite, expects_right_key: bool, alpn: [&[u8]; 2]) -> Sessions {
    sessions_of(server_key(), suite, expects_right_key, alpn)
}

/// As [`sessions`], for a server with this key.
fn sessions_of(key: Arc<CertifiedKey>, suite: CipherSuite, expects_right_key: bool, alpn: [&[u8]; 2]) -> Sessions {
    let (client, server) = configs_of(key, suite, expects_right_key, alpn);
    Sessions {
        client: Arc::new(TlsClient::new(Arc::new(client)).expect("AES-128-GCM is there")),
        server: Arc::new(TlsServer::new(Arc::new(server)).expect("AES-128-GCM is there")),
        server_name: "server.test".to_owned(),
    }
}

fn configs_of(
    key: Arc<CertifiedKey>,
    suite: CipherSuite,
    expects_right_key: bool,
    alpn: [&[u8]; 2],
) -> (ClientConfig, ServerConfig) {
    let expected =
        if expects_right_key { key.cert[0].as_ref().to_vec() } else { server_key().cert[0].as_ref().to_vec() };
    let mut client = ClientConfig::builder_with_provider(preferring(suite))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(OneKey(expected)))
        .with_no_client_auth();
    client.alpn_protocols = vec![alpn[0].to_vec()];
    (client, server_config(key, preferring(suite), alpn[1]))
}

fn server_config(key: Arc<CertifiedKey>, provider: Arc<CryptoProvider>, alpn: &[u8]) -> ServerConfig {
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    server.alpn_protocols = vec![alpn.to_vec()];
    server
}

/// A server that knows the sessions of `server`, but none of the key exchanges that our clients
/// offer first, so that it asks for another ClientHello (HelloRetryRequest).
pub(crate) fn asking_again(server: &ServerConfig, key: Arc<CertifiedKey>) -> ServerConfig {
    let mut provider = CryptoProvider::clone(&preferring(CipherSuite::TLS13_AES_128_GCM_SHA256));
    provider.kx_groups.retain(|group| group.name() == NamedGroup::secp256r1);
    let mut again = server_config(key, Arc::new(provider), b"test");
    again.session_storage = server.session_storage.clone();
    again.max_early_data_size = server.max_early_data_size;
    again
}

fn ordinary() -> Sessions {
    sessions(CipherSuite::TLS13_AES_128_GCM_SHA256, true, [b"test", b"test"])
}

#[test]
fn the_preferred_suite_is_negotiated_and_both_sides_export_equal_keys() {
    let mut pair = Setup::new(1).with_sessions(ordinary()).build();
    pair.connect();
    let mut exported = [[0_u8; 32]; 2];
    for (node, out) in [&mut pair.client, &mut pair.server].into_iter().zip(&mut exported) {
        let connection = node.connection(0);
        connection.export_keying_material(b"label", b"context", out).expect("the handshake is complete");
        let summary = connection.stats().session;
        assert_eq!(summary.cipher_suite.as_deref(), Some("TLS13_AES_128_GCM_SHA256"));
        assert_eq!(summary.key_exchange, Some(format!("{:?}", NamedGroup::X25519MLKEM768)));
        assert_eq!(summary.protocol.as_deref(), Some(&b"test"[..]));
    }
    assert_eq!(exported[0], exported[1]);
    assert_ne!(exported[0], [0; 32]);
    let mut other = [0; 32];
    pair.client.connection(0).export_keying_material(b"label", b"another", &mut other).expect("as above");
    assert_ne!(other, exported[0]);
    assert_eq!(pair.client.connection(0).peer_identity().len(), 1, "the server's key");
    assert!(pair.server.connection(0).peer_identity().is_empty(), "the client showed none");
    apps::transfer(&mut pair, 1_000_000, Duration::from_secs(5));
}

#[test]
fn a_post_quantum_hello_spans_two_packets_and_arrives_despite_loss_and_reordering() {
    let mut lost = 0;
    for seed in 0..6 {
        let mut pair = Setup::new(seed)
            .with_sessions(ordinary())
            .with_loss(seed * 6)
            .with_links(|link| {
                link.reorder = Ratio::new(30, 100);
                link.reorder_by = Duration::from_millis(20);
                link.corrupt = Ratio::new(5, 100);
            })
            .build();
        pair.record = Some(Vec::new());
        pair.start();
        pair.flush();
        let hello = pair.record.as_ref().expect("recording");
        assert!(hello.len() >= 2 && hello.iter().all(|(.., datagram)| datagram.len() >= 1200), "{}", hello.len());
        let done = pair.run_until(Duration::from_secs(60), |pair| {
            pair.client.take_event(0, |event| *event == Event::Confirmed).is_some()
        });
        assert!(done, "seed {seed}");
        apps::transfer(&mut pair, 100_000, Duration::from_secs(60));
        lost += pair.link_stats()[0].lost;
    }
    assert!(lost > 0);
}

#[test]
fn every_cipher_suite_carries_data_through_key_updates() {
    for suite in [
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS13_AES_256_GCM_SHA384,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ] {
        let mut pair = Setup::new(2)
            .with_sessions(sessions(suite, true, [b"test", b"test"]))
            .with_links(|link| link.rate = Some(units::Rate::from_mbps(10)))
            .with_loss(2)
            .with_config(|config: &mut TransportConfig| config.key_update_interval = 100)
            .build();
        pair.connect();
        apps::transfer(&mut pair, 2_000_000, Duration::from_secs(120));
        let updates = [&mut pair.client, &mut pair.server].map(|node| {
            let stats = node.connection(0).stats();
            assert_eq!(stats.receive.packets_unauthentic, 0);
            assert_eq!(stats.session.cipher_suite, Some(format!("{suite:?}")));
            stats.send.key_updates
        });
        assert!(updates[0] >= 3 && updates[1] >= 3, "{updates:?}");
    }
}

#[test]
fn a_client_continues_in_version_2_with_every_cipher_suite() {
    for (seed, suite) in (3..).zip([
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS13_AES_256_GCM_SHA384,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ]) {
        for client in [Versions::PreferV1, Versions::V2] {
            let mut setup = Setup::new(seed)
                .with_sessions(sessions(suite, true, [b"test", b"test"]))
                .with_links(|link| link.rate = Some(units::Rate::from_mbps(10)))
                .with_loss(2)
                .with_config(|config: &mut TransportConfig| config.key_update_interval = 100);
            (setup.client.versions, setup.server.versions) = (client, Versions::PreferV2);
            let mut pair = setup.build();
            pair.connect();
            apps::transfer(&mut pair, 1_000_000, Duration::from_secs(120));
            for node in [&mut pair.client, &mut pair.server] {
                let stats = node.connection(0).stats();
                assert_eq!(stats.receive.packets_unauthentic, 0);
                assert_eq!(stats.session.version, Version::V2);
                assert_eq!(stats.session.cipher_suite, Some(format!("{suite:?}")));
                assert!(stats.send.key_updates >= 2, "{} key updates", stats.send.key_updates);
            }
        }
    }
}

/// RFC 9369, section 5.
#[test]
fn a_session_is_continued_in_its_own_version_alone() {
    let sessions = ordinary();
    for (seed, (client, server, version, resumes)) in (1..).zip([
        // It changes its version, and leaves no session.
        (Versions::PreferV1, Versions::PreferV2, Version::V2, false),
        (Versions::V1, Versions::V1, Version::V1, false),
        (Versions::V1, Versions::V1, Version::V1, true),
        // It uses up none.
        (Versions::V2, Versions::PreferV2, Version::V2, false),
        (Versions::V1, Versions::V1, Version::V1, true),
        // The server continues in another version, and so not the session that the client offers.
        (Versions::PreferV1, Versions::PreferV2, Version::V2, false),
    ]) {
        let mut setup = Setup::new(seed).with_sessions(sessions.clone());
        (setup.client.versions, setup.server.versions) = (client, server);
        let mut pair = setup.build();
        pair.connect();
        apps::transfer(&mut pair, 100_000, Duration::from_secs(5));
        let session = pair.client.connection(0).stats().session;
        assert_eq!((session.is_resumed, session.version), (resumes, version), "connection {seed}");
    }
}

fn closed(pair: &mut Pair) -> [Option<ConnectionError>; 2] {
    pair.start();
    pair.run_for(Duration::from_secs(5));
    [&mut pair.client, &mut pair.server].map(|node| {
        let event = node.take_event(0, |event| matches!(event, Event::Closed(_)))?;
        if let Event::Closed(error) = event { Some(error) } else { None }
    })
}

#[test]
fn a_wrong_key_is_refused_with_an_alert() {
    let sessions = sessions(CipherSuite::TLS13_AES_128_GCM_SHA256, false, [b"test", b"test"]);
    let mut pair = Setup::new(1).with_sessions(sessions).build();
    let [client, server] = closed(&mut pair);
    let Some(ConnectionError::PeerMisbehaved(error)) = client else { panic!("{client:?}") };
    assert!(error.code.tls_alert().is_some(), "{error}");
    let Some(ConnectionError::ClosedByPeerTransport(heard)) = server else { panic!("{server:?}") };
    assert_eq!(heard.code, error.code);
}

#[test]
fn peers_without_a_common_protocol_close_with_no_application_protocol() {
    let sessions = sessions(CipherSuite::TLS13_AES_128_GCM_SHA256, true, [b"one", b"another"]);
    let mut pair = Setup::new(1).with_sessions(sessions).build();
    let [client, server] = closed(&mut pair);
    // no_application_protocol (RFC 9001, section 8.1).
    let code = ErrorCode::crypto(120);
    assert!(matches!(&server, Some(ConnectionError::PeerMisbehaved(error)) if error.code == code), "{server:?}");
    assert!(matches!(&client, Some(ConnectionError::ClosedByPeerTransport(error)) if error.code == code), "{client:?}");
}

#[test]
fn a_reset_is_recognised_after_a_real_aead_has_failed_to_open_it() {
    let key = Some([7; 32]);
    let mut pair = Setup { reset_key: key, ..Setup::new(1).with_sessions(ordinary()) }.build();
    pair.connect();
    pair.run_for(Duration::from_secs(1));
    let rng = Rng::from_seed(2);
    pair.server = Node::with_reset_key(Side::Server, TransportConfig::default(), &rng, Some(ordinary().server), key);
    let connection = pair.client.connection(0);
    let id = connection.open(Dir::Uni).expect("a stream is allowed");
    connection.write(id, bytes::Bytes::from_static(b"lost")).expect("the send buffer has space");
    let is_reset = |event: &Event| *event == Event::Closed(ConnectionError::Reset);
    assert!(pair.run_until(Duration::from_secs(5), |pair| pair.client.take_event(0, is_reset).is_some()));
}

#[test]
fn nothing_is_exported_before_the_handshake_is_complete() {
    let mut pair = Setup::new(1).with_sessions(ordinary()).build();
    pair.start();
    let mut out = [0; 32];
    assert!(pair.client.connection(0).export_keying_material(b"label", b"", &mut out).is_err());
    assert_eq!(out, [0; 32]);
}

#[test]
fn a_slow_handshake_does_not_cost_the_configured_datagram_size() {
    for silent in 0..2 {
        let mut pair = Setup::new(1)
            .with_sessions(ordinary())
            .with_config(|config: &mut TransportConfig| config.datagram_size = 1452)
            .build();
        // Longer than three probe timeouts of the initial round trip (RFC 9002, section 6.2.2).
        let until = pair.now + Duration::from_secs(10);
        pair.tap(silent, move |now, _| now >= until);
        pair.connect();
        for node in [&mut pair.client, &mut pair.server] {
            assert_eq!(node.connection(0).stats().datagram_size, 1452, "direction {silent}");
        }
    }
}

#[test]
fn a_parked_connection_keeps_identity_and_keys_and_exports_nothing() {
    let mut pair = Setup::new(1)
        .with_sessions(ordinary())
        .with_links(|link| link.rate = Some(units::Rate::from_mbps(10)))
        .with_config(|config| {
            config.park_after = Some(Duration::from_secs(5));
            config.key_update_interval = 100;
        })
        .build();
    pair.connect();
    let mut out = [0; 32];
    pair.run_for(Duration::from_secs(4));
    assert!(pair.client.connection(0).export_keying_material(b"label", b"", &mut out).is_ok());
    let identity = pair.client.connection(0).peer_identity();
    assert_eq!(identity.len(), 1);
    pair.run_for(Duration::from_secs(10));
    for node in [&mut pair.client, &mut pair.server] {
        assert!(node.connection(0).export_keying_material(b"label", b"", &mut out).is_err());
        assert!(node.connection(0).stats().session.cipher_suite.is_some());
    }
    assert_eq!(pair.client.connection(0).peer_identity(), identity);
    apps::transfer(&mut pair, 2_000_000, Duration::from_secs(120));
    assert!(pair.client.connection(0).stats().send.key_updates >= 3);
}

/// One connection with these sessions: whether each side resumed, and the keys of the server that
/// the client knows.
fn resumed_by(seed: u64, sessions: &Sessions) -> ([bool; 2], Vec<Vec<u8>>) {
    let mut pair = Setup::new(seed).with_sessions(sessions.clone()).build();
    pair.connect();
    // Tickets follow the handshake; the transfer makes sure that they have arrived.
    apps::transfer(&mut pair, 100_000, Duration::from_secs(5));
    let is_resumed = |node: &mut Node| node.connection(0).stats().session.is_resumed;
    let resumed = [is_resumed(&mut pair.client), is_resumed(&mut pair.server)];
    (resumed, pair.client.connection(0).peer_identity().to_vec())
}

#[test]
fn the_second_handshake_resumes_the_session_of_the_first() {
    let sessions = ordinary();
    let (first, identity) = resumed_by(1, &sessions);
    assert_eq!(first, [false, false], "the first handshake is a full one");
    let (second, identity_again) = resumed_by(2, &sessions);
    assert_eq!(second, [true, true]);
    assert_eq!((identity.len(), identity_again), (1, identity), "the client still knows whose key it verified");
}

#[test]
fn a_server_that_does_not_know_the_session_makes_a_full_handshake() {
    let key = server_key();
    let make = || sessions_of(key.clone(), CipherSuite::TLS13_AES_128_GCM_SHA256, true, [b"test", b"test"]);
    let (before, restarted) = (make(), make());
    assert_eq!(resumed_by(1, &before).0, [false, false]);
    let sessions = Sessions { server: restarted.server, ..before };
    assert_eq!(resumed_by(2, &sessions).0, [false, false], "the client offered a ticket of the server before");
    assert_eq!(resumed_by(3, &sessions).0, [true, true], "and got a new one");
}

#[test]
fn without_discovery_no_datagram_exceeds_the_size_that_every_path_carries() {
    let mut pair = Setup::new(9).with_sessions(ordinary()).build();
    pair.record = Some(Vec::new());
    pair.connect();
    crate::support::apps::transfer(&mut pair, 100_000, Duration::from_secs(10));
    let longest = pair.record.as_ref().expect("recording").iter().map(|(_, _, datagram)| datagram.len()).max();
    assert_eq!(longest, Some(1200), "RFC 9000, section 14.2");
}
