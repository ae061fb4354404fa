//! [`Device`]: a socket or network device of a protocol, and [`Served`]: one that a thread of the
//! engine serves.

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::Waker;

use driver::protocol::{Connection, Job, LeaseCache};
use driver::socket::Received;
use driver::{Application, Protocol, SendError, Shared};

use crate::wake::ArrivalWaker;

/// Method by which a device announces that packets have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readiness {
    /// A file descriptor that can be polled. It must stay open as long as the device exists.
    Descriptor(RawFd),
    /// The waker passed to [`Device::readiness`]. Such a device does not announce that it is
    /// writable: after `WouldBlock`, the send is retried after a short time.
    Waker,
}

/// A socket or network device, and the protocol whose packets it carries. One thread at a time
/// uses it: the driver's, or a worker's.
pub trait Device: Sized + Send + 'static {
    /// The protocol. Its parts move between threads.
    type Protocol: Protocol<
            Connection: Connection<Self::Protocol, Receipt: Send> + Send,
            Application: Application<Cell: Send + Sync, Connect: Send, Limits: Clone + Send + Sync>,
            Batch: Send,
            Plan: Send + Sync,
            Sealed: Send,
            OpenJob: Send,
            Job: Job<Output: Send> + Send + Sync,
            Leases: LeaseCache<Self::Protocol, Lease: Send> + Send,
            ReceiveHalf: Send,
            HalfReport: Send,
            HalfUpdate: Send,
            RouteId: Send,
        > + Send
        + 'static;
    /// Memory into which batches are received.
    type Buffers: Default + Send;

    /// Returns the local address, with port zero if the device has no port. Connections to
    /// addresses of the same family begin here unless the application chooses a device.
    ///
    /// # Errors
    /// If the system reports an error.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Splits the device into two handles: the first only sends, and the second receives on another
    /// thread.
    ///
    /// # Errors
    /// If the system reports an error.
    fn share(self) -> io::Result<[Self; 2]>;

    /// Returns how arrivals are announced. `waker` serves [`Readiness::Waker`]. Called when a
    /// thread begins to receive from the device.
    fn readiness(&mut self, waker: &Waker) -> Readiness;

    /// Returns how often the device behind this handle was replaced. After a change, the caller
    /// queries [`readiness`](Self::readiness) again.
    fn replacements(&mut self) -> u64 {
        0
    }

    /// Makes one receive call and appends the batches to `batches`.
    fn receive(&mut self, buffers: &mut Self::Buffers, batches: &mut Vec<BatchOf<Self>>) -> Received;

    /// Sends packets.
    ///
    /// # Errors
    /// If the system does not accept them.
    fn send(&mut self, packets: &SealedOf<Self>) -> Result<(), SendError>;

    /// Sends packets that the device has accepted and delayed.
    ///
    /// # Errors
    /// Same errors as [`send`](Self::send).
    fn flush(&mut self) -> Result<(), SendError> {
        Ok(())
    }

    /// Returns the maximum number of packets of one send call, at least one.
    fn batch_max(&self) -> usize;

    /// Returns the numbers of packets and of bytes that are sent together, for
    /// [`Costs`](crate::Costs).
    fn size_of(packets: &SealedOf<Self>) -> (usize, usize);
}

/// Packets that a device has received together.
pub type BatchOf<D> = <<D as Device>::Protocol as Protocol>::Batch;

/// Packets that a device sends together.
pub type SealedOf<D> = <<D as Device>::Protocol as Protocol>::Sealed;

/// The types that handles and drivers exchange.
pub type ApplicationOf<D> = <<D as Device>::Protocol as Protocol>::Application;

/// The limits that handles enforce.
pub type LimitsOf<D> = <ApplicationOf<D> as Application>::Limits;

/// The state that handles share with a driver.
pub type SharedOf<D> = Shared<ApplicationOf<D>>;

/// A device that a thread serves, and the method by which it announces arrivals to that thread.
pub(crate) struct Served<D> {
    device: D,
    pub(crate) readiness: Readiness,
    arrivals: Arc<ArrivalWaker>,
    /// Whether it is registered with the poll of its thread as readable and as writable.
    pub(crate) watched: (bool, bool),
    /// Whether arrivals are announced to this handle.
    receives: bool,
    /// Number of replacements of the device when it was last registered.
    replacements: u64,
}

impl<D: Device> Served<D> {
    /// Creates a device for the thread that `thread` wakes.
    pub(crate) fn new(mut device: D, thread: &Waker) -> Self {
        let arrivals = Arc::new(ArrivalWaker::new(thread.clone()));
        let readiness = device.readiness(&arrivals.clone().into());
        Self { device, readiness, arrivals, watched: (false, false), receives: true, replacements: 0 }
    }

    /// Creates a device like [`new`](Self::new), from which another thread receives.
    pub(crate) fn only_sending(device: D, thread: &Waker) -> Self {
        Self { receives: false, ..Self::new(device, thread) }
    }

    /// Detects that the device was replaced and must be registered anew.
    pub(crate) fn renew(&mut self) {
        loop {
            let replacements = self.device.replacements();
            if replacements == self.replacements {
                return;
            }
            // The device may be replaced once more during the query.
            self.replacements = replacements;
            self.readiness = self.device.readiness(&self.arrivals.clone().into());
            // The former descriptor is closed. If another handle has a duplicate of it, the poll
            // may report it once more, which is harmless.
            self.watched = (false, false);
        }
    }

    /// Directs announcements of arrivals to this handle, and no longer to another handle of the
    /// same device.
    pub(crate) fn receive_here(&mut self) {
        if !std::mem::replace(&mut self.receives, true) {
            self.readiness = self.device.readiness(&self.arrivals.clone().into());
        }
    }
}

impl<D: Device> driver::Socket<D::Protocol> for Served<D> {
    type Buffers = D::Buffers;

    fn receive(&mut self, buffers: &mut D::Buffers, batches: &mut Vec<BatchOf<D>>) -> Received {
        self.device.receive(buffers, batches)
    }

    fn send(&mut self, packets: &SealedOf<D>) -> Result<(), SendError> {
        self.device.send(packets)
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.device.flush()
    }

    fn batch_max(&self) -> usize {
        self.device.batch_max()
    }

    fn announces_space(&self) -> bool {
        matches!(self.readiness, Readiness::Descriptor(_))
    }

    fn has_arrived(&self) -> bool {
        self.arrivals.has_some()
    }

    fn take_arrived(&mut self) -> bool {
        self.arrivals.take()
    }
}
