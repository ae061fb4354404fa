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
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forward::address::{Address, Protocol, Target};
use forward::message::Reason;
use forward::policy::Policy;
use intercept::{Call, Syscall, sockaddr};
use rustix::io::Errno;
use serde_json::json;
use socket2::{SockRef, Type};

use super::carry::Carried;
use super::engine::{Engine, NotOpened};
use super::local_pair::connect_here;
use super::report::Report;

/// Takes over the calls of one program's processes.
pub(super) struct Takeover {
    /// The program, for the user.
    name: String,
    engine: Engine,
    report: Arc<Report>,
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
    pub(super) fn new(name: String, engine: Engine, report: Arc<Report>, direct: Policy, is_strict: bool) -> Self {
        Self { name, engine, report, direct, is_strict, peers: Mutex::default() }
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
        self.engine.finished().await;
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
        let Some(_place) = self.engine.place().await else { return };
        let target = Target::Host(Protocol::Tcp, Address::of(wanted.address));
        let label = self.report.label(&self.name, &target);
        let opened = match self.engine.open(target).await {
            Ok(opened) => opened,
            Err(NotOpened::Failed(failure)) if failure.reason == Reason::NotAllowed && !self.is_strict => {
                let event = json!({ "event": "direct", "target": wanted.address.to_string() });
                let text = format!("{}: not forwarded, because the far host does not allow it", wanted.address);
                self.report.tell(&event, &text);
                return call.let_through();
            }
            Err(NotOpened::Failed(failure)) => {
                self.report.refused(&label, failure.reason.name(), &failure.to_string());
                return call.answer(Err(errno_of(failure.reason)));
            }
            Err(NotOpened::Lost) => {
                self.report.refused(&label, "daemon_ended", "the daemon has ended");
                return call.answer(Err(Errno::CONNRESET));
            }
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
                let result = opened.carry(stream, &carried).await;
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
