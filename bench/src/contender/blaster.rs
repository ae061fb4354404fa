//! The upper limit as a program: the work that remains of a transport when nothing can be lost.
//!
//! ```text
//!   chunk ── copy ──▶ batch: 13-byte header | payload | tag ── one sendmsg (GSO) ──▶ veth
//!   veth ── one recvmmsg (GRO, up to 16 batches) ──▶ open in place ── copy ──▶ the application's buffer
//! ```
//!
//! Each packet has a header of QUIC's shape (flags, an 8-byte connection ID, a 4-byte number) as
//! its associated data, a nonce made as in RFC 9001, section 5.3, and AES-128-GCM's tag. There is
//! no header protection, no acknowledgement, no retransmission, no congestion control.
//!
//! A sender without feedback makes the kernel process datagrams that the receiver's socket then
//! drops, so the receiver grants credit: a datagram every few batches, with the number up to which
//! it has received. The better of both is the limit, so that it is not understated. On two cores of
//! an AMD EPYC with other load, medians of two runs of a second each: 14.5 Gb/s with credit and
//! 14.2 without at MTU 1500, where 3 % were lost; 17.8 and 17.7 at MTU 9000. The sender's core
//! limits both: it also runs the receiving half of the network stack. `BLASTER_WINDOW_BATCHES` in
//! the driver's environment sets another window; a very large one disables the credit.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use net::{
    BATCH_BYTES_MAX, DatagramSocket, RECV_BUFFER_BYTES, RecvMeta, SendError, Transmit, UdpSocket, UdpSocketOptions,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Background, Failure, Server};
use crate::meter::BulkMeter;
use crate::work::{CHUNK_LEN, Figures, Job, SOCKET_BUFFER};

/// Flags, connection ID, packet number.
const HEADER_LEN: usize = 13;
/// The offset of the packet number.
const NUMBER_AT: usize = 9;
const TAG_LEN: usize = 16;
/// Buffers per receive call, as many as Litz's.
const RECV_BUFFERS: usize = 16;
/// Batches that may be in flight. More leave the processor's caches, fewer make both sides wait for
/// each other.
const WINDOW_BATCHES: u32 = 16;
/// Batches between credit grants.
const GRANT_BATCHES: usize = 4;
/// After this time without credit the sender continues: the credit was lost.
const CREDIT_TIMEOUT: Duration = Duration::from_millis(20);
/// The credit that ends the run.
const STOP: u64 = u64::MAX;

/// Whether packets are sealed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    Aes128Gcm,
    /// Copied only.
    Clear,
}

/// The cipher with a key that both sides know.
struct Cipher {
    key: Option<LessSafeKey>,
    iv: [u8; 12],
}

impl Cipher {
    fn new(protection: Protection) -> Result<Self, Failure> {
        let key = match protection {
            Protection::Aes128Gcm => Some(LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[0x42; 16])?)),
            Protection::Clear => None,
        };
        Ok(Self { key, iv: [0x17; 12] })
    }

    fn tag_len(&self) -> usize {
        if self.key.is_some() { TAG_LEN } else { 0 }
    }

    fn nonce(&self, number: u32) -> Nonce {
        let mut nonce = self.iv;
        for (byte, with) in nonce[8..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= with;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    /// Copies `payload` into `packet`, behind a header, and seals it there.
    fn seal(&self, number: u32, payload: &[u8], packet: &mut [u8]) -> Result<(), Failure> {
        let (header, rest) = packet.split_at_mut(HEADER_LEN);
        header[0] = 0x43;
        header[NUMBER_AT..].copy_from_slice(&number.to_be_bytes());
        let (body, tag) = rest.split_at_mut(payload.len());
        body.copy_from_slice(payload);
        if let Some(key) = &self.key {
            let made = key.seal_in_place_separate_tag(self.nonce(number), Aad::from(&*header), body)?;
            tag.copy_from_slice(made.as_ref());
        }
        Ok(())
    }

    /// Opens `packet` in place: its number and its payload, or `None` if it is not authentic.
    fn open<'a>(&self, packet: &'a mut [u8]) -> Option<(u32, &'a [u8])> {
        let (header, body) = packet.split_at_mut_checked(HEADER_LEN)?;
        let number = u32::from_be_bytes(header[NUMBER_AT..].try_into().ok()?);
        let payload = match &self.key {
            Some(key) => key.open_in_place(self.nonce(number), Aad::from(&*header), body).ok()?,
            None => body,
        };
        Some((number, payload))
    }
}

/// A batch of datagrams of one size that are sent with one call.
#[derive(Clone, Copy)]
struct Shape {
    datagram: usize,
    payload: usize,
    datagrams: usize,
}

impl Shape {
    fn new(job: &Job, cipher: &Cipher, segments_max: usize) -> Self {
        let datagram = usize::from(job.datagram_size());
        let datagrams = (BATCH_BYTES_MAX / datagram).min(segments_max);
        Self { datagram, payload: datagram - HEADER_LEN - cipher.tag_len(), datagrams }
    }
}

fn socket(bind: SocketAddr) -> Result<UdpSocket, Failure> {
    Ok(UdpSocket::open(
        &UdpSocketOptions::new(bind).with_send_buffer_bytes(SOCKET_BUFFER).with_recv_buffer_bytes(SOCKET_BUFFER),
    )?)
}

/// Waits for `flags` on `socket`, or until `timeout`.
fn wait(socket: &UdpSocket, flags: PollFlags, timeout: Option<Duration>) -> Result<(), Failure> {
    let timeout = timeout
        .map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) });
    poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), flags)], timeout.as_ref())?;
    Ok(())
}

fn send(socket: &mut UdpSocket, transmit: &Transmit<'_>) -> Result<(), Failure> {
    loop {
        match socket.send(transmit) {
            Ok(()) => return Ok(()),
            Err(SendError::WouldBlock) => wait(socket, PollFlags::OUT, None)?,
            Err(SendError::NoBuffers) => std::thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
    }
}

pub fn server(protection: Protection, job: &Job, listen: SocketAddr) -> Result<Box<dyn Server>, Failure> {
    let socket = socket(listen)?;
    let address = socket.local_addr()?;
    let figures = Arc::new(Mutex::new(Figures::default()));
    let (shared, job) = (figures.clone(), *job);
    std::thread::spawn(move || sink(socket, &Cipher::new(protection)?, &job, &shared));
    Ok(Box::new(Background { address, figures }))
}

/// Receives until the time is over.
fn sink(mut socket: UdpSocket, cipher: &Cipher, job: &Job, figures: &Mutex<Figures>) -> Result<(), Failure> {
    let mut memory = vec![vec![0; RECV_BUFFER_BYTES]; RECV_BUFFERS];
    let mut metas = [RecvMeta::default(); RECV_BUFFERS];
    let mut application = vec![0; RECV_BUFFER_BYTES];
    let mut meter = BulkMeter::new(job);
    let (mut next, mut received, mut batches) = (0, 0, 0);
    loop {
        let mut buffers: Vec<&mut [u8]> = memory.iter_mut().map(|buffer| &mut buffer[..]).collect();
        let count = match socket.recv(&mut buffers, &mut metas) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(&socket, PollFlags::IN, None)?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let mut going_on = true;
        for (buffer, meta) in memory.iter_mut().zip(&metas[..count]) {
            let mut filled = 0;
            for packet in buffer[..meta.len].chunks_mut(meta.stride) {
                let Some((number, payload)) = cipher.open(packet) else { continue };
                application[filled..filled + payload.len()].copy_from_slice(payload);
                filled += payload.len();
                next = next.max(u64::from(number) + 1);
                received += 1;
            }
            std::hint::black_box(&mut application);
            going_on = meter.note(filled);
        }
        let mut measured = meter.figures();
        measured.packets_lost = Some(next - received);
        *figures.lock().expect("no thread panics") = measured;
        batches += count;
        if going_on && batches < GRANT_BATCHES {
            continue;
        }
        batches = 0;
        let credit = if going_on { next } else { STOP };
        let contents = &credit.to_be_bytes();
        let to = metas[0].source;
        send(&mut socket, &Transmit { destination: to, source_ip: None, ecn: None, contents, segment_size: None })?;
    }
}

/// The credit that the receiver has granted.
struct Credit {
    /// The receiver has everything below.
    seen: u64,
    window: u64,
    buffer: Vec<u8>,
}

impl Credit {
    /// Processes the credit that has arrived and waits until `next` may be sent; false when the run
    /// is over.
    fn admit(&mut self, socket: &mut UdpSocket, next: u64) -> Result<bool, Failure> {
        // Checking costs a system call: not while half the window is left.
        if next < self.seen.saturating_add(self.window / 2) {
            return Ok(true);
        }
        let mut asked = Instant::now();
        loop {
            let mut meta = [RecvMeta::default()];
            match socket.recv(&mut [&mut self.buffer], &mut meta) {
                Ok(_) => {
                    for word in self.buffer[..meta[0].len].chunks_exact(8) {
                        self.seen = self.seen.max(u64::from_be_bytes(word.try_into().expect("eight bytes")));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if next < self.seen.saturating_add(self.window) {
                        return Ok(true);
                    }
                    wait(socket, PollFlags::IN, Some(CREDIT_TIMEOUT))?;
                    if asked.elapsed() > CREDIT_TIMEOUT {
                        self.seen = next;
                    }
                }
                // The server has exited.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(false),
                Err(error) => return Err(error.into()),
            }
            if self.seen == STOP {
                return Ok(false);
            }
            if self.seen == next {
                asked = Instant::now();
            }
        }
    }
}

pub fn drive(protection: Protection, job: &Job, remote: SocketAddr) -> Result<Figures, Failure> {
    let cipher = Cipher::new(protection)?;
    let mut socket = socket(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
    let shape = Shape::new(job, &cipher, socket.max_gso_segments());
    let batches = std::env::var("BLASTER_WINDOW_BATCHES").ok().and_then(|v| v.parse().ok()).unwrap_or(WINDOW_BATCHES);
    let window = u64::from(batches) * shape.datagrams as u64;
    let mut credit = Credit { seen: 0, window, buffer: vec![0; RECV_BUFFER_BYTES] };
    let chunk = vec![0x5a; CHUNK_LEN];
    let mut batch = vec![0; shape.datagram * shape.datagrams];
    let mut meter = BulkMeter::new(job);
    let mut number = 0_u32;
    while credit.admit(&mut socket, u64::from(number))? {
        for (packet, payload) in batch.chunks_exact_mut(shape.datagram).zip(chunk.chunks_exact(shape.payload)) {
            cipher.seal(number, payload, packet)?;
            number += 1;
        }
        let segment_size = Some(shape.datagram);
        let transmit = Transmit { destination: remote, source_ip: None, ecn: None, contents: &batch, segment_size };
        send(&mut socket, &transmit)?;
        meter.note(shape.payload * shape.datagrams);
    }
    Ok(meter.sender_figures())
}
