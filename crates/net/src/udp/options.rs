//! Opening a UDP socket, with errors that say what to do.

use core::fmt;
use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

/// Default size of the buffers: 4 MiB are 3 ms at 10 Gb/s, about as long as a busy thread may take
/// between calls. QUIC at several Gb/s loses packets with the 208 KiB that Linux grants by default.
const BUFFER_BYTES_WANTED: usize = 4 << 20;

/// Maximum size of a buffer: kernels store it in a signed 32-bit number and double it.
const BUFFER_BYTES_MAX: usize = 1 << 30;

/// Steps that may need a privilege, as verb phrases.
const STEP_MARK: &str = "mark the packets of";
const STEP_DEVICE: &str = "choose the device of";
const STEP_BIND: &str = "bind";

/// First port that is available to every user by default (`net.ipv4.ip_unprivileged_port_start`).
const FREE_PORT_MIN: u16 = 1024;

/// Options for opening a UDP socket.
///
/// More fields may be added: begin with [`new`](Self::new), and set others with the `with_`
/// methods or by assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpSocketOptions {
    /// The local address. Port 0 lets the system choose. Default: any IPv4 address, any port.
    pub bind: SocketAddr,
    /// The network device for all packets, by name (`SO_BINDTODEVICE`, Linux only). Without it the
    /// routing table decides, and two paths over two devices may use the same one. Default: none.
    pub device: Option<String>,
    /// Requested size of the send buffer in bytes. Default: 4 MiB.
    pub send_buffer_bytes: usize,
    /// Requested size of the receive buffer in bytes. Default: 4 MiB. Linux grants at most
    /// `net.core.rmem_max` (and `net.core.wmem_max` for sending) unless the process has
    /// `CAP_NET_ADMIN`; the granted sizes are in
    /// [`UdpSocket::granted_buffers`](crate::UdpSocket::granted_buffers).
    pub recv_buffer_bytes: usize,
    /// Whether several sockets can bind the same address; the system distributes the flows among
    /// them. Default: no.
    pub reuse_port: bool,
    /// The mark of all packets, for rules of the routing table (`SO_MARK`, Linux only; needs
    /// `CAP_NET_ADMIN` or `CAP_NET_RAW`). Default: none.
    pub mark: Option<u32>,
}

/// An error while opening a socket.
#[derive(Debug)]
pub struct OpenError {
    /// The failed step, as a verb phrase.
    step: &'static str,
    bind: SocketAddr,
    device: Option<String>,
    source: io::Error,
}

impl Default for UdpSocketOptions {
    fn default() -> Self {
        Self::new(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))
    }
}

impl UdpSocketOptions {
    /// Creates the default options, bound to `bind`.
    #[must_use]
    pub const fn new(bind: SocketAddr) -> Self {
        Self {
            bind,
            device: None,
            send_buffer_bytes: BUFFER_BYTES_WANTED,
            recv_buffer_bytes: BUFFER_BYTES_WANTED,
            reuse_port: false,
            mark: None,
        }
    }

    /// Sets [`bind`](Self::bind).
    #[must_use]
    pub fn with_bind(mut self, bind: SocketAddr) -> Self {
        self.bind = bind;
        self
    }

    /// Sets [`device`](Self::device).
    #[must_use]
    pub fn with_device(mut self, device: impl Into<Option<String>>) -> Self {
        self.device = device.into();
        self
    }

    /// Sets [`send_buffer_bytes`](Self::send_buffer_bytes).
    #[must_use]
    pub fn with_send_buffer_bytes(mut self, send_buffer_bytes: usize) -> Self {
        self.send_buffer_bytes = send_buffer_bytes;
        self
    }

    /// Sets [`recv_buffer_bytes`](Self::recv_buffer_bytes).
    #[must_use]
    pub fn with_recv_buffer_bytes(mut self, recv_buffer_bytes: usize) -> Self {
        self.recv_buffer_bytes = recv_buffer_bytes;
        self
    }

    /// Sets [`reuse_port`](Self::reuse_port).
    #[must_use]
    pub fn with_reuse_port(mut self, reuse_port: bool) -> Self {
        self.reuse_port = reuse_port;
        self
    }

    /// Sets [`mark`](Self::mark).
    #[must_use]
    pub fn with_mark(mut self, mark: impl Into<Option<u32>>) -> Self {
        self.mark = mark.into();
        self
    }

    #[expect(clippy::disallowed_methods, reason = "this is where sockets are opened")]
    pub(super) fn open(&self) -> Result<Socket, OpenError> {
        let socket = Socket::new(Domain::for_address(self.bind), Type::DGRAM, Some(Protocol::UDP))
            .map_err(|error| self.error("create", error))?;
        if self.bind.is_ipv6() {
            // Otherwise IPv4 peers would appear with IPv6 addresses, and one path could have two
            // addresses.
            socket.set_only_v6(true).map_err(|error| self.error("restrict to IPv6", error))?;
        }
        // Linux may give a socket that requests any port and shares it the port of another such
        // socket of the same user, so an unrelated program would get some of its datagrams.
        // Therefore the first socket of a port binds it exclusively and shares it from then on.
        let gets_any_port = self.bind.port() == 0;
        if self.reuse_port && !gets_any_port {
            self.share_port(&socket)?;
        }
        if let Some(mark) = self.mark {
            set_mark(&socket, mark).map_err(|error| self.error(STEP_MARK, error))?;
        }
        if let Some(device) = &self.device {
            bind_device(&socket, device).map_err(|error| self.error(STEP_DEVICE, error))?;
        }
        self.set_buffers(&socket).map_err(|error| self.error("size the buffers of", error))?;
        socket.bind(&self.bind.into()).map_err(|error| self.error(STEP_BIND, error))?;
        if self.reuse_port && gets_any_port {
            self.share_port(&socket)?;
        }
        Ok(socket)
    }

    fn share_port(&self, socket: &Socket) -> Result<(), OpenError> {
        socket.set_reuse_port(true).map_err(|error| self.error("share the port of", error))
    }

    pub(super) fn error(&self, step: &'static str, source: io::Error) -> OpenError {
        OpenError { step, bind: self.bind, device: self.device.clone(), source }
    }

    fn set_buffers(&self, socket: &Socket) -> io::Result<()> {
        let send_bytes = self.send_buffer_bytes.min(BUFFER_BYTES_MAX);
        let recv_bytes = self.recv_buffer_bytes.min(BUFFER_BYTES_MAX);
        socket.set_send_buffer_size(send_bytes)?;
        socket.set_recv_buffer_size(recv_bytes)?;
        exceed_limits(socket, send_bytes, recv_bytes)
    }
}

/// Requests the sizes again past the system's limit, which needs a privilege. A rejection is not an
/// error: smaller buffers work too.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn exceed_limits(socket: &Socket, send_bytes: usize, recv_bytes: usize) -> io::Result<()> {
    use rustix::net::sockopt;

    let (send_granted, recv_granted) = granted_buffers(socket)?;
    if send_granted < send_bytes {
        let _refused = sockopt::set_socket_send_buffer_size_force(socket, send_bytes);
    }
    if recv_granted < recv_bytes {
        let _refused = sockopt::set_socket_recv_buffer_size_force(socket, recv_bytes);
    }
    Ok(())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn exceed_limits(_socket: &Socket, _send_bytes: usize, _recv_bytes: usize) -> io::Result<()> {
    Ok(())
}

/// Returns the sizes of the send and receive buffer, in the unit of the request.
pub(super) fn granted_buffers(socket: &Socket) -> io::Result<(usize, usize)> {
    // Linux doubles the requested size for its own accounting, and reports the doubled size
    // (socket(7)).
    let share = if cfg!(any(target_os = "linux", target_os = "android")) { 2 } else { 1 };
    Ok((socket.send_buffer_size()? / share, socket.recv_buffer_size()? / share))
}

#[cfg(target_os = "linux")]
fn set_mark(socket: &Socket, mark: u32) -> io::Result<()> {
    socket.set_mark(mark)
}

#[cfg(not(target_os = "linux"))]
fn set_mark(_socket: &Socket, _mark: u32) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "packets can be marked on Linux only"))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn bind_device(socket: &Socket, device: &str) -> io::Result<()> {
    if device.is_empty() {
        // The kernel would interpret an empty name as "no device".
        return Err(Errno::NODEV.into());
    }
    socket.bind_device(Some(device.as_bytes()))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn bind_device(_socket: &Socket, _device: &str) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "binding to a device is supported on Linux only"))
}

impl OpenError {
    /// Returns the kind of the system's error.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Returns the privilege that the failed step needs, if any.
    fn missing_privilege(&self) -> Option<&'static str> {
        match self.step {
            STEP_MARK => Some("marking packets needs root, or CAP_NET_ADMIN"),
            STEP_DEVICE => {
                Some("binding to a device needs CAP_NET_RAW on this kernel: run as root or leave the device out")
            }
            STEP_BIND if (1..FREE_PORT_MIN).contains(&self.bind.port()) => {
                Some("ports below 1024 need a privilege: choose a higher port")
            }
            _ => None,
        }
    }

    fn advice(&self) -> Option<&'static str> {
        Some(match Errno::from_io_error(&self.source)? {
            Errno::NODEV | Errno::NAMETOOLONG => "no device has this name: `ip link` lists them",
            Errno::PERM | Errno::ACCESS => return self.missing_privilege(),
            Errno::ADDRINUSE => "another socket has this port: choose another one, or 0 for any",
            Errno::ADDRNOTAVAIL => "no device of this machine has this address: `ip address` lists them",
            Errno::AFNOSUPPORT => "this machine has no IPv6: use an IPv4 address",
            Errno::MFILE | Errno::NFILE => "too many files are open: raise the limit (`ulimit -n`) or use fewer paths",
            _ => return None,
        })
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} the UDP socket {}", self.step, self.bind)?;
        if let Some(device) = &self.device {
            write!(f, " on device {device}")?;
        }
        write!(f, ": {}", self.source)?;
        if let Some(advice) = self.advice() {
            write!(f, " ({advice})")?;
        }
        Ok(())
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_about_privileges_is_about_the_step_that_failed() {
        let any_port = UdpSocketOptions::new(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0));
        let low_port = any_port.clone().with_bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 443));
        let on_device = low_port.clone().with_device("eth0".to_owned());
        for (options, step, words) in [
            (&any_port, STEP_MARK, Some("CAP_NET_ADMIN")),
            (&on_device, STEP_MARK, Some("CAP_NET_ADMIN")),
            (&on_device, STEP_DEVICE, Some("CAP_NET_RAW")),
            (&on_device, STEP_BIND, Some("below 1024")),
            (&any_port, STEP_BIND, None),
            (&any_port, "create", None),
        ] {
            for errno in [Errno::PERM, Errno::ACCESS] {
                let text = options.error(step, errno.into()).to_string();
                match words {
                    Some(words) => assert!(text.contains(words), "{text}"),
                    None => assert!(!text.contains("CAP_") && !text.contains("1024"), "{text}"),
                }
            }
        }
    }
}
