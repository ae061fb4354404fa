//! quinn on a current-thread runtime, set up like Litz: same datagram size, socket buffers, windows, cipher and key exchange.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::{Connection, Endpoint, EndpointConfig, TokioRuntime, TransportConfig, VarInt};
use tokio::runtime::{Builder, Runtime};

use super::{Failure, Server};
use crate::tls;
use crate::usage;
use crate::work::{
    BulkMeter, CHUNK_LEN, DATAGRAM_SIZE, Figures, HANDSHAKES, IDLE_CONNECTIONS, REQUEST_LEN, SOCKET_BUFFER, Test,
    Timing, WINDOW, latencies,
};

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .initial_mtu(DATAGRAM_SIZE)
        .min_mtu(DATAGRAM_SIZE)
        .mtu_discovery_config(None)
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(u64::from(WINDOW))
        .max_idle_timeout(Some(Duration::from_secs(60).try_into().expect("fits")));
    Arc::new(transport)
}

fn socket(bind: SocketAddr) -> Result<UdpSocket, Failure> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(bind), socket2::Type::DGRAM, None)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.bind(&bind.into())?;
    Ok(socket.into())
}

fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

struct QuinnServer {
    address: SocketAddr,
    figures: Arc<Mutex<Figures>>,
}

impl Server for QuinnServer {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn figures(&self) -> Figures {
        self.figures.lock().map(|figures| figures.clone()).unwrap_or_default()
    }
}

pub fn server(test: Test, listen: SocketAddr, timing: Timing) -> Result<Box<dyn Server>, Failure> {
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls::server())?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(transport());
    let socket = socket(listen)?;
    let address = socket.local_addr()?;
    let figures = Arc::new(Mutex::new(Figures::default()));
    let shared = figures.clone();
    std::thread::spawn(move || -> Result<(), Failure> {
        runtime()?.block_on(async move {
            let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, Arc::new(TokioRuntime))?;
            let mut kept = Vec::new();
            while let Some(incoming) = endpoint.accept().await {
                let Ok(connection) = incoming.await else { continue };
                match test {
                    Test::Bulk => {
                        if let Ok(measured) = sink(&connection, timing).await {
                            *shared.lock().expect("nobody panics") = measured;
                        }
                    }
                    Test::RequestResponse => drop(echo(&connection).await),
                    Test::Handshake => drop(connection.closed().await),
                    Test::Idle => kept.push(connection),
                }
            }
            Ok(())
        })
    });
    Ok(Box::new(QuinnServer { address, figures }))
}

async fn sink(connection: &Connection, timing: Timing) -> Result<Figures, Failure> {
    let mut stream = connection.accept_uni().await?;
    let mut meter = BulkMeter::new(timing);
    while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
        if !meter.note(chunk.bytes.len()) {
            break;
        }
    }
    stream.stop(VarInt::from_u32(0))?;
    Ok(meter.figures())
}

async fn echo(connection: &Connection) -> Result<(), Failure> {
    let (mut send, mut recv) = connection.accept_bi().await?;
    let mut request = [0; REQUEST_LEN];
    loop {
        recv.read_exact(&mut request).await?;
        send.write_all(&request).await?;
    }
}

pub fn drive(test: Test, remote: SocketAddr, timing: Timing) -> Result<Figures, Failure> {
    let runtime = runtime()?;
    runtime.block_on(async {
        let before = usage::resident_bytes();
        let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls::client())?;
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport());
        let socket = socket(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
        let mut endpoint = Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime))?;
        endpoint.set_default_client_config(config);
        let connect = || async { Ok::<_, Failure>(endpoint.connect(remote, "localhost")?.await?) };
        match test {
            Test::Bulk => {
                let connection = connect().await?;
                let mut stream = connection.open_uni().await?;
                let chunk = Bytes::from(vec![0x5a; CHUNK_LEN]);
                let mut meter = BulkMeter::new(timing);
                while stream.write_chunk(chunk.clone()).await.is_ok() {
                    meter.note(chunk.len());
                }
                let mut figures = meter.figures();
                figures.goodput_bps = None;
                Ok(figures)
            }
            Test::Handshake => {
                let mut samples = Vec::with_capacity(HANDSHAKES);
                for _ in 0..HANDSHAKES {
                    let start = Instant::now();
                    let connection = connect().await?;
                    samples.push(start.elapsed());
                    connection.close(VarInt::from_u32(0), b"");
                }
                Ok(latencies(samples))
            }
            Test::RequestResponse => {
                let connection = connect().await?;
                let (mut send, mut recv) = connection.open_bi().await?;
                let mut response = [0; REQUEST_LEN];
                let started = Instant::now();
                let mut samples = Vec::new();
                while started.elapsed().as_secs_f64() < timing.warm_up + timing.time {
                    let start = Instant::now();
                    send.write_all(&[7; REQUEST_LEN]).await?;
                    recv.read_exact(&mut response).await?;
                    if started.elapsed().as_secs_f64() > timing.warm_up {
                        samples.push(start.elapsed());
                    }
                }
                Ok(latencies(samples))
            }
            Test::Idle => {
                let mut kept = Vec::with_capacity(IDLE_CONNECTIONS);
                for _ in 0..IDLE_CONNECTIONS {
                    kept.push(connect().await?);
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
                let bytes = (usage::resident_bytes() as f64 - before as f64) / IDLE_CONNECTIONS as f64;
                std::mem::forget((kept, endpoint));
                Ok(Figures { bytes_per_connection: Some(bytes), ..Figures::default() })
            }
        }
    })
}
