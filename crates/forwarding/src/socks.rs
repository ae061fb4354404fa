//! The SOCKS5 proxy of `-D`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::carry::{Answer, Carried, Local, carry};
use super::frames;
use bytes::BytesMut;
use forward::address::{Address, Protocol, Target};
use forward::flows::Flows;
use forward::message::Message;
use forward::socks::{
    MESSAGE_LEN_MAX, METHOD_CHOSEN, Parsed, Reply, Request, Stage, parse_greeting, parse_request, parse_udp, put_reply,
    refusal,
};
use net::MonotonicClock;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::datagrams::open_flow;
use super::events::Events;
use super::handshakes::{Handshake, Handshakes};
use super::session::{Session, Streams};
use super::sessions::Sessions;
use super::socket::Socket;
use super::udp::{Batch, FlowEnd, Opening, packet_buffer};

/// The time for the messages of a client.
const HANDSHAKE_TIME: Duration = Duration::from_secs(20);

/// The time for the last bytes to a client whose messages are not served, and how much of what it still sends is
/// read.
const REFUSAL_TIME: Duration = Duration::from_secs(2);
const IGNORED_LEN_MAX: usize = 1 << 16;

/// Targets of one UDP relay, at a time.
const TARGETS_MAX: usize = 256;

/// As in [`datagrams`](super::datagrams).
const FORGOTTEN_AFTER: units::Duration = units::Duration::from_secs(600);

/// An address that says that there is none.
const NONE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// What the proxy's connections share.
pub struct Proxy {
    /// The connection to the other end.
    pub sessions: Sessions,
    /// Takes what becomes of the connections.
    pub events: Arc<dyn Events>,
    /// The clients that wait for their answers.
    pub handshakes: Arc<Handshakes>,
}

/// Why a client gets no connection.
struct NotConnected {
    /// For programs that read the events.
    kind: &'static str,
    message: String,
    reply: Reply,
}

impl Proxy {
    /// Serves one connection from `origin`.
    pub async fn serve(&self, socket: Socket, origin: SocketAddr) {
        let mut buffer = BytesMut::with_capacity(MESSAGE_LEN_MAX);
        let handshake = self.handshakes.begin();
        let served = match negotiate(socket, &mut buffer, &handshake).await {
            Ok((socket, Request::Connect(address))) => self.connect(socket, origin, address, buffer, handshake).await,
            Ok((socket, Request::Associate)) => {
                drop(handshake);
                self.associate(socket, origin).await
            }
            Ok((socket, Request::Unsupported)) => refuse(socket, Reply::UnsupportedCommand).await,
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            tracing::info!(%origin, %error, "a client of the SOCKS proxy");
        }
    }

    /// Carries a connection to `address`. `early` is what the client sent after its request.
    async fn connect(
        &self,
        socket: Socket,
        origin: SocketAddr,
        address: Address,
        early: BytesMut,
        handshake: Handshake,
    ) -> io::Result<()> {
        let label = self.events.label(&origin, &address);
        let opened = tokio::select! {
            opened = self.open(address) => opened,
            // The client does not want it any more; dropping the streams tells the other end.
            error = socket.failed() => return Err(error),
            () = handshake.ended() => return refuse(socket, Reply::Failed).await,
        };
        let ((mut send, recv), local) = match opened {
            Ok(opened) => opened,
            Err(NotConnected { kind, message, reply }) => {
                self.events.refused(&label, kind, &message);
                return refuse(socket, reply).await;
            }
        };
        let mut reply = Vec::new();
        put_reply(Reply::Succeeded, local.unwrap_or(NONE), &mut reply);
        socket.write_all(&reply).await?;
        drop(handshake);
        self.events.opened(&label);
        let carried = Carried::default();
        if !early.is_empty() {
            carried.sent.fetch_add(early.len() as u64, std::sync::atomic::Ordering::Relaxed);
            send.write_chunk_async(early.freeze()).await.map_err(io::Error::from)?;
        }
        let result = carry(socket, (send, recv), &carried, Answer::Given).await;
        self.events.closed(&label, &carried, &result);
        Ok(())
    }

    /// Streams that lead to `address`, and the far host's address of the connection there.
    async fn open(&self, address: Address) -> Result<(Streams, Option<SocketAddr>), NotConnected> {
        let failed = |kind, message| NotConnected { kind, message, reply: Reply::Failed };
        let session = self.sessions.get().await.map_err(|why| failed("not_connected", why.to_string()))?;
        let request = Message::Open { target: Target::Host(Protocol::Tcp, address) };
        let (send, mut recv) = session.open(&request).await.map_err(|error| failed("not_opened", error.to_string()))?;
        match frames::answer(&mut recv).await {
            Ok(local) => Ok(((send, recv), local)),
            Err(failure) => {
                let (kind, message) = (failure.reason.name(), failure.to_string());
                Err(NotConnected { kind, message, reply: failure.reason.into() })
            }
        }
    }

    /// Relays UDP packets until the client closes its connection.
    async fn associate(&self, socket: Socket, origin: SocketAddr) -> io::Result<()> {
        associate(socket, |relay| async move { self.relay(&relay, origin.ip()).await }).await
    }

    /// Carries the packets of a client at `ip`. Each of its targets is a flow.
    async fn relay(&self, relay: &Arc<UdpSocket>, ip: IpAddr) {
        let (mut buffer, mut batch, clock) = (packet_buffer(), Batch::default(), MonotonicClock::start());
        let mut flows: Flows<(SocketAddr, Address), (Arc<Session>, Arc<Opening>)> =
            Flows::new(FORGOTTEN_AFTER, TARGETS_MAX);
        // The flows end with the relay.
        let mut tasks = JoinSet::new();
        loop {
            while tasks.try_join_next().is_some() {}
            let Ok((len, from)) = relay.recv_from(buffer.as_mut_slice()).await else { continue };
            if from.ip().to_canonical() != ip.to_canonical() {
                continue;
            }
            let Ok((target, at)) = parse_udp(&buffer[..len]) else { continue };
            let (key, payload) = ((from, target.clone()), &buffer[at..len]);
            if let Some((session, opening)) = flows.use_now(clock.now(), &key)
                && opening.send(session, payload, &mut batch)
            {
                session.packets.flush(&session.connection, &mut batch).await;
                continue;
            }
            let Some(session) = self.sessions.now() else { continue };
            let (opening, waiting) = Opening::new();
            // It waits until the flow is open.
            opening.send(&session, payload, &mut batch);
            let _displaced = flows.insert(clock.now(), key, (Arc::clone(&session), Arc::clone(&opening)));
            let _idle = flows.poll_idle(clock.now());
            let label = self.events.label(&from, &format!("udp:{target}"));
            let (end, events) = (FlowEnd::socks(Arc::clone(relay), from, &target), Arc::clone(&self.events));
            tasks.spawn(async move {
                let request = Message::Open { target: Target::Host(Protocol::Udp, target) };
                open_flow(&session, &request, &label, end, &opening, waiting, &*events).await;
            });
        }
    }
}

/// Reads the greeting and the request of a client. What follows them stays in `buffer`.
///
/// # Errors
/// If they are malformed, or take more than 20 s, or the handshakes are ended. The client has its answer
/// then.
pub async fn negotiate(socket: Socket, buffer: &mut BytesMut, handshake: &Handshake) -> io::Result<(Socket, Request)> {
    let mut stage = Stage::Greeting;
    let negotiated = tokio::select! {
        negotiated = timeout(HANDSHAKE_TIME, read_request(&socket, buffer, &mut stage)) => negotiated,
        () = handshake.ended() => Ok(Err(io::Error::other("the command ends"))),
    };
    match negotiated.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(request) => Ok((socket, request)),
        Err(error) => {
            let _late = timeout(REFUSAL_TIME, end_with(socket, &refusal(stage, buffer))).await;
            Err(error)
        }
    }
}

/// Sends the last bytes, and closes the connection in order. What the client still sends is read: the kernel
/// would reset the connection otherwise, and the client might not see them.
async fn end_with(socket: Socket, bytes: &[u8]) -> io::Result<()> {
    socket.write_all(bytes).await?;
    socket.finish()?;
    let mut ignored = BytesMut::with_capacity(MESSAGE_LEN_MAX);
    let mut len = 0;
    while len < IGNORED_LEN_MAX
        && let Ok(more @ 1..) = socket.read(&mut ignored).await
    {
        len += more;
        ignored.clear();
    }
    socket.close();
    Ok(())
}

async fn read_request(socket: &Socket, buffer: &mut BytesMut, stage: &mut Stage) -> io::Result<Request> {
    if !read_message(socket, buffer, parse_greeting).await? {
        return Err(io::Error::other("it wants to authenticate"));
    }
    socket.write_all(&METHOD_CHOSEN).await?;
    *stage = Stage::Request;
    read_message(socket, buffer, parse_request).await
}

async fn read_message<T>(socket: &Socket, buffer: &mut BytesMut, parse: fn(&[u8]) -> Parsed<T>) -> io::Result<T> {
    loop {
        match parse(buffer) {
            Ok(Some((message, len))) => {
                let _used = buffer.split_to(len);
                return Ok(message);
            }
            Ok(None) if buffer.len() < MESSAGE_LEN_MAX => {}
            Ok(None) => return Err(io::Error::other("its message is too long")),
            Err(malformed) => return Err(io::Error::other(malformed)),
        }
        buffer.reserve(MESSAGE_LEN_MAX);
        if socket.read(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Gives a client a socket for its packets, which `relay` carries until the client closes its connection (RFC
/// 1928, section 7).
///
/// # Errors
/// If the client's connection has failed.
pub async fn associate<F: Future<Output = ()>>(
    socket: Socket,
    relay: impl FnOnce(Arc<UdpSocket>) -> F,
) -> io::Result<()> {
    let local = socket.local_addr().ok_or(io::ErrorKind::NotConnected)?;
    let bound = UdpSocket::bind(SocketAddr::new(local.ip(), 0)).await;
    let bound = bound.and_then(|packets| Ok((packets.local_addr()?, packets)));
    let (address, packets) = match bound {
        Ok(bound) => bound,
        Err(error) => {
            tracing::warn!(%error, "no socket for packets of the SOCKS proxy");
            return refuse(socket, Reply::Failed).await;
        }
    };
    let packets = Arc::new(packets);
    let mut reply = Vec::new();
    put_reply(Reply::Succeeded, address, &mut reply);
    socket.write_all(&reply).await?;
    let mut ignored = BytesMut::with_capacity(MESSAGE_LEN_MAX);
    tokio::select! {
        () = relay(packets) => {}
        () = async {
            // Nothing else than the end should come (RFC 1928, section 6).
            while matches!(socket.read(&mut ignored).await, Ok(1..)) {
                ignored.clear();
            }
        } => {}
    }
    socket.close();
    Ok(())
}

/// Answers that the request failed, and closes the connection in order.
///
/// # Errors
/// If the client's connection has failed.
pub async fn refuse(socket: Socket, reply: Reply) -> io::Result<()> {
    let mut bytes = Vec::new();
    put_reply(reply, NONE, &mut bytes);
    timeout(REFUSAL_TIME, end_with(socket, &bytes)).await.unwrap_or(Ok(()))
}
