//! Litz, with blocking calls.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use litz::{Connection, Endpoint, EndpointConfig, Placement, TransportConfig, UdpSocketOptions};

use super::{Background, Failure, Server};
use crate::meter::{BulkMeter, ConnectMeter, Exchanges, latencies, monotonic_ns};
use crate::tls;
use crate::usage;
use crate::work::{
    CHUNK_LEN, CONNECT_LEN, Figures, HANDSHAKES, IDLE_TIMEOUT, Job, REQUEST_LEN, SETTLE, SOCKET_BUFFER, Test, WINDOW,
};

/// Several round trips between two processors of one machine.
const BUSY_POLL: Duration = Duration::from_micros(200);

/// The interval at which the count of key updates is read.
const KEY_UPDATE_POLL: Duration = Duration::from_millis(1);

/// The placement and polling of Litz.
#[derive(Clone, Copy)]
pub struct Litz {
    placement: Placement,
    busy_poll: Duration,
}

impl Litz {
    pub const INLINE: Self = Self { placement: Placement::Inline, busy_poll: Duration::ZERO };
    pub const POLLING: Self = Self { placement: Placement::Inline, busy_poll: BUSY_POLL };
    pub const THREAD: Self = Self { placement: Placement::Thread, busy_poll: Duration::ZERO };
}

fn config(litz: Litz, job: &Job, bind: SocketAddr, listens: bool) -> EndpointConfig {
    let socket =
        UdpSocketOptions::new(bind).with_send_buffer_bytes(SOCKET_BUFFER).with_recv_buffer_bytes(SOCKET_BUFFER);
    EndpointConfig::default()
        .with_sockets(vec![socket])
        .with_placement(litz.placement)
        .with_busy_poll(litz.busy_poll)
        .with_transport(
            TransportConfig::default()
                .with_datagram_size(usize::from(job.datagram_size()))
                .with_idle_timeout(IDLE_TIMEOUT.into())
                .with_stream_window_max(u64::from(WINDOW))
                .with_connection_window_max(u64::from(WINDOW))
                .with_send_buffer_max(u64::from(WINDOW))
                .with_park_after((job.test == Test::IdleParked).then_some(litz::units::Duration::from_secs(1))),
        )
        .with_server_tls(listens.then(tls::server))
        .with_connections_max(2 * job.connections)
}

pub fn server(litz: Litz, job: &Job, listen: SocketAddr) -> Result<Box<dyn Server>, Failure> {
    let endpoint = Endpoint::bind(config(litz, job, listen, true))?;
    let address = endpoint.local_addr();
    let figures = Arc::new(Mutex::new(Figures::default()));
    let (shared, job) = (figures.clone(), *job);
    std::thread::spawn(move || {
        let leave = |measured| *shared.lock().expect("no thread panics") = measured;
        let mut kept = Vec::new();
        let mut connects = ConnectMeter::default();
        while let Ok(connection) = endpoint.accept() {
            match job.test {
                Test::Bulk | Test::KeyUpdate => {
                    if let Ok(measured) = sink(&connection, &job) {
                        leave(measured);
                    }
                }
                // A peer that disconnects ends its echo.
                Test::RequestResponse => drop(echo(&connection)),
                Test::Handshake => drop(connection.closed_timeout(Duration::from_secs(1))),
                Test::Connect => {
                    if answer(&connection).is_ok() {
                        connects.note();
                        leave(connects.figures());
                    }
                }
                Test::Idle | Test::IdleParked => kept.push(connection),
                Test::File => {}
            }
        }
    });
    Ok(Box::new(Background { address, figures }))
}

fn sink(connection: &Connection, job: &Job) -> Result<Figures, Failure> {
    let mut stream = connection.accept_uni()?;
    let mut meter = BulkMeter::new(job);
    while let Some(strip) = stream.read_strided()? {
        if !meter.note(strip.len()) {
            break;
        }
    }
    Ok(meter.figures())
}

fn echo(connection: &Connection) -> Result<(), Failure> {
    let (mut send, mut recv) = connection.accept_bi()?;
    let mut request = [0; REQUEST_LEN];
    loop {
        recv.read_exact(&mut request)?;
        send.write_all(&request)?;
        send.flush()?;
    }
}

/// The serving side of one connection of the connect test.
fn answer(connection: &Connection) -> Result<(), Failure> {
    let (mut send, mut recv) = connection.accept_bi()?;
    let mut request = Vec::with_capacity(CONNECT_LEN);
    recv.read_to_end(&mut request)?;
    send.write_all(&request)?;
    send.finish()?;
    connection.closed_timeout(Duration::from_secs(1));
    Ok(())
}

pub fn drive(litz: Litz, job: &Job, remote: SocketAddr) -> Result<Figures, Failure> {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let before = usage::resident_bytes();
    let endpoint = Endpoint::bind(config(litz, job, any, false))?;
    let tls = tls::client();
    let connect = || endpoint.connect(remote, "localhost", tls.clone());
    match job.test {
        Test::Bulk => send_bulk(&connect()?, job),
        Test::KeyUpdate => pour_and_watch(&connect()?, job),
        Test::Handshake => {
            let mut samples = Vec::with_capacity(HANDSHAKES);
            for _ in 0..HANDSHAKES {
                let start = Instant::now();
                let connection = connect()?;
                samples.push(start.elapsed());
                connection.close(0, "");
            }
            Ok(latencies(&samples))
        }
        Test::Connect => {
            let mut connects = ConnectMeter::default();
            for _ in 0..ConnectMeter::CONNECTIONS {
                let connection = connect()?;
                let (mut send, mut recv) = connection.open_bi()?;
                send.write_all(&[7; CONNECT_LEN])?;
                send.finish()?;
                recv.read_to_end(&mut Vec::with_capacity(CONNECT_LEN))?;
                connection.close(0, "");
                connects.note();
            }
            Ok(connects.figures())
        }
        Test::RequestResponse => ask(&connect()?, job),
        Test::Idle | Test::IdleParked => {
            let mut kept = Vec::with_capacity(job.connections);
            for _ in 0..job.connections {
                kept.push(connect()?);
            }
            std::thread::sleep(SETTLE);
            let bytes = (usage::resident_bytes() as f64 - before as f64) / job.connections as f64;
            std::mem::forget((kept, endpoint));
            Ok(Figures { bytes_per_connection: Some(bytes), ..Figures::default() })
        }
        Test::File => Err("the command does this test".into()),
    }
}

/// Writes until the server stops reading.
fn send_bulk(connection: &Connection, job: &Job) -> Result<Figures, Failure> {
    let mut stream = connection.open_uni()?;
    let chunk = Bytes::from(vec![0x5a; CHUNK_LEN]);
    let mut meter = BulkMeter::new(job);
    while stream.write_chunk(chunk.clone()).is_ok() {
        meter.note(chunk.len());
    }
    Ok(meter.sender_figures())
}

/// The same, while another thread records when keys are updated.
fn pour_and_watch(connection: &Connection, job: &Job) -> Result<Figures, Failure> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut updates_ns = Vec::new();
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(KEY_UPDATE_POLL);
                if connection.stats().send.key_updates > updates_ns.len() as u64 {
                    updates_ns.push(monotonic_ns());
                }
            }
            updates_ns
        });
        let sent = send_bulk(connection, job);
        over.store(true, Ordering::Relaxed);
        let updates_ns = watcher.join().map_err(|_| "the watcher panicked")?;
        Ok(Figures { key_updates_ns: Some(updates_ns), ..sent? })
    })
}

fn ask(connection: &Connection, job: &Job) -> Result<Figures, Failure> {
    let (mut send, mut recv) = connection.open_bi()?;
    let mut response = [0; REQUEST_LEN];
    let mut exchanges = Exchanges::new(job.timing);
    while let Some(begun) = exchanges.begin() {
        send.write_all(&[7; REQUEST_LEN])?;
        send.flush()?;
        recv.read_exact(&mut response)?;
        exchanges.end(begun);
    }
    Ok(exchanges.figures())
}
