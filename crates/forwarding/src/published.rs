//! Connections of far programs to the program's own listening sockets (`--publish`).

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forward::message::{Failure, Reason};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use super::socket::Socket;

/// The time for a connection inside this host.
const LOCAL_TIME: Duration = Duration::from_secs(5);

/// Where the connections come from that this process makes to the program.
#[derive(Default)]
pub struct Published {
    /// By the address of this process's socket.
    origins: Mutex<BTreeMap<SocketAddr, SocketAddr>>,
}

/// The origin of a connection is known until this is dropped.
pub struct KnownOrigin {
    published: Arc<Published>,
    address: SocketAddr,
}

/// A port of the program, in words.
pub fn port_of_program(port: u16) -> String {
    format!("port {port} of the program")
}

impl Published {
    /// Connects to a port of this host, whose program believes that `origin` does.
    ///
    /// # Errors
    /// If the program does not listen, or the system refuses: for the far program.
    pub async fn connect(
        self: &Arc<Self>,
        port: u16,
        origin: Option<SocketAddr>,
    ) -> Result<(Socket, Option<KnownOrigin>), Failure> {
        let connected = match self.connect_to(Ipv4Addr::LOCALHOST.into(), port, origin).await {
            // A program may listen for one of them only.
            Err(error) => self.connect_to(Ipv6Addr::LOCALHOST.into(), port, origin).await.map_err(|_| error),
            connected => connected,
        };
        connected.map_err(|error| {
            let is_refused = error.kind() == io::ErrorKind::ConnectionRefused;
            let detail = format!("cannot connect to {}: {error}", port_of_program(port));
            Failure::new(if is_refused { Reason::Refused } else { Reason::Other }, &detail)
        })
    }

    async fn connect_to(
        self: &Arc<Self>,
        ip: IpAddr,
        port: u16,
        origin: Option<SocketAddr>,
    ) -> io::Result<(Socket, Option<KnownOrigin>)> {
        let socket = if ip.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.bind(SocketAddr::new(ip, 0))?;
        let address = socket.local_addr()?;
        // Before the program can accept it.
        let named = origin.map(|origin| {
            self.origins().insert(address, origin);
            KnownOrigin { published: Arc::clone(self), address }
        });
        let connected = timeout(LOCAL_TIME, socket.connect(SocketAddr::new(ip, port))).await;
        let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        Ok((Socket::tcp(stream), named))
    }

    /// Where a connection comes from that the kernel says to come from `address`, as a socket of this
    /// family has it. `None` if it is none of ours, or the family has no such address.
    pub fn origin(&self, address: SocketAddr) -> Option<SocketAddr> {
        let canonical = SocketAddr::new(address.ip().to_canonical(), address.port());
        let origin = self.origins().get(&canonical).copied()?;
        match (address, origin.ip()) {
            (SocketAddr::V4(_), IpAddr::V4(_)) | (SocketAddr::V6(_), IpAddr::V6(_)) => Some(origin),
            (SocketAddr::V6(_), IpAddr::V4(ip)) => Some(SocketAddr::new(ip.to_ipv6_mapped().into(), origin.port())),
            (SocketAddr::V4(_), IpAddr::V6(_)) => None,
        }
    }

    fn origins(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, SocketAddr>> {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KnownOrigin {
    fn drop(&mut self) {
        self.published.origins().remove(&self.address);
    }
}
