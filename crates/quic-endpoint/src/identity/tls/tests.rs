use rustls::{ClientConnection, HandshakeKind, ServerConnection};

use super::*;

/// The newer one first.
const PROTOCOLS: [&str; 2] = ["test/2", "test/1"];

/// Runs a whole handshake in memory; the first error of either side ends it.
fn handshake(
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
) -> Result<(ClientConnection, ServerConnection), rustls::Error> {
    let mut client = ClientConnection::new(client, ServerName::try_from("host.invalid").unwrap())?;
    let mut server = ServerConnection::new(server)?;
    let mut wire = Vec::new();
    for _ in 0..10 {
        wire.clear();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets()?;
        wire.clear();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets()?;
        if !client.is_handshaking() && !server.is_handshaking() {
            return Ok((client, server));
        }
    }
    panic!("the handshake does not end");
}

#[test]
fn both_ends_authenticate_by_raw_key_and_share_an_exporter() {
    let (host, client_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let tls = client_config(&client_key, &[host.public().fingerprint()], PROTOCOLS).unwrap();
    let (client, server) = handshake(Arc::clone(&tls.config), server_config(&host, PROTOCOLS).unwrap()).unwrap();
    assert_eq!(peer_public_key(client.peer_certificates()).unwrap(), host.public());
    assert_eq!(peer_public_key(server.peer_certificates()).unwrap(), client_key.public());
    assert_eq!(client.alpn_protocol(), Some(PROTOCOLS[0].as_bytes()));
    assert_eq!(client.negotiated_cipher_suite().unwrap().suite(), rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    assert_eq!(client.negotiated_key_exchange_group().unwrap().name(), rustls::NamedGroup::X25519MLKEM768);
    assert_eq!(client.handshake_kind(), Some(HandshakeKind::Full));
    assert_eq!(tls.wrong_host(), None);

    let ours = |label: &[u8], context: &[u8]| client.export_keying_material([0; 32], label, Some(context)).unwrap();
    let theirs = |label: &[u8], context: &[u8]| server.export_keying_material([0; 32], label, Some(context)).unwrap();
    assert_eq!(ours(b"EXPORTER-test", b""), theirs(b"EXPORTER-test", b""));
}

#[test]
fn the_server_chooses_the_first_of_its_protocols_that_the_client_names() {
    let (host, client_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let [newer, older] = PROTOCOLS;
    for (of_client, of_server, chosen) in [
        (vec![newer, older], vec![older], Some(older)),
        (vec![older], vec![newer, older], Some(older)),
        (vec![older, newer], vec![newer, older], Some(newer)),
        (vec!["other/1"], vec![newer, older], None),
    ] {
        let tls = client_config(&client_key, &[host.public().fingerprint()], &of_client).unwrap();
        let pair = handshake(tls.config, server_config(&host, &of_server).unwrap());
        let found = pair.ok().and_then(|(client, _)| client.alpn_protocol().map(<[u8]>::to_vec));
        assert_eq!(found.as_deref(), chosen.map(str::as_bytes), "{of_client:?}, {of_server:?}");
    }
}

#[test]
fn a_second_handshake_is_a_full_one_too() {
    let (host, client_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let tls = client_config(&client_key, &[host.public().fingerprint()], PROTOCOLS).unwrap();
    let server = server_config(&host, PROTOCOLS).unwrap();
    for _ in 0..2 {
        let (client, _) = handshake(Arc::clone(&tls.config), Arc::clone(&server)).unwrap();
        assert_eq!(client.handshake_kind(), Some(HandshakeKind::Full));
    }
}

#[test]
fn a_wrong_host_is_refused_and_named() {
    let (host, other, client_key) =
        (KeyPair::generate().unwrap(), KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let tls = client_config(&client_key, &[other.public().fingerprint()], PROTOCOLS).unwrap();
    let error = handshake(Arc::clone(&tls.config), server_config(&host, PROTOCOLS).unwrap()).unwrap_err();
    let wrong = tls.wrong_host().expect("the verdict is kept");
    assert_eq!(WrongHost::from_error(&error), Some(&wrong));
    assert_eq!(wrong.presented, host.public().fingerprint());
    let text = wrong.to_string();
    assert!(text.contains(&other.public().fingerprint().to_string()), "{text}");
    assert!(text.contains(&host.public().fingerprint().to_string()), "{text}");
}

#[test]
fn one_of_several_expected_hosts_is_enough() {
    let (host, client_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let expected = [Fingerprint::from_bytes([0; 32]), host.public().fingerprint()];
    let tls = client_config(&client_key, &expected, PROTOCOLS).unwrap();
    handshake(tls.config, server_config(&host, PROTOCOLS).unwrap()).unwrap();
}

/// A host that shows the key of another without holding it.
fn impostor(own: &KeyPair, shown: &KeyPair) -> Arc<CertifiedKey> {
    let spki = CertificateDer::from(shown.public().to_spki().to_vec());
    Arc::new(CertifiedKey::new(vec![spki], provider::sign::any_eddsa_type(&own.pkcs8()).unwrap()))
}

#[test]
fn a_host_without_the_private_key_is_refused() {
    let (host, impostor_key, client_key) =
        (KeyPair::generate().unwrap(), KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let tls = client_config(&client_key, &[host.public().fingerprint()], PROTOCOLS).unwrap();
    let mut server = ServerConfig::clone(&server_config(&impostor_key, PROTOCOLS).unwrap());
    server.cert_resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(impostor(&impostor_key, &host)));
    let error = handshake(tls.config, Arc::new(server)).unwrap_err();
    assert_eq!(error, rustls::Error::InvalidCertificate(CertificateError::BadSignature));
}

#[test]
fn a_client_without_the_private_key_is_refused() {
    let (host, impostor_key, client_key) =
        (KeyPair::generate().unwrap(), KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut client =
        ClientConfig::clone(&client_config(&impostor_key, &[host.public().fingerprint()], PROTOCOLS).unwrap().config);
    client.client_auth_cert_resolver =
        Arc::new(AlwaysResolvesClientRawPublicKeys::new(impostor(&impostor_key, &client_key)));
    let error = handshake(Arc::new(client), server_config(&host, PROTOCOLS).unwrap()).unwrap_err();
    assert_eq!(error, rustls::Error::InvalidCertificate(CertificateError::BadSignature));
}

#[test]
fn a_client_without_a_key_is_refused() {
    let host = KeyPair::generate().unwrap();
    let client_key = KeyPair::generate().unwrap();
    let tls = client_config(&client_key, &[host.public().fingerprint()], PROTOCOLS).unwrap();
    let mut client = ClientConfig::clone(&tls.config);
    #[derive(Debug)]
    struct NoKey;
    impl rustls::client::ResolvesClientCert for NoKey {
        fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
            None
        }
        fn only_raw_public_keys(&self) -> bool {
            true
        }
        fn has_certs(&self) -> bool {
            false
        }
    }
    client.client_auth_cert_resolver = Arc::new(NoKey);
    assert!(handshake(Arc::new(client), server_config(&host, PROTOCOLS).unwrap()).is_err());
}
