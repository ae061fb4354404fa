//! A connection while its receive half is on another processor.

use std::sync::Arc;

use net::RecvMeta;
use quic::ReceivePart;
use units::{Duration, Instant};

use super::Slot;
use crate::cells::RecvCell;
use crate::cells::recv::RecvEnd;
use crate::error::Closed;
use crate::inbound::Inbound;
use crate::receive::Arrived;

/// Batches kept for a connection that waits for its receive half, at most. More are lost, as on the way.
pub(crate) const STRANGE_MAX: usize = 8;

/// Streams that are over are left out when there are so many more than were alive.
const KNOWN_MIN: usize = 64;

/// What was called back stays so long: who feigns addresses must not make a connection change its shape with each packet.
const WHOLE_FOR: Duration = Duration::from_millis(20);

/// Batches that the connection as a whole must look at, with the sockets they came from.
pub(crate) type Strangers = Vec<(usize, RecvMeta, Arrived)>;

/// What the owner keeps of a connection whose receive half is away.
#[derive(Default)]
pub(crate) struct Away {
    /// Streams of ours that the peer may answer on, not told yet.
    pub(crate) readers: Vec<Arc<RecvCell>>,
    /// All streams that are read there: if the processor hangs, nobody else would tell their readers.
    known: Vec<Arc<RecvCell>>,
    /// How many of them there were when those that are over were last left out.
    known_alive: usize,
    /// Streams whose readers want more, not told yet.
    pub(crate) tasks: Vec<Arc<RecvCell>>,
    /// The application takes more of the rest, not told yet.
    pub(crate) inbound: bool,
    /// Batches that wait for the receive half.
    pub(crate) strangers: Strangers,
    /// The end, to be told once the receive half is back.
    pub(crate) closed: Option<Closed>,
    /// Nothing has come for it in a while.
    pub(crate) is_quiet: bool,
    /// The receive half was asked to come back.
    pub(crate) is_recalled: bool,
}

impl Away {
    /// The receive half is wanted back.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_quiet || !self.strangers.is_empty() || self.closed.is_some()
    }

    /// A stream that is read there from now on.
    pub(crate) fn note_reader(&mut self, cell: &Arc<RecvCell>) {
        if self.known.len() > 2 * self.known_alive + KNOWN_MIN {
            self.known.retain(|known| !known.lock().is_over());
            self.known_alive = self.known.len();
        }
        self.known.push(Arc::clone(cell));
    }

    /// Tells everybody who reads that nothing more will come.
    pub(crate) fn end_readers(&self, closed: &Closed) {
        for cell in self.known.iter().chain(&self.tasks) {
            cell.end(RecvEnd::Closed(closed.clone()));
        }
    }

    /// There is something to tell the processor that has it, beside orders of the protocol.
    pub(crate) fn has_news(&self) -> bool {
        self.inbound || !self.readers.is_empty() || !self.tasks.is_empty()
    }
}

impl Slot {
    /// The receive half and what it brings to the application, for another processor; none if they must stay.
    pub(crate) fn depart(&mut self) -> Option<(ReceivePart, Inbound)> {
        self.inbound.as_ref()?;
        let part = self.connection.part()?;
        let inbound = self.inbound.take()?;
        let known: Vec<Arc<RecvCell>> = inbound.readers().cloned().collect();
        self.away = Some(Box::new(Away { known_alive: known.len(), known, ..Away::default() }));
        Some((part, inbound))
    }

    /// The receive half is back. What waited for it is done; batches that did are returned.
    pub(crate) fn come_back(&mut self, now: Instant, part: ReceivePart, inbound: Inbound) -> Strangers {
        self.connection.rejoin(now, part);
        (self.bulk_arrives, self.whole_until) = (false, now + WHOLE_FOR);
        let Away { readers, tasks, strangers, closed, .. } = self.away.take().map(|away| *away).unwrap_or_default();
        let inbound = self.inbound.insert(inbound);
        readers.into_iter().for_each(|cell| inbound.add_reader(cell));
        self.with_inbound(|inbound, connection| {
            tasks.iter().for_each(|cell| inbound.serve_reader(now, cell, connection));
            inbound.serve(now, connection);
        });
        if let Some(closed) = closed {
            self.on_closed(now, closed);
        }
        strangers
    }

    /// The receive half will not be back, for this reason.
    pub(crate) fn lose_part(&mut self, now: Instant, why: Closed) {
        let Some(away) = self.away.take() else { return };
        let closed = away.closed.clone().unwrap_or(why);
        self.end_override.get_or_insert(closed.clone());
        self.connection.close(now, 0, "");
        away.end_readers(&closed);
        self.on_closed(now, closed);
    }
}
