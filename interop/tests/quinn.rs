//! quinn as client and as server: handshake, 100 MB in each direction, key updates by both sides,
//! datagrams.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use litz::{AddressValidation, Endpoint, EndpointConfig, TransportConfig};
use litz_interop::certificates;
use litz_interop::pattern::{CHUNK_LEN, Checker, fill};

const TRANSFER_BYTES: u64 = 100_000_000;

/// Small enough for about a dozen updates in a transfer of 100 MB.
const KEY_UPDATE_INTERVAL: u64 = 6_000;

/// Datagrams are sent until this many have returned.
const DATAGRAMS: usize = 20;

fn loopback() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

fn our_config(server: Option<Arc<rustls::ServerConfig>>) -> EndpointConfig {
    EndpointConfig::at(loopback())
        .with_transport(
            TransportConfig::default().with_datagram_size_max(1472).with_key_update_interval(KEY_UPDATE_INTERVAL),
        )
        .with_server_tls(server)
}

fn quinn_transport() -> Arc<quinn::TransportConfig> {
    let mut transport = quinn::TransportConfig::default();
    transport.max_idle_timeout(Some(Duration::from_secs(20).try_into().expect("fits")));
    Arc::new(transport)
}

fn quinn_server(config: Arc<rustls::ServerConfig>) -> quinn::Endpoint {
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(config).expect("AES-128-GCM is there");
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(quinn_transport());
    quinn::Endpoint::server(config, loopback()).expect("a socket")
}

fn quinn_client(config: Arc<rustls::ClientConfig>) -> quinn::Endpoint {
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(config).expect("AES-128-GCM is there");
    let mut config = quinn::ClientConfig::new(Arc::new(crypto));
    config.transport_config(quinn_transport());
    let mut endpoint = quinn::Endpoint::client(loopback()).expect("a socket");
    endpoint.set_default_client_config(config);
    endpoint
}

/// quinn's side of a test, in either role: reads one stream and writes another of the same length
/// at the same time, updates its keys occasionally, and echoes datagrams.
async fn quinn_peer(connection: quinn::Connection, opens: bool) {
    let echo = tokio::spawn({
        let connection = connection.clone();
        async move {
            while let Ok(datagram) = connection.read_datagram().await {
                // A full queue means a lost datagram, which the test expects.
                let _sent = connection.send_datagram(datagram);
            }
        }
    });
    let (mut send, mut recv) = if opens {
        connection.open_bi().await.expect("a stream")
    } else {
        connection.accept_bi().await.expect("a stream")
    };
    let writer = tokio::spawn({
        let connection = connection.clone();
        async move {
            let (mut offset, mut chunk) = (0, vec![0; CHUNK_LEN]);
            while offset < TRANSFER_BYTES {
                let len = chunk.len().min((TRANSFER_BYTES - offset) as usize);
                fill(offset, &mut chunk[..len]);
                send.write_all(&chunk[..len]).await.expect("the stream stays open");
                if offset / 10_000_000 != (offset + len as u64) / 10_000_000 {
                    connection.force_key_update();
                }
                offset += len as u64;
            }
            send.finish().expect("the stream stays open");
            send.stopped().await.expect("the peer has everything");
        }
    });
    let mut checker = Checker::default();
    while let Some(chunk) = recv.read_chunk(1 << 20, true).await.expect("the stream stays open") {
        checker.take(&chunk.bytes);
    }
    assert_eq!(checker.taken(), TRANSFER_BYTES);
    writer.await.expect("the writer does not panic");
    let closed = connection.closed().await;
    assert!(
        matches!(&closed, quinn::ConnectionError::ApplicationClosed(close) if close.error_code == 7u32.into()),
        "{closed}"
    );
    echo.abort();
}

/// Our side, in either role.
fn our_peer(connection: &litz::Connection, opens: bool) {
    let (mut send, mut recv) =
        if opens { connection.open_bi().expect("a stream") } else { connection.accept_bi().expect("a stream") };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut offset = 0;
            while offset < TRANSFER_BYTES {
                let mut chunk = vec![0; CHUNK_LEN.min((TRANSFER_BYTES - offset) as usize)];
                fill(offset, &mut chunk);
                offset += chunk.len() as u64;
                send.write_chunk(chunk.into()).expect("the stream stays open");
            }
            send.finish().expect("the stream stays open");
            send.wait_finished().expect("the peer has everything");
        });
        let mut checker = Checker::default();
        while let Some(chunk) = recv.read_chunk().expect("the stream stays open") {
            checker.take(&chunk);
        }
        assert_eq!(checker.taken(), TRANSFER_BYTES);
    });
    datagrams_return(connection);
    let stats = connection.stats();
    // Loopback carries them, and quinn's receive buffer does.
    assert!(stats.datagram_size > 1200, "larger datagrams were discovered");
    assert!(stats.send.key_updates >= 3, "both sides updated keys: {:?}", stats.send);
    assert_eq!(stats.session.key_exchange.as_deref(), Some("X25519MLKEM768"));
    assert_eq!(stats.paths[0].ecn, litz::EcnState::Capable, "quinn reports the codepoints that arrive");
    assert_eq!(stats.receive.packets_unauthentic, 0, "{:?}", stats.receive);
    connection.close(7, "done");
}

fn datagrams_return(connection: &litz::Connection) {
    let mut returned = 0;
    for round in 0..50u8 {
        connection.send_datagram(Bytes::from(vec![round; 100])).expect("the peer takes datagrams");
        if let Some(datagram) = connection.recv_datagram_timeout(Duration::from_millis(200)).expect("open") {
            assert_eq!(datagram.len(), 100);
            returned += 1;
        }
        if returned == DATAGRAMS {
            return;
        }
    }
    panic!("only {returned} datagrams came back");
}

#[test]
fn our_client_and_quinns_server() {
    let (server, client) = certificates::pair();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let quinn = runtime.block_on(async { quinn_server(server) });
    let remote = quinn.local_addr().expect("bound");
    let peer = runtime.spawn(async move {
        let connection = quinn.accept().await.expect("a client").await.expect("a handshake");
        quinn_peer(connection, false).await;
    });
    let endpoint = Endpoint::bind(our_config(None)).expect("a socket");
    let connection = endpoint.connect(remote, "localhost", client).expect("a handshake");
    our_peer(&connection, true);
    runtime.block_on(peer).expect("quinn's side succeeds");
}

/// quinn's client and our server exchange everything.
fn our_server_serves_quinn(validation: AddressValidation) {
    let (server, client) = certificates::pair();
    let config = our_config(Some(server)).with_address_validation(validation);
    let endpoint = Endpoint::bind(config).expect("a socket");
    let remote = endpoint.local_addr();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let peer = runtime.spawn(async move {
        let quinn = quinn_client(client);
        let connection = quinn.connect(remote, "localhost").expect("valid").await.expect("a handshake");
        quinn_peer(connection, true).await;
        quinn.wait_idle().await;
    });
    let connection = endpoint.accept().expect("a client");
    our_peer(&connection, false);
    runtime.block_on(peer).expect("quinn's side succeeds");
}

#[test]
fn quinns_client_and_our_server() {
    our_server_serves_quinn(AddressValidation::WhenBusy);
}

#[test]
fn quinns_client_proves_its_address_to_our_server() {
    our_server_serves_quinn(AddressValidation::Always);
}

#[test]
fn our_client_proves_its_address_to_quinns_server() {
    let (server, client) = certificates::pair();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let quinn = runtime.block_on(async { quinn_server(server) });
    let remote = quinn.local_addr().expect("bound");
    let peer = runtime.spawn(async move {
        let mut retries = 0;
        // The client's first flight has two datagrams. Each begins a connection of its own for a
        // server that keeps no state.
        let validated = loop {
            let incoming = quinn.accept().await.expect("a client");
            if incoming.remote_address_validated() {
                break incoming;
            }
            incoming.retry().expect("it has not proved its address");
            retries += 1;
        };
        assert!(retries > 0);
        quinn_peer(validated.await.expect("a handshake"), false).await;
    });
    let endpoint = Endpoint::bind(our_config(None)).expect("a socket");
    let connection = endpoint.connect(remote, "localhost", client).expect("a handshake");
    our_peer(&connection, true);
    runtime.block_on(peer).expect("quinn's side succeeds");
}

#[test]
fn quinns_client_is_refused_when_our_server_has_enough_connections() {
    let (server, client) = certificates::pair();
    let endpoint = Endpoint::bind(our_config(Some(server)).with_connections_max(1)).expect("a socket");
    let remote = endpoint.local_addr();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let refused = runtime.block_on(async {
        let quinn = quinn_client(client);
        let _first = quinn.connect(remote, "localhost").expect("valid").await.expect("a handshake");
        quinn.connect(remote, "localhost").expect("valid").await.expect_err("the server has one connection")
    });
    let quinn::ConnectionError::ConnectionClosed(close) = &refused else { panic!("{refused}") };
    assert_eq!(u64::from(close.error_code), litz::ErrorCode::CONNECTION_REFUSED.0);
}

#[test]
fn quinns_client_refuses_a_certificate_it_does_not_trust() {
    let ((server, _), (_, untrusted)) = (certificates::pair(), certificates::pair());
    let endpoint = Endpoint::bind(our_config(Some(server))).expect("a socket");
    let remote = endpoint.local_addr();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let error = runtime.block_on(async {
        let quinn = quinn_client(untrusted);
        quinn.connect(remote, "localhost").expect("valid").await.expect_err("the certificate is not trusted")
    });
    assert!(matches!(error, quinn::ConnectionError::TransportError(_)), "{error}");
    assert!(endpoint.accept_timeout(Duration::from_millis(300)).expect("it listens").is_none());
}

#[test]
fn our_client_refuses_a_certificate_it_does_not_trust() {
    let ((server, _), (_, untrusted)) = (certificates::pair(), certificates::pair());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let quinn = runtime.block_on(async { quinn_server(server) });
    let remote = quinn.local_addr().expect("bound");
    let peer = runtime.spawn(async move { quinn.accept().await.expect("a client").await.expect_err("refused") });
    let endpoint = Endpoint::bind(our_config(None)).expect("a socket");
    let error =
        endpoint.connect(remote, "localhost", untrusted).map(|_| ()).expect_err("the certificate is not trusted");
    assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
    let seen = runtime.block_on(peer).expect("quinn's side succeeds");
    assert!(matches!(seen, quinn::ConnectionError::ConnectionClosed(_)), "{seen}");
}
