//! What becomes of a call of connect.
//!
//! | the call | goes |
//! |---|---|
//! | TCP or MPTCP to another host | to the far host |
//! | to a name server that this process stands for | to this process |
//! | bound to a device, or to an address that this host does not have; to a neighbour on a link; in another network namespace | to the kernel: the program asks for a network of this host |
//! | address and family that do not fit, a socket that is connected already | to the kernel: it has the error |
//! | this host, groups, `--direct`, UDP, UNIX sockets | to the kernel |
//! | other protocols with connections | to the kernel, or nowhere (`--strict`) |
//!
//! The guide (docs/guide/run.md, properties of sockets) says what becomes of each option of a socket that is taken
//! over.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use forward::address::Protocol;
use intercept::socket::network_namespace;
use intercept::{Call, sockaddr};
use rustix::io::Errno;
use socket2::{Domain, SockRef, Type};

use super::Takeover;
use super::on_behalf::Direct;

/// A call of connect that is taken over.
pub(super) struct Wanted {
    pub(super) socket: OwnedFd,
    /// The kernel's number of the socket.
    pub(super) number: u64,
    pub(super) address: SocketAddr,
}

/// What becomes of a call of connect.
pub(super) enum Decision {
    TakenOver(Wanted),
    /// The program looks up names.
    NameServer(Wanted),
    /// The error of the connection that could not be made.
    Failed(Errno),
    /// The kernel connects it, with the address that was looked at.
    OnBehalf(Direct),
    LetThrough,
}

/// The longest address that the kernel takes (`struct sockaddr_storage`).
const ADDRESS_LEN_MAX: u32 = 128;

/// The arguments of a call of connect, copied: the program may change them at any time.
struct Arguments {
    socket: OwnedFd,
    number: u64,
    bytes: [u8; sockaddr::LEN_MAX],
    len: usize,
}

impl Takeover {
    /// A connection is taken over if it is TCP to another host, by any link.
    pub(super) fn decide(&self, call: &Call) -> Decision {
        let arguments = match Self::arguments(call) {
            Ok(arguments) => arguments,
            Err(error) => return self.unreadable(&error),
        };
        let bytes = &arguments.bytes[..arguments.len];
        let Some(address) = sockaddr::parse(bytes) else {
            let is_hidden = sockaddr::unix_path(bytes).is_some_and(|path| self.names.hide(path));
            return if is_hidden { Decision::Failed(Errno::NOENT) } else { self.let_through(arguments) };
        };
        let socket = &arguments.socket;
        let is_udp = is_udp(socket);
        let protocol = if is_udp { Protocol::Udp } else { Protocol::Tcp };
        let is_direct = || self.direct.allows_address(protocol, address) || is_of_this_host(socket, address);
        if self.names.are_asked_at(address) && !is_direct() {
            let is_asking = is_udp || is_unconnected_tcp(socket);
            return if is_asking {
                Decision::NameServer(arguments.into_wanted(address))
            } else {
                self.let_through(arguments)
            };
        }
        // A program may learn by a second call how the first one ended.
        if let Some(error) = self.sockets.take_error(arguments.number) {
            return Decision::Failed(error);
        }
        let is_far = is_host(address.ip()) && !is_direct();
        let is_new = || is_unconnected_tcp(socket) && self.sockets.get(arguments.number).is_none();
        if is_far && address.port() != 0 && is_new() {
            Decision::TakenOver(arguments.into_wanted(address))
        } else if is_far && self.is_strict && has_connections(socket) {
            Decision::Failed(refusal(socket, address))
        } else {
            self.let_through(arguments)
        }
    }

    fn arguments(call: &Call) -> io::Result<Arguments> {
        // The kernel takes an int from the register.
        let len = call.argument(2) as u32;
        if len > ADDRESS_LEN_MAX {
            return Err(Errno::INVAL.into());
        }
        let len = (len as usize).min(sockaddr::LEN_MAX);
        call.with_caller(|caller| {
            let mut bytes = [0; sockaddr::LEN_MAX];
            caller.read(call.argument(1), &mut bytes[..len]).map_err(|_| Errno::FAULT)?;
            let socket = caller.descriptor(call.argument(0))?;
            let number = SockRef::from(&socket).cookie()?;
            Ok(Arguments { socket, number, bytes, len })
        })
    }

    /// A call whose arguments this process cannot have: that of a program which hides its memory, or one that
    /// fails anyway.
    fn unreadable(&self, error: &io::Error) -> Decision {
        tracing::info!(%error, "a call is not taken over");
        if !self.is_strict {
            return Decision::LetThrough;
        }
        Decision::Failed(match Errno::from_io_error(error) {
            Some(error @ (Errno::BADF | Errno::FAULT | Errno::INVAL | Errno::NOTSOCK)) => error,
            _ => Errno::ACCESS,
        })
    }

    /// The kernel connects. With `--strict` it is this process that calls it: a call that goes on reads its
    /// address again, which another thread of the program may have changed since it was looked at.
    fn let_through(&self, arguments: Arguments) -> Decision {
        let Arguments { socket, bytes, len, .. } = arguments;
        // The other end of a UNIX socket is told which process connects, and its path is one of the program's
        // folders.
        let is_internet = matches!(SockRef::from(&socket).domain(), Ok(Domain::IPV4 | Domain::IPV6));
        match self.is_strict && is_internet {
            true => Decision::OnBehalf(Direct { socket, address: bytes[..len].to_vec() }),
            false => Decision::LetThrough,
        }
    }
}

impl Arguments {
    fn into_wanted(self, address: SocketAddr) -> Wanted {
        Wanted { socket: self.socket, number: self.number, address }
    }
}

/// Whether a program asks for a link or a network of this host: the far host has no part in it.
fn is_of_this_host(socket: &OwnedFd, address: SocketAddr) -> bool {
    is_bound_to_device(socket)
        || is_on_link(address.ip())
        || !fits(socket, address)
        || is_in_other_namespace(socket)
        || is_bound_elsewhere(socket)
}

/// Whether an address means a host of one link (RFC 4291, section 2.5.6). That of IPv4 is not among them:
/// virtual machines have services there, which the far host may have, too.
fn is_on_link(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Whether the kernel connects such a socket to such an address at all: otherwise it has the error.
fn fits(socket: &OwnedFd, address: SocketAddr) -> bool {
    let socket = SockRef::from(socket);
    let is_mapped = |address: &Ipv6Addr| address.to_ipv4_mapped().is_some();
    match (socket.domain(), address) {
        (Ok(Domain::IPV4), address) => address.is_ipv4(),
        (Ok(Domain::IPV6), SocketAddr::V6(address)) => {
            !(is_mapped(address.ip()) && socket.only_v6().is_ok_and(|is_only| is_only))
        }
        (Ok(Domain::IPV6), SocketAddr::V4(_)) => false,
        // Others name hosts by addresses of IP, too, such as AF_SMC.
        _ => true,
    }
}

/// Whether a socket is one of another network namespace, from which this process is not reached.
#[expect(clippy::disallowed_methods, reason = "asks the kernel, and sends nothing")]
fn is_in_other_namespace(socket: &OwnedFd) -> bool {
    static OWN: OnceLock<Option<u64>> = OnceLock::new();
    let own = OWN.get_or_init(|| network_namespace(std::net::UdpSocket::bind("127.0.0.1:0").ok()?.as_fd()).ok());
    own.is_some_and(|own| network_namespace(socket.as_fd()).is_ok_and(|other| other != own))
}

/// Whether a socket is bound to an address that this host does not have (IP_TRANSPARENT, IP_FREEBIND). Answers to
/// such an address come by a route or rule that is made for it, and not from this process.
#[expect(clippy::disallowed_methods, reason = "asks the kernel, and sends nothing")]
fn is_bound_elsewhere(socket: &OwnedFd) -> bool {
    let own =
        SockRef::from(socket).local_addr().ok().and_then(|own| own.as_socket()).map(|own| own.ip().to_canonical());
    let bound = own.filter(|own| !own.is_unspecified() && !own.is_loopback());
    bound.is_some_and(|own| {
        let bound = std::net::UdpSocket::bind((own, 0));
        bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
    })
}

/// Whether it is the address of one host, another one perhaps.
fn is_host(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST))
}

/// Whether a socket is connected to one other by a handshake, as those of TCP, SCTP and SMC are: what goes without
/// Litz by others does so with `--strict`, too.
fn has_connections(socket: &OwnedFd) -> bool {
    !matches!(SockRef::from(socket).r#type(), Ok(Type::DGRAM | Type::RAW))
}

/// Why a socket cannot be connected to a far host, where the kernel must not do it.
fn refusal(socket: &OwnedFd, address: SocketAddr) -> Errno {
    match (is_tcp(socket), is_unconnected_tcp(socket)) {
        (true, false) => Errno::ISCONN,
        // Its connection has begun.
        (true, true) if address.port() != 0 => Errno::ALREADY,
        // Port 0, and connections of other protocols.
        _ => Errno::ACCESS,
    }
}

/// Also of multipath TCP (RFC 8684), with which servers of Go listen. It falls back to TCP.
pub(super) fn is_tcp(socket: &OwnedFd) -> bool {
    is_of(socket, socket2::Protocol::TCP) || is_of(socket, socket2::Protocol::MPTCP)
}

pub(super) fn is_udp(socket: &OwnedFd) -> bool {
    is_of(socket, socket2::Protocol::UDP)
}

pub(super) fn is_of(socket: &OwnedFd, wanted: socket2::Protocol) -> bool {
    SockRef::from(socket).protocol().is_ok_and(|protocol| protocol == Some(wanted))
}

/// Whether the kernel sends what comes from this socket by one device only (SO_BINDTODEVICE).
fn is_bound_to_device(socket: &OwnedFd) -> bool {
    // It fails if the device is gone.
    !matches!(SockRef::from(socket).device(), Ok(None))
}

/// Whether it is a TCP socket without a connection.
fn is_unconnected_tcp(socket: &OwnedFd) -> bool {
    is_tcp(socket) && SockRef::from(socket).peer_addr().is_err()
}
