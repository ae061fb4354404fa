//! One connection between client and server: its streams and its packets. Both ends run the same code;
//! the [`AllowedRequests`] says what the other end may ask for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::carry::{Answer, Carried, RESET, carry};
use super::frames::{self, FrameError};
use forward::address::{HostName, Target};
use forward::message::{Failure, Message, Reason};
use forward::policy::Policy;
use quic_endpoint::local_ends::LocalEnds;
use quic_endpoint::{Closed, Connection, OpenError, RecvStream, SendStream, TransportConfig};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::dial::{Dialled, LookupAdvice, dial, look_up};
use super::events::{Events, Label};
use super::published::{KnownOrigin, Published, port_of_program};
use super::sources::Sources;
use super::udp::{FlowEnd, Packets};

/// Forwarded connections and UDP flows that each end may open, at a time. Further ones wait.
pub const CONNECTIONS_MAX: usize = 1024;

/// The streams that the other end may open: those of connections, and the control stream.
const STREAMS_MAX: u64 = CONNECTIONS_MAX as u64 + 1;

/// Credit of a stream before its first byte is read. All streams together have it even where none of
/// them is read.
const STREAM_WINDOW: u64 = 256 << 10;

/// The most credit of a busy stream: enough for 1.3 Gb/s over 100 ms.
const STREAM_WINDOW_MAX: u64 = 16 << 20;

/// Credit of all streams together. It is fixed, and twice what [`STREAMS_MAX`] streams take before their
/// first byte is read. So a connection whose reader has stopped holds no other one up, until sixteen of
/// them have stopped after a bulk transfer.
const CONNECTION_WINDOW: u64 = 512 << 20;

/// The time that an opened connection waits for a stream.
const OPEN_TIME: Duration = Duration::from_secs(10);

/// How often idle flows are looked for.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// The transport settings that forwarding needs, and a tunnel's terminated connections, for either end.
pub fn transport(base: TransportConfig) -> TransportConfig {
    base.with_max_concurrent_bidi_streams(STREAMS_MAX)
        .with_stream_window(STREAM_WINDOW)
        .with_stream_window_max(STREAM_WINDOW_MAX)
        .with_connection_window(CONNECTION_WINDOW)
        .with_connection_window_max(CONNECTION_WINDOW)
}

/// What the other end may ask for.
pub enum AllowedRequests {
    /// A client of this server may name targets that the policy allows; connections come from there. It may
    /// also ask for listeners.
    Server(Arc<Policy>, Sources, Arc<dyn OtherRequests>),
    /// The server may say that something has arrived at a listener; the target of each is the user's. It may
    /// also be one that a program has asked for.
    Client(Vec<Target>, Option<Arc<dyn OtherRequests>>),
    /// As for a client; the target of each listener is this port of a program.
    Program(Vec<u16>, Arc<Published>),
}

/// Requests that are answered by others than a session.
pub trait OtherRequests: Send + Sync {
    /// Answers a request on these streams, in a task of its own. Gives back one that it does not answer.
    fn take(self: Arc<Self>, session: &Arc<Session>, request: Message, streams: Streams) -> Option<(Message, Streams)>;
}

/// Where a request leads.
enum Way<'a> {
    /// To a target, if the policy allows it, from there.
    Target(Target, Option<&'a Policy>, Sources),
    /// To a port of a program of this host.
    Program(u16, &'a Arc<Published>),
}

/// A connection with the other end.
pub struct Session {
    /// The connection itself.
    pub connection: Connection,
    /// The other end, for the user.
    pub peer: String,
    /// The devices of its paths, where they are known.
    pub ends: Arc<LocalEnds>,
    pub(crate) packets: Packets,
    pub(crate) events: Arc<dyn Events>,
    lookup_advice: LookupAdvice,
}

/// Why a request was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The other end allows no more streams.
    #[error("{CONNECTIONS_MAX} connections are open")]
    Busy,
    /// The connection has ended.
    #[error("{0}")]
    Open(OpenError),
    /// The stream does not take the request.
    #[error("{0}")]
    Send(FrameError),
}

/// Both halves of a stream.
pub type Streams = (SendStream, RecvStream);

impl AllowedRequests {
    fn way(&self, request: Message) -> Result<Way<'_>, Failure> {
        let unknown = |id| Failure::new(Reason::Unknown, &format!("there is no listener {id}"));
        fn at<T>(list: &[T], id: u32) -> Option<&T> {
            usize::try_from(id).ok().and_then(|id| list.get(id))
        }
        match (self, request) {
            (Self::Server(policy, sources, _), Message::Open { target }) => {
                Ok(Way::Target(target, Some(policy), *sources))
            }
            (Self::Client(targets, _), Message::Arrived { id, .. }) => {
                let target = at(targets, id).ok_or_else(|| unknown(id))?;
                Ok(Way::Target(target.clone(), None, Sources::ANY))
            }
            (Self::Program(ports, published), Message::Arrived { id, .. }) => {
                at(ports, id).map(|port| Way::Program(*port, published)).ok_or_else(|| unknown(id))
            }
            (Self::Client(..) | Self::Program(..), Message::Open { .. }) => {
                Err(Failure::new(Reason::NotAllowed, "a client connects to no targets of a server"))
            }
            _ => Err(Failure::new(Reason::Unknown, "a stream begins with another message")),
        }
    }

    fn others(&self) -> Option<&Arc<dyn OtherRequests>> {
        match self {
            Self::Server(_, _, others) => Some(others),
            Self::Client(_, others) => others.as_ref(),
            Self::Program(..) => None,
        }
    }
}

impl Way<'_> {
    /// For the user.
    fn shown(&self) -> String {
        match self {
            Self::Target(target, ..) => target.to_string(),
            Self::Program(port, _) => port_of_program(*port),
        }
    }

    /// Connects. What is returned besides is held while there is the connection.
    async fn dial(
        &self,
        origin: Option<SocketAddr>,
        advice: LookupAdvice,
    ) -> Result<(Dialled, Option<KnownOrigin>), Failure> {
        match self {
            Self::Target(target, policy, sources) => Ok((dial(target, *policy, *sources, advice).await?, None)),
            Self::Program(port, published) => {
                let (socket, named) = published.connect(*port, origin).await?;
                Ok((Dialled::Stream(socket), named))
            }
        }
    }
}

impl Session {
    /// A session on a connection with `peer`, named for the user. UDP flows end after `udp_idle` without a packet.
    pub fn new(connection: Connection, peer: String, udp_idle: units::Duration, events: Arc<dyn Events>) -> Self {
        let packets = Packets::new(udp_idle, CONNECTIONS_MAX);
        Self { connection, peer, ends: Arc::default(), packets, events, lookup_advice: || None }
    }

    /// Sets which devices its paths use.
    pub fn with_ends(mut self, ends: Arc<LocalEnds>) -> Self {
        self.ends = ends;
        self
    }

    /// Sets what is appended to the message where a name cannot be looked up.
    pub fn with_lookup_advice(mut self, advice: LookupAdvice) -> Self {
        self.lookup_advice = advice;
        self
    }

    /// Serves the other end's streams and packets until the connection ends.
    pub async fn run(self: &Arc<Self>, allowed: &Arc<AllowedRequests>) -> Closed {
        let mut idle = interval(IDLE_INTERVAL);
        idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut datagrams = Vec::new();
        loop {
            tokio::select! {
                streams = self.connection.accept_bi_async() => match streams {
                    Ok(streams) => {
                        let (session, allowed) = (Arc::clone(self), Arc::clone(allowed));
                        tokio::spawn(async move { session.answer(&allowed, streams).await });
                    }
                    Err(_) => return self.connection.closed_async().await,
                },
                received = self.connection.recv_datagrams_async(&mut datagrams) => match received {
                    Ok(_) => {
                        self.packets.deliver(datagrams.iter().map(|datagram| &datagram.data[..]));
                        datagrams.clear();
                    }
                    Err(closed) => return closed,
                },
                packet = self.connection.recv_message_async() => match packet {
                    Ok(packet) => self.packets.deliver([&packet[..]]),
                    Err(_) => return self.connection.closed_async().await,
                },
                _ = idle.tick() => self.packets.end_idle(),
            }
        }
    }

    /// Opens a stream with this request. The answer has not come yet.
    ///
    /// # Errors
    /// If no stream is free for 10 s, or the connection has ended.
    pub async fn open(&self, request: &Message) -> Result<Streams, RequestError> {
        let opened = timeout(OPEN_TIME, self.connection.open_bi_async()).await;
        let (mut send, recv) = opened.map_err(|_| RequestError::Busy)?.map_err(RequestError::Open)?;
        frames::send(&mut send, request).await.map_err(RequestError::Send)?;
        Ok((send, recv))
    }

    /// Answers a request of the other end, and carries the data.
    async fn answer(self: &Arc<Self>, allowed: &AllowedRequests, (mut send, mut recv): Streams) {
        let request = match frames::receive(&mut recv, frames::PROMPT).await {
            Ok(request) => request,
            Err(error) => {
                let error = error.to_string();
                tracing::info!(peer = self.peer, error, "a stream without a request");
                // Where that fails, the other end has given up.
                let _over = frames::send(&mut send, &Message::Failed(Failure::new(Reason::Unknown, &error))).await;
                let _over = send.finish();
                return recv.stop(RESET);
            }
        };
        let taken = match allowed.others() {
            Some(others) => Arc::clone(others).take(self, request, (send, recv)),
            None => Some((request, (send, recv))),
        };
        let Some((request, (mut send, mut recv))) = taken else { return };
        if let Message::LookUp { name } = &request {
            return self.look_up(allowed, name, (send, recv)).await;
        }
        let origin = if let Message::Arrived { origin, .. } = &request { *origin } else { None };
        let from = origin.map_or_else(|| self.peer.clone(), |origin| origin.to_string());
        let decided = allowed.way(request);
        let shown = decided.as_ref().map_or_else(|_| "nowhere".to_owned(), Way::shown);
        let label = self.events.label(&from, &shown);
        let dialled = match decided {
            Err(failure) => Err(failure),
            Ok(way) => tokio::select! {
                dialled = way.dial(origin, self.lookup_advice) => dialled,
                // The other end does not want it any more.
                _ = send.stopped_async() => {
                    tracing::info!(number = ?label, "given up before it was connected");
                    return recv.stop(RESET);
                }
            },
        };
        let (dialled, _named) = match dialled {
            Ok(dialled) => dialled,
            Err(failure) => {
                self.events.refused(&label, failure.reason.name(), &failure.to_string());
                // Where that fails, the connection has ended.
                let _over = frames::send(&mut send, &Message::Failed(failure)).await;
                let _over = send.finish();
                return recv.stop(RESET);
            }
        };
        let local = dialled.local_addr();
        if frames::send(&mut send, &Message::Connected { local }).await.is_err() {
            return;
        }
        self.events.opened(&label);
        match dialled {
            Dialled::Stream(socket) => {
                let carried = Carried::default();
                let result = carry(socket, (send, recv), &carried, Answer::Given).await;
                self.events.closed(&label, &carried, &result);
            }
            Dialled::Packets(socket) => self.run_flow(&label, Arc::new(socket), (send, recv)).await,
        }
    }

    /// Answers a request for the addresses of a name.
    async fn look_up(&self, allowed: &AllowedRequests, name: &HostName, (mut send, mut recv): Streams) {
        let found = match allowed {
            AllowedRequests::Server(policy, ..) => tokio::select! {
                found = look_up(name, policy, self.lookup_advice) => found,
                // The other end does not want it any more.
                _ = send.stopped_async() => return recv.stop(RESET),
            },
            AllowedRequests::Client(..) | AllowedRequests::Program(..) => {
                Err(Failure::new(Reason::NotAllowed, "a client looks up no names for a server"))
            }
        };
        let answer = found.map(Message::Addresses).unwrap_or_else(|failure| {
            let label = self.events.label(&self.peer, &format_args!("the name {name}"));
            self.events.refused(&label, failure.reason.name(), &failure.to_string());
            Message::Failed(failure)
        });
        // Where that fails, the connection has ended.
        let _over = frames::send(&mut send, &answer).await;
        let _over = send.finish();
        recv.stop(RESET);
    }

    /// Carries the packets of a flow that the other end has opened.
    async fn run_flow(&self, label: &Label, socket: Arc<tokio::net::UdpSocket>, (send, recv): Streams) {
        let flow = send.id().raw();
        let added = self.packets.add(flow, FlowEnd::connected(Arc::clone(&socket)));
        self.packets.carry(&self.connection, flow, &socket, &added.end, (send, recv)).await;
        self.events.closed(label, &added.end.carried, &Ok(()));
    }
}
