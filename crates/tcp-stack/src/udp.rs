//! [`UdpPort`]: a UDP port of a [`TcpStack`](crate::TcpStack).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use driver::Flush;
use tcp_driver::udp::{Datagram, UdpError};
use tcp_driver::{Runtime, TcpShared};

use crate::runtime::TcpRuntime;

/// A UDP port. It is free again when this is dropped.
pub struct UdpPort {
    pub(crate) port: tcp_driver::udp::UdpPort,
    pub(crate) runtime: TcpRuntime,
    pub(crate) shared: Arc<TcpShared>,
    /// Addresses of the stack.
    pub(crate) addresses: Vec<IpAddr>,
}

impl UdpPort {
    /// Returns its number.
    pub const fn number(&self) -> u16 {
        self.port.number()
    }

    /// Sends a datagram to `remote` from the first address of its family. Datagrams larger than a
    /// packet are sent in fragments. Like any datagram, it may get lost.
    ///
    /// # Errors
    /// Fails if it is too large, too many wait, or the stack has no such address.
    pub fn send_to(&self, data: &[u8], remote: SocketAddr) -> Result<(), UdpError> {
        let local = self.addresses.iter().find(|ip| ip.is_ipv4() == remote.is_ipv4());
        self.port.send(*local.ok_or(UdpError::NoAddress)?, remote, data)?;
        self.runtime.kick(&self.shared, Flush::Now);
        Ok(())
    }

    /// Answers a datagram from the address that it was sent to.
    ///
    /// # Errors
    /// Same errors as [`send_to`](Self::send_to).
    pub fn answer(&self, datagram: &Datagram, data: &[u8]) -> Result<(), UdpError> {
        self.port.send(datagram.local, datagram.remote, data)?;
        self.runtime.kick(&self.shared, Flush::Now);
        Ok(())
    }

    /// Does the same as [`receive`](Self::receive) for asynchronous callers; never becomes ready if
    /// the stack is closed.
    pub async fn receive_async(&self) -> Datagram {
        std::future::poll_fn(|context| self.port.poll_receive(context.waker())).await
    }

    /// Returns the next datagram, waiting for it for at most `timeout` if there is one. Returns
    /// `None` after that, or if the stack is closed.
    pub fn receive(&self, timeout: Option<Duration>) -> Option<Datagram> {
        let deadline = timeout.map(|timeout| self.runtime.deadline_after(timeout));
        self.runtime.block_on(deadline, |waker| self.port.poll_receive(waker))
    }
}
