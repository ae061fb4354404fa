//! Packet sockets: the Ethernet frames of an interface (packet(7)).

use core::fmt;
use std::error::Error;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, SockaddrLike, sockopt};
use nix::sys::socket::{bind, setsockopt, socket};

use super::device::TunDevice;
use super::header::OFFLOAD_HEADER_BYTES;

/// Size in bytes of the kernel's buffer in either direction: a window of 4 MiB in super-packets,
/// including the kernel's accounting overhead.
const BUFFER_BYTES: usize = 8 << 20;

mod options {
    //! Options of packet sockets that `nix` does not list. Its macros implement the calls.

    use nix::{setsockopt_impl, sockopt_impl};

    sockopt_impl!(
        /// Whether each frame begins with an offload header.
        OffloadHeader,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_VNET_HDR,
        bool
    );
    sockopt_impl!(
        /// Whether frames that leave over the interface are ignored.
        IgnoreOutgoing,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_IGNORE_OUTGOING,
        bool
    );
    sockopt_impl!(
        /// Membership for which frames for other hosts are received as well.
        AddMembership,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_ADD_MEMBERSHIP,
        libc::packet_mreq
    );
}

/// The frames of an Ethernet interface, such as a network card or an end of a veth pair, for a host of its
/// own on the link. Clones refer to the same socket.
///
/// The kernel's own host stays on the interface. Both see all arriving frames, and each answers
/// frames for its own Ethernet address. The socket uses the offloads of the interface:
/// super-packets and partial checksums are exchanged.
#[derive(Clone, Debug)]
pub struct PacketSocket {
    socket: Arc<OwnedFd>,
    interface: String,
}

/// An error while opening a packet socket.
#[derive(Debug)]
pub struct OpenInterfaceError {
    interface: String,
    source: io::Error,
}

impl PacketSocket {
    /// Opens the interface with this name, which must be up.
    ///
    /// # Errors
    /// An [`OpenInterfaceError`], which names the interface and says what to do.
    pub fn open(interface: &str) -> Result<Self, OpenInterfaceError> {
        let fails = |errno: Errno| OpenInterfaceError { interface: interface.to_owned(), source: errno.into() };
        let address = link_address(interface).map_err(fails)?;
        let socket = Self::bound(&address).map_err(fails)?;
        Ok(Self { socket: Arc::new(socket), interface: interface.to_owned() })
    }

    fn bound(address: &LinkAddr) -> Result<OwnedFd, Errno> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
        setsockopt(&socket, options::OffloadHeader, &true)?;
        setsockopt(&socket, options::IgnoreOutgoing, &true)?;
        setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES)?;
        setsockopt(&socket, sockopt::SndBufForce, &BUFFER_BYTES)?;
        bind(socket.as_raw_fd(), address)?;
        // The stack has its own Ethernet address, for which the card would not receive frames.
        let all = libc::packet_mreq {
            mr_ifindex: i32::try_from(address.ifindex()).map_err(|_| Errno::ERANGE)?,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        setsockopt(&socket, options::AddMembership, &all)?;
        // Before it was bound, the socket received from all interfaces. A buffer without space for
        // the offload header would be an error (EINVAL).
        let mut frame = [0; OFFLOAD_HEADER_BYTES];
        loop {
            match rustix::io::read(&socket, &mut frame) {
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(socket),
                // The interface is down.
                Err(error) => return Err(Errno::from_raw(error.raw_os_error())),
            }
        }
    }

    /// Returns the name of the interface.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
    }
}

/// Returns the index of an interface, as an address to bind to. Its protocol is that of the socket.
fn link_address(interface: &str) -> Result<LinkAddr, Errno> {
    let mut all = getifaddrs()?.filter(|entry| entry.interface_name == interface);
    let address = all.find_map(|entry| entry.address.filter(|address| address.family() == Some(AddressFamily::Packet)));
    address.as_ref().and_then(|address| address.as_link_addr()).copied().ok_or(Errno::ENODEV)
}

impl TunDevice for PacketSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match rustix::io::read(&self.socket, buffer) {
            // The interface was down for a while: packets are lost, but the socket continues.
            Err(rustix::io::Errno::NETDOWN) => Err(io::ErrorKind::WouldBlock.into()),
            read => Ok(read?),
        }
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        match rustix::io::writev(&self.socket, pieces) {
            // The queue of the interface is full.
            Err(rustix::io::Errno::NOBUFS) => Err(io::ErrorKind::OutOfMemory.into()),
            written => written.map(drop).map_err(io::Error::from),
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl OpenInterfaceError {
    fn advice(&self) -> Option<&'static str> {
        Some(match rustix::io::Errno::from_io_error(&self.source)? {
            rustix::io::Errno::PERM | rustix::io::Errno::ACCESS => {
                "packet sockets need root, or CAP_NET_RAW and CAP_NET_ADMIN"
            }
            rustix::io::Errno::NODEV => "no interface has this name: `ip link` lists them",
            rustix::io::Errno::NETDOWN => "the interface is down: `ip link set NAME up`",
            _ => return None,
        })
    }
}

impl fmt::Display for OpenInterfaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot open the interface {}: {}", self.interface, self.source)?;
        match self.advice() {
            Some(advice) => write!(f, " ({advice})"),
            None => Ok(()),
        }
    }
}

impl Error for OpenInterfaceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}
