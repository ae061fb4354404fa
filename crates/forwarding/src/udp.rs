//! UDP flows: packets between sockets of this host and datagrams of the connection. A packet that does
//! not fit into a datagram is a message. A flow lives as long as its stream, which carries nothing else
//! than its request and the answer.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::carry::Carried;
use bytes::Bytes;
use forward::address::Address;
use forward::flows::Flows;
use forward::packet::{self, PAYLOAD_LEN_MAX};
use forward::socks::{self, UDP_HEADER_LEN_MAX};
use net::MonotonicClock;
use quic_endpoint::{Connection, DatagramError, RecvStream};
use tokio::net::UdpSocket;
use tokio::sync::{Notify, mpsc};

use super::packet_runs::{Taken, send_all};
use super::session::{Session, Streams};

/// Packets that wait for the answer to the request of their flow; further ones are dropped.
pub(crate) const WAITING_MAX: usize = 16;

/// Packets that are read from a socket before they leave together. More delay the first one.
pub(crate) const BATCH_MAX: usize = 64;

/// The pause after an error of a socket that is not about one packet.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// The flows of one connection.
pub(crate) struct Packets {
    flows: Mutex<Flows<u64, Arc<FlowEnd>>>,
    clock: MonotonicClock,
    /// Packets that were dropped: of no flow, or because a queue was full.
    dropped: AtomicU64,
}

/// The end of a flow on this host.
pub(crate) struct FlowEnd {
    sink: Sink,
    /// Notified when the flow has to end: it was idle, or made way for another one.
    is_over: Notify,
    pub(crate) carried: Carried,
}

/// A flow in the table of its connection.
pub(crate) struct AddedFlow<'a> {
    packets: &'a Packets,
    flow: u64,
    pub(crate) end: Arc<FlowEnd>,
}

impl Drop for AddedFlow<'_> {
    fn drop(&mut self) {
        let _removed = self.packets.lock().remove(&self.flow);
    }
}

/// Packets for the other end that leave together.
#[derive(Default)]
pub(crate) struct Batch {
    datagrams: VecDeque<Bytes>,
}

/// Where packets from the connection go.
enum Sink {
    /// To the target of a socket that has only one.
    Connected(Arc<UdpSocket>),
    /// To the program that sent from this address.
    To(Arc<UdpSocket>, SocketAddr),
    /// To a program that uses SOCKS, after a header with the target's address.
    Socks(Arc<UdpSocket>, SocketAddr, Vec<u8>),
}

/// A packet of any length.
pub type PacketBuffer = Box<[u8; PAYLOAD_LEN_MAX + 1 + UDP_HEADER_LEN_MAX]>;

/// Memory for a packet of any length, with the header of SOCKS.
pub fn packet_buffer() -> PacketBuffer {
    let buffer = vec![0; PAYLOAD_LEN_MAX + 1 + UDP_HEADER_LEN_MAX].into_boxed_slice();
    buffer.try_into().unwrap_or_else(|_| unreachable!("it has this length"))
}

impl FlowEnd {
    pub(crate) fn connected(socket: Arc<UdpSocket>) -> Self {
        Self::of(Sink::Connected(socket))
    }

    pub(crate) fn to(socket: Arc<UdpSocket>, origin: SocketAddr) -> Self {
        Self::of(Sink::To(socket, origin))
    }

    pub(crate) fn socks(socket: Arc<UdpSocket>, client: SocketAddr, target: &Address) -> Self {
        let mut header = Vec::new();
        socks::put_udp_header(target, &mut header);
        Self::of(Sink::Socks(socket, client, header))
    }

    fn of(sink: Sink) -> Self {
        Self { sink, is_over: Notify::new(), carried: Carried::default() }
    }

    /// Hands packets to their socket. What the kernel does not take now is dropped, as on any link. Returns how many
    /// it has taken.
    fn deliver(&self, payloads: &[&[u8]]) -> u64 {
        let taken = match &self.sink {
            Sink::Connected(socket) => send_all(socket, None, payloads),
            Sink::To(socket, origin) => send_all(socket, Some(*origin), payloads),
            Sink::Socks(socket, client, header) => {
                let packets: Vec<Vec<u8>> =
                    payloads.iter().map(|payload| [header.as_slice(), payload].concat()).collect();
                let taken = send_all(socket, Some(*client), &packets.iter().map(Vec::as_slice).collect::<Vec<_>>());
                Taken { bytes: taken.bytes - taken.packets * header.len() as u64, ..taken }
            }
        };
        self.carried.received.fetch_add(taken.bytes, Ordering::Relaxed);
        taken.packets
    }
}

impl Packets {
    pub(crate) fn new(idle_time: units::Duration, count_max: usize) -> Self {
        Self {
            flows: Mutex::new(Flows::new(idle_time, count_max)),
            clock: MonotonicClock::start(),
            dropped: AtomicU64::new(0),
        }
    }

    /// Adds a flow until the result is dropped. If there are too many, the one that was idle longest
    /// ends.
    pub(crate) fn add(&self, flow: u64, end: FlowEnd) -> AddedFlow<'_> {
        let end = Arc::new(end);
        if let Some(displaced) = self.lock().insert(self.clock.now(), flow, Arc::clone(&end)) {
            displaced.is_over.notify_one();
        }
        AddedFlow { packets: self, flow, end }
    }

    /// Ends the flows that were idle too long.
    pub(crate) fn end_idle(&self) {
        let idle = self.lock().poll_idle(self.clock.now());
        idle.iter().for_each(|flow| flow.is_over.notify_one());
    }

    /// Takes packets from the connection. Those of no flow are dropped: their flow may have ended.
    pub(crate) fn deliver<'a>(&self, packets: impl IntoIterator<Item = &'a [u8]>) {
        let (mut current, mut payloads) = (None, Vec::new());
        for bytes in packets {
            let Some((flow, at)) = packet::decode(bytes) else {
                self.drop_packets(1);
                continue;
            };
            if current != Some(flow) {
                self.deliver_to(current, &payloads);
                payloads.clear();
                current = Some(flow);
            }
            payloads.push(&bytes[at..]);
        }
        self.deliver_to(current, &payloads);
    }

    fn deliver_to(&self, flow: Option<u64>, payloads: &[&[u8]]) {
        let Some(flow) = flow else { return };
        let end = self.lock().use_now(self.clock.now(), &flow).cloned();
        let taken = end.map_or(0, |end| end.deliver(payloads));
        self.drop_packets(payloads.len() as u64 - taken);
    }

    fn drop_packets(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Sends a packet of a flow to the other end: with `batch` if it fits into a datagram, else as a message, which
    /// is dropped if the queue for them is full.
    pub(crate) fn send(&self, connection: &Connection, flow: u64, end: &FlowEnd, payload: &[u8], batch: &mut Batch) {
        let _used = self.lock().use_now(self.clock.now(), &flow);
        end.carried.sent.fetch_add(payload.len() as u64, Ordering::Relaxed);
        let bytes = Bytes::from(packet::encode(flow, payload));
        if connection.datagram_len_max().is_some_and(|max| bytes.len() <= max) {
            batch.datagrams.push_back(bytes);
        } else {
            self.send_as_message(connection, bytes);
        }
    }

    fn send_as_message(&self, connection: &Connection, bytes: Bytes) {
        if !matches!(poll_once(connection.send_message_async(bytes)), Some(Ok(()))) {
            self.drop_packets(1);
        }
    }

    /// Sends what is in a batch. Waits for space, so that packets wait in the buffer of their socket, which drops
    /// them when it is full, as any link does.
    pub(crate) async fn flush(&self, connection: &Connection, batch: &mut Batch) {
        let datagrams = &mut batch.datagrams;
        while !datagrams.is_empty() {
            match poll_fn(|context| connection.poll_send_datagrams(datagrams, context.waker())).await {
                Ok(_) => {}
                // The path has changed since.
                Err(DatagramError::Unsupported | DatagramError::TooLarge { .. }) => {
                    if let Some(first) = datagrams.pop_front() {
                        self.send_as_message(connection, first);
                    }
                }
                Err(_) => {
                    self.drop_packets(datagrams.len() as u64);
                    datagrams.clear();
                }
            }
        }
    }

    /// Carries the packets of a connected socket to the other end, until the flow is over.
    pub(crate) async fn carry(
        &self,
        connection: &Connection,
        flow: u64,
        socket: &UdpSocket,
        end: &FlowEnd,
        (mut send, mut recv): Streams,
    ) {
        let (mut buffer, mut batch) = (packet_buffer(), Batch::default());
        let mut over = pin!(is_over(end, &mut recv));
        loop {
            tokio::select! {
                received = socket.recv(buffer.as_mut_slice()) => match received {
                    Ok(len) => {
                        self.send(connection, flow, end, &buffer[..len], &mut batch);
                        // Those that have come meanwhile leave together with it.
                        for _ in 1..BATCH_MAX {
                            let Ok(len) = socket.try_recv(buffer.as_mut_slice()) else { break };
                            self.send(connection, flow, end, &buffer[..len], &mut batch);
                        }
                        self.flush(connection, &mut batch).await;
                    }
                    // The target answers by ICMP that it does not listen: as with any lost packet, the
                    // program has to find out.
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
                    Err(error) => {
                        tracing::debug!(%error, "the socket of a flow");
                        tokio::time::sleep(ERROR_PAUSE).await;
                    }
                },
                () = &mut over => break,
            }
        }
        // It fails only if the connection has ended.
        let _over = send.finish();
    }

    fn lock(&self) -> MutexGuard<'_, Flows<u64, Arc<FlowEnd>>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns when the flow has to end: because of this host, or because its stream does.
async fn is_over(end: &FlowEnd, recv: &mut RecvStream) {
    tokio::select! {
        () = end.is_over.notified() => {}
        // Nothing else than the end may come.
        _ = recv.read_chunk_async() => {}
    }
}

/// A flow that this end has opened, or is opening.
pub(crate) struct Opening {
    /// Packets before the answer has come.
    waiting: mpsc::Sender<Bytes>,
    opened: OnceLock<(u64, Arc<FlowEnd>)>,
}

impl Opening {
    /// A flow, and the packets that wait for its answer.
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<Bytes>) {
        let (waiting, packets) = mpsc::channel(WAITING_MAX);
        (Arc::new(Self { waiting, opened: OnceLock::new() }), packets)
    }

    /// Sends a packet with `batch`, or keeps it until the flow is open; false if the flow has ended.
    pub(crate) fn send(&self, session: &Session, payload: &[u8], batch: &mut Batch) -> bool {
        if self.waiting.is_closed() {
            return false;
        }
        match self.opened.get() {
            Some((flow, end)) => session.packets.send(&session.connection, *flow, end, payload, batch),
            // Those that come too fast are dropped, as on any link.
            None => drop(self.waiting.try_send(Bytes::copy_from_slice(payload))),
        }
        true
    }

    /// Keeps the flow open until it is over. `waiting` is the other end of [`new`](Self::new).
    pub(crate) async fn run(
        &self,
        connection: &Connection,
        packets: &Packets,
        end: &Arc<FlowEnd>,
        mut waiting: mpsc::Receiver<Bytes>,
        (mut send, mut recv): Streams,
    ) {
        let flow = send.id().raw();
        // Those that waited go first, but for one that comes between these two steps: packets may be
        // reordered, as on any link.
        let _first = self.opened.set((flow, Arc::clone(end)));
        let mut batch = Batch::default();
        while let Ok(packet) = waiting.try_recv() {
            packets.send(connection, flow, end, &packet, &mut batch);
        }
        packets.flush(connection, &mut batch).await;
        let mut over = pin!(is_over(end, &mut recv));
        loop {
            tokio::select! {
                Some(packet) = waiting.recv() => {
                    packets.send(connection, flow, end, &packet, &mut batch);
                    packets.flush(connection, &mut batch).await;
                }
                () = &mut over => break,
            }
        }
        let _over = send.finish();
    }
}

/// The result of a future that is ready at once.
fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
