//! [`LiveEnv`]: the environment of live drivers, with sockets of the system, its clock and the
//! meter.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use driver::socket::Received;
use driver::workers::Workers;
use driver::{Activity, DriverSocket, Env, LocalSocket, SendError, Socket};
use net::Transmit;
use quic_driver::{ByteDatagrams, Datagrams, Quic, SealedDatagrams};
use units::Instant;

use crate::clock::Clock;
use crate::meter::Meter;
use crate::receive::{Buffers, RECV_BUFFERS, ReceivedData};
use crate::socket::{LiveSocket, Readiness};
use crate::wake::ArrivalWaker;

/// QUIC over sockets of the system.
pub(crate) type LiveQuic = Quic<ByteDatagrams<ReceivedData>>;

/// A socket of a live driver or worker.
pub(crate) type ServedSocket = DriverSocket<LiveEnv>;

/// The environment of a live driver.
pub(crate) struct LiveEnv {
    pub(crate) clock: Clock,
    /// Present if measuring is enabled.
    pub(crate) meter: Option<Arc<Meter>>,
}

impl Env for LiveEnv {
    type Protocol = LiveQuic;
    type Socket = Device;
    type Offload = Workers<LiveQuic>;
    type Clock = Clock;

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn lap(&self, activity: Activity) {
        if let Some(meter) = &self.meter {
            meter.lap(activity);
        }
    }

    fn note_sent(&self, packets: &SealedDatagrams) {
        if let Some(meter) = &self.meter {
            let len = packets.contents.len();
            meter.count_sent(len.div_ceil(packets.segment_size.unwrap_or(len).max(1)), len);
        }
    }

    fn note_received(&self, batches: &[Datagrams<ReceivedData>]) {
        if let Some(meter) = &self.meter {
            meter.count_received(batches);
        }
    }
}

/// A socket and the method by which it announces arrivals.
pub(crate) struct Device {
    socket: Box<dyn LiveSocket>,
    pub(crate) readiness: Readiness,
    arrivals: Arc<ArrivalWaker>,
    /// Whether it is registered with the poll of its thread as readable and as writable.
    pub(crate) watched: (bool, bool),
    /// Arrivals are announced to this handle.
    receives: bool,
    /// How often the socket had been exchanged when it was last registered.
    replacements: u64,
}

impl Device {
    fn new(mut socket: Box<dyn LiveSocket>, thread: &Waker) -> Self {
        let arrivals = Arc::new(ArrivalWaker::new(thread.clone()));
        let readiness = socket.readiness(&arrivals.clone().into());
        Self { socket, readiness, arrivals, watched: (false, false), receives: true, replacements: 0 }
    }

    /// Notices that the socket was exchanged: it must be registered anew.
    pub(crate) fn renew(&mut self) {
        loop {
            let replacements = self.socket.replacements();
            if replacements == self.replacements {
                return;
            }
            // While it is asked, the socket may be exchanged once more.
            self.replacements = replacements;
            self.readiness = self.socket.readiness(&self.arrivals.clone().into());
            // The former descriptor is closed. If another handle has a duplicate of it, the poll may
            // report it once more, which is harmless.
            self.watched = (false, false);
        }
    }

    /// Lets arrivals be announced to this handle, and no longer to another handle of the same
    /// socket.
    pub(crate) fn receive_here(&mut self) {
        if !std::mem::replace(&mut self.receives, true) {
            self.readiness = self.socket.readiness(&self.arrivals.clone().into());
        }
    }
}

/// Prepares a socket for the thread that `thread` wakes.
pub(crate) fn serve(socket: Box<dyn LiveSocket>, thread: &Waker) -> ServedSocket {
    LocalSocket::new(Device::new(socket, thread))
}

/// As [`serve`], for a socket from which another thread receives.
pub(crate) fn serve_sending(socket: Box<dyn LiveSocket>, thread: &Waker) -> ServedSocket {
    LocalSocket::only_sending(Device { receives: false, ..Device::new(socket, thread) })
}

fn send_error(error: net::SendError) -> SendError {
    match error {
        net::SendError::WouldBlock => SendError::WouldBlock,
        net::SendError::NoBuffers => SendError::NoBuffers,
        net::SendError::TooLarge => SendError::TooLarge,
        other => SendError::Refused(other.to_string()),
    }
}

impl Socket<LiveQuic> for Device {
    type Buffers = Buffers;

    fn receive(&mut self, buffers: &mut Buffers, batches: &mut Vec<Datagrams<ReceivedData>>) -> Received {
        match buffers.fill(|buffers, metas| self.socket.recv(buffers, metas)) {
            Ok(count) => {
                batches.extend((0..count).map(|index| buffers.take(index)));
                // Fewer than requested: the socket is empty, and the next arrival will be
                // announced.
                if count >= RECV_BUFFERS.min(net::udp::RECV_BATCH_MAX) {
                    Received::MayHaveMore
                } else {
                    Received::NoMore
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::NoMore,
            Err(error) => Received::Failed(error.to_string()),
        }
    }

    fn send(&mut self, packets: &SealedDatagrams) -> Result<(), SendError> {
        let transmit = Transmit {
            destination: packets.destination,
            source_ip: packets.source_ip,
            ecn: packets.ecn,
            contents: &packets.contents,
            segment_size: packets.segment_size,
        };
        self.socket.send(&transmit).map_err(send_error)
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.socket.flush().map_err(send_error)
    }

    fn batch_max(&self) -> usize {
        self.socket.max_gso_segments().max(1)
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
