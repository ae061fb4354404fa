//! Connects to targets. The addresses of a name are tried as in Happy Eyeballs (RFC 8305).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::panic::resume_unwind;
use std::time::Duration;

use forward::address::{Address, Host, HostName, Protocol, Target, UnixPath};
use forward::message::{ADDRESSES_MAX as ADDRESSES_OF_NAME_MAX, Failure, Reason};
use forward::policy::{Policy, Verdict};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpSocket, UdpSocket, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::socket::Socket;
use super::sources::Sources;

/// The time to look up a name.
const LOOKUP_TIME: Duration = Duration::from_secs(10);

/// The time to connect, over all addresses of a name.
pub const DIAL_TIME: Duration = Duration::from_secs(20);

/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;

/// The time that an attempt has before the next address is tried beside it (RFC 8305, section 8).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Says what may be wrong with this host where a name cannot be looked up: text that is appended to the message.
pub type LookupAdvice = fn() -> Option<String>;

/// A socket to a target.
pub(crate) enum Dialled {
    Stream(Socket),
    Packets(UdpSocket),
}

impl Dialled {
    /// The address of this end.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Stream(socket) => socket.local_addr(),
            Self::Packets(socket) => socket.local_addr().ok(),
        }
    }
}

/// Connects to `target` from `sources`, as far as `policy` allows it; without one, everything is allowed.
pub(crate) async fn dial(
    target: &Target,
    policy: Option<&Policy>,
    sources: Sources,
    advice: LookupAdvice,
) -> Result<Dialled, Failure> {
    let verdict = policy.map_or(Verdict::Allowed, |policy| policy.verdict(target));
    if verdict == Verdict::Refused {
        return Err(not_allowed(target));
    }
    let (protocol, address) = match target {
        Target::Unix(path) => return dial_unix(path).await,
        Target::Host(protocol, address) => (*protocol, address),
    };
    let mut addresses = resolve(address, advice).await?;
    if verdict == Verdict::ByAddress {
        addresses.retain(|address| policy.is_some_and(|policy| policy.allows_address(protocol, *address)));
        if addresses.is_empty() {
            return Err(not_allowed(target));
        }
    }
    if addresses.is_empty() {
        return Err(Failure::new(Reason::NameNotFound, &format!("{} has no address", address.host)));
    }
    let connected = first_connected(to_try(addresses), move |address| connect(protocol, address, sources));
    let connected = timeout(DIAL_TIME, connected).await;
    connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| to_failure(target, &error))
}

/// The first connection that any of these addresses gives, of which there is at least one. Each is tried
/// when the attempt before has failed or has taken 250 ms.
///
/// # Errors
/// The one that came last, if no address gives any.
///
/// # Panics
/// If `connect` does.
pub async fn first_connected<T, E, F>(addresses: Vec<SocketAddr>, connect: impl Fn(SocketAddr) -> F) -> Result<T, E>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
{
    let mut waiting = addresses.into_iter();
    // Dropped with the attempts that are too late.
    let mut attempts = JoinSet::new();
    loop {
        if let Some(address) = waiting.next() {
            attempts.spawn(connect(address));
        }
        let ended = match timeout(ATTEMPT_DELAY, attempts.join_next()).await {
            Ok(ended) => ended,
            Err(_) if waiting.len() > 0 => continue,
            Err(_) => attempts.join_next().await,
        };
        let ended = ended.expect("an attempt is in progress");
        let result = ended.unwrap_or_else(|panicked| resume_unwind(panicked.into_panic()));
        if result.is_ok() || (attempts.is_empty() && waiting.len() == 0) {
            return result;
        }
    }
}

/// The addresses that are tried: the families by turns, beginning with that of the first (RFC 8305,
/// section 4).
pub fn to_try(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_ipv4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (first, other): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv4() == first_is_ipv4);
    let mut other = other.into_iter();
    let mut result: Vec<_> = first.into_iter().flat_map(|first| [Some(first), other.next()]).flatten().collect();
    result.extend(other);
    result.truncate(ADDRESSES_MAX);
    result
}

async fn connect(protocol: Protocol, address: SocketAddr, sources: Sources) -> io::Result<Dialled> {
    let source = sources.towards(address)?;
    match protocol {
        Protocol::Tcp => {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            if let Some(source) = source {
                // The port is free for other targets: without it, there are no more connections than ports.
                setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
                socket.bind(source)?;
            }
            Ok(Dialled::Stream(Socket::tcp(socket.connect(address).await?)))
        }
        Protocol::Udp => {
            let any: IpAddr =
                if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let socket = UdpSocket::bind(source.unwrap_or(SocketAddr::new(any, 0))).await?;
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
///
/// # Errors
/// If its name cannot be looked up in 10 s. The message ends with the `advice`.
pub async fn resolve(address: &Address, advice: LookupAdvice) -> Result<Vec<SocketAddr>, Failure> {
    match &address.host {
        Host::Ip(ip) => Ok(vec![SocketAddr::new(*ip, address.port)]),
        Host::Name(name) => resolve_name(name, address.port, advice).await,
    }
}

async fn resolve_name(name: &HostName, port: u16, advice: LookupAdvice) -> Result<Vec<SocketAddr>, Failure> {
    let failed = |reason, why: &str| {
        let advice = advice().unwrap_or_default();
        Failure::new(reason, &format!("cannot look up {name}: {why}{advice}"))
    };
    match timeout(LOOKUP_TIME, tokio::net::lookup_host((name.as_str(), port))).await {
        Ok(Ok(found)) => Ok(found.map(|found| SocketAddr::new(found.ip().to_canonical(), found.port())).collect()),
        Ok(Err(error)) => Err(failed(Reason::NameNotFound, &error.to_string())),
        Err(_) => Err(failed(Reason::TimedOut, "no answer in time")),
    }
}

/// The addresses of a name that a client asks for, as far as `policy` allows it: at least one.
pub(crate) async fn look_up(name: &HostName, policy: &Policy, advice: LookupAdvice) -> Result<Vec<IpAddr>, Failure> {
    let not_allowed = || {
        let detail = format!("the server does not allow to look up {name} (no --target has the name or its addresses)");
        Failure::new(Reason::NotAllowed, &detail)
    };
    let verdict = policy.lookup_verdict(name);
    if verdict == Verdict::Refused {
        return Err(not_allowed());
    }
    let mut found = resolve_name(name, 0, advice).await?.into_iter().map(|address| address.ip()).collect::<Vec<_>>();
    if verdict == Verdict::ByAddress {
        found.retain(|ip| policy.may_reach(*ip));
        if found.is_empty() {
            return Err(not_allowed());
        }
    }
    if found.is_empty() {
        return Err(Failure::new(Reason::NameNotFound, &format!("{name} has no address")));
    }
    found.truncate(ADDRESSES_OF_NAME_MAX);
    Ok(found)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| SocketAddr::new(text.parse().expect("an address"), 80)).collect()
    }

    #[test]
    fn families_take_turns() {
        for (found, tried) in [
            (vec!["::1", "::2", "::3", "192.0.2.1"], vec!["::1", "192.0.2.1", "::2", "::3"]),
            (vec!["192.0.2.1", "192.0.2.2", "::1", "::2", "::3"], vec!["192.0.2.1", "::1", "192.0.2.2", "::2", "::3"]),
            (vec!["::1"], vec!["::1"]),
            (vec![], vec![]),
        ] {
            assert_eq!(to_try(addresses(&found)), addresses(&tried));
        }
    }

    /// A listener whose queue is full does not answer, like a host that is down. The test ends only because
    /// the next address is tried beside it.
    #[tokio::test]
    async fn an_address_that_does_not_answer_delays_and_one_that_refuses_does_not_end_the_attempts() {
        use tokio::net::{TcpSocket, TcpStream};
        let full = TcpSocket::new_v4().expect("a socket");
        full.bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let full = full.listen(0).expect("it listens");
        let silent = full.local_addr().expect("an address");
        let mut held = Vec::new();
        while let Ok(connected) = timeout(ATTEMPT_DELAY, TcpStream::connect(silent)).await {
            held.push(connected.expect("the queue has space"));
        }
        let closed = {
            let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            socket.local_addr().expect("an address")
        };
        let tcp = |address| connect(Protocol::Tcp, address, Sources::ANY);
        let works = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = works.local_addr().expect("an address");
        let dialled = first_connected(vec![silent, closed, address], tcp).await.expect("one works");
        let (_, peer) = works.accept().await.expect("a connection");
        assert_eq!(dialled.local_addr(), Some(peer));
        let error = first_connected(vec![closed], tcp).await.err().expect("none works");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
