//! Datagrams in flight. Each takes two words, because datagrams move from queue to queue many
//! times.

use std::cell::Cell;
use std::rc::Rc;

use netem::Packet;
use quic::{Plan, Unsealed};
use units::{Instant, Rng};

/// A batch that was sent at one time over one path: an unsealed plan, or one datagram with bytes.
#[derive(Debug, Default)]
pub(crate) struct InFlightBatch {
    content: Content,
    path: usize,
    since: Cell<Instant>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are plans, whose memory is reused")]
enum Content {
    Plan(Unsealed),
    Bytes(Vec<u8>),
}

impl Default for Content {
    fn default() -> Self {
        Self::Plan(Unsealed::new())
    }
}

impl InFlightBatch {
    /// Moves the contents of `plan` into this batch, which is sent over path `path` of the run.
    pub(crate) fn fill(&mut self, path: usize, plan: &mut Plan) {
        self.path = path;
        self.unsealed_mut().fill(plan);
    }

    /// Does the same as [`fill`](Self::fill), with a copy of the plan.
    pub(super) fn fill_from(&mut self, path: usize, plan: &Plan) {
        self.path = path;
        self.unsealed_mut().fill_from(plan);
    }

    /// Creates a batch of one datagram with bytes.
    pub(super) fn with_bytes(path: usize, bytes: Vec<u8>) -> Self {
        Self { content: Content::Bytes(bytes), path, since: Cell::default() }
    }

    fn unsealed_mut(&mut self) -> &mut Unsealed {
        match &mut self.content {
            Content::Plan(unsealed) => unsealed,
            Content::Bytes(_) => unreachable!("only unsealed batches are filled"),
        }
    }

    /// Returns the unsealed plan.
    ///
    /// # Panics
    /// Panics if the batch is a datagram with bytes.
    pub(crate) fn unsealed(&self) -> &Unsealed {
        match &self.content {
            Content::Plan(unsealed) => unsealed,
            Content::Bytes(_) => unreachable!("called for plans only"),
        }
    }

    /// Returns the index of the path among those of the run.
    pub(crate) const fn path(&self) -> usize {
        self.path
    }

    /// Returns its datagrams.
    pub(crate) fn datagrams(this: &Rc<Self>) -> impl ExactSizeIterator<Item = Datagram> + '_ {
        let count = match &this.content {
            Content::Plan(unsealed) => unsealed.datagram_count(),
            Content::Bytes(_) => 1,
        };
        let len_bytes = |index| match &this.content {
            Content::Plan(unsealed) => unsealed.len_bytes(index),
            Content::Bytes(bytes) => bytes.len(),
        };
        (0..count).map(move |index| Datagram::new(Rc::clone(this), index, len_bytes(index)))
    }
}

/// A datagram in flight.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    batch: Rc<InFlightBatch>,
    /// The index within the batch in the lower half, the length in the upper half. One word moves
    /// faster than two halves.
    which_and_len: u64,
}

/// The contents of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<'a> {
    /// The datagram at this index of an unsealed plan.
    Unsealed(&'a Rc<InFlightBatch>, usize),
    Bytes(&'a [u8]),
}

impl Datagram {
    fn new(batch: Rc<InFlightBatch>, index: usize, len_bytes: usize) -> Self {
        Self { batch, which_and_len: index as u64 | (len_bytes as u64) << 32 }
    }

    /// Creates a datagram with bytes that is not sent yet.
    pub(crate) fn with_bytes(path: usize, bytes: Vec<u8>) -> Self {
        let len_bytes = bytes.len();
        Self::new(Rc::new(InFlightBatch::with_bytes(path, bytes)), 0, len_bytes)
    }

    /// Returns the index of the path among those of the run.
    pub(crate) fn path(&self) -> usize {
        self.batch.path
    }

    /// Returns the contents.
    pub(crate) fn body(&self) -> Body<'_> {
        match &self.batch.content {
            Content::Plan(_) => Body::Unsealed(&self.batch, self.which()),
            Content::Bytes(bytes) => Body::Bytes(bytes),
        }
    }

    /// Appends its bytes.
    pub(super) fn seal_into(&self, out: &mut Vec<u8>) {
        match self.body() {
            Body::Unsealed(batch, index) => batch.unsealed().seal_datagram(index, out),
            Body::Bytes(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// Sets the time of sending. All datagrams of a batch are sent at one time, the first datagram
    /// first.
    pub(super) fn leave(&self, now: Instant) {
        if self.which() == 0 {
            self.batch.since.set(now);
        }
        debug_assert_eq!(self.batch.since.get(), now, "all datagrams of a batch are sent at one time");
    }

    /// Returns the index within the batch.
    const fn which(&self) -> usize {
        self.which_and_len as u32 as usize
    }

    /// Returns the time of sending.
    pub(super) fn since(&self) -> Instant {
        self.batch.since.get()
    }
}

impl Packet for Datagram {
    #[inline]
    fn len_bytes(&self) -> usize {
        (self.which_and_len >> 32) as usize
    }

    fn duplicate(&self) -> Self {
        self.clone()
    }

    fn corrupt(&mut self, rng: &mut Rng) {
        let mut bytes = Vec::with_capacity(self.len_bytes());
        self.seal_into(&mut bytes);
        bytes.corrupt(rng);
        let (path, since) = (self.path(), self.since());
        *self = Self::with_bytes(path, bytes);
        self.leave(since);
    }
}
