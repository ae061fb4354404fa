//! UDP sockets of the kernel.
//!
//! `quinn-udp` makes the system calls: one `sendmsg` with segmentation offload (GSO) per batch, and
//! `recvmmsg` with receive offload (GRO). This module adds socket options with errors that say what
//! to do, a fallback for devices without segmentation (in `segmentation`), and counters.

mod options;
mod port_probe;
mod segmentation;
mod state;

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use quinn_udp::{EcnCodepoint, UdpSocketState};

pub use options::{OpenError, UdpSocketOptions};
pub use port_probe::PortProbe;
use units::Ecn;

use crate::counters::SocketCounters;
use crate::datagram::{DatagramSocket, RecvMeta, SendError, Transmit};
use crate::udp::segmentation::{RawSend, Segmentation};

/// Largest number of buffers filled by one call.
pub const RECV_BATCH_MAX: usize = quinn_udp::BATCH_SIZE;

/// A UDP socket: non-blocking, without fragmentation, with ECN marks and with source and
/// destination addresses.
///
/// A socket has one address family: a socket bound to `[::]` does not receive IPv4.
#[derive(Debug)]
pub struct UdpSocket {
    kernel: Kernel,
    segmentation: Segmentation,
    counters: SocketCounters,
    granted: (usize, usize),
}

impl UdpSocket {
    /// Opens, configures and binds a socket.
    ///
    /// # Errors
    /// An [`OpenError`], which names the address, the device, the failed step and what to do.
    pub fn open(options: &UdpSocketOptions) -> Result<Self, OpenError> {
        let socket = options.open()?;
        let state = state::set_up(&socket).map_err(|error| options.error("set up", error))?;
        let granted = options::granted_buffers(&socket).map_err(|error| options.error("measure", error))?;
        let segmentation = Segmentation::new(state.max_gso_segments());
        Ok(Self { kernel: Kernel { socket, state }, segmentation, counters: SocketCounters::default(), granted })
    }

    /// Creates another handle for the same socket, with its own counters, so that two threads can
    /// send and receive at the same time.
    ///
    /// # Errors
    /// The system's error.
    pub fn try_clone(&self) -> io::Result<Self> {
        let socket = self.kernel.socket.try_clone()?;
        let state = state::set_up(&socket)?;
        let segmentation = Segmentation::new(state.max_gso_segments());
        Ok(Self { kernel: Kernel { socket, state }, segmentation, counters: SocketCounters::default(), ..*self })
    }

    /// Returns the sizes of the send and the receive buffer in bytes, as granted by the system.
    /// They may be smaller than requested: see [`UdpSocketOptions::recv_buffer_bytes`].
    #[must_use]
    pub const fn granted_buffers(&self) -> (usize, usize) {
        self.granted
    }
}

impl DatagramSocket for UdpSocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.kernel
            .socket
            .local_addr()?
            .as_socket()
            .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "the UDP socket has no IP address"))
    }

    fn max_gso_segments(&self) -> usize {
        self.segmentation.segments_max()
    }

    fn max_gro_segments(&self) -> usize {
        self.kernel.state.gro_segments()
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> Result<(), SendError> {
        let result = self.segmentation.send(&mut self.kernel, &mut self.counters, transmit);
        result.inspect_err(|error| self.counters.on_send_error(error))
    }

    fn flush(&mut self) -> Result<(), SendError> {
        let result = self.segmentation.flush(&mut self.kernel, &mut self.counters);
        result.inspect_err(|error| self.counters.on_send_error(error))
    }

    fn recv(&mut self, buffers: &mut [&mut [u8]], metas: &mut [RecvMeta]) -> io::Result<usize> {
        let wanted = buffers.len().min(metas.len()).min(RECV_BATCH_MAX);
        if wanted == 0 {
            return Ok(0);
        }
        let mut filled = buffers.iter_mut();
        let mut slices: [IoSliceMut<'_>; RECV_BATCH_MAX] =
            core::array::from_fn(|_| IoSliceMut::new(filled.next().map_or(&mut [], |buffer| &mut **buffer)));
        let mut raw_metas = [quinn_udp::RecvMeta::default(); RECV_BATCH_MAX];
        let state = &self.kernel.state;
        let count = state.recv((&self.kernel.socket).into(), &mut slices[..wanted], &mut raw_metas[..wanted])?;
        for ((meta, raw), slice) in metas.iter_mut().zip(&raw_metas[..count]).zip(&slices) {
            *meta = RecvMeta {
                source: raw.addr,
                destination_ip: raw.dst_ip,
                len: raw.len,
                stride: raw.stride.max(1),
                ecn: raw.ecn.map(from_codepoint),
            };
            self.counters.on_received(meta.len, meta.stride, slice.len());
        }
        Ok(count)
    }

    fn counters(&self) -> &SocketCounters {
        &self.counters
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.kernel.socket.as_fd()
    }
}

impl AsRawFd for UdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.kernel.socket.as_raw_fd()
    }
}

/// The socket and its `quinn-udp` state.
#[derive(Debug)]
struct Kernel {
    socket: socket2::Socket,
    state: UdpSocketState,
}

impl RawSend for Kernel {
    fn send_raw(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        let segments_max = self.state.max_gso_segments();
        let result = self.state.try_send(
            (&self.socket).into(),
            &quinn_udp::Transmit {
                destination: transmit.destination,
                ecn: transmit.ecn.map(to_codepoint),
                contents: transmit.contents,
                segment_size: transmit.segment_size,
                src_ip: transmit.source_ip,
            },
        );
        if self.state.max_gso_segments() < segments_max {
            // `quinn-udp` received EIO or EINVAL, concluded that the kernel does not support ECN
            // marks, and will no longer set them on IPv4. Every kernel with segmentation supports
            // them, so the conclusion is wrong, and only a new state resets it. `Segmentation`
            // decides whether to use segmentation.
            match state::set_up(&self.socket) {
                Ok(state) => self.state = state,
                Err(error) => {
                    tracing::warn!(%error, "cannot reset the socket state: sending without ECN marks from now on")
                }
            }
        }
        result
    }
}

const fn to_codepoint(ecn: Ecn) -> EcnCodepoint {
    match ecn {
        Ecn::Ect0 => EcnCodepoint::Ect0,
        Ecn::Ect1 => EcnCodepoint::Ect1,
        Ecn::Ce => EcnCodepoint::Ce,
    }
}

const fn from_codepoint(codepoint: EcnCodepoint) -> Ecn {
    match codepoint {
        EcnCodepoint::Ect0 => Ecn::Ect0,
        EcnCodepoint::Ect1 => Ecn::Ect1,
        EcnCodepoint::Ce => Ecn::Ce,
    }
}

#[cfg(test)]
mod tests;
