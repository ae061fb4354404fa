//! Calls of a program that are taken over.
//!
//! ```text
//!  connect(socket, address) ─▶ request to the far host ─▶ connected there
//!      ◀── 0 ── the program's own socket is connected to a socket of this process, which carries the data
//! ```
//!
//! The program keeps its socket, with its options and its place in poll and epoll. The call returns when the
//! far host has connected, with its error if it has not; also for a socket that does not block, which then
//! has its connection at once.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forward::address::{Address, Protocol, Target};
use forward::message::{Message, Reason};
use forward::policy::Policy;
use intercept::{Call, Syscall, sockaddr};
use rustix::io::Errno;
use serde_json::json;
use socket2::{Domain, SockRef, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::carry::{Answer, Carried, carry};
use super::frames;
use super::listener::Sessions;
use super::report::{Label, Report};
use super::session::Streams;
use super::socket::Socket;

/// The time for a connection inside this host.
const LOCAL_TIME: Duration = Duration::from_secs(5);

/// Takes over the calls of one program's processes.
pub(super) struct Takeover {
    /// The program, for the user.
    name: String,
    sessions: Sessions,
    report: Arc<Report>,
    places: Arc<Semaphore>,
    /// How many places there are.
    places_max: u32,
    /// Targets that are reached without Litz.
    direct: Policy,
    /// What the far host does not allow fails.
    is_strict: bool,
    /// Where the program believes that its sockets are connected to, by the kernel's number of the socket.
    peers: Mutex<BTreeMap<u64, SocketAddr>>,
}

/// A call of connect that is taken over.
struct Wanted {
    socket: OwnedFd,
    address: SocketAddr,
}

impl Takeover {
    pub(super) fn new(
        name: String,
        sessions: Sessions,
        report: Arc<Report>,
        places: Arc<Semaphore>,
        direct: Policy,
        is_strict: bool,
    ) -> Self {
        let places_max = places.available_permits() as u32;
        Self { name, sessions, report, places, places_max, direct, is_strict, peers: Mutex::default() }
    }

    /// Answers a call, and carries the data of its connection.
    pub(super) async fn take(&self, call: Call) {
        match call.syscall() {
            Syscall::Connect => match self.wanted(&call) {
                Some(wanted) => self.connect(call, wanted).await,
                None => call.let_through(),
            },
            Syscall::GetPeerName => match self.name_peer(&call) {
                Some(()) => call.answer(Ok(0)),
                None => call.let_through(),
            },
        }
    }

    /// Waits until no connection is carried.
    pub(super) async fn finished(&self) {
        let _all = self.places.acquire_many(self.places_max).await;
    }

    pub(super) fn tell_waiting(&self) {
        let event = json!({ "event": "waiting_for_children", "program": self.name });
        let text = format!("{} has ended; waiting for processes that it has started (Ctrl-C ends that)", self.name);
        self.report.tell(&event, &text);
    }

    /// The socket and the address, if the connection is to be taken over: TCP to another host.
    fn wanted(&self, call: &Call) -> Option<Wanted> {
        // The kernel takes an int from the register.
        let len = (call.argument(2) as u32 as usize).min(sockaddr::LEN_MAX);
        let found = call.with_caller(|caller| {
            let mut bytes = [0; sockaddr::LEN_MAX];
            caller.read(call.argument(1), &mut bytes[..len])?;
            let Some(address) = sockaddr::parse(&bytes[..len]) else { return Ok(None) };
            Ok(Some(Wanted { socket: caller.descriptor(call.argument(0))?, address }))
        });
        // What this process may not look at is the kernel's.
        let wanted = found.inspect_err(|error| tracing::info!(%error, "a call is not taken over")).ok()??;
        let ip = wanted.address.ip().to_canonical();
        let is_host =
            !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST));
        let is_direct = || self.direct.allows_address(Protocol::Tcp, wanted.address);
        (is_host && wanted.address.port() != 0 && is_unconnected_tcp(&wanted.socket) && !is_direct()).then_some(wanted)
    }

    async fn connect(&self, call: Call, wanted: Wanted) {
        let Ok(_place) = self.places.acquire().await else { return };
        let target = Address::of(wanted.address);
        let label = self.report.label(&self.name, &target);
        let streams = match self.open(&label, target).await {
            Ok(streams) => streams,
            Err(Reason::NotAllowed) if !self.is_strict => {
                let event = json!({ "event": "direct", "target": wanted.address.to_string() });
                let text = format!("{}: not forwarded, because the far host does not allow it", wanted.address);
                self.report.tell(&event, &text);
                return call.let_through();
            }
            Err(reason) => return call.answer(Err(errno_of(reason))),
        };
        let Wanted { socket, address } = wanted;
        let number = SockRef::from(&socket).cookie().unwrap_or(0);
        match connect_here(&socket).await {
            Ok((stream, result)) => {
                // Before the program can ask for it.
                self.peers().insert(number, address);
                // The program's own descriptor is the last one, so that closing it ends the connection.
                drop(socket);
                call.answer(result);
                self.report.opened(&label);
                let carried = Carried::default();
                let result = carry(Socket::tcp(stream), streams, &carried, Answer::Given).await;
                self.peers().remove(&number);
                self.report.closed(&label, &carried, &result);
            }
            Err(error) => {
                self.report.refused(&label, "local", &format!("no connection inside this host: {error}"));
                let error = error.raw_os_error().map_or(Errno::NETUNREACH, Errno::from_raw_os_error);
                call.answer(Err(error));
            }
        }
    }

    /// Asks the far host for a connection.
    async fn open(&self, label: &Label, target: Address) -> Result<Streams, Reason> {
        let Some(session) = self.sessions.get().await else {
            self.report.refused(label, "not_connected", "there is no connection to the server");
            return Err(Reason::NetworkUnreachable);
        };
        let request = Message::Open { target: Target::Host(Protocol::Tcp, target) };
        let (send, mut recv) = session.open(&request).await.map_err(|error| {
            self.report.refused(label, "not_opened", &error);
            Reason::NetworkUnreachable
        })?;
        match frames::answer(&mut recv).await {
            Ok(_) => Ok((send, recv)),
            Err(failure) if failure.reason == Reason::NotAllowed && !self.is_strict => Err(failure.reason),
            Err(failure) => {
                self.report.refused(label, failure.reason.name(), &failure.to_string());
                Err(failure.reason)
            }
        }
    }

    /// Tells the program the address to which it believes that its socket is connected, if it is one of ours.
    fn name_peer(&self, call: &Call) -> Option<()> {
        if self.peers().is_empty() {
            return None;
        }
        let told = call.with_caller(|caller| {
            let socket = caller.descriptor(call.argument(0))?;
            let socket = SockRef::from(&socket);
            // The kernel says that a connection has ended.
            socket.peer_addr()?;
            let Some(address) = self.peers().get(&socket.cookie()?).copied() else { return Ok(None) };
            let (place, len_place) = (call.argument(1), call.argument(2));
            let mut len = [0; 4];
            caller.read(len_place, &mut len)?;
            let bytes = sockaddr::emit(address);
            let space = bytes.len().min(u32::from_ne_bytes(len) as usize);
            caller.write(place, &bytes[..space])?;
            caller.write(len_place, &(bytes.len() as u32).to_ne_bytes())?;
            Ok(Some(()))
        });
        told.ok()?
    }

    fn peers(&self) -> MutexGuard<'_, BTreeMap<u64, SocketAddr>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it is a TCP socket without a connection.
fn is_unconnected_tcp(socket: &OwnedFd) -> bool {
    let socket = SockRef::from(socket);
    socket.r#type().is_ok_and(|ty| ty == Type::STREAM)
        && socket.protocol().is_ok_and(|protocol| protocol == Some(socket2::Protocol::TCP))
        && socket.peer_addr().is_err()
}

/// Connects the socket of the program to one of this process. The result is what the program's call returns.
#[expect(clippy::disallowed_methods, reason = "a connection inside this host is the kernel's")]
async fn connect_here(socket: &OwnedFd) -> io::Result<(TcpStream, Result<i64, Errno>)> {
    let is_ipv6 = SockRef::from(socket).domain()? == Domain::IPV6;
    let v4 = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let bound = match is_ipv6 {
        // A host may have no IPv6.
        true => std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).or_else(|_| std::net::TcpListener::bind((v4, 0))),
        false => std::net::TcpListener::bind((v4, 0)),
    };
    let listener = bound?;
    listener.set_nonblocking(true)?;
    let mut address = listener.local_addr()?;
    if let (true, IpAddr::V4(ip)) = (is_ipv6, address.ip()) {
        address.set_ip(ip.to_ipv6_mapped().into());
    }
    let result = match rustix::net::connect(socket, &address) {
        Ok(()) => Ok(0),
        // The kernel goes on, and the program waits until the socket can be written.
        Err(Errno::INPROGRESS) => Err(Errno::INPROGRESS),
        Err(error) => return Err(error.into()),
    };
    let own = SockRef::from(socket).local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let listener = TcpListener::from_std(listener)?;
    let is_own = |peer: SocketAddr| peer.port() == own.port() && peer.ip().to_canonical() == own.ip().to_canonical();
    let accept = async {
        loop {
            // Another program may have found the port.
            let (stream, peer) = listener.accept().await?;
            if is_own(peer) {
                return io::Result::Ok(stream);
            }
        }
    };
    let stream = timeout(LOCAL_TIME, accept).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
    Ok((stream?, result))
}

const fn errno_of(reason: Reason) -> Errno {
    match reason {
        Reason::NotAllowed => Errno::ACCESS,
        Reason::Refused => Errno::CONNREFUSED,
        Reason::HostUnreachable | Reason::NameNotFound => Errno::HOSTUNREACH,
        Reason::TimedOut => Errno::TIMEDOUT,
        Reason::Busy => Errno::NOBUFS,
        // Also the reasons of later versions.
        _ => Errno::NETUNREACH,
    }
}
