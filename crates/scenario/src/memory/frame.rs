//! Datagrams on their way: two words each, since they are moved from queue to queue many times.

use std::cell::Cell;
use std::rc::Rc;

use netem::Packet;
use quic::{Plan, Unsealed};
use units::{Instant, Rng};

/// What leaves in one moment over one path: a plan, or one datagram with bytes.
#[derive(Debug, Default)]
pub(crate) struct Parcel {
    content: Content,
    path: usize,
    since: Cell<Instant>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are plans, whose memory is kept for others")]
enum Content {
    Plan(Unsealed),
    Bytes(Vec<u8>),
}

impl Default for Content {
    fn default() -> Self {
        Self::Plan(Unsealed::new())
    }
}

impl Parcel {
    /// Takes over what `plan` holds, which leaves over this one of the run's paths.
    pub(super) fn fill(&mut self, path: usize, plan: &mut Plan) {
        self.path = path;
        self.unsealed_mut().fill(plan);
    }

    fn unsealed_mut(&mut self) -> &mut Unsealed {
        match &mut self.content {
            Content::Plan(unsealed) => unsealed,
            Content::Bytes(_) => unreachable!("only plans are filled"),
        }
    }

    /// The plan that it is, never sealed.
    ///
    /// # Panics
    /// If it is a datagram with bytes.
    pub(crate) fn unsealed(&self) -> &Unsealed {
        match &self.content {
            Content::Plan(unsealed) => unsealed,
            Content::Bytes(_) => unreachable!("asked of plans only"),
        }
    }

    /// Which of the run's paths it takes.
    pub(crate) const fn path(&self) -> usize {
        self.path
    }

    /// Its datagrams, if it is a plan.
    pub(crate) fn frames(this: &Rc<Self>) -> impl Iterator<Item = Frame> + '_ {
        let unsealed = this.unsealed();
        (0..unsealed.datagram_count())
            .map(|datagram| Frame::new(Rc::clone(this), datagram, unsealed.len_bytes(datagram)))
    }
}

/// A datagram on its way.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    parcel: Rc<Parcel>,
    /// Which of its datagrams in the lower half, and how many bytes that has: one word is moved faster than two halves.
    which_and_len: u64,
}

/// What a datagram is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<'a> {
    /// This datagram of a plan, never sealed.
    Unsealed(&'a Rc<Parcel>, usize),
    Bytes(&'a [u8]),
}

impl Frame {
    fn new(parcel: Rc<Parcel>, datagram: usize, len_bytes: usize) -> Self {
        Self { parcel, which_and_len: datagram as u64 | (len_bytes as u64) << 32 }
    }

    /// One with bytes, not sent yet.
    pub(crate) fn loose(path: usize, bytes: Vec<u8>) -> Self {
        let len_bytes = bytes.len();
        let parcel = Parcel { content: Content::Bytes(bytes), path, since: Cell::default() };
        Self::new(Rc::new(parcel), 0, len_bytes)
    }

    /// Which of the run's paths it takes.
    pub(crate) fn path(&self) -> usize {
        self.parcel.path
    }

    /// What it is.
    pub(crate) fn body(&self) -> Body<'_> {
        match &self.parcel.content {
            Content::Plan(_) => Body::Unsealed(&self.parcel, self.which()),
            Content::Bytes(bytes) => Body::Bytes(bytes),
        }
    }

    /// It is sent now, and so is all of its parcel, the first datagram first.
    pub(super) fn leave(&self, now: Instant) {
        if self.which() == 0 {
            self.parcel.since.set(now);
        }
        debug_assert_eq!(self.parcel.since.get(), now, "a parcel leaves in one moment");
    }

    /// Which datagram of its parcel it is.
    const fn which(&self) -> usize {
        self.which_and_len as u32 as usize
    }

    /// When it was sent.
    pub(super) fn since(&self) -> Instant {
        self.parcel.since.get()
    }
}

impl Packet for Frame {
    #[inline]
    fn len_bytes(&self) -> usize {
        (self.which_and_len >> 32) as usize
    }

    fn duplicate(&self) -> Self {
        self.clone()
    }

    fn corrupt(&mut self, rng: &mut Rng) {
        let mut bytes = Vec::with_capacity(self.len_bytes());
        match self.body() {
            Body::Unsealed(parcel, datagram) => parcel.unsealed().seal_datagram(datagram, &mut bytes),
            Body::Bytes(whole) => bytes.extend_from_slice(whole),
        }
        bytes.corrupt(rng);
        let (path, since) = (self.path(), self.since());
        *self = Self::loose(path, bytes);
        self.leave(since);
    }
}
