//! TUN devices of the kernel. `tun-rs` makes the system calls that open one and switch its offloads on.
//!
//! We read and write raw super-packets and cut them ourselves ([`Cut`](super::Cut)). `tun-rs` could, but it finishes every
//! checksum, which reads every byte, and writes a UDP checksum that comes out as zero as zero (2.8.16): over IPv6 that
//! packet is dropped, one in 65,536.

use core::fmt;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use tun_rs::{DeviceBuilder, SyncDevice};

use super::TunDevice;

/// A TUN device. Clones are the same device, which the kernel removes, with its addresses and routes, when the last of them
/// is dropped or the process ends, however it ends.
///
/// It may be moved to another network namespace: reading and writing goes on.
#[derive(Clone)]
pub struct Tun {
    device: Arc<SyncDevice>,
    name: String,
    segments_udp: bool,
}

/// Why a device could not be opened.
#[derive(Debug)]
pub struct OpenTunError {
    name: String,
    source: io::Error,
}

impl Tun {
    /// Opens a new device called `name`, down and without addresses, with checksum and segmentation offload for TCP and,
    /// where the kernel has it (Linux 6.2), for UDP.
    ///
    /// # Errors
    /// An [`OpenTunError`], which names the device and says what to do.
    pub fn open(name: &str) -> Result<Self, OpenTunError> {
        let fails = |source| OpenTunError { name: name.to_owned(), source };
        let device = DeviceBuilder::new()
            .name(name)
            .enable(false)
            .with(|options| {
                options.offload(true);
            })
            .build_sync()
            .map_err(fails)?;
        device.set_nonblocking(true).map_err(fails)?;
        let segments_udp = device.udp_gso();
        Ok(Self { device: Arc::new(device), name: name.to_owned(), segments_udp })
    }

    /// What it was called when it was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the kernel hands out UDP super-packets. Where it does not, UDP batches of applications are refused on the
    /// way to this device (`EIO`).
    #[must_use]
    pub const fn segments_udp(&self) -> bool {
        self.segments_udp
    }
}

impl TunDevice for Tun {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.device.recv(buffer)
    }

    fn write(&mut self, packet: &[u8]) -> io::Result<()> {
        self.device.send(packet).map(|_| ())
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
        f.debug_struct("Tun")
            .field("name", &self.name)
            .field("segments_udp", &self.segments_udp)
            .finish_non_exhaustive()
    }
}

impl OpenTunError {
    fn advice(&self) -> Option<&'static str> {
        Some(match Errno::from_io_error(&self.source)? {
            Errno::PERM | Errno::ACCESS => "TUN devices need root, or CAP_NET_ADMIN",
            Errno::NOENT | Errno::NODEV | Errno::NXIO => "this kernel has no TUN devices: `modprobe tun`",
            Errno::BUSY | Errno::EXIST => "another device has this name: `ip link` lists them",
            Errno::INVAL => "the name is not one for a device: at most 15 bytes, no spaces or slashes",
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
