//! Connects to targets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use forward::address::{Address, Host, Protocol, Target, UnixPath};
use forward::message::{Failure, Reason};
use forward::policy::{Policy, Verdict};
use tokio::net::{TcpStream, UdpSocket, UnixStream};
use tokio::time::{Instant, timeout};

use super::socket::Socket;

/// The time to look up a name.
const LOOKUP_TIME: Duration = Duration::from_secs(10);

/// The time to connect, over all addresses of a name.
pub(super) const DIAL_TIME: Duration = Duration::from_secs(20);

/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;

/// A socket to a target.
pub(super) enum Dialled {
    Stream(Socket),
    Packets(UdpSocket),
}

impl Dialled {
    /// The address of this end.
    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Stream(socket) => socket.local_addr(),
            Self::Packets(socket) => socket.local_addr().ok(),
        }
    }
}

/// Connects to `target`, as far as `policy` allows it; without one, everything is allowed.
pub(super) async fn dial(target: &Target, policy: Option<&Policy>) -> Result<Dialled, Failure> {
    let verdict = policy.map_or(Verdict::Allowed, |policy| policy.verdict(target));
    if verdict == Verdict::Refused {
        return Err(not_allowed(target));
    }
    let (protocol, address) = match target {
        Target::Unix(path) => return dial_unix(path).await,
        Target::Host(protocol, address) => (*protocol, address),
    };
    let mut addresses = resolve(address).await?;
    if verdict == Verdict::ByAddress {
        addresses.retain(|address| policy.is_some_and(|policy| policy.allows_address(protocol, *address)));
        if addresses.is_empty() {
            return Err(not_allowed(target));
        }
    }
    addresses.truncate(ADDRESSES_MAX);
    let end = Instant::now() + DIAL_TIME;
    let mut failure = Failure::new(Reason::NameNotFound, &format!("{} has no address", address.host));
    for (left, address) in addresses.iter().enumerate().map(|(index, address)| (addresses.len() - index, *address)) {
        // Each address gets an equal share of the time that is left.
        let share = end.saturating_duration_since(Instant::now()) / u32::try_from(left).unwrap_or(u32::MAX);
        let connected = timeout(share, connect(protocol, address)).await;
        match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(dialled) => return Ok(dialled),
            Err(error) => failure = to_failure(target, &error),
        }
    }
    Err(failure)
}

async fn connect(protocol: Protocol, address: SocketAddr) -> io::Result<Dialled> {
    match protocol {
        Protocol::Tcp => Ok(Dialled::Stream(Socket::tcp(TcpStream::connect(address).await?))),
        Protocol::Udp => {
            let any: IpAddr =
                if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
            socket.connect(address).await?;
            Ok(Dialled::Packets(socket))
        }
    }
}

async fn dial_unix(path: &UnixPath) -> Result<Dialled, Failure> {
    let connected = timeout(DIAL_TIME, UnixStream::connect(path.as_path())).await;
    match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => Ok(Dialled::Stream(Socket::unix(stream))),
        Err(error) => Err(to_failure(&Target::Unix(path.clone()), &error)),
    }
}

/// The addresses of a host.
async fn resolve(address: &Address) -> Result<Vec<SocketAddr>, Failure> {
    let name = match &address.host {
        Host::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, address.port)]),
        Host::Name(name) => name.as_str(),
    };
    let failed = |why: &str| Failure::new(Reason::NameNotFound, &format!("cannot look up {name}: {why}"));
    match timeout(LOOKUP_TIME, tokio::net::lookup_host((name, address.port))).await {
        Ok(Ok(found)) => Ok(found.map(|found| SocketAddr::new(found.ip().to_canonical(), found.port())).collect()),
        Ok(Err(error)) => Err(failed(&error.to_string())),
        Err(_) => Err(failed("no answer in time")),
    }
}

fn not_allowed(target: &Target) -> Failure {
    Failure::new(Reason::NotAllowed, &format!("the server does not allow {target} (no --target of it does)"))
}

fn to_failure(target: &Target, error: &io::Error) -> Failure {
    let reason = match error.kind() {
        io::ErrorKind::ConnectionRefused => Reason::Refused,
        io::ErrorKind::HostUnreachable => Reason::HostUnreachable,
        io::ErrorKind::NetworkUnreachable => Reason::NetworkUnreachable,
        io::ErrorKind::TimedOut => Reason::TimedOut,
        _ => Reason::Other,
    };
    Failure::new(reason, &format!("cannot connect to {target}: {error}"))
}
