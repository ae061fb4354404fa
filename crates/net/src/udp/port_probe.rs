//! Detects whether a port of another host is closed.
//!
//! A host answers a datagram to a closed port with an ICMP message (RFC 1122, section 4.1.3.1; RFC
//! 4443, section 3.1), which the kernel reports to sockets that are connected to that port alone.
//! The sockets of an endpoint are not connected, so that they can send to several addresses.

use std::io;
use std::net::SocketAddr;

use super::UdpSocketOptions;

/// Content of the datagram: no QUIC packet has this first byte, so the peer drops it (RFC 9000,
/// section 17), and such a short datagram triggers no stateless reset (section 10.3).
const QUESTION: [u8; 1] = [0];

/// A socket that probes one port.
#[derive(Debug)]
pub struct PortProbe {
    socket: socket2::Socket,
}

impl PortProbe {
    /// Creates a probe of `remote` from the address, the device and with the mark of `options`, but
    /// from another port.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(options: &UdpSocketOptions, remote: SocketAddr) -> io::Result<Self> {
        let mut options = options.clone();
        options.bind.set_port(0);
        (options.send_buffer_bytes, options.recv_buffer_bytes) = (4096, 4096);
        let socket = options.open().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        socket.set_nonblocking(true)?;
        socket.connect(&remote.into())?;
        Ok(Self { socket })
    }

    /// Sends a datagram; returns true if the answer to an earlier one was that the port is closed.
    /// The answer takes a round trip.
    pub fn ask(&self) -> bool {
        let is_refusal = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        let pending = self.socket.take_error().ok().flatten();
        // A send error says nothing about the port, unless it is an answer that arrived just now.
        let sent = self.socket.send(&QUESTION).err();
        pending.iter().chain(&sent).any(is_refusal)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_closed_port_is_told_from_an_open_one() {
        let options = UdpSocketOptions::new(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0));
        let open = options.open().unwrap();
        let address = open.local_addr().unwrap().as_socket().unwrap();
        let probe = PortProbe::open(&options, address).unwrap();
        assert!(!(0..10).any(|_| probe.ask()), "the port is open");
        drop(open);
        // On loopback the answer is there when the call returns.
        assert!((0..10).any(|_| probe.ask()), "the port is closed");
    }
}
