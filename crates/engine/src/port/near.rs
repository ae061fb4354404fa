//! A socket with what its processor knows about it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use net::{SendError, Transmit};
use quic::{ConnectionKey, PLAN_DATAGRAMS_MAX, Receipt};
use units::{Duration, Instant};

use crate::cells::ConnectionCell;
use crate::receive::{Buffers, RECV_BUFFERS};
use crate::sleep::Sleeper;
use crate::socket::{LiveSocket, Readiness};
use crate::wake::ArrivalWaker;

/// A queue below the socket is full, and nothing tells when it is not: about one burst at 1 Gb/s.
const NO_BUFFERS_RETRY: Duration = Duration::from_micros(500);

/// Errors in a row after which a socket is not asked again before it says that something arrived.
const RECV_ERRORS_MAX: u32 = 16;

/// One socket.
pub(crate) struct NearPort {
    pub(crate) socket: Box<dyn LiveSocket>,
    pub(crate) readiness: Readiness,
    pub(crate) local: SocketAddr,
    pub(crate) arrivals: Arc<ArrivalWaker>,
    /// Whoever has this receives from it, and does not only send.
    pub(crate) receives: bool,
    /// Something may have arrived: nothing has said that there is no more.
    pub(crate) readable: bool,
    /// Receiving failed this many times in a row.
    pub(crate) recv_errors: u32,
    /// The system said that there may be room again.
    pub(crate) became_writable: bool,
    /// The system was asked to say so.
    pub(crate) watched: bool,
    room: Room,
    /// The one batch that found no room; nothing is sent before it.
    held: Option<Held>,
}

/// Whether the socket takes more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    Free,
    /// Until the system says that it is writable.
    UntilWritable,
    /// Until then.
    Until(Instant),
}

/// A sealed batch.
struct Held {
    /// None if it answers a packet that belongs to no connection.
    parcel: Option<Parcel>,
    destination: SocketAddr,
    source_ip: Option<IpAddr>,
    segment_size: usize,
    contents: Vec<u8>,
}

/// Whose batch it is: to be told when it leaves, or that it never will.
#[derive(Clone)]
pub(crate) struct Parcel {
    pub(crate) key: ConnectionKey,
    /// Tells the connection from a later one of the same key.
    pub(crate) cell: Arc<ConnectionCell>,
    pub(crate) receipt: Receipt,
}

/// What became of a batch.
#[derive(Debug)]
pub(crate) enum Sent {
    /// It is on its way, or will be as soon as there is room.
    Taken,
    /// It is lost, and this is why.
    Lost(SendError),
}

impl NearPort {
    pub(crate) fn new(mut socket: Box<dyn LiveSocket>, local: SocketAddr, arrivals: Arc<ArrivalWaker>) -> Self {
        let readiness = socket.readiness(&arrivals.clone().into());
        Self {
            socket,
            readiness,
            local,
            arrivals,
            receives: true,
            readable: true,
            recv_errors: 0,
            became_writable: false,
            watched: false,
            room: Room::Free,
            held: None,
        }
    }

    /// One that another processor receives from.
    pub(crate) fn only_sending(socket: Box<dyn LiveSocket>, local: SocketAddr, arrivals: Arc<ArrivalWaker>) -> Self {
        Self { receives: false, readable: false, ..Self::new(socket, local, arrivals) }
    }

    /// The other processor receives no more: it is done here, where the socket has number `index`.
    ///
    /// # Errors
    /// If the system cannot watch it.
    pub(crate) fn receive_here(&mut self, index: usize, sleeper: &Sleeper) -> io::Result<()> {
        if self.receives {
            return Ok(());
        }
        (self.receives, self.readable) = (true, true);
        self.readiness = self.socket.readiness(&self.arrivals.clone().into());
        if let Readiness::Descriptor(descriptor) = self.readiness {
            if self.watched {
                return sleeper.watch_writable(index, descriptor, true);
            }
            sleeper.add(index, descriptor)?;
        }
        Ok(())
    }

    pub(crate) fn has_room(&self) -> bool {
        self.room == Room::Free
    }

    /// One call to the socket, into `buffers`; how many batches came. The caller takes them all.
    pub(crate) fn receive(&mut self, buffers: &mut Buffers) -> usize {
        match buffers.fill(|buffers, metas| self.socket.recv(buffers, metas)) {
            Ok(count) => {
                // Fewer than asked for: there were no more, and the next arrival is an event of its own. Sockets that are
                // woken by arrival say so the same way.
                self.recv_errors = 0;
                self.readable = count >= RECV_BUFFERS.min(net::udp::RECV_BATCH_MAX);
                count
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                0
            }
            Err(error) => {
                // A report about something sent earlier, such as a port nobody listens on. The socket goes on; one that
                // fails again and again is left alone until something new arrives.
                tracing::debug!(%error, "receiving failed");
                self.recv_errors += 1;
                self.readable = self.recv_errors < RECV_ERRORS_MAX;
                0
            }
        }
    }

    /// Datagrams it takes in one call.
    pub(crate) fn batch_max(&self) -> usize {
        self.socket.max_gso_segments().clamp(1, PLAN_DATAGRAMS_MAX)
    }

    /// Waits for the system to say that the socket is writable.
    pub(crate) fn awaits_writable(&self) -> bool {
        self.room == Room::UntilWritable
    }

    /// When to try again, if nothing tells.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        match self.room {
            Room::Until(at) => Some(at),
            _ => None,
        }
    }

    /// Sends a batch; a copy is kept if it finds no room.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        transmit: &Transmit<'_>,
        parcel: impl FnOnce() -> Option<Parcel>,
    ) -> Sent {
        match self.socket.send(transmit) {
            Ok(()) => Sent::Taken,
            Err(error @ (SendError::WouldBlock | SendError::NoBuffers)) => {
                self.close_room(now, &error);
                self.held = Some(Held {
                    parcel: parcel(),
                    destination: transmit.destination,
                    source_ip: transmit.source_ip,
                    segment_size: transmit.segment_size.unwrap_or(transmit.contents.len()),
                    contents: transmit.contents.to_vec(),
                });
                Sent::Taken
            }
            Err(error) => Sent::Lost(error),
        }
    }

    fn close_room(&mut self, now: Instant, error: &SendError) {
        let polled = matches!(self.readiness, Readiness::Descriptor(_));
        let waits = polled && matches!(error, SendError::WouldBlock);
        self.room = if waits { Room::UntilWritable } else { Room::Until(now + NO_BUFFERS_RETRY) };
    }

    /// Whose batch is held, if there may be room for it now.
    pub(crate) fn held(&self) -> Option<&Parcel> {
        self.held.as_ref().and_then(|held| held.parcel.as_ref())
    }

    /// There may be room again: sends what is held. What is lost by that comes back, with the reason.
    pub(crate) fn retry(&mut self, now: Instant) -> Option<(Option<Parcel>, SendError)> {
        self.room = Room::Free;
        self.flush(now);
        if self.has_room()
            && let Some(held) = self.held.take()
        {
            let transmit = Transmit {
                destination: held.destination,
                source_ip: held.source_ip,
                ecn: None,
                contents: &held.contents,
                segment_size: (held.contents.len() > held.segment_size).then_some(held.segment_size),
            };
            match self.socket.send(&transmit) {
                Ok(()) => {}
                Err(error @ (SendError::WouldBlock | SendError::NoBuffers)) => {
                    self.close_room(now, &error);
                    self.held = Some(held);
                }
                Err(error) => return Some((held.parcel, error)),
            }
        }
        None
    }

    /// Sends what the socket itself had to keep back of a split batch.
    pub(crate) fn flush(&mut self, now: Instant) {
        if !self.has_room() {
            return;
        }
        match self.socket.flush() {
            Ok(()) => {}
            Err(error @ (SendError::WouldBlock | SendError::NoBuffers)) => self.close_room(now, &error),
            Err(error) => tracing::debug!(%error, "the rest of a batch was lost"),
        }
    }
}
