//! Litz, with blocking calls.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use litz::{Connection, Endpoint, EndpointConfig, Placement, TransportConfig, UdpSocketOptions};

use super::{Failure, Server};
use crate::tls;
use crate::usage;
use crate::work::{
    BulkMeter, CHUNK_LEN, DATAGRAM_SIZE, Figures, HANDSHAKES, IDLE_CONNECTIONS, REQUEST_LEN, SOCKET_BUFFER, Test,
    Timing, WINDOW, latencies,
};

fn config(placement: Placement, bind: SocketAddr, listens: bool) -> EndpointConfig {
    EndpointConfig {
        sockets: vec![UdpSocketOptions {
            bind,
            send_buffer_bytes: SOCKET_BUFFER,
            recv_buffer_bytes: SOCKET_BUFFER,
            ..UdpSocketOptions::default()
        }],
        placement,
        transport: TransportConfig {
            datagram_size: usize::from(DATAGRAM_SIZE),
            idle_timeout: litz::units::Duration::from_secs(60),
            stream_window_max: u64::from(WINDOW),
            connection_window_max: u64::from(WINDOW),
            send_buffer_max: u64::from(WINDOW),
            ..TransportConfig::default()
        },
        server_tls: listens.then(tls::server),
        connections_max: 2 * IDLE_CONNECTIONS,
        ..EndpointConfig::default()
    }
}

struct LitzServer {
    address: SocketAddr,
    figures: Arc<Mutex<Figures>>,
}

impl Server for LitzServer {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn figures(&self) -> Figures {
        self.figures.lock().map(|figures| figures.clone()).unwrap_or_default()
    }
}

pub fn server(
    placement: Placement,
    test: Test,
    listen: SocketAddr,
    timing: Timing,
) -> Result<Box<dyn Server>, Failure> {
    let endpoint = Endpoint::bind(config(placement, listen, true))?;
    let address = endpoint.local_addr();
    let figures = Arc::new(Mutex::new(Figures::default()));
    let shared = figures.clone();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok(connection) = endpoint.accept() {
            match test {
                Test::Bulk => {
                    if let Ok(measured) = sink(&connection, timing) {
                        *shared.lock().expect("nobody panics") = measured;
                    }
                }
                // A peer that leaves ends its echo.
                Test::RequestResponse => drop(echo(&connection)),
                Test::Handshake => drop(connection.closed_timeout(Duration::from_secs(1))),
                Test::Idle => kept.push(connection),
            }
        }
    });
    Ok(Box::new(LitzServer { address, figures }))
}

fn sink(connection: &Connection, timing: Timing) -> Result<Figures, Failure> {
    let mut stream = connection.accept_uni()?;
    let mut meter = BulkMeter::new(timing);
    while let Some(chunk) = stream.read_chunk()? {
        if !meter.note(chunk.len()) {
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

pub fn drive(placement: Placement, test: Test, remote: SocketAddr, timing: Timing) -> Result<Figures, Failure> {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let before = usage::resident_bytes();
    let endpoint = Endpoint::bind(config(placement, any, false))?;
    let tls = tls::client();
    let connect = || endpoint.connect(remote, "localhost", tls.clone());
    match test {
        Test::Bulk => {
            let connection = connect()?;
            let mut stream = connection.open_uni()?;
            let chunk = Bytes::from(vec![0x5a; CHUNK_LEN]);
            let mut meter = BulkMeter::new(timing);
            // The server stops reading when its time is over.
            while stream.write_chunk(chunk.clone()).is_ok() {
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
                let connection = connect()?;
                samples.push(start.elapsed());
                connection.close(0, "");
            }
            Ok(latencies(samples))
        }
        Test::RequestResponse => {
            let connection = connect()?;
            let (mut send, mut recv) = connection.open_bi()?;
            let mut response = [0; REQUEST_LEN];
            let started = Instant::now();
            let mut samples = Vec::new();
            while started.elapsed().as_secs_f64() < timing.warm_up + timing.time {
                let start = Instant::now();
                send.write_all(&[7; REQUEST_LEN])?;
                send.flush()?;
                recv.read_exact(&mut response)?;
                if started.elapsed().as_secs_f64() > timing.warm_up {
                    samples.push(start.elapsed());
                }
            }
            Ok(latencies(samples))
        }
        Test::Idle => {
            let mut kept = Vec::with_capacity(IDLE_CONNECTIONS);
            for _ in 0..IDLE_CONNECTIONS {
                kept.push(connect()?);
            }
            std::thread::sleep(Duration::from_millis(500));
            let bytes = (usage::resident_bytes() as f64 - before as f64) / IDLE_CONNECTIONS as f64;
            std::mem::forget((kept, endpoint));
            Ok(Figures { bytes_per_connection: Some(bytes), ..Figures::default() })
        }
    }
}
