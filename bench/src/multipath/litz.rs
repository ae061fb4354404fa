//! Litz: a socket for each link, bound to its device, and blocking calls.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use litz::{
    Connection, Endpoint, EndpointConfig, PathStats, Placement, RecvStream, StridedBytes, TransportConfig,
    UdpSocketOptions,
};

use super::arrivals::{Arrivals, Content};
use super::case::Workload;
use super::contender::Controller;
use super::side::{
    Drive, PathSample, REQUEST_LEN, Received, Sample, Sent, Serve, WARM_UP_S, report_connected, report_ready, until_ns,
};
use super::world::device_at;
use crate::contender::Failure;
use crate::meter::{Exchanges, monotonic_ns};
use crate::tls;
use crate::work::{SOCKET_BUFFER, Timing};

/// Ethernet's 1500 bytes without the headers of IPv4 and UDP.
const DATAGRAM_SIZE: usize = 1472;
/// Paths that both sides allow.
const PATHS_MAX: u32 = 32;
/// Threads that write segments in the file shape.
const FILE_THREADS: usize = 4;
/// Bytes of a segment, and so of a stream of the file shape.
const SEGMENT_BYTES: u64 = 4 << 20;
/// The interval at which paths are sampled.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Bytes of a response, at most.
const MESSAGE_LEN_MAX: usize = 4096;

/// How Litz is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Several threads, one stream per segment.
    File,
    /// One ordered stream.
    Stream,
    /// The same, with multipath not negotiated.
    PlainStream,
    /// Messages.
    Messages,
}

fn config(shape: Shape, controller: Controller, addresses: &[SocketAddr]) -> EndpointConfig {
    let socket = |&bind: &SocketAddr| {
        UdpSocketOptions::new(bind)
            .with_device(device_at(bind.ip()))
            .with_send_buffer_bytes(SOCKET_BUFFER)
            .with_recv_buffer_bytes(SOCKET_BUFFER)
    };
    let congestion = match controller {
        Controller::Cubic => "cubic",
        Controller::Bbr => "bbr",
    };
    let mut transport = TransportConfig::default()
        .with_datagram_size(DATAGRAM_SIZE)
        .with_congestion(congestion.parse().expect("Litz has it"))
        .with_max_paths(if shape == Shape::PlainStream { 0 } else { PATHS_MAX });
    if shape == Shape::File {
        transport = ::transfer::transport(transport);
    }
    EndpointConfig::default()
        .with_sockets(addresses.iter().map(socket).collect())
        .with_placement(Placement::Thread)
        .with_transport(transport)
        .with_message_len_max(MESSAGE_LEN_MAX)
}

pub fn serve(shape: Shape, serve: &Serve) -> Result<Received, Failure> {
    let addresses: Vec<SocketAddr> = serve.listen.iter().map(|&ip| SocketAddr::new(ip, 0)).collect();
    let mut config = config(shape, serve.controller, &addresses);
    config.server_tls = Some(tls::server());
    let endpoint = Endpoint::bind(config)?;
    report_ready(endpoint.local_addrs())?;
    let connection = endpoint.accept()?;
    let mut received = match (serve.workload, shape) {
        (Workload::Bulk, Shape::File) => sink_file(&connection)?,
        (Workload::Bulk, _) => sink_stream(&connection)?,
        (Workload::Exchanges, Shape::Messages) => {
            while let Ok(message) = connection.recv_message() {
                if connection.send_message(message).is_err() {
                    break;
                }
            }
            Received::default()
        }
        (Workload::Exchanges, _) => {
            // A peer that disconnects ends its echo.
            drop(echo(&connection));
            Received::default()
        }
    };
    received.packets_duplicate = Some(connection.stats().receive.packets_duplicate);
    received.note_usage();
    // The last acknowledgements must be sent.
    connection.closed_timeout(Duration::from_secs(5));
    Ok(received)
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

fn sink_stream(connection: &Connection) -> Result<Received, Failure> {
    let mut stream = connection.accept_uni()?;
    let (mut arrivals, content) = (Arrivals::new(), Content::new());
    let mut faults = 0;
    while let Some(strip) = stream.read_strided()? {
        faults += faults_in(&content, arrivals.bytes, &strip);
        arrivals.note(strip.len());
    }
    Ok(Received { arrivals: Some(arrivals), faults, ..Received::default() })
}

/// The number of pieces at `offset` that differ from what was sent.
fn faults_in(content: &Content, mut offset: u64, strip: &StridedBytes) -> u64 {
    let mut faults = 0;
    for piece in strip.pieces() {
        faults += u64::from(!content.is_right(offset, piece));
        offset += piece.len() as u64;
    }
    faults
}

/// Accepts streams until the connection ends.
fn sink_file(connection: &Connection) -> Result<Received, Failure> {
    let (arrivals, content, faults) = (Mutex::new(Arrivals::new()), Content::new(), AtomicU64::new(0));
    let take = |mut stream: RecvStream| -> Result<(), Failure> {
        let mut offset = 0;
        while let Some(strip) = stream.read_strided()? {
            faults.fetch_add(faults_in(&content, offset, &strip), Ordering::Relaxed);
            offset += strip.len() as u64;
            arrivals.lock().expect("no thread panics").note(strip.len());
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        for _ in 0..::transfer::STREAMS_MAX {
            scope.spawn(|| {
                // Accepting fails when the connection is over, which is the end. Truncated streams
                // show in the count.
                while let Ok(stream) = connection.accept_uni() {
                    if take(stream).is_err() {
                        break;
                    }
                }
            });
        }
    });
    let arrivals = arrivals.into_inner().map_err(|_| "a thread panicked")?;
    Ok(Received { arrivals: Some(arrivals), faults: faults.into_inner(), ..Received::default() })
}

pub fn drive(shape: Shape, drive: &Drive, remotes: &[SocketAddr]) -> Result<Sent, Failure> {
    let addresses: Vec<SocketAddr> = drive.from.iter().map(|&ip| SocketAddr::new(ip, 0)).collect();
    let endpoint = Endpoint::bind(config(shape, drive.controller, &addresses))?;
    let begun_ns = monotonic_ns();
    let first = *remotes.first().ok_or("nowhere to connect to")?;
    let connection = endpoint.connect_from(0, first, "localhost", tls::client())?;
    let connected_ns = report_connected()?;
    for (index, &remote) in remotes.iter().enumerate().skip(1) {
        connection.open_path(index, remote, false)?;
    }
    let over = AtomicBool::new(false);
    let mut sent = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&connection, &over));
        let sent = match (drive.workload, shape) {
            (Workload::Bulk, Shape::File) => pour_file(&connection, drive, connected_ns),
            (Workload::Bulk, _) => pour_stream(&connection, drive, connected_ns),
            (Workload::Exchanges, Shape::Messages) => exchange_messages(&connection, drive),
            (Workload::Exchanges, _) => exchange(&connection, drive),
        };
        over.store(true, Ordering::Relaxed);
        let samples = watcher.join().map_err(|_| "the watcher panicked")?;
        Ok::<_, Failure>(Sent { samples, ..sent? })
    })?;
    (sent.begun_ns, sent.connected_ns) = (begun_ns, connected_ns);
    sent.note_usage();
    connection.close(0, "");
    drop(connection);
    drop(endpoint);
    Ok(sent)
}

fn pour_stream(connection: &Connection, drive: &Drive, connected_ns: u64) -> Result<Sent, Failure> {
    let until = until_ns(connected_ns, drive.time);
    let chunk = Content::new().chunk();
    let mut sent = Sent::default();
    let mut stream = connection.open_uni()?;
    while monotonic_ns() < until {
        stream.write_chunk(chunk.clone())?;
        sent.bytes += chunk.len() as u64;
    }
    sent.written_ns = monotonic_ns();
    stream.finish()?;
    stream.wait_finished()?;
    sent.done_ns = monotonic_ns();
    Ok(sent)
}

fn pour_file(connection: &Connection, drive: &Drive, connected_ns: u64) -> Result<Sent, Failure> {
    let until = until_ns(connected_ns, drive.time);
    let chunk = Content::new().chunk();
    let work = || -> Result<(u64, u64), Failure> {
        let mut bytes = 0;
        let mut ended = Vec::new();
        while monotonic_ns() < until {
            let mut stream = connection.open_uni()?;
            let mut offset = 0;
            while offset < SEGMENT_BYTES && monotonic_ns() < until {
                stream.write_chunk(chunk.clone())?;
                offset += chunk.len() as u64;
            }
            stream.finish()?;
            bytes += offset;
            ended.push(stream);
        }
        let written_ns = monotonic_ns();
        for mut stream in ended {
            stream.wait_finished()?;
        }
        Ok((bytes, written_ns))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..FILE_THREADS).map(|_| scope.spawn(work)).collect();
        let mut sent = Sent::default();
        for thread in threads {
            let (bytes, written_ns) = thread.join().map_err(|_| "a thread panicked")??;
            sent.bytes += bytes;
            sent.written_ns = sent.written_ns.max(written_ns);
        }
        sent.done_ns = monotonic_ns();
        Ok(sent)
    })
}

fn timing(drive: &Drive) -> Timing {
    Timing { warm_up: WARM_UP_S, time: drive.time }
}

fn exchange(connection: &Connection, drive: &Drive) -> Result<Sent, Failure> {
    let (mut send, mut recv) = connection.open_bi()?;
    let mut response = [0; REQUEST_LEN];
    let mut exchanges = Exchanges::new(timing(drive));
    while let Some(begun) = exchanges.begin() {
        send.write_all(&[7; REQUEST_LEN])?;
        send.flush()?;
        recv.read_exact(&mut response)?;
        if response != [7; REQUEST_LEN] {
            return Err("a response that is not the request".into());
        }
        exchanges.end(begun);
    }
    let mut sent = Sent::default();
    sent.note_exchanges(&exchanges);
    Ok(sent)
}

fn exchange_messages(connection: &Connection, drive: &Drive) -> Result<Sent, Failure> {
    let request = Bytes::from_static(&[7; REQUEST_LEN]);
    let mut exchanges = Exchanges::new(timing(drive));
    while let Some(begun) = exchanges.begin() {
        connection.send_message(request.clone())?;
        if connection.recv_message()? != request {
            return Err("a response that is not the request".into());
        }
        exchanges.end(begun);
    }
    let mut sent = Sent::default();
    sent.note_exchanges(&exchanges);
    Ok(sent)
}

/// Samples the paths until the connection is over.
fn watch(connection: &Connection, over: &AtomicBool) -> Vec<Sample> {
    let mut samples = Vec::new();
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(SAMPLE_EVERY);
        let stats = connection.stats();
        samples.push(Sample {
            at_ns: monotonic_ns(),
            held_bytes: stats.send.held_bytes,
            probe_timeouts: stats.send.probe_timeouts,
            paths: stats.paths.iter().map(path_sample).collect(),
        });
    }
    samples
}

fn path_sample(path: &PathStats) -> PathSample {
    let us = |duration: litz::units::Duration| Duration::from(duration).as_micros() as u64;
    PathSample {
        id: path.id.0,
        state: path.state.name().to_owned(),
        srtt_us: us(path.round_trip),
        min_rtt_us: us(path.round_trip_min),
        window: path.congestion.window,
        in_flight: path.in_flight_bytes,
        phase: path.congestion.phase.to_owned(),
        sent: path.packets_sent,
        lost: path.packets_lost,
        bytes_sent: path.bytes_sent,
        bytes_acked: path.bytes_acked,
        silences: path.silences,
    }
}
