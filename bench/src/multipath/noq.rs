//! noq over several links: one socket; the routing table chooses the link by the remote address.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use noq::congestion::{Bbr3Config, ControllerFactory, CubicConfig};
use noq::{Connection, Endpoint, EndpointConfig, PathStatus, TokioRuntime, TransportConfig, VarInt};
use tokio::runtime::{Builder, Runtime};

use super::arrivals::{Arrivals, Content};
use super::case::Workload;
use super::contender::Controller;
use super::side::{Drive, REQUEST_LEN, Received, Sent, Serve, WARM_UP_S, report_connected, report_ready, until_ns};
use crate::contender::Failure;
use crate::meter::{Exchanges, monotonic_ns};
use crate::tls;
use crate::work::{IDLE_TIMEOUT, SOCKET_BUFFER, Timing};

/// Ethernet's 1500 bytes without the headers of IPv4 and UDP.
const DATAGRAM_SIZE: u16 = 1472;
const PATHS_MAX: u32 = 32;
/// Flow-control windows and send buffer, bytes.
const WINDOW: u32 = 64 << 20;

/// How often opening a path is attempted, and the interval.
const OPEN_TRIES_MAX: u32 = 50;
const OPEN_AGAIN: Duration = Duration::from_millis(20);

fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

fn transport(controller: Controller) -> Arc<TransportConfig> {
    let congestion: Arc<dyn ControllerFactory + Send + Sync> = match controller {
        Controller::Cubic => Arc::new(CubicConfig::default()),
        Controller::Bbr => Arc::new(Bbr3Config::default()),
    };
    let mut transport = TransportConfig::default();
    transport
        .initial_mtu(DATAGRAM_SIZE)
        .min_mtu(DATAGRAM_SIZE)
        .mtu_discovery_config(None)
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(u64::from(WINDOW))
        .congestion_controller_factory(congestion)
        .max_concurrent_multipath_paths(PATHS_MAX)
        .max_idle_timeout(Some(IDLE_TIMEOUT.try_into().expect("fits")));
    Arc::new(transport)
}

fn socket() -> Result<UdpSocket, Failure> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    Ok(socket.into())
}

/// Accepts datagrams as large as the path's.
fn endpoint_config() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(DATAGRAM_SIZE).expect("above 1200");
    config
}

pub fn serve(serve: &Serve) -> Result<Received, Failure> {
    runtime()?.block_on(async {
        let crypto = noq::crypto::rustls::QuicServerConfig::try_from(tls::server())?;
        let mut config = noq::ServerConfig::with_crypto(Arc::new(crypto));
        config.transport_config(transport(serve.controller));
        let endpoint = Endpoint::new(endpoint_config(), Some(config), socket()?, Arc::new(TokioRuntime))?;
        let port = endpoint.local_addr()?.port();
        let addresses: Vec<SocketAddr> = serve.listen.iter().map(|&ip| SocketAddr::new(ip, port)).collect();
        report_ready(&addresses)?;
        let connection = endpoint.accept().await.ok_or("no connection arrived")?.await?;
        let mut received = match serve.workload {
            Workload::Bulk => sink(&connection).await?,
            Workload::Exchanges => {
                // A peer that disconnects ends its echo.
                drop(echo(&connection).await);
                Received::default()
            }
        };
        received.note_usage();
        connection.closed().await;
        Ok(received)
    })
}

async fn sink(connection: &Connection) -> Result<Received, Failure> {
    let mut stream = connection.accept_uni().await?;
    let (mut arrivals, content) = (Arrivals::new(), Content::new());
    let mut faults = 0;
    while let Some(chunk) = stream.read_chunk(usize::MAX).await? {
        faults += u64::from(!content.is_right(arrivals.bytes, &chunk));
        arrivals.note(chunk.len());
    }
    Ok(Received { arrivals: Some(arrivals), faults, ..Received::default() })
}

async fn echo(connection: &Connection) -> Result<(), Failure> {
    let (mut send, mut recv) = connection.accept_bi().await?;
    let mut request = [0; REQUEST_LEN];
    loop {
        recv.read_exact(&mut request).await?;
        send.write_all(&request).await?;
    }
}

pub fn drive(drive: &Drive, remotes: &[SocketAddr]) -> Result<Sent, Failure> {
    runtime()?.block_on(async {
        let crypto = noq::crypto::rustls::QuicClientConfig::try_from(tls::client())?;
        let mut config = noq::ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport(drive.controller));
        let endpoint = Endpoint::new(endpoint_config(), None, socket()?, Arc::new(TokioRuntime))?;
        let begun_ns = monotonic_ns();
        let first = *remotes.first().ok_or("nowhere to connect to")?;
        let connection = endpoint.connect_with(config, first, "localhost")?.await?;
        let connected_ns = report_connected()?;
        let mut sent = Sent { begun_ns, connected_ns, ..Sent::default() };
        let notes = tokio::spawn(open_paths(connection.clone(), remotes.to_vec()));
        match drive.workload {
            Workload::Bulk => send_bulk(&connection, drive, connected_ns, &mut sent).await?,
            Workload::Exchanges => exchange(&connection, drive, &mut sent).await?,
        }
        if notes.is_finished() {
            sent.notes = notes.await?;
        } else {
            sent.notes.push("not all paths were opened".to_owned());
        }
        sent.note_usage();
        connection.close(VarInt::from_u32(0), b"");
        endpoint.wait_idle().await;
        Ok(sent)
    })
}

/// Opens a path to each of `remotes` except the first. It fails until the peer has issued
/// connection IDs for it.
async fn open_paths(connection: Connection, remotes: Vec<SocketAddr>) -> Vec<String> {
    let mut notes = Vec::new();
    for (index, remote) in remotes.into_iter().enumerate().skip(1) {
        let mut tries = 1;
        let note = loop {
            match connection.open_path(remote, PathStatus::Available).await {
                Ok(path) => break format!("link {index}: {:?}, try {tries}", path.id()),
                Err(error) if tries == OPEN_TRIES_MAX => break format!("link {index}: {error}"),
                Err(_) => tokio::time::sleep(OPEN_AGAIN).await,
            }
            tries += 1;
        };
        notes.push(note);
    }
    notes
}

async fn send_bulk(connection: &Connection, drive: &Drive, connected_ns: u64, sent: &mut Sent) -> Result<(), Failure> {
    let until = until_ns(connected_ns, drive.time);
    let chunk = Content::new().chunk();
    let mut stream = connection.open_uni().await?;
    while monotonic_ns() < until {
        stream.write_chunk(chunk.clone()).await?;
        sent.bytes += chunk.len() as u64;
    }
    sent.written_ns = monotonic_ns();
    stream.finish()?;
    stream.stopped().await?;
    sent.done_ns = monotonic_ns();
    Ok(())
}

async fn exchange(connection: &Connection, drive: &Drive, sent: &mut Sent) -> Result<(), Failure> {
    let (mut send, mut recv) = connection.open_bi().await?;
    let mut response = [0; REQUEST_LEN];
    let mut exchanges = Exchanges::new(Timing { warm_up: WARM_UP_S, time: drive.time });
    while let Some(begun) = exchanges.begin() {
        send.write_all(&[7; REQUEST_LEN]).await?;
        recv.read_exact(&mut response).await?;
        if response != [7; REQUEST_LEN] {
            return Err("a response that is not the request".into());
        }
        exchanges.end(begun);
    }
    sent.note_exchanges(&exchanges);
    Ok(())
}
