//! A program that uses the daemon, and its connections.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forward::address::{HostName, Target};
use forward::daemon::{FROM_DAEMON, ProgramName, Reply, SocketFrom};
use forward::message::{Failure, Reason};
use forwarding::carry::{Answer, Carried, carry};
use forwarding::events::{Events, Label};
use forwarding::session::{CONNECTIONS_MAX, Streams};
use forwarding::socket::Socket;
use serde_json::{Value, json};
use socket2::{Domain, Protocol, SockRef, Type};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use super::packets::Packets;
use super::program_end::ProgramEnd;
use super::ring_end::{RING_LEN, RINGS_MAX, RingEnd};
use super::routes::Routes;
use crate::cli::forward::local_pair::pair;
use crate::cli::forward::own::Own;
use crate::cli::forward::report::Report;

/// The time for a program to pass the socket of a connection that it has asked for, or that has arrived.
const CARRY_TIME: Duration = Duration::from_secs(10);

/// The time for a program to take a reply. Its requests wait meanwhile.
const REPLY_TIME: Duration = Duration::from_secs(60);

/// What a program says about a number: its socket, or why there is none. A sender that is dropped says that the
/// number is not wanted any more.
pub(super) type Answered = Result<OwnedFd, Failure>;

/// A program.
pub(super) struct AttachedProgram {
    pub(super) packets: Packets,
    name: ProgramName,
    pid: i32,
    /// The numbers in use, and where the answer about each goes. It has none once the answer has come.
    connections: Mutex<BTreeMap<u32, Option<oneshot::Sender<Answered>>>>,
    /// For the number of the next arrival.
    next_arrival: AtomicU32,
    carried: Carried,
    /// Connections so far.
    opened: AtomicU64,
    /// For connections with rings, of all programs.
    ring_places: Arc<Semaphore>,
}

/// What a connection with a program takes.
pub(super) enum Reserved {
    /// Nothing: the program passes a socket.
    Passed,
    /// Nothing: the program gets a socket.
    Socket,
    /// A place for rings.
    Rings(OwnedSemaphorePermit),
}

/// One connection of a program.
struct Connection {
    attached: Arc<AttachedProgram>,
    own: Arc<Own>,
    report: Arc<Report>,
    number: u32,
    label: Label,
}

impl AttachedProgram {
    pub(super) fn new(packets: Packets, name: ProgramName, pid: i32, ring_places: Arc<Semaphore>) -> Self {
        let (connections, carried, opened) = (Mutex::default(), Carried::default(), AtomicU64::new(0));
        Self { packets, name, pid, connections, next_arrival: AtomicU32::new(0), carried, opened, ring_places }
    }

    /// For the user.
    pub(super) fn shown(&self) -> String {
        format!("{} ({})", self.name, self.pid)
    }

    /// Begins to look up a name.
    ///
    /// # Errors
    /// As of [`connect`](Self::connect).
    pub(super) async fn look_up(self: &Arc<Self>, routes: &Arc<Routes>, number: u32, name: HostName) -> io::Result<()> {
        let Some(cancelled) = self.begin(number).await? else { return Ok(()) };
        let (attached, routes) = (Arc::clone(self), Arc::clone(routes));
        tokio::spawn(async move {
            let found = tokio::select! {
                found = routes.look_up(&name) => found,
                // Also by a socket, for which a name has no use.
                _cancelled = cancelled => Err(cancelled_by_program()),
            };
            let reply = match found {
                Ok(addresses) => Reply::Found { number, addresses },
                Err(failure) => Reply::Failed { number, failure },
            };
            attached.end(number, &reply).await;
        });
        Ok(())
    }

    /// Begins a connection.
    ///
    /// # Errors
    /// If the number is in use, or the program takes no replies.
    pub(super) async fn connect(
        self: &Arc<Self>,
        own: &Arc<Own>,
        report: &Arc<Report>,
        number: u32,
        socket: SocketFrom,
        target: Target,
    ) -> io::Result<()> {
        let Some(socket_comes) = self.begin(number).await? else { return Ok(()) };
        let label = report.label(&self.shown(), &target);
        let (attached, own, report) = (Arc::clone(self), Arc::clone(own), Arc::clone(report));
        let connection = Connection { attached, own, report, number, label };
        tokio::spawn(async move { connection.run(socket, target, socket_comes).await });
        Ok(())
    }

    /// Refuses a connection or a publication.
    ///
    /// # Errors
    /// As of [`connect`](Self::connect).
    pub(super) async fn refuse(
        &self,
        report: &Report,
        number: u32,
        target: &(dyn Display + Sync),
        failure: Failure,
    ) -> io::Result<()> {
        if self.begin(number).await?.is_some() {
            report.refused(&report.label(&self.shown(), target), failure.reason.name(), &failure.to_string());
            self.end(number, &Reply::Failed { number, failure }).await;
        }
        Ok(())
    }

    /// Takes a number that the program has chosen. If there are too many, the program is told.
    ///
    /// # Errors
    /// If the number is in use, or the program takes no replies.
    pub(super) async fn begin(&self, number: u32) -> io::Result<Option<oneshot::Receiver<Answered>>> {
        match self.take_number(number) {
            None => Err(io::Error::new(io::ErrorKind::InvalidData, "the number of a connection is in use")),
            Some(Ok(answer)) => Ok(Some(answer)),
            Some(Err(failure)) => {
                self.reply(&Reply::Failed { number, failure }, &[]).await?;
                Ok(None)
            }
        }
    }

    /// Takes a number for an arrival.
    pub(super) fn begin_arrival(&self) -> Result<(u32, oneshot::Receiver<Answered>), Failure> {
        loop {
            let number = FROM_DAEMON | self.next_arrival.fetch_add(1, Ordering::Relaxed);
            // After half of all numbers they come again, and some of them may still be in use.
            if let Some(taken) = self.take_number(number) {
                return Ok((number, taken?));
            }
        }
    }

    /// Takes a number: none if it is in use.
    fn take_number(&self, number: u32) -> Option<Result<oneshot::Receiver<Answered>, Failure>> {
        let mut connections = self.connections();
        if connections.contains_key(&number) {
            return None;
        }
        if connections.len() >= CONNECTIONS_MAX {
            let detail = format!("a program has at most {CONNECTIONS_MAX} connections");
            return Some(Err(Failure::new(Reason::Busy, &detail)));
        }
        let (give, answer) = oneshot::channel();
        connections.insert(number, Some(give));
        Some(Ok(answer))
    }

    /// Sends the last reply of a number. The program may use it again as soon as it has the reply.
    pub(super) async fn end(&self, number: u32, last: &Reply) {
        self.connections().remove(&number);
        if let Err(error) = self.reply(last, &[]).await {
            tracing::info!(%error, "a program that has ended");
        }
    }

    /// The socket of a connection has come. One that is not waited for any more is closed.
    pub(super) fn carry(&self, number: u32, socket: OwnedFd) {
        self.answer(number, Ok(socket));
    }

    /// An arrival is not taken.
    pub(super) fn decline(&self, number: u32, failure: Failure) {
        self.answer(number, Err(failure));
    }

    fn answer(&self, number: u32, answer: Answered) {
        let give = self.connections().get_mut(&number).and_then(Option::take);
        let _closed = give.map(|give| give.send(answer));
    }

    /// A number is not wanted any more.
    pub(super) fn cancel(&self, number: u32) {
        let _waiting = self.connections().get_mut(&number).and_then(Option::take);
    }

    /// The program has ended, or breaks the rules.
    pub(super) fn cancel_all(&self) {
        for give in self.connections().values_mut() {
            let _waiting = give.take();
        }
    }

    /// For the user, with the places that it publishes.
    pub(super) fn status(&self, published: Vec<String>) -> Value {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        json!({
            "name": self.name.as_str(), "pid": self.pid, "connections": self.connections().len(),
            "opened": get(&self.opened), "published": published,
            // Of connections that have ended.
            "bytes_sent": get(&self.carried.sent), "bytes_received": get(&self.carried.received),
        })
    }

    pub(super) async fn reply(&self, reply: &Reply, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let sent = timeout(REPLY_TIME, self.packets.send(&reply.encode(), descriptors)).await;
        sent.map_err(|_| io::ErrorKind::TimedOut)?
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<u32, Option<oneshot::Sender<Answered>>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what a connection needs.
    pub(super) fn reserve(&self, from: SocketFrom) -> Result<Reserved, Failure> {
        Ok(match from {
            SocketFrom::Program => Reserved::Passed,
            SocketFrom::Daemon => Reserved::Socket,
            SocketFrom::Rings => {
                let place = Arc::clone(&self.ring_places).try_acquire_owned();
                let full = || format!("{RINGS_MAX} connections share memory with the daemon already");
                Reserved::Rings(place.map_err(|_| Failure::new(Reason::Busy, &full()))?)
            }
        })
    }

    /// Sends a reply. Returns this end of the connection with the program: what it passes, or what comes to
    /// it with the reply.
    pub(super) async fn program_end(
        &self,
        reply: &Reply,
        reserved: Reserved,
        answer: oneshot::Receiver<Answered>,
    ) -> Result<ProgramEnd, Failure> {
        match reserved {
            Reserved::Passed => self.passed(reply, answer).await.map(ProgramEnd::Socket),
            Reserved::Socket => self.handed(reply).await.map(ProgramEnd::Socket),
            Reserved::Rings(place) => self.shared(reply, place).await.map(ProgramEnd::Rings),
        }
    }

    /// Sends a reply, and waits for the socket that the program passes then.
    async fn passed(&self, reply: &Reply, answer: oneshot::Receiver<Answered>) -> Result<Socket, Failure> {
        self.reply(reply, &[]).await.map_err(|error| other(&error))?;
        let late = || Failure::new(Reason::TimedOut, "the program has passed no socket in time");
        let answered = timeout(CARRY_TIME, answer).await.map_err(|_| late())?;
        let socket = answered.map_err(|_| cancelled_by_program())??;
        tcp_socket(socket).map_err(|error| other(&error))
    }

    /// Sends a reply with one end of a new connection inside this host.
    async fn handed(&self, reply: &Reply) -> Result<Socket, Failure> {
        let (theirs, ours) = pair().await.map_err(|error| other(&error))?;
        let ours = Socket::tcp(ours);
        self.reply(reply, &[theirs.as_fd()]).await.map_err(|error| other(&error))?;
        Ok(ours)
    }

    /// Sends a reply with memory that both share.
    async fn shared(&self, reply: &Reply, place: OwnedSemaphorePermit) -> Result<RingEnd, Failure> {
        // The program asks for a socket then.
        let no_memory = |error: io::Error| Failure::new(Reason::Busy, &format!("no memory to share: {error}"));
        let (end, passed) = rings::ends::create(RING_LEN).map_err(no_memory)?;
        let ours = RingEnd::new(end, place).map_err(no_memory)?;
        self.reply(reply, &passed.each_ref().map(|descriptor| descriptor.as_fd()))
            .await
            .map_err(|error| other(&error))?;
        Ok(ours)
    }

    /// Carries the data of a connection to its end, and tells the user.
    pub(super) async fn carry_data(
        &self,
        report: &Report,
        label: &Label,
        end: ProgramEnd,
        streams: Streams,
        carried: &Carried,
    ) -> Result<(), Failure> {
        report.opened(label);
        self.opened.fetch_add(1, Ordering::Relaxed);
        let result = carry(end, streams, carried, Answer::Given).await;
        report.closed(label, carried, &result);
        let total = &self.carried;
        total.sent.fetch_add(carried.sent.load(Ordering::Relaxed), Ordering::Relaxed);
        total.received.fetch_add(carried.received.load(Ordering::Relaxed), Ordering::Relaxed);
        result.map_err(|broken| other(&broken))
    }
}

/// A failure that only its text describes.
pub(super) fn other(error: &dyn Display) -> Failure {
    Failure::new(Reason::Other, &error.to_string())
}

/// The program does not want it any more, or has ended.
pub(super) fn cancelled_by_program() -> Failure {
    Failure::new(Reason::Other, "cancelled")
}

/// The socket that a program has passed, if it is a connection of TCP.
fn tcp_socket(socket: OwnedFd) -> io::Result<Socket> {
    check_tcp_connection(&SockRef::from(&socket))?;
    let stream = std::net::TcpStream::from(socket);
    stream.set_nonblocking(true)?;
    Ok(Socket::tcp(TcpStream::from_std(stream)?))
}

/// Refuses a socket that is no connection of TCP.
fn check_tcp_connection(socket: &SockRef<'_>) -> io::Result<()> {
    let is_tcp = socket.r#type()? == Type::STREAM
        && matches!(socket.domain()?, Domain::IPV4 | Domain::IPV6)
        && socket.protocol()?.is_none_or(|protocol| [Protocol::TCP, Protocol::MPTCP].contains(&protocol));
    if !is_tcp {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no TCP socket"));
    }
    // One that listens, or was never connected, has no peer: what would be read from it never ends, nor comes.
    if socket.is_listener()? || socket.peer_addr().is_err() {
        return Err(io::Error::new(io::ErrorKind::NotConnected, "the socket is not connected"));
    }
    Ok(())
}

/// The last reply of a connection whose data were carried.
pub(super) fn ended(number: u32, carried: Carried, result: Result<(), Failure>) -> Reply {
    let (sent, received) = (carried.sent.into_inner(), carried.received.into_inner());
    Reply::Ended { number, sent, received, failure: result.err() }
}

impl Connection {
    async fn run(&self, from: SocketFrom, target: Target, socket_comes: oneshot::Receiver<Answered>) {
        let number = self.number;
        let Some(_place) = self.own.place().await else { return };
        let last = match self.attached.reserve(from) {
            Ok(reserved) => self.connect(reserved, target, socket_comes).await.unwrap_or_else(|failure| {
                self.report.refused(&self.label, failure.reason.name(), &failure.to_string());
                Reply::Failed { number, failure }
            }),
            // The program may ask for a socket instead, so the user need not know.
            Err(failure) => Reply::Failed { number, failure },
        };
        self.attached.end(number, &last).await;
    }

    /// Connects, gets this end of the connection with the program, and carries the data to their end. Returns
    /// the last reply.
    async fn connect(
        &self,
        reserved: Reserved,
        target: Target,
        mut socket_comes: oneshot::Receiver<Answered>,
    ) -> Result<Reply, Failure> {
        let streams = tokio::select! {
            opened = self.own.open(target) => opened?,
            // A socket that comes before it is asked for is no better.
            _cancelled = &mut socket_comes => return Err(cancelled_by_program()),
        };
        let (connected, carried) = (Reply::Connected { number: self.number, local: None }, Carried::default());
        let is_passed = matches!(reserved, Reserved::Passed);
        let result = match self.attached.program_end(&connected, reserved, socket_comes).await {
            Ok(end) => self.attached.carry_data(&self.report, &self.label, end, streams, &carried).await,
            // The program has not got `connected`.
            Err(failure) if !is_passed => return Err(failure),
            Err(failure) => Err(failure),
        };
        Ok(ended(self.number, carried, result))
    }
}

#[cfg(test)]
mod tests {
    use socket2::{SockAddr, Socket};

    use super::*;

    #[test]
    fn a_socket_that_is_no_connection_of_tcp_is_refused() {
        #[expect(clippy::disallowed_methods, reason = "sockets of a program of this host")]
        let bound = |domain, kind| {
            let socket = Socket::new(domain, kind, None).expect("a socket");
            if domain == Domain::IPV4 {
                socket.bind(&SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)))).expect("a port");
            }
            socket
        };
        let kind_of = |socket: &Socket| check_tcp_connection(&SockRef::from(socket)).map_err(|error| error.kind());
        let [listening, idle] = [(); 2].map(|()| bound(Domain::IPV4, Type::STREAM));
        assert_eq!(kind_of(&idle), Err(io::ErrorKind::NotConnected));
        listening.listen(1).expect("it listens");
        assert_eq!(kind_of(&listening), Err(io::ErrorKind::NotConnected));
        idle.connect(&listening.local_addr().expect("it is bound")).expect("it listens");
        assert_eq!(kind_of(&idle), Ok(()));
        let (accepted, _) = listening.accept().expect("one has connected");
        assert_eq!(kind_of(&accepted), Ok(()));
        for other in [bound(Domain::IPV4, Type::DGRAM), bound(Domain::UNIX, Type::STREAM)] {
            assert_eq!(kind_of(&other), Err(io::ErrorKind::InvalidInput));
        }
    }
}
