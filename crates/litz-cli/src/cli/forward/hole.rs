//! Connections of sockets that do not block: the call returns at once, and the connection is made later.
//!
//! ```text
//!  program's socket ── SYN ──▶ a listener that is full: the kernel drops the SYN (SYN-SENT)
//!                   ◀── SYN ── a socket of this process with the listener's address, when the far host
//!                              has answered: both are connected (simultaneous open)
//! ```
//!
//! Two sockets that connect to each other are connected (RFC 9293, section 3.5), so the program's socket
//! waits as one that connects to a distant host, and is told at once when the far host has answered.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use socket2::{Domain, SockRef, Socket as RawSocket, Type};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::local_pair::{prepare, raise_ttl};

/// The time for a connection inside this host.
const LOCAL_TIME: Duration = Duration::from_secs(5);

/// A listener of loopback that takes no more connections.
pub(super) struct Hole {
    address: SocketAddr,
    /// It has this one, which is never accepted.
    _sockets: [RawSocket; 2],
}

impl Hole {
    #[expect(clippy::disallowed_methods, reason = "a connection inside this host is the kernel's")]
    pub(super) fn new(ip: IpAddr) -> io::Result<Self> {
        let domain = Domain::for_address(SocketAddr::new(ip, 0));
        let listener = RawSocket::new(domain, Type::STREAM, None)?;
        // Other sockets of this process get its address.
        listener.set_reuse_port(true)?;
        listener.bind(&SocketAddr::new(ip, 0).into())?;
        // One connection may wait.
        listener.listen(0)?;
        let address = listener.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let waiting = RawSocket::new(domain, Type::STREAM, None)?;
        waiting.connect(&address.into())?;
        Ok(Self { address, _sockets: [listener, waiting] })
    }

    /// Begins the connection of a program's socket that does not block.
    pub(super) fn begin(&self, socket: &OwnedFd) -> io::Result<()> {
        prepare(socket);
        match rustix::net::connect(socket, &self.address) {
            Err(Errno::INPROGRESS) => Ok(()),
            Ok(()) => Err(io::Error::other("the listener is not full")),
            Err(error) => Err(error.into()),
        }
    }

    /// Connects it; returns the other end.
    pub(super) async fn complete(&self, socket: &OwnedFd) -> io::Result<TcpStream> {
        let own = SockRef::from(socket).local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let end = if own.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        end.set_reuseport(true)?;
        raise_ttl(SockRef::from(&end))?;
        end.bind(self.address)?;
        timeout(LOCAL_TIME, end.connect(own)).await.map_err(|_| io::ErrorKind::TimedOut)?
    }
}
