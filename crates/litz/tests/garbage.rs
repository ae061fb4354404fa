//! A flood of garbage at a receiver's port during a transfer: from unrelated addresses, from
//! unrelated addresses with the connection's ID, and with the sender's own address. Shared by the
//! test and by `benches/flood.rs`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use litz::{Endpoint, LiveSocket, Placement, UdpSocket, UdpSocketOptions};
use net::testing::{Intercept, InterceptedSocket};
use net::{DatagramSocket, MonotonicClock, RecvMeta, SendError, Transmit};
use recovery::RateCap;
use units::{Duration, Rate, Rng};

use crate::world::{Variant, Wire, World};

/// Number of datagrams per second.
pub(crate) const FLOOD_RATE: u64 = 100_000;

/// Bytes that may leave at once under a cap: a few batches.
const BURST: u64 = 256 << 10;

/// Bytes of the longest piece of garbage.
const GARBAGE_LEN_MAX: u64 = 1_400;

/// Length of the connection ID that follows the first byte of a short header; the receiver chooses
/// it.
const ID_LEN: usize = 8;

/// The pattern that is written repeatedly, so that the received bytes can be checked.
const PATTERN_LEN: usize = 64 << 10;

/// The kind of garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Random bytes.
    Noise,
    /// Random bytes after the connection's ID, from an unrelated address.
    Addressed,
    /// The same from the sender's own address: each packet must be opened to be detected.
    Forged,
}

/// The target of the flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The socket of the transfer's receiver.
    Receiver,
    /// Another socket of the same machine, which is never read.
    Elsewhere,
}

/// The result of one transfer under a flood.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) span: Duration,
    /// Bytes that the application has read, and checked.
    pub(crate) arrived: u64,
    /// Garbage datagrams passed to the system.
    pub(crate) offered: u64,
    /// Garbage datagrams that the receiver's engine read from the system.
    pub(crate) taken: u64,
    /// Packets that the sender declared lost.
    pub(crate) lost: u64,
    /// The receiver's counts of accepted and rejected packets.
    pub(crate) stray: u64,
    pub(crate) unauthentic: u64,
}

impl Run {
    /// Returns the goodput in megabits per second.
    pub(crate) fn goodput(&self) -> f64 {
        self.arrived as f64 * 8.0 / 1e6 / self.span.as_secs_f64()
    }
}

/// The observations of the wrapped sockets.
#[derive(Default)]
struct Seen {
    /// The receiver's connection ID, as on the sender's packets.
    id: Mutex<Option<[u8; ID_LEN]>>,
    /// Datagrams from addresses other than the sender's.
    from_others: AtomicU64,
    sender: Mutex<Option<SocketAddr>>,
}

/// Observes the datagrams that a socket sends and receives.
struct Watch {
    is_receiver: bool,
    seen: Arc<Seen>,
}

impl Intercept for Watch {
    fn send(&mut self, inner: &mut dyn DatagramSocket, transmit: &Transmit<'_>) -> Result<(), SendError> {
        if !self.is_receiver && transmit.contents[0] & 0x80 == 0 {
            let id = transmit.contents[1..=ID_LEN].try_into().expect("a short header holds an ID");
            self.seen.id.lock().unwrap().get_or_insert(id);
        }
        inner.send(transmit)
    }

    fn recv(
        &mut self,
        inner: &mut dyn DatagramSocket,
        buffers: &mut [&mut [u8]],
        metas: &mut [RecvMeta],
    ) -> io::Result<usize> {
        let count = inner.recv(buffers, metas)?;
        if !self.is_receiver {
            return Ok(count);
        }
        let sender = *self.seen.sender.lock().unwrap();
        let from_others = metas[..count].iter().filter(|meta| Some(meta.source) != sender);
        let datagrams: usize = from_others.map(|meta| meta.len.div_ceil(meta.stride)).sum();
        self.seen.from_others.fetch_add(datagrams as u64, Ordering::Relaxed);
        Ok(count)
    }
}

fn socket() -> UdpSocket {
    UdpSocket::open(&UdpSocketOptions::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))).expect("a socket on loopback")
}

/// Returns the pattern, for writers to share and readers to compare with.
fn pattern() -> Bytes {
    let mut bytes = vec![0; PATTERN_LEN];
    Rng::from_seed(5).fill(&mut bytes);
    bytes.into()
}

/// A flood, and a transfer in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) target: Target,
    /// Pieces of garbage per second.
    pub(crate) rate: u64,
    /// Maximum rate of the sender.
    pub(crate) cap: Option<Rate>,
    /// Time for which it writes.
    pub(crate) span: Duration,
}

/// Writes for a while during the flood.
pub(crate) fn transfer(plan: Plan) -> Run {
    let Plan { kind, target, rate, cap, span } = plan;
    let world = World::new(Variant { wire: Wire::Udp, placement: Placement::Thread });
    let seen = Arc::new(Seen::default());
    let elsewhere = socket();
    let receiving = InterceptedSocket::new(socket(), Watch { is_receiver: true, seen: seen.clone() });
    let serving = world.server_over(world.config(), Box::new(receiving));
    let address = serving.local_addr();
    let calling = socket();
    *seen.sender.lock().unwrap() = Some(calling.local_addr().expect("it is bound"));
    // The same system socket, so that its datagrams have the sender's address.
    let sender_socket = std::net::UdpSocket::from(calling.as_fd().try_clone_to_owned().expect("a descriptor"));
    let own = std::net::UdpSocket::from(socket().as_fd().try_clone_to_owned().expect("a descriptor"));
    let flooding = if kind == Kind::Forged { sender_socket } else { own };
    let destination = if target == Target::Receiver { address } else { elsewhere.local_addr().expect("it is bound") };

    let sockets: Vec<Box<dyn LiveSocket>> =
        vec![Box::new(InterceptedSocket::new(calling, Watch { is_receiver: false, seen: seen.clone() }))];
    let mut config = world.config();
    config.transport.rate_cap = cap.map(|rate| RateCap { rate, burst: BURST });
    let client = Endpoint::with_sockets(config, sockets).expect("an endpoint");
    let (over, clock) = (AtomicBool::new(false), MonotonicClock::start());
    std::thread::scope(|scope| {
        let serving = &serving;
        let reading = scope.spawn(move || {
            let connection = serving.accept().expect("a client");
            let mut stream = connection.accept_uni().expect("a stream");
            let mut arrived = 0;
            let pattern = pattern();
            while let Some(bytes) = stream.read_strided().expect("no error") {
                bytes.pieces().for_each(|piece| arrived = check(&pattern, arrived, piece));
            }
            let stats = connection.stats();
            connection.open_uni().expect("a stream").finish().expect("an end");
            connection.closed();
            (arrived, stats)
        });
        let connection = world.connect(&client, address);
        let mut stream = connection.open_uni().expect("a stream");
        stream.write_chunk(pattern()).expect("the connection lives");
        let id = wait_for_id(&seen);
        let (flooding, over) = (&flooding, &over);
        let flood = scope.spawn(move || flood(flooding, destination, (kind, id), rate, over));
        let (begun, chunk) = (clock.now(), pattern());
        while clock.now() - begun < span {
            stream.write_chunk(chunk.clone()).expect("the connection lives");
        }
        stream.finish().expect("an end");
        let answered = connection.accept_uni().expect("an answer").read_chunk().expect("no error");
        assert!(answered.is_none(), "the answer is an end");
        let took = clock.now() - begun;
        over.store(true, Ordering::Relaxed);
        let offered = flood.join().expect("the flood");
        let lost = connection.stats().send.packets_lost;
        connection.close(0, "done");
        let (arrived, receiver) = reading.join().expect("the reader");
        let (stray, unauthentic) = (receiver.receive.datagrams_stray, receiver.receive.packets_unauthentic);
        let taken = if kind == Kind::Forged { unauthentic } else { seen.from_others.load(Ordering::Relaxed) };
        Run { span: took, arrived, offered, taken, lost, stray, unauthentic }
    })
}

/// Checks bytes that begin at offset `at` of the stream; returns the offset after them.
fn check(pattern: &[u8], mut at: u64, mut bytes: &[u8]) -> u64 {
    while !bytes.is_empty() {
        let from = at as usize % PATTERN_LEN;
        let len = bytes.len().min(PATTERN_LEN - from);
        assert!(bytes[..len] == pattern[from..from + len], "wrong bytes at offset {at}");
        bytes = &bytes[len..];
        at += len as u64;
    }
    at
}

fn wait_for_id(seen: &Seen) -> [u8; ID_LEN] {
    loop {
        if let Some(id) = *seen.id.lock().unwrap() {
            return id;
        }
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "a flood is paced by sleeping")]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(1));
}

/// Sends garbage at `rate` until `over` is set; returns the number of datagrams sent. Each datagram
/// takes a call of its own, as from many senders.
fn flood(
    socket: &std::net::UdpSocket,
    destination: SocketAddr,
    (kind, id): (Kind, [u8; ID_LEN]),
    rate: u64,
    over: &AtomicBool,
) -> u64 {
    let mut rng = Rng::from_seed(9);
    let mut bytes = vec![0; 2 * GARBAGE_LEN_MAX as usize];
    rng.fill(&mut bytes);
    let (clock, mut offered) = (MonotonicClock::start(), 0);
    while !over.load(Ordering::Relaxed) {
        let due = clock.now().since_start().as_micros() * rate / 1_000_000;
        while offered < due && !over.load(Ordering::Relaxed) {
            let len = rng.between(30, GARBAGE_LEN_MAX) as usize;
            let from = rng.below(GARBAGE_LEN_MAX) as usize;
            let garbage = &mut bytes[from..from + len];
            // The bytes differ each time, at little cost.
            garbage[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
            garbage[len - 8..].copy_from_slice(&rng.next_u64().to_le_bytes());
            if kind != Kind::Noise {
                garbage[0] = garbage[0] & 0x3f | 0x40;
                garbage[1..=ID_LEN].copy_from_slice(&id);
            }
            // A full queue may drop some; only sent datagrams are counted.
            if socket.send_to(garbage, destination).is_ok() {
                offered += 1;
            } else {
                pause();
            }
        }
        pause();
    }
    offered
}
