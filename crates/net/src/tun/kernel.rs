//! TUN devices of the kernel. `tun-rs` makes the system calls that open a device and enable its
//! offloads.
//!
//! This crate reads and writes raw super-packets and segments them itself
//! ([`Segments`](super::Segments)). `tun-rs` could do this, but it completes every checksum, which
//! reads every byte, and it writes a UDP checksum of zero as zero (2.8.16): over IPv6 that packet
//! is dropped, one in 65,536.

use core::fmt;
use std::error::Error;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use nix::net::if_::if_nametoindex;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, socketpair, sockopt,
};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::device::TunDevice;
use crate::interfaces::{TUNNEL_ALIAS, link_attributes};
use crate::netlink;

/// Maximum number of checks whether a new address is usable, and the time between them. The kernel
/// takes milliseconds, or longer when it is busy.
const USABLE_LOOKS_MAX: u32 = 10_000;
const USABLE_LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Maximum length of a device name: IFNAMSIZ of Linux, less its terminating zero.
const NAME_BYTES_MAX: usize = 15;

/// Buffer between the ends of a pair in bytes, if the kernel grants it.
const PAIR_BUFFER_BYTES: usize = 1 << 20;

/// Time for which a packet waits until the other end of a pair reads earlier ones; then it is lost,
/// as on any link.
const PAIR_WAIT: Duration = Duration::from_millis(50);

/// Advice for a process that lacks a privilege.
const NO_RIGHT: &str = "TUN devices need root, or CAP_NET_ADMIN";

/// A TUN device. Clones refer to the same device. The kernel removes the device, with its addresses
/// and routes, when the last clone is dropped or the process ends.
///
/// The device may be moved to another network namespace; reading and writing continue to work.
#[derive(Clone)]
pub struct Tun {
    end: End,
    name: String,
    has_udp_gso: bool,
}

/// The end at which packets are read and written.
#[derive(Clone)]
enum End {
    Device(Arc<SyncDevice>),
    /// A socket whose other end is a device of this process.
    Pair(Arc<OwnedFd>),
}

/// Purpose of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Link,
    LinkWithQueues,
    /// A device whose packets leave over the other interfaces.
    Tunnel,
}

/// An error while opening a device.
#[derive(Debug)]
pub struct OpenTunError {
    name: String,
    /// The address that the kernel refused, if that is the cause.
    address: Option<IpAddr>,
    source: io::Error,
}

impl Tun {
    /// Opens a new device called `name`, down and without addresses, with checksum and segmentation
    /// offload for TCP and, if the kernel supports it (Linux 6.2), for UDP.
    ///
    /// # Errors
    /// An [`OpenTunError`], which names the device and says what to do.
    pub fn open(name: &str) -> Result<Self, OpenTunError> {
        Self::build(name, DeviceBuilder::new().enable(false), false)
    }

    /// Opens a device like [`open`](Self::open), with addresses of this host and their prefix
    /// lengths, and sets it up. The kernel sends packets for the other addresses of these networks
    /// over the device.
    ///
    /// # Errors
    /// Same errors as [`open`](Self::open).
    pub fn open_up(name: &str, addresses: &[(IpAddr, u8)], mtu: u16) -> Result<Self, OpenTunError> {
        Self::open_up_with(name, addresses, DeviceBuilder::new().mtu(mtu), Kind::Link)
    }

    /// Opens a device like [`open_up`](Self::open_up), whose packets leave over the other
    /// interfaces of this host. Before it is up, it gets the alias `litz tunnel`, which `ip link`
    /// shows and by which [`interfaces`](crate::interfaces()) recognises it in the processes of all
    /// users.
    ///
    /// # Errors
    /// Same errors as [`open`](Self::open).
    pub fn open_tunnel(name: &str, addresses: &[(IpAddr, u8)], mtu: u16) -> Result<Self, OpenTunError> {
        Self::open_up_with(name, addresses, DeviceBuilder::new().mtu(mtu), Kind::Tunnel)
    }

    /// Opens a device like [`open_up`](Self::open_up), with this many queues, for as many threads.
    /// The kernel sends the packets of a flow to the queue from which it last received one of the
    /// flow, and packets of a new flow to any queue.
    ///
    /// # Errors
    /// Same errors as [`open`](Self::open); also fails if the kernel gives the device fewer queues.
    pub fn open_queues(
        name: &str,
        addresses: &[(IpAddr, u8)],
        mtu: u16,
        queues: usize,
    ) -> Result<Vec<Self>, OpenTunError> {
        let first = Self::open_up_with(name, addresses, DeviceBuilder::new().mtu(mtu), Kind::LinkWithQueues)?;
        let another = |_| {
            let fails = |source| OpenTunError::of(name, source);
            let End::Device(device) = &first.end else { unreachable!("it was opened as a device") };
            let device = device.try_clone().map_err(fails)?;
            device.set_nonblocking(true).map_err(fails)?;
            Ok(Self { end: End::Device(Arc::new(device)), ..first.clone() })
        };
        let others: Vec<Self> = (1..queues).map(another).collect::<Result<_, _>>()?;
        Ok([vec![first], others].concat())
    }

    fn open_up_with(
        name: &str,
        addresses: &[(IpAddr, u8)],
        builder: DeviceBuilder,
        kind: Kind,
    ) -> Result<Self, OpenTunError> {
        let fails = |source| OpenTunError::of(name, source);
        let tun = Self::build(name, builder.enable(false), kind == Kind::LinkWithQueues)?;
        let End::Device(device) = &tun.end else { unreachable!("it was opened as a device") };
        // The builder is not used for this: it accepts one IPv4 address, and its error would not
        // say what the kernel refuses.
        for (ip, prefix) in addresses {
            let refused = |source| OpenTunError { address: Some(*ip), ..fails(source) };
            match ip {
                IpAddr::V4(ip) => add_address_v4(device, *ip, *prefix).map_err(refused)?,
                IpAddr::V6(ip) => device.add_address_v6(*ip, *prefix).map_err(refused)?,
            }
        }
        if kind == Kind::Tunnel {
            mark_as_tunnel(device);
        }
        device.enabled(true).map_err(fails)?;
        for (ip, _) in addresses {
            await_usable(*ip).map_err(|source| OpenTunError { address: Some(*ip), ..fails(source) })?;
        }
        Ok(tun)
    }

    fn build(name: &str, builder: DeviceBuilder, has_queues: bool) -> Result<Self, OpenTunError> {
        let fails = |source| OpenTunError::of(name, source);
        if !is_device_name(name) {
            return Err(fails(Errno::INVAL.into()));
        }
        let device = builder
            .name(name)
            .with(|options| {
                options.offload(true).multi_queue(has_queues);
            })
            .build_sync()
            .map_err(fails)?;
        device.set_nonblocking(true).map_err(fails)?;
        let has_udp_gso = device.udp_gso();
        Ok(Self { end: End::Device(Arc::new(device)), name: name.to_owned(), has_udp_gso })
    }

    /// Creates two connected devices: packets written to one are read from the other. They need no
    /// privileges and are invisible to other programs. Both are called `name` in messages.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub fn pair(name: &str) -> io::Result<[Self; 2]> {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let device = |socket: OwnedFd| -> io::Result<Self> {
            sockopt::set_socket_send_buffer_size(&socket, PAIR_BUFFER_BYTES)?;
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PAIR_WAIT))?;
            Ok(Self { end: End::Pair(Arc::new(socket)), name: name.to_owned(), has_udp_gso: true })
        };
        Ok([device(one)?, device(other)?])
    }

    /// Returns the name under which it was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the kernel passes UDP super-packets. If not, UDP batches of applications are
    /// rejected on the way to this device (`EIO`).
    #[must_use]
    pub const fn has_udp_gso(&self) -> bool {
        self.has_udp_gso
    }
}

/// Adds an address to those of a device. Without further dependencies `tun-rs` can set only one.
fn add_address_v4(device: &SyncDevice, ip: Ipv4Addr, prefix_len: u8) -> io::Result<()> {
    let mut address = AddressMessage::default();
    address.header.family = netlink_packet_route::AddressFamily::Inet;
    address.header.index = device.if_index()?;
    address.header.prefix_len = prefix_len;
    // Without a peer, both attributes have the same value (rtnetlink(7)).
    address.attributes = vec![AddressAttribute::Local(ip.into()), AddressAttribute::Address(ip.into())];
    netlink::change(RouteNetlinkMessage::NewAddress(address), NLM_F_CREATE | NLM_F_EXCL)
}

/// Marks the device so that other commands recognise it. Otherwise they use it as a further link,
/// which is slow but works.
fn mark_as_tunnel(device: &SyncDevice) {
    if let Err(error) = device.if_index().and_then(|index| link_attributes::set_alias(index, TUNNEL_ALIAS)) {
        tracing::warn!(%error, "other commands of this host take the tunnel's device for a further link");
    }
}

/// Waits until programs can bind to `ip`. A new IPv6 address is tentative (RFC 4862, section 5.4) until
/// a kernel thread has seen that the device needs no duplicate address detection.
#[expect(clippy::disallowed_methods, reason = "waits for the kernel, and asks it with a socket")]
fn await_usable(ip: IpAddr) -> io::Result<()> {
    for _ in 0..USABLE_LOOKS_MAX {
        match UdpSocket::bind((ip, 0)) {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => std::thread::sleep(USABLE_LOOK_INTERVAL),
            bound => return bound.map(drop),
        }
    }
    Err(io::ErrorKind::AddrNotAvailable.into())
}

impl TunDevice for Tun {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.end {
            End::Device(device) => device.recv(buffer),
            End::Pair(socket) => match rustix::net::recv(socket, buffer, RecvFlags::DONTWAIT)? {
                (_, 0) => Err(io::ErrorKind::BrokenPipe.into()),
                (_, len) => Ok(len),
            },
        }
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        match &self.end {
            End::Device(device) => rustix::io::writev(device, pieces)?,
            End::Pair(socket) => {
                let mut control = SendAncillaryBuffer::default();
                rustix::net::sendmsg(socket, pieces, &mut control, SendFlags::NOSIGNAL)?
            }
        };
        Ok(())
    }
}

/// A TAP device: it carries Ethernet frames, so that its other end is a host on a link. It
/// otherwise behaves like [`Tun`].
#[derive(Clone, Debug)]
pub struct Tap {
    tun: Tun,
}

impl Tap {
    /// Opens a new device called `name`, with addresses of this host and their prefix lengths, and
    /// sets it up. The kernel is the host at one end of the link. `mtu` is the MTU of IP packets.
    ///
    /// # Errors
    /// Same errors as [`Tun::open`].
    pub fn open_up(name: &str, addresses: &[(IpAddr, u8)], mtu: u16) -> Result<Self, OpenTunError> {
        let builder = DeviceBuilder::new().layer(Layer::L2).mtu(mtu);
        Ok(Self { tun: Tun::open_up_with(name, addresses, builder, Kind::Link)? })
    }

    /// Returns the name under which it was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        self.tun.name()
    }
}

impl TunDevice for Tap {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.tun.read(buffer)
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        self.tun.write(pieces)
    }
}

impl AsRawFd for Tap {
    fn as_raw_fd(&self) -> RawFd {
        self.tun.as_raw_fd()
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.end {
            End::Device(device) => device.as_fd(),
            End::Pair(socket) => socket.as_fd(),
        }
    }
}

impl AsRawFd for Tun {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for Tun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tun").field("name", &self.name).field("has_udp_gso", &self.has_udp_gso).finish_non_exhaustive()
    }
}

impl OpenTunError {
    fn of(name: &str, source: io::Error) -> Self {
        Self { name: name.to_owned(), address: None, source }
    }

    fn advice(&self) -> Option<&'static str> {
        match self.address {
            Some(address) => self.advice_of(address),
            None => self.advice_of_device(),
        }
    }

    /// Returns advice if the device cannot have an address.
    fn advice_of(&self, address: IpAddr) -> Option<&'static str> {
        Some(match Errno::from_io_error(&self.source)? {
            // A process without the privilege gets EPERM here.
            Errno::ACCESS if address.is_ipv6() => {
                "IPv6 is disabled for this device: `sysctl -w net.ipv6.conf.default.disable_ipv6=0`"
            }
            Errno::AFNOSUPPORT if address.is_ipv6() => "this kernel has no IPv6: leave IPv6 addresses out",
            Errno::PERM | Errno::ACCESS => NO_RIGHT,
            Errno::EXIST => "the device has this address already: name it once",
            Errno::INVAL | Errno::ADDRNOTAVAIL => "no host can have this address: choose another one",
            _ => return None,
        })
    }

    /// Returns advice if there can be no such device.
    fn advice_of_device(&self) -> Option<&'static str> {
        if self.name.len() > NAME_BYTES_MAX {
            return Some("a device name has at most 15 bytes");
        }
        Some(match Errno::from_io_error(&self.source)? {
            Errno::PERM | Errno::ACCESS => NO_RIGHT,
            Errno::NOENT | Errno::NODEV | Errno::NXIO => {
                "there is no /dev/net/tun: run `modprobe tun`, and give the device to a container that is to use it, as \
                 with `docker run --device /dev/net/tun`"
            }
            Errno::BUSY => "another program has this device open: end that one, or give this one another name",
            Errno::EXIST => "another device has this name: `ip link` lists them",
            Errno::INVAL if if_nametoindex(self.name.as_str()).is_ok() => {
                "a device of another kind has this name: choose another one; `ip link` lists them"
            }
            Errno::INVAL if !is_device_name(&self.name) => "invalid device name: no spaces, slashes, colons or %",
            Errno::MFILE | Errno::NFILE => "too many files are open: raise the limit (`ulimit -n`) or use fewer links",
            _ => return None,
        })
    }
}

/// Returns whether Linux accepts the device name without replacing a part of it by a number.
fn is_device_name(name: &str) -> bool {
    let is_part = |letter: char| !letter.is_whitespace() && !letter.is_control() && !['/', ':', '%'].contains(&letter);
    !["", ".", ".."].contains(&name) && name.chars().all(is_part)
}

impl fmt::Display for OpenTunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => {
                write!(f, "cannot give the TUN device {} the address {address}: {}", self.name, self.source)?
            }
            None => write!(f, "cannot open the TUN device {}: {}", self.name, self.source)?,
        }
        if let Some(advice) = self.advice() {
            write!(f, " ({advice})")?;
        }
        Ok(())
    }
}

impl Error for OpenTunError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_cross_a_pair_with_their_limits_until_an_end_is_gone() {
        let [mut one, mut other] = Tun::pair("pair").expect("two sockets");
        let mut buffer = vec![0; 70_000];
        let error = other.read(&mut buffer).expect_err("nothing was written");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let large = vec![7; 65_000];
        for packet in [b"a packet".as_slice(), &large, b"x"] {
            let (head, rest) = packet.split_at(1);
            one.write(&[IoSlice::new(head), IoSlice::new(rest)]).expect("it has space");
        }
        for packet in [b"a packet".as_slice(), &large, b"x"] {
            let len = other.read(&mut buffer).expect("a packet");
            assert_eq!(&buffer[..len], packet);
        }
        other.write(&[IoSlice::new(b"back")]).expect("it has space");
        assert_eq!(one.read(&mut buffer).expect("a packet"), 4);
        drop(other);
        assert_eq!(one.read(&mut buffer).expect_err("it is gone").kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(one.write(&[IoSlice::new(b"x")]).expect_err("it is gone").kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_name_that_cannot_be_used_is_explained() {
        for (name, words) in [("lo", "a device of another kind"), ("a/b", "no spaces, slashes"), ("a%d", "colons or %")]
        {
            let error = OpenTunError::of(name, Errno::INVAL.into());
            assert!(error.to_string().contains(words), "{error}");
        }
        let open = OpenTunError::of("litz0", Errno::BUSY.into());
        assert!(open.to_string().contains("litz0: ") && open.to_string().contains("another program has"), "{open}");
        let long = OpenTunError::of(&"x".repeat(16), io::Error::other("device name too long"));
        assert!(long.to_string().contains("at most 15 bytes"), "{long}");
    }

    #[test]
    fn missing_rights_are_told_from_ipv6_that_is_disabled_or_missing() {
        let address = Some("fd00::1".parse().expect("an address"));
        for (address, errno, words) in [
            (None, Errno::ACCESS, "need root"),
            (None, Errno::PERM, "need root"),
            (address, Errno::PERM, "need root"),
            (address, Errno::ACCESS, "the address fd00::1: Permission denied"),
            (address, Errno::ACCESS, "IPv6 is disabled for this device"),
            (address, Errno::AFNOSUPPORT, "this kernel has no IPv6"),
            (Some("0.0.0.7".parse().expect("an address")), Errno::INVAL, "no host can have this address"),
        ] {
            let error = OpenTunError { address, ..OpenTunError::of("litz0", errno.into()) };
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn a_pair_whose_packets_are_not_read_loses_them() {
        let [mut one, _other] = Tun::pair("pair").expect("two sockets");
        let packet = vec![0; 60_000];
        let mut written = 0;
        while one.write(&[IoSlice::new(&packet)]).is_ok() {
            written += packet.len();
            assert!(written <= 2 * PAIR_BUFFER_BYTES, "a bound");
        }
        assert!(written >= packet.len());
    }
}
