//! A program that uses the daemon, and its connections.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forward::address::{HostName, Target};
use forward::daemon::{ProgramName, Reply, SocketFrom};
use forward::message::{Failure, Reason};
use serde_json::{Value, json};
use socket2::{Domain, SockRef, Type};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::packets::Packets;
use crate::cli::forward::carry::{Answer, Carried, carry};
use crate::cli::forward::local_pair::pair;
use crate::cli::forward::own::Own;
use crate::cli::forward::report::{Label, Report};
use crate::cli::forward::session::{CONNECTIONS_MAX, Streams};
use crate::cli::forward::socket::Socket;

/// The time for a program to pass the socket of a connection that it has asked for.
const CARRY_TIME: Duration = Duration::from_secs(10);

/// The time for a program to take a reply. Its requests wait meanwhile.
const REPLY_TIME: Duration = Duration::from_secs(60);

/// A program.
pub(super) struct AttachedProgram {
    pub(super) packets: Packets,
    name: ProgramName,
    pid: i32,
    /// The numbers in use, and where the socket of each goes. It has none once the socket has come.
    connections: Mutex<BTreeMap<u32, Option<oneshot::Sender<OwnedFd>>>>,
    carried: Carried,
    /// Connections so far.
    opened: AtomicU64,
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
    pub(super) fn new(packets: Packets, name: ProgramName, pid: i32) -> Self {
        let (connections, carried, opened) = (Mutex::default(), Carried::default(), AtomicU64::new(0));
        Self { packets, name, pid, connections, carried, opened }
    }

    /// Begins to look up a name.
    ///
    /// # Errors
    /// As of [`connect`](Self::connect).
    pub(super) async fn look_up(self: &Arc<Self>, own: &Arc<Own>, number: u32, name: HostName) -> io::Result<()> {
        let (give, cancelled) = oneshot::channel();
        if !self.begin(number, Some(give))? {
            return self.refuse(number).await;
        }
        let (attached, own) = (Arc::clone(self), Arc::clone(own));
        tokio::spawn(async move {
            let look_up = async {
                let _place = own.place().await.ok_or_else(|| Failure::new(Reason::Other, "the daemon ends"))?;
                own.look_up(name).await
            };
            let found = tokio::select! {
                found = look_up => found,
                // Also by a socket, for which a name has no use.
                _cancelled = cancelled => Err(Failure::new(Reason::Other, "cancelled")),
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
        let (give, socket_comes) = oneshot::channel();
        if !self.begin(number, Some(give))? {
            return self.refuse(number).await;
        }
        let label = report.label(&format!("{} ({})", self.name, self.pid), &target);
        let (attached, own, report) = (Arc::clone(self), Arc::clone(own), Arc::clone(report));
        let connection = Connection { attached, own, report, number, label };
        tokio::spawn(async move { connection.run(socket, target, socket_comes).await });
        Ok(())
    }

    /// Takes a number; false if there are too many.
    fn begin(&self, number: u32, give: Option<oneshot::Sender<OwnedFd>>) -> io::Result<bool> {
        let mut connections = self.connections();
        if connections.contains_key(&number) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the number of a connection is in use"));
        }
        let has_space = connections.len() < CONNECTIONS_MAX;
        if has_space {
            connections.insert(number, give);
        }
        Ok(has_space)
    }

    async fn refuse(&self, number: u32) -> io::Result<()> {
        let failure = Failure::new(Reason::Busy, &format!("a program has at most {CONNECTIONS_MAX} connections"));
        self.reply(&Reply::Failed { number, failure }, None).await
    }

    /// Sends the last reply of a number. The program may use it again as soon as it has the reply.
    async fn end(&self, number: u32, last: &Reply) {
        self.connections().remove(&number);
        if let Err(error) = self.reply(last, None).await {
            tracing::info!(%error, "a program that has ended");
        }
    }

    /// The socket of a connection has come. One that is not waited for any more is closed.
    pub(super) fn carry(&self, number: u32, socket: OwnedFd) {
        let give = self.connections().get_mut(&number).and_then(Option::take);
        let _closed = give.map(|give| give.send(socket));
    }

    /// A connection is not wanted any more.
    pub(super) fn cancel(&self, number: u32) {
        let _waiting = self.connections().get_mut(&number).and_then(Option::take);
    }

    /// The program has ended, or breaks the rules.
    pub(super) fn cancel_all(&self) {
        for give in self.connections().values_mut() {
            let _waiting = give.take();
        }
    }

    /// For the user.
    pub(super) fn status(&self) -> Value {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        json!({
            "name": self.name.as_str(), "pid": self.pid, "connections": self.connections().len(),
            "opened": get(&self.opened),
            // Of connections that have ended.
            "bytes_sent": get(&self.carried.sent), "bytes_received": get(&self.carried.received),
        })
    }

    async fn reply(&self, reply: &Reply, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let sent = timeout(REPLY_TIME, self.packets.send(&reply.encode(), descriptor)).await;
        sent.map_err(|_| io::ErrorKind::TimedOut)?
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<u32, Option<oneshot::Sender<OwnedFd>>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    async fn run(&self, from: SocketFrom, target: Target, mut socket_comes: oneshot::Receiver<OwnedFd>) {
        let number = self.number;
        let Some(_place) = self.own.place().await else { return };
        let opened = tokio::select! {
            opened = self.own.open(target) => opened,
            // A socket that comes before it is asked for is no better.
            _cancelled = &mut socket_comes => Err(Failure::new(Reason::Other, "cancelled")),
        };
        let last = match opened {
            Err(failure) => {
                self.report.refused(&self.label, failure.reason.name(), &failure.to_string());
                Reply::Failed { number, failure }
            }
            Ok(streams) => {
                let carried = Carried::default();
                let failure = self.serve(from, streams, socket_comes, &carried).await.err();
                let (sent, received) = (carried.sent.into_inner(), carried.received.into_inner());
                Reply::Ended { number, sent, received, failure }
            }
        };
        self.attached.end(number, &last).await;
    }

    /// Gets the socket, and carries its data.
    async fn serve(
        &self,
        from: SocketFrom,
        streams: Streams,
        socket_comes: oneshot::Receiver<OwnedFd>,
        carried: &Carried,
    ) -> Result<(), Failure> {
        let other = |error: &dyn std::fmt::Display| Failure::new(Reason::Other, &error.to_string());
        let socket = match from {
            SocketFrom::Program => self.taken(socket_comes).await,
            SocketFrom::Daemon => self.given().await,
        };
        let socket = socket.map_err(|error| other(&error))?;
        self.report.opened(&self.label);
        self.attached.opened.fetch_add(1, Ordering::Relaxed);
        let result = carry(socket, streams, carried, Answer::Given).await;
        self.report.closed(&self.label, carried, &result);
        let total = &self.attached.carried;
        total.sent.fetch_add(carried.sent.load(Ordering::Relaxed), Ordering::Relaxed);
        total.received.fetch_add(carried.received.load(Ordering::Relaxed), Ordering::Relaxed);
        result.map_err(|broken| other(&broken))
    }

    /// The socket that the program passes.
    async fn taken(&self, socket_comes: oneshot::Receiver<OwnedFd>) -> io::Result<Socket> {
        self.attached.reply(&Reply::Connected { number: self.number, local: None }, None).await?;
        let socket = timeout(CARRY_TIME, socket_comes).await.map_err(|_| io::ErrorKind::TimedOut)?;
        let socket = socket.map_err(|_| io::Error::other("cancelled"))?;
        let is_tcp = {
            let socket = SockRef::from(&socket);
            socket.r#type()? == Type::STREAM && matches!(socket.domain()?, Domain::IPV4 | Domain::IPV6)
        };
        if !is_tcp {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no TCP socket"));
        }
        let stream = std::net::TcpStream::from(socket);
        stream.set_nonblocking(true)?;
        Ok(Socket::tcp(TcpStream::from_std(stream)?))
    }

    /// A new socket, whose other end the program gets.
    async fn given(&self) -> io::Result<Socket> {
        let (theirs, ours) = pair().await?;
        let ours = Socket::tcp(ours);
        self.attached.reply(&Reply::Connected { number: self.number, local: None }, Some(theirs.as_fd())).await?;
        Ok(ours)
    }
}
