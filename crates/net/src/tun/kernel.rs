//! TUN devices of the kernel. `tun-rs` makes the system calls that open a device and enable its
//! offloads.
//!
//! This crate reads and writes raw super-packets and segments them itself
//! ([`Segments`](super::Segments)). `tun-rs` could do it, but it completes every checksum, which
//! reads every byte, and it writes a UDP checksum of zero as zero (2.8.16): over IPv6 that packet
//! is dropped, one in 65,536.

use core::fmt;
use std::error::Error;
use std::io::{self, IoSlice};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::device::TunDevice;

/// How often to look whether a new address can be used, at most, and the time between. The kernel takes
/// milliseconds, or longer when it is busy.
const USABLE_LOOKS_MAX: u32 = 10_000;
const USABLE_LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// A TUN device. Clones refer to the same device. The kernel removes the device, with its addresses
/// and routes, when the last clone is dropped or the process ends.
///
/// The device may be moved to another network namespace; reading and writing continue to work.
#[derive(Clone)]
pub struct Tun {
    device: Arc<SyncDevice>,
    name: String,
    has_udp_gso: bool,
}

/// An error while opening a device.
#[derive(Debug)]
pub struct OpenTunError {
    name: String,
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

    /// As [`open`](Self::open), with addresses of this host and their prefix lengths, and up. The
    /// kernel sends packets for the other addresses of these networks over the device.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_up(name: &str, addresses: &[(IpAddr, u8)], mtu: u16) -> Result<Self, OpenTunError> {
        Self::open_up_with(name, addresses, DeviceBuilder::new().mtu(mtu), false)
    }

    /// As [`open_up`](Self::open_up), with this many queues, for as many threads. The kernel sends the
    /// packets of a flow to the queue from which it last received one of the flow, and those of a new
    /// flow to any.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if the kernel gives the device less queues.
    pub fn open_queues(
        name: &str,
        addresses: &[(IpAddr, u8)],
        mtu: u16,
        queues: usize,
    ) -> Result<Vec<Self>, OpenTunError> {
        let first = Self::open_up_with(name, addresses, DeviceBuilder::new().mtu(mtu), true)?;
        let another = |_| {
            let fails = |source| OpenTunError { name: name.to_owned(), source };
            let device = first.device.try_clone().map_err(fails)?;
            device.set_nonblocking(true).map_err(fails)?;
            Ok(Self { device: Arc::new(device), ..first.clone() })
        };
        let others: Vec<Self> = (1..queues).map(another).collect::<Result<_, _>>()?;
        Ok([vec![first], others].concat())
    }

    fn open_up_with(
        name: &str,
        addresses: &[(IpAddr, u8)],
        builder: DeviceBuilder,
        has_queues: bool,
    ) -> Result<Self, OpenTunError> {
        let builder = addresses.iter().fold(builder, |builder, (ip, prefix)| match ip {
            IpAddr::V4(ip) => builder.ipv4(*ip, *prefix, None),
            IpAddr::V6(ip) => builder.ipv6(*ip, *prefix),
        });
        let tun = Self::build(name, builder.enable(true), has_queues)?;
        for (ip, _) in addresses {
            await_usable(*ip).map_err(|source| OpenTunError { name: name.to_owned(), source })?;
        }
        Ok(tun)
    }

    fn build(name: &str, builder: DeviceBuilder, has_queues: bool) -> Result<Self, OpenTunError> {
        let fails = |source| OpenTunError { name: name.to_owned(), source };
        let device = builder
            .name(name)
            .with(|options| {
                options.offload(true).multi_queue(has_queues);
            })
            .build_sync()
            .map_err(fails)?;
        device.set_nonblocking(true).map_err(fails)?;
        let has_udp_gso = device.udp_gso();
        Ok(Self { device: Arc::new(device), name: name.to_owned(), has_udp_gso })
    }

    /// The name under which it was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the kernel passes UDP super-packets. If not, UDP batches of applications are
    /// rejected on the way to this device (`EIO`).
    #[must_use]
    pub const fn has_udp_gso(&self) -> bool {
        self.has_udp_gso
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
        self.device.recv(buffer)
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        rustix::io::writev(&self.device, pieces)?;
        Ok(())
    }
}

/// A TAP device: it carries Ethernet frames, so that its other end is a host on a link. Otherwise as
/// [`Tun`].
#[derive(Clone, Debug)]
pub struct Tap {
    tun: Tun,
}

impl Tap {
    /// Opens a new device called `name`, with addresses of this host and their prefix lengths, and up. The
    /// kernel has one end of the link. `mtu` is that of IP packets.
    ///
    /// # Errors
    /// As [`Tun::open`].
    pub fn open_up(name: &str, addresses: &[(IpAddr, u8)], mtu: u16) -> Result<Self, OpenTunError> {
        let builder = DeviceBuilder::new().layer(Layer::L2).mtu(mtu);
        Ok(Self { tun: Tun::open_up_with(name, addresses, builder, false)? })
    }

    /// The name under which it was opened.
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
        self.device.as_fd()
    }
}

impl AsRawFd for Tun {
    fn as_raw_fd(&self) -> RawFd {
        self.device.as_raw_fd()
    }
}

impl fmt::Debug for Tun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tun").field("name", &self.name).field("has_udp_gso", &self.has_udp_gso).finish_non_exhaustive()
    }
}

impl OpenTunError {
    fn advice(&self) -> Option<&'static str> {
        Some(match Errno::from_io_error(&self.source)? {
            Errno::PERM | Errno::ACCESS => "TUN devices need root, or CAP_NET_ADMIN",
            Errno::NOENT | Errno::NODEV | Errno::NXIO => "this kernel has no TUN devices: `modprobe tun`",
            Errno::BUSY | Errno::EXIST => "another device has this name: `ip link` lists them",
            Errno::INVAL => "invalid device name: at most 15 bytes, no spaces or slashes",
            Errno::MFILE | Errno::NFILE => "too many files are open: raise the limit (`ulimit -n`) or use fewer links",
            _ => return None,
        })
    }
}

impl fmt::Display for OpenTunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot open the TUN device {}: {}", self.name, self.source)?;
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
