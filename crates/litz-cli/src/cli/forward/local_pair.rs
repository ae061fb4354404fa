//! TCP connections inside this host, between a program and this process.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use socket2::{Domain, SockRef};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// The time for a connection inside this host.
const LOCAL_TIME: Duration = Duration::from_secs(5);

/// Both ends of a new connection: the first one for a program.
pub(super) async fn pair() -> io::Result<(OwnedFd, TcpStream)> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let (stream, _connected) = connect_here(&socket).await?;
    Ok((socket, stream))
}

/// Connects the socket of a program to one of this process. The result is what the program's call returns.
#[expect(clippy::disallowed_methods, reason = "a connection inside this host is the kernel's")]
pub(super) async fn connect_here(socket: &OwnedFd) -> io::Result<(TcpStream, Result<i64, Errno>)> {
    prepare(socket);
    let is_ipv6 = SockRef::from(socket).domain()? == Domain::IPV6;
    let v4 = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let bound = match is_ipv6 && !is_bound_to_ipv4(socket) {
        // A host may have no IPv6.
        true => std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).or_else(|_| std::net::TcpListener::bind((v4, 0))),
        false => std::net::TcpListener::bind((v4, 0)),
    };
    let listener = bound?;
    listener.set_nonblocking(true)?;
    raise_ttl(SockRef::from(&listener))?;
    let mut address = listener.local_addr()?;
    if let (true, IpAddr::V4(ip)) = (is_ipv6, address.ip()) {
        address.set_ip(ip.to_ipv6_mapped().into());
    }
    let result = match rustix::net::connect(socket.as_fd(), &address) {
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

/// Sets off what would keep a program's socket from beginning a connection inside this host.
pub(super) fn prepare(socket: &OwnedFd) {
    // It would begin when the program sends (TCP_FASTOPEN_CONNECT). There may be no such option.
    let _absent = setsockopt(socket, sockopt::TcpFastOpenConnect, &false);
}

/// Whether a socket of IPv6 is bound to an address of IPv4, from which no address of IPv6 is reached.
pub(super) fn is_bound_to_ipv4(socket: &OwnedFd) -> bool {
    let own = SockRef::from(socket).local_addr().ok().and_then(|own| own.as_socket());
    own.is_some_and(|own| own.is_ipv6() && own.ip().to_canonical().is_ipv4())
}

/// Gives packets of our end the largest time to live: programs may refuse lower ones (IP_MINTTL, RFC 5082).
pub(super) fn raise_ttl(socket: SockRef<'_>) -> io::Result<()> {
    match socket.domain()? == Domain::IPV6 {
        true => socket.set_unicast_hops_v6(255),
        false => socket.set_ttl_v4(255),
    }
}
