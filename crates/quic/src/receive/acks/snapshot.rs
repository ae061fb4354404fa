//! The packets to acknowledge, as the send half needs them.

use units::Instant;
use wire::quic::frame::EcnCounts;
use wire::quic::{PathId, Space};

use crate::range_set::RangeSet;
use crate::spaces::{DATA, Spaces, Vacant};

/// The packets to acknowledge in one number space: the one value that the send half must always
/// have fresh.
///
/// It consists of counts that only grow. So a snapshot may be older than the last acknowledgement,
/// where the halves run on different processors, and yet nothing is acknowledged twice because of
/// it.
#[derive(Debug)]
pub(crate) struct AckSnapshot {
    /// Packet numbers received.
    pub(crate) ranges: RangeSet,
    /// When the largest of them arrived.
    pub(crate) largest_at: Instant,
    /// Ack-eliciting packets that have arrived so far.
    pub(crate) eliciting: u64,
    /// Of these, those that arrived before the last acknowledgement left.
    pub(super) acknowledged: u64,
    /// An acknowledgement of this many of them is due.
    pub(super) due_up_to: u64,
    /// When an acknowledgement becomes due by time.
    pub(super) deadline: Option<Instant>,
    /// Packets received with each ECN codepoint.
    pub(super) ecn: EcnCounts,
}

impl AckSnapshot {
    /// Nothing to acknowledge.
    pub(crate) const EMPTY: Self = Self {
        ranges: RangeSet::new(),
        largest_at: Instant::ZERO,
        eliciting: 0,
        acknowledged: 0,
        due_up_to: 0,
        deadline: None,
        ecn: EcnCounts { ect0: 0, ect1: 0, ce: 0 },
    };

    /// An ack-eliciting packet has arrived since the last acknowledgement: one may be sent along
    /// with data.
    pub(crate) fn is_pending(&self) -> bool {
        self.eliciting > self.acknowledged
    }

    /// An acknowledgement must leave now, with data or without.
    pub(crate) fn is_due(&self) -> bool {
        self.due_up_to > self.acknowledged
    }

    /// As [`is_due`](Self::is_due), or the time has come although no timer has fired.
    pub(crate) fn is_due_by(&self, now: Instant) -> bool {
        self.is_due() || self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// The counts for the acknowledgement; none if every packet was Not-ECT (RFC 9000, section
    /// 13.4.1).
    pub(crate) fn ecn_counts(&self) -> Option<EcnCounts> {
        Some(self.ecn).filter(|counts| *counts != EcnCounts::default())
    }

    /// Makes an acknowledgement due now.
    pub(super) fn make_due(&mut self) {
        self.due_up_to = self.eliciting;
        self.deadline = None;
    }

    /// An acknowledgement left when `eliciting` ack-eliciting packets had arrived.
    pub(super) fn note_acknowledged(&mut self, eliciting: u64) {
        self.acknowledged = self.acknowledged.max(eliciting);
        if !self.is_pending() {
            self.deadline = None;
        }
    }

    /// Becomes equal to `other`; keeps its memory.
    pub(super) fn copy_from(&mut self, other: &Self) {
        let &Self { ref ranges, largest_at, eliciting, acknowledged, due_up_to, deadline, ecn } = other;
        self.ranges.copy_from(ranges);
        (self.largest_at, self.eliciting, self.acknowledged) = (largest_at, eliciting, acknowledged);
        (self.due_up_to, self.deadline, self.ecn) = (due_up_to, deadline, ecn);
    }

    /// Takes arrivals from a newer snapshot of another processor. This side knows which
    /// acknowledgements have left.
    pub(super) fn refresh(&mut self, fresh: &Self) {
        self.ranges.copy_from(&fresh.ranges);
        self.largest_at = fresh.largest_at;
        self.eliciting = fresh.eliciting;
        self.ecn = fresh.ecn;
        self.due_up_to = self.due_up_to.max(fresh.due_up_to);
        // The other processor may not know yet that the acknowledgement has left.
        self.deadline = fresh.deadline.filter(|_| self.is_pending() && !self.is_due());
    }
}

impl Default for AckSnapshot {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Vacant for AckSnapshot {
    fn vacant() -> &'static Self {
        static VACANT: AckSnapshot = AckSnapshot::EMPTY;
        &VACANT
    }
}

/// The packets to acknowledge in every number space.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(super) spaces: Spaces<AckSnapshot>,
    /// The paths after the first, in the order of their places.
    pub(super) paths: Vec<PathId>,
}

impl Snapshot {
    pub(crate) fn get(&self, space: Space, path: PathId) -> &AckSnapshot {
        self.index(space, path).map_or(AckSnapshot::vacant(), |index| &self.spaces[index])
    }

    /// The packets to acknowledge on each path.
    pub(crate) fn data_paths(&self) -> impl Iterator<Item = (PathId, &AckSnapshot)> {
        let paths = [PathId::ZERO].into_iter().chain(self.paths.iter().copied());
        paths.enumerate().map(|(at, path)| (path, &self.spaces[DATA + at]))
    }

    /// Makes acknowledgements of all paths due.
    pub(super) fn make_data_due(&mut self) {
        for at in 0..=self.paths.len() {
            self.spaces[DATA + at].make_due();
        }
    }

    /// Copies the data spaces of all paths, for another processor. The memory of `copy` is used
    /// again.
    pub(crate) fn copy_data(&self, copy: &mut Self) {
        if copy.paths != self.paths {
            *copy = Self::default();
            self.paths.iter().for_each(|path| copy.push_path(*path));
        }
        for at in DATA..=DATA + self.paths.len() {
            copy.spaces[at].copy_from(&self.spaces[at]);
        }
    }

    /// Adds a path, in the next place.
    pub(super) fn push_path(&mut self, path: PathId) {
        self.paths.push(path);
        self.spaces.push_path();
    }

    /// Removes a path. Returns its place, if it had one.
    pub(super) fn remove_path(&mut self, path: PathId) -> Option<usize> {
        let at = self.paths.iter().position(|known| *known == path)?;
        self.paths.remove(at);
        self.spaces.remove_path(at + 1);
        Some(at + 1)
    }

    pub(super) fn index(&self, space: Space, path: PathId) -> Option<usize> {
        if space != Space::Data || path == PathId::ZERO {
            return Some(space.index());
        }
        self.paths.iter().position(|known| *known == path).map(|at| DATA + 1 + at)
    }
}
