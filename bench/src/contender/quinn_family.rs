//! quinn and its fork noq on a current-thread runtime, configured like Litz: same datagram size,
//! socket buffers, windows, cipher and key exchange. Both have the same interface, so one macro
//! serves both.

use std::net::{SocketAddr, UdpSocket};

use super::Failure;
use crate::work::{Job, SOCKET_BUFFER};

/// Datagrams per GSO call in both libraries.
const SEGMENTS: u16 = 10;

/// Datagrams fill the MTU, but ten of them must fit one call, which carries 65507 bytes at most:
/// larger calls fail, and the libraries treat them as lost.
fn datagram_size(job: &Job) -> u16 {
    job.datagram_size().min(u16::MAX / SEGMENTS - 3)
}

/// A bound socket with the common buffer sizes.
fn socket(bind: SocketAddr) -> Result<UdpSocket, Failure> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(bind), socket2::Type::DGRAM, None)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.bind(&bind.into())?;
    Ok(socket.into())
}

/// A module `$module` with `server` and `drive` for the library `$library`, whose streams
/// `$next_chunk` reads.
macro_rules! contender {
    ($module:ident, $library:ident, $next_chunk:ident) => {
        pub mod $module {
            use std::net::{Ipv4Addr, SocketAddr};
            use std::sync::{Arc, Mutex};
            use std::time::Instant;

            use ::$library::{Connection, Endpoint, EndpointConfig, TokioRuntime, TransportConfig, VarInt};
            use bytes::Bytes;
            use tokio::runtime::{Builder, Runtime};

            use super::super::{Background, Failure, Server};
            use super::{datagram_size, socket, $next_chunk};
            use crate::meter::{BulkMeter, ConnectMeter, Exchanges, latencies};
            use crate::tls;
            use crate::usage;
            use crate::work::{
                CHUNK_LEN, CONNECT_LEN, Figures, HANDSHAKES, IDLE_TIMEOUT, Job, REQUEST_LEN, SETTLE, Test, WINDOW,
            };

            fn transport(job: &Job) -> Arc<TransportConfig> {
                let mut transport = TransportConfig::default();
                transport
                    .initial_mtu(datagram_size(job))
                    .min_mtu(datagram_size(job))
                    .mtu_discovery_config(None)
                    .stream_receive_window(VarInt::from_u32(WINDOW))
                    .receive_window(VarInt::from_u32(WINDOW))
                    .send_window(u64::from(WINDOW))
                    .max_idle_timeout(Some(IDLE_TIMEOUT.try_into().expect("fits")));
                Arc::new(transport)
            }

            /// Accepts datagrams as large as the path's; the default is Ethernet's size.
            fn endpoint_config(job: &Job) -> EndpointConfig {
                let mut config = EndpointConfig::default();
                config.max_udp_payload_size(job.datagram_size()).expect("above 1200");
                config
            }

            fn runtime() -> Result<Runtime, Failure> {
                Ok(Builder::new_current_thread().enable_all().build()?)
            }

            pub fn server(job: &Job, listen: SocketAddr) -> Result<Box<dyn Server>, Failure> {
                let crypto = ::$library::crypto::rustls::QuicServerConfig::try_from(tls::server())?;
                let mut config = ::$library::ServerConfig::with_crypto(Arc::new(crypto));
                config.transport_config(transport(job));
                let socket = socket(listen)?;
                let address = socket.local_addr()?;
                let figures = Arc::new(Mutex::new(Figures::default()));
                let (shared, job) = (figures.clone(), *job);
                std::thread::spawn(move || -> Result<(), Failure> {
                    runtime()?.block_on(async move {
                        let runtime = Arc::new(TokioRuntime);
                        let endpoint = Endpoint::new(endpoint_config(&job), Some(config), socket, runtime)?;
                        accept(&endpoint, &job, &shared).await;
                        Ok(())
                    })
                });
                Ok(Box::new(Background { address, figures }))
            }

            async fn accept(endpoint: &Endpoint, job: &Job, figures: &Mutex<Figures>) {
                let leave = |measured| *figures.lock().expect("no thread panics") = measured;
                let mut kept = Vec::new();
                let mut connects = ConnectMeter::default();
                while let Some(incoming) = endpoint.accept().await {
                    let Ok(connection) = incoming.await else { continue };
                    match job.test {
                        Test::Bulk => {
                            if let Ok(measured) = sink(&connection, job).await {
                                leave(measured);
                            }
                        }
                        Test::RequestResponse => drop(echo(&connection).await),
                        Test::Handshake => drop(connection.closed().await),
                        Test::Connect => {
                            if answer(&connection).await.is_ok() {
                                connects.note();
                                leave(connects.figures());
                            }
                        }
                        Test::Idle | Test::IdleParked => kept.push(connection),
                        Test::File | Test::KeyUpdate => {}
                    }
                }
            }

            async fn sink(connection: &Connection, job: &Job) -> Result<Figures, Failure> {
                let mut stream = connection.accept_uni().await?;
                let mut meter = BulkMeter::new(job);
                while let Some(bytes) = $next_chunk(&mut stream).await? {
                    if !meter.note(bytes) {
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

            /// The serving side of one connection of the connect test.
            async fn answer(connection: &Connection) -> Result<(), Failure> {
                let (mut send, mut recv) = connection.accept_bi().await?;
                let request = recv.read_to_end(CONNECT_LEN).await?;
                send.write_all(&request).await?;
                send.finish()?;
                connection.closed().await;
                Ok(())
            }

            pub fn drive(job: &Job, remote: SocketAddr) -> Result<Figures, Failure> {
                runtime()?.block_on(async {
                    let before = usage::resident_bytes();
                    let crypto = ::$library::crypto::rustls::QuicClientConfig::try_from(tls::client())?;
                    let mut config = ::$library::ClientConfig::new(Arc::new(crypto));
                    config.transport_config(transport(job));
                    let socket = socket(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
                    let endpoint = Endpoint::new(endpoint_config(job), None, socket, Arc::new(TokioRuntime))?;
                    let connect = || async {
                        let connecting = endpoint.connect_with(config.clone(), remote, "localhost")?;
                        Ok::<_, Failure>(connecting.await?)
                    };
                    match job.test {
                        Test::Bulk => send_bulk(&connect().await?, job).await,
                        Test::Handshake => {
                            let mut samples = Vec::with_capacity(HANDSHAKES);
                            for _ in 0..HANDSHAKES {
                                let start = Instant::now();
                                let connection = connect().await?;
                                samples.push(start.elapsed());
                                connection.close(VarInt::from_u32(0), b"");
                            }
                            Ok(latencies(&samples))
                        }
                        Test::Connect => {
                            let mut connects = ConnectMeter::default();
                            for _ in 0..ConnectMeter::CONNECTIONS {
                                let connection = connect().await?;
                                let (mut send, mut recv) = connection.open_bi().await?;
                                send.write_all(&[7; CONNECT_LEN]).await?;
                                send.finish()?;
                                recv.read_to_end(CONNECT_LEN).await?;
                                connection.close(VarInt::from_u32(0), b"");
                                connects.note();
                            }
                            Ok(connects.figures())
                        }
                        Test::RequestResponse => ask(&connect().await?, job).await,
                        Test::Idle | Test::IdleParked => {
                            let mut kept = Vec::with_capacity(job.connections);
                            for _ in 0..job.connections {
                                kept.push(connect().await?);
                            }
                            tokio::time::sleep(SETTLE).await;
                            let bytes = (usage::resident_bytes() as f64 - before as f64) / job.connections as f64;
                            std::mem::forget((kept, endpoint));
                            Ok(Figures { bytes_per_connection: Some(bytes), ..Figures::default() })
                        }
                        Test::File | Test::KeyUpdate => Err("not for this contender".into()),
                    }
                })
            }

            /// Writes until the server stops reading.
            async fn send_bulk(connection: &Connection, job: &Job) -> Result<Figures, Failure> {
                let mut stream = connection.open_uni().await?;
                let chunk = Bytes::from(vec![0x5a; CHUNK_LEN]);
                let mut meter = BulkMeter::new(job);
                while stream.write_chunk(chunk.clone()).await.is_ok() {
                    meter.note(chunk.len());
                }
                Ok(meter.sender_figures())
            }

            async fn ask(connection: &Connection, job: &Job) -> Result<Figures, Failure> {
                let (mut send, mut recv) = connection.open_bi().await?;
                let mut response = [0; REQUEST_LEN];
                let mut exchanges = Exchanges::new(job.timing);
                while let Some(begun) = exchanges.begin() {
                    send.write_all(&[7; REQUEST_LEN]).await?;
                    recv.read_exact(&mut response).await?;
                    exchanges.end(begun);
                }
                Ok(exchanges.figures())
            }
        }
    };
}

contender!(quinn, quinn, quinn_chunk);
#[cfg(feature = "noq")]
contender!(noq, noq, noq_chunk);

/// The length of the next chunk, in order; `None` at the end.
async fn quinn_chunk(stream: &mut ::quinn::RecvStream) -> Result<Option<usize>, Failure> {
    Ok(stream.read_chunk(usize::MAX, true).await?.map(|chunk| chunk.bytes.len()))
}

#[cfg(feature = "noq")]
async fn noq_chunk(stream: &mut ::noq::RecvStream) -> Result<Option<usize>, Failure> {
    Ok(stream.read_chunk(usize::MAX).await?.map(|chunk| chunk.len()))
}
