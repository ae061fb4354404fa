//! quiche, which does no I/O: a plain loop around it, with the same sockets (GSO, GRO) as Litz, one
//! thread per side.
//!
//! Its packets are written one after the other into one buffer, which is sent with one call. Stream
//! data are passed without a copy, as with the others. BoringSSL prefers AES-128-GCM on processors
//! with AES instructions.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use net::{
    BATCH_BYTES_MAX, DatagramSocket, RECV_BUFFER_BYTES, RecvMeta, SendError, Transmit, UdpSocket, UdpSocketOptions,
};
use quiche::{BufFactory, BufSplit, Config, ConnectionId, RecvInfo};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Background, Failure, Server};
use crate::meter::{BulkMeter, Exchanges};
use crate::tls;
use crate::work::{CHUNK_LEN, Figures, IDLE_TIMEOUT, Job, REQUEST_LEN, SOCKET_BUFFER, Test, WINDOW};

/// The client's first unidirectional stream (RFC 9000, section 2.1).
const UNI: u64 = 2;
/// The client's first bidirectional stream.
const BIDI: u64 = 0;
/// Buffers per receive call, as many as Litz's.
const RECV_BUFFERS: usize = 16;
/// Chunks waiting in a sending stream: enough to keep it busy, as a send buffer of [`WINDOW`]
/// would.
const QUEUED_MAX: usize = WINDOW as usize / CHUNK_LEN;

/// Stream data without copies.
#[derive(Clone, Debug, Default)]
struct Shared;

#[derive(Clone, Debug)]
struct Chunk(Bytes);

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl BufSplit for Chunk {
    fn split_at(&mut self, at: usize) -> Self {
        Self(self.0.split_off(at))
    }
}

impl BufFactory for Shared {
    type Buf = Chunk;
    type DgramBuf = Vec<u8>;

    fn buf_from_slice(buf: &[u8]) -> Chunk {
        Chunk(Bytes::copy_from_slice(buf))
    }

    fn dgram_buf_from_slice(buf: &[u8]) -> Vec<u8> {
        buf.to_vec()
    }
}

type Connection = quiche::Connection<Shared>;

fn config(job: &Job) -> Result<Config, Failure> {
    let (window, datagram) = (u64::from(WINDOW), usize::from(job.datagram_size()));
    let mut config = Config::new(quiche::PROTOCOL_VERSION)?;
    config.set_application_protos(&[tls::ALPN])?;
    config.verify_peer(false);
    config.set_max_idle_timeout(IDLE_TIMEOUT.as_millis() as u64);
    config.set_max_recv_udp_payload_size(datagram);
    config.set_max_send_udp_payload_size(datagram);
    config.discover_pmtu(false);
    config.set_initial_max_data(window);
    config.set_initial_max_stream_data_uni(window);
    config.set_initial_max_stream_data_bidi_local(window);
    config.set_initial_max_stream_data_bidi_remote(window);
    config.set_max_connection_window(window);
    config.set_max_stream_window(window);
    config.set_initial_max_streams_uni(16);
    config.set_initial_max_streams_bidi(16);
    config.set_cc_algorithm(quiche::CongestionControlAlgorithm::CUBIC);
    // No pacing by the kernel's clock here.
    config.enable_pacing(false);
    Ok(config)
}

fn socket(bind: SocketAddr) -> Result<UdpSocket, Failure> {
    Ok(UdpSocket::open(
        &UdpSocketOptions::new(bind).with_send_buffer_bytes(SOCKET_BUFFER).with_recv_buffer_bytes(SOCKET_BUFFER),
    )?)
}

/// A socket and its buffers.
struct Link {
    socket: UdpSocket,
    local: SocketAddr,
    datagram: usize,
    incoming: Vec<Vec<u8>>,
    metas: [RecvMeta; RECV_BUFFERS],
    outgoing: Vec<u8>,
}

impl Link {
    fn new(socket: UdpSocket, local: SocketAddr, job: &Job) -> Self {
        Self {
            socket,
            local,
            datagram: usize::from(job.datagram_size()),
            incoming: vec![vec![0; RECV_BUFFER_BYTES]; RECV_BUFFERS],
            metas: [RecvMeta::default(); RECV_BUFFERS],
            outgoing: vec![0; BATCH_BYTES_MAX],
        }
    }

    /// Receives what is available, at most one call's worth; returns the number of buffers filled.
    fn receive(&mut self) -> Result<usize, Failure> {
        let mut buffers: Vec<&mut [u8]> = self.incoming.iter_mut().map(|buffer| &mut buffer[..]).collect();
        match self.socket.recv(&mut buffers, &mut self.metas) {
            Ok(count) => Ok(count),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Passes the contents of `count` buffers to the connection.
    fn deliver(&mut self, connection: &mut Connection, count: usize) {
        for (buffer, meta) in self.incoming.iter_mut().zip(&self.metas[..count]) {
            for datagram in buffer[..meta.len].chunks_mut(meta.stride) {
                // Datagrams of other connections, or not authentic, are dropped.
                let _taken = connection.recv(datagram, RecvInfo { from: meta.source, to: self.local });
            }
        }
    }

    /// Sends everything the connection has due, batch by batch.
    fn send(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        loop {
            let segments = self.socket.max_gso_segments().min(BATCH_BYTES_MAX / self.datagram);
            let limit = (segments * self.datagram).min(connection.send_quantum().max(self.datagram));
            let (mut filled, mut stride, mut to) = (0, 0, None);
            while filled + self.datagram <= limit {
                let datagram = &mut self.outgoing[filled..filled + self.datagram];
                let (len, info) = match connection.send(datagram) {
                    Ok(sent) => sent,
                    Err(quiche::Error::Done) => break,
                    Err(error) => return Err(error.into()),
                };
                to = Some(info.to);
                if stride == 0 {
                    stride = len;
                }
                filled += len;
                // Only the last datagram of a batch may be shorter, and none may be longer.
                if len != stride || stride != self.datagram {
                    break;
                }
            }
            let Some(destination) = to else { return Ok(()) };
            let segment_size = (filled > stride).then_some(stride);
            let contents = &self.outgoing[..filled];
            push(&mut self.socket, &Transmit { destination, source_ip: None, ecn: None, contents, segment_size })?;
        }
    }

    /// One turn: receive, let the application work, send; waits if nothing has arrived. False when
    /// the connection is over.
    fn turn(
        &mut self,
        connection: &mut Connection,
        mut application: impl FnMut(&mut Connection) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        let count = self.receive()?;
        self.deliver(connection, count);
        if count == 0 && connection.timeout() == Some(Duration::ZERO) {
            connection.on_timeout();
        }
        application(connection)?;
        self.send(connection)?;
        if count == 0 && !connection.is_closed() {
            // Nothing arrived and everything that may leave has left.
            wait(&self.socket, PollFlags::IN, connection.timeout())?;
        }
        Ok(!connection.is_closed())
    }
}

fn push(socket: &mut UdpSocket, transmit: &Transmit<'_>) -> Result<(), Failure> {
    loop {
        match socket.send(transmit) {
            Ok(()) => return Ok(()),
            Err(SendError::WouldBlock) => wait(socket, PollFlags::OUT, None)?,
            Err(SendError::NoBuffers) => std::thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
    }
}

fn wait(socket: &UdpSocket, flags: PollFlags, timeout: Option<Duration>) -> Result<(), Failure> {
    let timeout = timeout
        .map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) });
    poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), flags)], timeout.as_ref())?;
    Ok(())
}

pub fn server(job: &Job, listen: SocketAddr) -> Result<Box<dyn Server>, Failure> {
    let socket = socket(listen)?;
    let address = socket.local_addr()?;
    let mut config = config(job)?;
    let folder = std::env::temp_dir();
    let (certificate, key) = tls::files(&folder)?;
    config.load_cert_chain_from_pem_file(&certificate.to_string_lossy())?;
    config.load_priv_key_from_pem_file(&key.to_string_lossy())?;
    for file in [certificate, key] {
        std::fs::remove_file(file)?;
    }
    let figures = Arc::new(Mutex::new(Figures::default()));
    let (shared, job) = (figures.clone(), *job);
    std::thread::spawn(move || serve(Link::new(socket, address, &job), config, &job, &shared));
    Ok(Box::new(Background { address, figures }))
}

/// Serves one connection, the only one of a run.
fn serve(mut link: Link, mut config: Config, job: &Job, figures: &Mutex<Figures>) -> Result<(), Failure> {
    let mut count = 0;
    while count == 0 {
        wait(&link.socket, PollFlags::IN, None)?;
        count = link.receive()?;
    }
    let id = ConnectionId::from_ref(&[0x51; 8]);
    let from = link.metas[0].source;
    let mut connection = quiche::accept_with_buf_factory(&id, None, link.local, from, &mut config)?;
    link.deliver(&mut connection, count);
    let mut buffer = vec![0; CHUNK_LEN];
    let mut meter = BulkMeter::new(job);
    let mut pending = Vec::new();
    while link.turn(&mut connection, |connection| match job.test {
        Test::RequestResponse => echo(connection, &mut buffer, &mut pending),
        _ => drain(connection, &mut buffer, &mut meter, figures),
    })? {}
    Ok(())
}

/// Reads everything available.
fn drain(
    connection: &mut Connection,
    buffer: &mut [u8],
    meter: &mut BulkMeter,
    figures: &Mutex<Figures>,
) -> Result<(), Failure> {
    while let Ok((len, _)) = connection.stream_recv(UNI, buffer) {
        if !meter.note(len) {
            *figures.lock().expect("no thread panics") = meter.figures();
            // An error because it is already done does not matter.
            let _closed = connection.close(true, 0, b"");
            break;
        }
    }
    Ok(())
}

/// Echoes what is available.
fn echo(connection: &mut Connection, buffer: &mut [u8], pending: &mut Vec<u8>) -> Result<(), Failure> {
    while let Ok((len, _)) = connection.stream_recv(BIDI, buffer) {
        pending.extend_from_slice(&buffer[..len]);
    }
    if !pending.is_empty() {
        let sent = connection.stream_send(BIDI, pending, false)?;
        pending.drain(..sent);
    }
    Ok(())
}

pub fn drive(job: &Job, remote: SocketAddr) -> Result<Figures, Failure> {
    // The connection must know its local address, so the socket needs one: that of the route to the
    // server.
    let probe = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    probe.connect(remote)?;
    let socket = socket(SocketAddr::new(probe.local_addr()?.ip(), 0))?;
    let local = socket.local_addr()?;
    let mut link = Link::new(socket, local, job);
    let id = ConnectionId::from_ref(&[0x43; 8]);
    let mut connection = quiche::connect_with_buffer_factory(Some("localhost"), &id, local, remote, &mut config(job)?)?;
    while !connection.is_established() {
        if !link.turn(&mut connection, |_| Ok(()))? {
            return Err("no handshake".into());
        }
    }
    match job.test {
        Test::Bulk => send_bulk(&mut link, &mut connection, job),
        Test::RequestResponse => ask(&mut link, &mut connection, job),
        _ => Err("not for this contender".into()),
    }
}

/// Writes until the server closes.
fn send_bulk(link: &mut Link, connection: &mut Connection, job: &Job) -> Result<Figures, Failure> {
    let chunk = Chunk(Bytes::from(vec![0x5a; CHUNK_LEN]));
    let mut rest = Some(chunk.clone());
    let mut meter = BulkMeter::new(job);
    while link.turn(connection, |connection| {
        for _ in 0..QUEUED_MAX {
            let next = rest.take().unwrap_or_else(|| chunk.clone());
            let offered = next.clone();
            match connection.stream_send_zc(UNI, next, false) {
                Ok((sent, left)) => {
                    meter.note(sent);
                    rest = left;
                    if rest.is_some() {
                        break;
                    }
                }
                // Out of window, or closed: the next turn shows which.
                Err(_) => {
                    rest = Some(offered);
                    break;
                }
            }
        }
        Ok(())
    })? {}
    Ok(meter.sender_figures())
}

fn ask(link: &mut Link, connection: &mut Connection, job: &Job) -> Result<Figures, Failure> {
    let mut exchanges = Exchanges::new(job.timing);
    let mut buffer = [0; REQUEST_LEN];
    while let Some(begun) = exchanges.begin() {
        connection.stream_send(BIDI, &[7; REQUEST_LEN], false)?;
        link.send(connection)?;
        let mut received = 0;
        while received < REQUEST_LEN {
            let going_on = link.turn(connection, |connection| {
                while let Ok((len, _)) = connection.stream_recv(BIDI, &mut buffer[received..]) {
                    received += len;
                    if received == REQUEST_LEN {
                        break;
                    }
                }
                Ok(())
            })?;
            if !going_on {
                return Err("the server has gone".into());
            }
        }
        exchanges.end(begun);
    }
    Ok(exchanges.figures())
}
