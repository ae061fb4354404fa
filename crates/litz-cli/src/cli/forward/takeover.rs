//! Calls of a program that are taken over.
//!
//! ```text
//!  connect(socket, address) ─▶ request to the far host ─▶ connected there
//!      ◀── 0 ── the program's own socket is connected to a socket of this process, which carries the data
//! ```
//!
//! The program keeps its socket, with its options and its place in poll and epoll. The call returns when the
//! far host has connected, with its error if it has not. For a socket that does not block it returns at once
//! ([`hole`](super::hole)), but for a target of which it is not known whether the far host allows it: the
//! kernel may have to connect.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use decide::{Decision, Wanted, is_of, is_tcp, is_udp};
use forward::address::{Address, Host, Protocol, Target};
use forward::message::Reason;
use forward::policy::Policy;
use forwarding::carry::Carried;
use forwarding::events::{Events, Label};
use forwarding::published::Published;
use forwarding::socket::Socket;
use intercept::{Call, Syscall};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use serde_json::json;
use socket2::{Domain, SockRef, Type};
use tokio::net::TcpStream;

mod decide;
mod on_behalf;

use super::calls::{poll_for, wait_until_ready, write_address};
use super::engine::{Engine, NotOpened, Opened};
use super::hole::Hole;
use super::local_pair::connect_here;
use super::names::{Names, NamesFrom};
use super::own_address::own_address;
use super::packet_calls::connects_by_sending;
use super::report::Report;
use super::sockets::{Sockets, State};

/// The calls that are taken over.
pub(super) fn calls(is_published: bool, names_from: NamesFrom) -> Vec<Syscall> {
    let mut calls = vec![Syscall::Connect, Syscall::GetPeerName, Syscall::GetSockName, Syscall::SocketError];
    if is_published {
        calls.extend([Syscall::Accept, Syscall::Accept4]);
    }
    if names_from == NamesFrom::Here {
        calls.extend([Syscall::FastOpenTo, Syscall::FastOpenMessage, Syscall::FastOpenMessages]);
    } else {
        calls.extend([Syscall::ReceiveFrom, Syscall::ReceiveMessage, Syscall::ReceiveMessages]);
        calls.extend([Syscall::SendTo, Syscall::SendMessage, Syscall::SendMessages]);
    }
    calls
}

/// Takes over the calls of one program's processes.
pub(super) struct Takeover {
    /// The program, for the user.
    name: String,
    engine: Arc<Engine>,
    report: Arc<Report>,
    /// Targets that are reached without Litz.
    direct: Policy,
    /// What the far host does not allow fails.
    is_strict: bool,
    sockets: Sockets,
    /// Where sockets that do not block wait, by address family.
    holes: [OnceLock<Option<Hole>>; 2],
    published: Option<Arc<Published>>,
    names: Arc<Names>,
    /// Held by a call that accepts, so that no other one takes its connection.
    accepting: tokio::sync::Mutex<()>,
}

impl Takeover {
    pub(super) fn new(
        name: String,
        engine: Engine,
        report: Arc<Report>,
        direct: Policy,
        is_strict: bool,
        published: Option<Arc<Published>>,
        names_from: NamesFrom,
    ) -> Self {
        let (sockets, holes, engine) = (Sockets::default(), Default::default(), Arc::new(engine));
        let names = Names::new(names_from, Arc::clone(&engine), Arc::clone(&report), name.clone());
        let accepting = tokio::sync::Mutex::default();
        Self { name, engine, report, direct, is_strict, sockets, holes, published, names, accepting }
    }

    /// Answers a call that needs no time; otherwise gives it back.
    pub(super) fn take_at_once(&self, call: Call) -> Option<Call> {
        if connects_by_sending(&call) {
            // As where TCP Fast Open is switched off: the program calls connect then.
            call.answer(Err(Errno::OPNOTSUPP));
            return None;
        }
        let is_the_kernels = match call.syscall() {
            Syscall::ReceiveFrom | Syscall::ReceiveMessage | Syscall::ReceiveMessages => !self.names.may_receive(&call),
            Syscall::SendTo | Syscall::SendMessage | Syscall::SendMessages => !self.names.may_send(&call),
            Syscall::GetSockName => self.sockets.is_empty(),
            _ => false,
        };
        if is_the_kernels {
            call.let_through();
            return None;
        }
        Some(call)
    }

    /// Answers a call, and carries the data of its connection.
    pub(super) async fn take(&self, call: Call) {
        match call.syscall() {
            Syscall::Connect => match self.decide(&call) {
                Decision::TakenOver(wanted) => self.connect(call, wanted).await,
                Decision::NameServer(wanted) => self.connect_to_name_server(call, wanted).await,
                Decision::Failed(error) => call.answer(Err(error)),
                Decision::OnBehalf(direct) => on_behalf::connect(call, direct).await,
                Decision::LetThrough => call.let_through(),
            },
            Syscall::GetPeerName => match self.name_peer(&call) {
                Some(()) => call.answer(Ok(0)),
                None => call.let_through(),
            },
            Syscall::GetSockName => match self.name_own(&call) {
                Some(()) => call.answer(Ok(0)),
                None => call.let_through(),
            },
            Syscall::SocketError => match self.tell_error(&call) {
                Some(()) => call.answer(Ok(0)),
                None => call.let_through(),
            },
            Syscall::ReceiveFrom | Syscall::ReceiveMessage | Syscall::ReceiveMessages => {
                self.names.receive(call).await;
            }
            Syscall::SendTo | Syscall::SendMessage | Syscall::SendMessages => self.send_queries(call),
            Syscall::Accept => self.accept(call, SocketFlags::empty()).await,
            Syscall::Accept4 => {
                let flags = SocketFlags::from_bits_truncate(call.argument(3) as u32);
                self.accept(call, flags).await;
            }
            _ => call.let_through(),
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

    async fn connect(&self, call: Call, wanted: Wanted) {
        match self.hole_for(&wanted) {
            Some(hole) => {
                self.sockets.set(wanted.number, State::Connecting);
                call.answer(Err(Errno::INPROGRESS));
                self.connect_later(wanted, hole).await;
            }
            None => self.connect_now(call, wanted).await,
        }
    }

    /// Lets a program ask this process in place of a name server.
    async fn connect_to_name_server(&self, call: Call, wanted: Wanted) {
        let Wanted { socket, number, address } = wanted;
        let asked_directly = |call: Call, error: std::io::Error| {
            tracing::info!(%error, %address, "a name server is asked directly");
            match self.is_strict {
                // The address may be another one meanwhile.
                true => call.answer(Err(Errno::from_io_error(&error).unwrap_or(Errno::NETUNREACH))),
                false => call.let_through(),
            }
        };
        if is_udp(&socket) {
            return match self.names.attach(socket, address) {
                Ok(()) => call.answer(Ok(0)),
                Err(error) => asked_directly(call, error),
            };
        }
        let Some(_place) = self.engine.place().await else { return };
        match connect_here(&socket).await {
            Ok((stream, result)) => {
                // Before the program can ask for it.
                self.sockets.set(number, State::Connected(address));
                drop(socket);
                call.answer(result);
                if let Err(error) = self.names.serve_tcp(stream, address).await {
                    tracing::info!(%error, "a connection to a name server");
                }
                self.sockets.end(number);
            }
            Err(error) => asked_directly(call, error),
        }
    }

    /// Answers queries that a program sends with the address of a name server.
    fn send_queries(&self, call: Call) {
        let is_direct = |server| self.direct.allows_address(Protocol::Udp, server);
        match self.names.take_queries(&call, is_direct) {
            Some(result) => call.answer(result),
            None => call.let_through(),
        }
    }

    /// Where the socket waits, if the call returns at once: its connection has begun then.
    fn hole_for(&self, wanted: &Wanted) -> Option<&Hole> {
        let flags = rustix::fs::fcntl_getfl(&wanted.socket).ok()?;
        // The sockets of multipath TCP do not open simultaneously.
        if !is_of(&wanted.socket, socket2::Protocol::TCP) {
            return None;
        }
        if !flags.contains(OFlags::NONBLOCK) || !(self.is_strict || self.sockets.is_allowed(wanted.address)) {
            return None;
        }
        let (place, ip): (_, IpAddr) = match SockRef::from(&wanted.socket).domain().ok()? {
            Domain::IPV6 => (&self.holes[1], Ipv6Addr::LOCALHOST.into()),
            _ => (&self.holes[0], Ipv4Addr::LOCALHOST.into()),
        };
        // A host may have no IPv6.
        let hole = place.get_or_init(|| Hole::new(ip).ok()).as_ref()?;
        hole.begin(&wanted.socket).ok().map(|()| hole)
    }

    /// Connects a socket whose call has returned.
    async fn connect_later(&self, wanted: Wanted, hole: &Hole) {
        let Some(_place) = self.engine.place().await else { return };
        let (label, opened) = self.open(&wanted).await;
        let connected = match opened {
            Ok(opened) => {
                // Before the program can ask for it.
                self.sockets.set(wanted.number, State::Connected(wanted.address));
                hole.complete(&wanted.socket).await.map(|stream| (opened, stream)).map_err(|error| {
                    self.report.refused(&label, "local", &format!("no connection inside this host: {error}"));
                    error.raw_os_error().map_or(Errno::NETUNREACH, Errno::from_raw_os_error)
                })
            }
            Err(error) => Err(error.unwrap_or(Errno::ACCESS)),
        };
        match connected {
            Ok((opened, stream)) => {
                // The program's own descriptor is the last one, so that closing it ends the connection.
                drop(wanted.socket);
                self.carry(&label, wanted.number, opened, stream).await;
            }
            Err(error) => {
                self.sockets.set(wanted.number, State::Failed(error));
                // The program's poll returns, and its socket may connect anew.
                let _over = SockRef::from(&wanted.socket).shutdown(std::net::Shutdown::Both);
            }
        }
    }

    /// Connects, and answers the call then.
    async fn connect_now(&self, call: Call, wanted: Wanted) {
        let Some(_place) = self.engine.place().await else { return };
        // The socket has a time for connecting (SO_SNDTIMEO), after which the program goes on.
        let time = SockRef::from(&wanted.socket).write_timeout().ok().flatten();
        let open = self.open(&wanted);
        let opened = match time {
            Some(time) => tokio::time::timeout(time, open).await.ok(),
            None => Some(open.await),
        };
        let Some((label, opened)) = opened else {
            self.sockets.set(wanted.number, State::Failed(Errno::TIMEDOUT));
            return call.answer(Err(Errno::INPROGRESS));
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(Some(error)) => return call.answer(Err(error)),
            Err(None) => {
                let event = json!({ "event": "direct", "target": wanted.address.to_string() });
                let text = format!("{}: not forwarded, because the far host does not allow it", wanted.address);
                self.report.tell(&event, &text);
                return call.let_through();
            }
        };
        let Wanted { socket, number, address } = wanted;
        match connect_here(&socket).await {
            Ok((stream, result)) => {
                // Before the program can ask for it.
                self.sockets.set(number, State::Connected(address));
                drop(socket);
                call.answer(result);
                self.carry(&label, number, opened, stream).await;
            }
            Err(error) => {
                self.report.refused(&label, "local", &format!("no connection inside this host: {error}"));
                let error = error.raw_os_error().map_or(Errno::NETUNREACH, Errno::from_raw_os_error);
                call.answer(Err(error));
            }
        }
    }

    /// Asks for the connection. The error is that of the program; none if the kernel may connect.
    async fn open(&self, wanted: &Wanted) -> (Label, Result<Opened, Option<Errno>>) {
        let target = Target::Host(Protocol::Tcp, Address::of(wanted.address));
        let label = self.report.label(&self.name, &target);
        let mut opened = self.engine.open(target).await;
        // The far host may allow the name, whatever its address.
        if let Err(NotOpened::Failed(failure)) = &opened
            && failure.reason == Reason::NotAllowed
            && let Some(name) = self.names.name_of(wanted.address.ip())
        {
            let address = Address { host: Host::Name(name), port: wanted.address.port() };
            opened = self.engine.open(Target::Host(Protocol::Tcp, address)).await;
        }
        // Another answer than this one means that it is allowed.
        let is_allowed = match &opened {
            Ok(_) => Some(true),
            Err(NotOpened::Failed(failure)) => match failure.reason {
                Reason::NotAllowed => Some(false),
                Reason::Refused | Reason::TimedOut | Reason::HostUnreachable => Some(true),
                _ => None,
            },
            Err(NotOpened::Lost) => None,
        };
        let was_allowed = self.sockets.is_allowed(wanted.address);
        if let Some(is_allowed) = is_allowed {
            self.sockets.allow(wanted.address, is_allowed);
        }
        let opened = opened.map_err(|error| match error {
            NotOpened::Failed(failure) if is_allowed == Some(false) && !self.is_strict && !was_allowed => {
                tracing::info!(%failure, "direct");
                None
            }
            NotOpened::Failed(failure) => {
                self.report.refused(&label, failure.reason.name(), &failure.to_string());
                Some(errno_of(failure.reason))
            }
            NotOpened::Lost => {
                self.report.refused(&label, "daemon_ended", "the daemon has ended");
                Some(Errno::CONNRESET)
            }
        });
        (label, opened)
    }

    /// Carries the data of a connection to its end.
    async fn carry(&self, label: &Label, number: u64, opened: Opened, stream: TcpStream) {
        self.report.opened(label);
        let carried = Carried::default();
        let result = opened.carry(Socket::tcp(stream), &carried).await;
        self.sockets.end(number);
        self.report.closed(label, &carried, &result);
    }

    /// Tells the program the address to which it believes that its socket is connected, if it is one of ours.
    fn name_peer(&self, call: &Call) -> Option<()> {
        if self.sockets.is_empty() && self.published.is_none() && !self.names.are_used() {
            return None;
        }
        let told = call.with_caller(|caller| {
            let socket = caller.descriptor(call.argument(0))?;
            let socket = SockRef::from(&socket);
            // The kernel says that a connection has ended.
            let peer = socket.peer_addr()?.as_socket();
            let address = match self.sockets.get(socket.cookie()?) {
                Some(State::Connected(address)) => Some(address),
                _ if socket.r#type()? == Type::DGRAM => peer.and_then(|peer| self.names.server_behind(peer)),
                _ => self.origin(peer),
            };
            address.map(|address| write_address(caller, call.argument(1), call.argument(2), address)).transpose()
        });
        told.ok()?
    }

    /// Tells the program an address of this host that fits the address to which it believes that its socket is, or
    /// was, connected, if it is one of ours. The port is the kernel's.
    fn name_own(&self, call: &Call) -> Option<()> {
        let told = call.with_caller(|caller| {
            let socket = caller.descriptor(call.argument(0))?;
            let socket = SockRef::from(&socket);
            let Some(target) = self.sockets.target(socket.cookie()?) else { return Ok(None) };
            // A program that has bound its socket knows its address already.
            let kernels = socket.local_addr()?.as_socket().filter(|own| own.ip().to_canonical().is_loopback());
            let address = kernels.and_then(|kernels| match (kernels, own_address(target)?) {
                (SocketAddr::V6(_), IpAddr::V4(ip)) => {
                    Some(SocketAddr::new(ip.to_ipv6_mapped().into(), kernels.port()))
                }
                (SocketAddr::V4(_), IpAddr::V6(_)) => None,
                (_, ip) => Some(SocketAddr::new(ip, kernels.port())),
            });
            address.map(|address| write_address(caller, call.argument(1), call.argument(2), address)).transpose()
        });
        told.ok()?
    }

    fn origin(&self, address: Option<SocketAddr>) -> Option<SocketAddr> {
        self.published.as_ref()?.origin(address?)
    }

    /// Tells the program why its socket could not be connected, if it is one of ours.
    fn tell_error(&self, call: &Call) -> Option<()> {
        if !self.sockets.has_failed() {
            return None;
        }
        let told = call.with_caller(|caller| {
            let socket = caller.descriptor(call.argument(0))?;
            let socket = SockRef::from(&socket);
            let Some(error) = self.sockets.take_error(socket.cookie()?) else { return Ok(None) };
            // The kernel's own error, which the end of the attempt has left.
            let _other = socket.take_error()?;
            let (place, len_place) = (call.argument(3), call.argument(4));
            let mut len = [0; 4];
            caller.read(len_place, &mut len)?;
            let bytes = error.raw_os_error().to_ne_bytes();
            let space = bytes.len().min(u32::from_ne_bytes(len) as usize);
            caller.write(place, &bytes[..space])?;
            caller.write(len_place, &(space as u32).to_ne_bytes())?;
            Ok(Some(()))
        });
        told.ok()?
    }

    /// Accepts a connection in place of the kernel, so that the program learns where it comes from.
    async fn accept(&self, call: Call, flags: SocketFlags) {
        let listener = call.with_caller(|caller| caller.descriptor(call.argument(0)));
        let Ok(mut listener) = listener else { return call.let_through() };
        let is_ours = is_listening_tcp(&listener) && self.published.is_some();
        let is_blocking = rustix::fs::fcntl_getfl(&listener).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
        if !is_ours {
            return call.let_through();
        }
        loop {
            {
                let _alone = self.accepting.lock().await;
                if poll_for(&listener, Duration::ZERO) {
                    return self.accept_now(call, &listener, flags);
                }
            }
            if !is_blocking {
                // The kernel might accept a connection that comes now, and name another peer.
                return call.answer(Err(Errno::AGAIN));
            }
            // A signal ends the kernel's call as it always does.
            if call.has_signal() {
                return call.let_through();
            }
            listener = wait_until_ready(listener).await;
        }
    }

    fn accept_now(&self, call: Call, listener: &OwnedFd, flags: SocketFlags) {
        let accepted = match rustix::net::accept_with(listener, flags | SocketFlags::CLOEXEC) {
            Ok(accepted) => accepted,
            Err(error) => return call.answer(Err(error)),
        };
        let peer = SockRef::from(&accepted).peer_addr().ok().and_then(|peer| peer.as_socket());
        let Some(address) = self.origin(peer).or(peer) else {
            // It has ended meanwhile.
            return call.answer(Err(Errno::CONNABORTED));
        };
        if call.with_caller(|caller| write_address(caller, call.argument(1), call.argument(2), address)).is_err() {
            return call.answer(Err(Errno::FAULT));
        }
        let is_closed_on_exec = flags.contains(SocketFlags::CLOEXEC);
        if let Err(error) = call.answer_with_descriptor(accepted.as_fd(), is_closed_on_exec) {
            tracing::info!(%error, "a connection that no one has accepted is closed");
        }
    }
}

fn is_listening_tcp(socket: &OwnedFd) -> bool {
    is_tcp(socket) && rustix::net::sockopt::socket_acceptconn(socket).is_ok_and(|is_listening| is_listening)
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
