//! UDP flows: packets between sockets of this host and datagrams of the connection. A packet that does
//! not fit into a datagram is a message. A flow lives as long as its stream, which carries nothing else
//! than its request and the answer.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use forward::address::Address;
use forward::flows::Flows;
use forward::packet::{self, PAYLOAD_LEN_MAX};
use forward::socks::{self, UDP_HEADER_LEN_MAX};
use litz::{Connection, DatagramError, RecvStream};
use net::MonotonicClock;
use tokio::net::UdpSocket;
use tokio::sync::{Notify, mpsc};

use super::carry::Carried;
use super::session::Streams;

/// Packets that wait for the answer to the request of their flow; further ones are dropped.
pub(super) const WAITING_MAX: usize = 16;

/// The pause after an error of a socket that is not about one packet.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// The flows of one connection.
pub(super) struct Packets {
    flows: Mutex<Flows<u64, Arc<FlowEnd>>>,
    clock: MonotonicClock,
    /// Packets that were dropped: of no flow, or because a queue was full.
    dropped: AtomicU64,
}

/// The end of a flow on this host.
pub(super) struct FlowEnd {
    sink: Sink,
    /// Notified when the flow has to end: it was idle, or made way for another one.
    is_over: Notify,
    pub(super) carried: Carried,
}

/// A flow in the table of its connection.
pub(super) struct AddedFlow<'a> {
    packets: &'a Packets,
    flow: u64,
    pub(super) end: Arc<FlowEnd>,
}

impl Drop for AddedFlow<'_> {
    fn drop(&mut self) {
        let _removed = self.packets.lock().remove(&self.flow);
    }
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
pub(crate) type PacketBuffer = Box<[u8; PAYLOAD_LEN_MAX + 1 + UDP_HEADER_LEN_MAX]>;

pub(crate) fn packet_buffer() -> PacketBuffer {
    let buffer = vec![0; PAYLOAD_LEN_MAX + 1 + UDP_HEADER_LEN_MAX].into_boxed_slice();
    buffer.try_into().unwrap_or_else(|_| unreachable!("it has this length"))
}

impl FlowEnd {
    pub(super) fn connected(socket: Arc<UdpSocket>) -> Self {
        Self::of(Sink::Connected(socket))
    }

    pub(super) fn to(socket: Arc<UdpSocket>, origin: SocketAddr) -> Self {
        Self::of(Sink::To(socket, origin))
    }

    pub(super) fn socks(socket: Arc<UdpSocket>, client: SocketAddr, target: &Address) -> Self {
        let mut header = Vec::new();
        socks::put_udp_header(target, &mut header);
        Self::of(Sink::Socks(socket, client, header))
    }

    fn of(sink: Sink) -> Self {
        Self { sink, is_over: Notify::new(), carried: Carried::default() }
    }

    /// Hands a packet to its socket. If the kernel takes none now, it is dropped, as on any link.
    fn deliver(&self, payload: &[u8]) -> std::io::Result<()> {
        match &self.sink {
            Sink::Connected(socket) => socket.try_send(payload)?,
            Sink::To(socket, origin) => socket.try_send_to(payload, *origin)?,
            Sink::Socks(socket, client, header) => {
                socket.try_send_to(&[header.as_slice(), payload].concat(), *client)?
            }
        };
        self.carried.received.fetch_add(payload.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl Packets {
    pub(super) fn new(idle_time: units::Duration, count_max: usize) -> Self {
        Self {
            flows: Mutex::new(Flows::new(idle_time, count_max)),
            clock: MonotonicClock::start(),
            dropped: AtomicU64::new(0),
        }
    }

    /// Adds a flow until the result is dropped. If there are too many, the one that was idle longest
    /// ends.
    pub(super) fn add(&self, flow: u64, end: FlowEnd) -> AddedFlow<'_> {
        let end = Arc::new(end);
        if let Some(displaced) = self.lock().insert(self.clock.now(), flow, Arc::clone(&end)) {
            displaced.is_over.notify_one();
        }
        AddedFlow { packets: self, flow, end }
    }

    /// Ends the flows that were idle too long.
    pub(super) fn end_idle(&self) {
        let idle = self.lock().poll_idle(self.clock.now());
        idle.iter().for_each(|flow| flow.is_over.notify_one());
    }

    /// Takes a packet from the connection. One of no flow is dropped: its flow may have ended.
    pub(super) fn deliver(&self, bytes: &[u8]) {
        let found = packet::decode(bytes).and_then(|(flow, at)| {
            let end = self.lock().use_now(self.clock.now(), &flow).cloned();
            end.map(|end| (end, at))
        });
        let is_delivered = found.is_some_and(|(end, at)| end.deliver(&bytes[at..]).is_ok());
        if !is_delivered {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends a packet of a flow to the other end: in a datagram if it fits, else as a message. Never
    /// waits: if a queue is full, the packet is dropped, as on any link.
    pub(super) fn send(&self, connection: &Connection, flow: u64, end: &FlowEnd, payload: &[u8]) {
        let _used = self.lock().use_now(self.clock.now(), &flow);
        let bytes = Bytes::from(packet::encode(flow, payload));
        let fits = connection.datagram_len_max().is_some_and(|max| bytes.len() <= max);
        let sent = if fits { connection.send_datagram(bytes.clone()) } else { Err(DatagramError::Unsupported) };
        let is_sent = match sent {
            Ok(()) => true,
            Err(DatagramError::Unsupported | DatagramError::TooLarge { .. }) => {
                matches!(poll_once(connection.send_message_async(bytes)), Some(Ok(())))
            }
            Err(_) => false,
        };
        if is_sent {
            end.carried.sent.fetch_add(payload.len() as u64, Ordering::Relaxed);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Carries the packets of a connected socket to the other end, until the flow is over.
    pub(super) async fn carry(
        &self,
        connection: &Connection,
        flow: u64,
        socket: &UdpSocket,
        end: &FlowEnd,
        (mut send, mut recv): Streams,
    ) {
        let mut buffer = packet_buffer();
        let mut over = pin!(is_over(end, &mut recv));
        loop {
            tokio::select! {
                received = socket.recv(buffer.as_mut_slice()) => match received {
                    Ok(len) => self.send(connection, flow, end, &buffer[..len]),
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
pub(super) struct Opening {
    /// Packets before the answer has come.
    waiting: mpsc::Sender<Bytes>,
    opened: OnceLock<(u64, Arc<FlowEnd>)>,
}

impl Opening {
    /// A flow, and the packets that wait for its answer.
    pub(super) fn new() -> (Arc<Self>, mpsc::Receiver<Bytes>) {
        let (waiting, packets) = mpsc::channel(WAITING_MAX);
        (Arc::new(Self { waiting, opened: OnceLock::new() }), packets)
    }

    /// Sends a packet, or keeps it until the flow is open; false if the flow has ended.
    pub(super) fn send(&self, connection: &Connection, packets: &Packets, payload: &[u8]) -> bool {
        if self.waiting.is_closed() {
            return false;
        }
        match self.opened.get() {
            Some((flow, end)) => packets.send(connection, *flow, end, payload),
            // Those that come too fast are dropped, as on any link.
            None => drop(self.waiting.try_send(Bytes::copy_from_slice(payload))),
        }
        true
    }

    /// Keeps the flow open until it is over. `waiting` is the other end of [`new`](Self::new).
    pub(super) async fn run(
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
        while let Ok(packet) = waiting.try_recv() {
            packets.send(connection, flow, end, &packet);
        }
        let mut over = pin!(is_over(end, &mut recv));
        loop {
            tokio::select! {
                Some(packet) = waiting.recv() => packets.send(connection, flow, end, &packet),
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
