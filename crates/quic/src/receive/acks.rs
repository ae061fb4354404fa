//! Which packets to acknowledge, and when.

pub(crate) mod snapshot;

use units::{Duration, Ecn, Instant};
use wire::quic::{PathId, Space};

use self::snapshot::Snapshot;
use crate::earliest::Earliest;
use crate::error::TransportError;
use crate::spaces::{DATA, Spaces, Vacant};

/// Ranges remembered for each number space. A peer that leaves more gaps than this open has its
/// oldest packets treated as duplicates, which costs it a retransmission and us nothing.
pub(crate) const RANGES_MAX: usize = 48;

/// Our max_ack_delay: the default of RFC 9000, section 18.2, so that it need not be sent.
pub(crate) const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// The shortest delay that a peer can request (draft-ietf-quic-ack-frequency-14, section 3): the
/// precision of timers on a general-purpose host.
pub(crate) const MIN_ACK_DELAY: Duration = Duration::from_millis(1);

/// The longest delay that we accept, although the peer may request up to 2^14 ms.
const DELAY_MAX: Duration = Duration::from_secs(1);

/// When an acknowledgement is due without a timer, and when with one.
#[derive(Debug, Clone, Copy)]
struct Frequency {
    /// The sequence number of the frame that asked for it.
    sequence: Option<u64>,
    /// This many ack-eliciting packets may arrive without an acknowledgement; with one more it is
    /// due.
    threshold: u32,
    delay: Duration,
    /// Zero if packets out of order make no acknowledgement due; otherwise any gap does.
    reordering: u64,
}

impl Frequency {
    /// Every second packet (RFC 9000, section 13.2.2), and whatever is out of order (section
    /// 13.2.1).
    const DEFAULT: Self = Self { sequence: None, threshold: 1, delay: MAX_ACK_DELAY, reordering: 1 };
}

/// The state of one number space that is not in the snapshot.
#[derive(Debug, Default)]
struct AckState {
    largest: Option<u64>,
    /// Packets with lower numbers count as duplicates: the peer knows their acknowledgement, or
    /// their ranges were dropped.
    floor: u64,
    /// The last packet had the codepoint CE.
    was_marked_ce: bool,
}

impl Vacant for AckState {
    fn vacant() -> &'static Self {
        static VACANT: AckState = AckState { largest: None, floor: 0, was_marked_ce: false };
        &VACANT
    }
}

/// Acknowledgement state of all number spaces.
#[derive(Debug)]
pub(crate) struct Acks {
    pub(crate) snapshot: Snapshot,
    states: Spaces<AckState>,
    /// The requested frequency for 1-RTT packets.
    frequency: Frequency,
    /// One decision for all paths: the deadline of the first path's space is that of all of them.
    is_central: bool,
    /// Ack-eliciting packets of all paths since all of them were acknowledged, if there is one
    /// decision for them.
    central_count: u64,
}

impl Acks {
    /// Nothing received. `is_central` makes one decision for all paths
    /// ([`AckPolicy::Central`](crate::AckPolicy)).
    pub(crate) fn new(is_central: bool) -> Self {
        Self {
            snapshot: Snapshot::default(),
            states: Spaces::default(),
            frequency: Frequency::DEFAULT,
            is_central,
            central_count: 0,
        }
    }

    /// The largest number received, for decoding the next one (RFC 9000, appendix A.3).
    pub(crate) fn largest(&self, space: Space, path: PathId) -> Option<u64> {
        self.snapshot.index(space, path).and_then(|index| self.states[index].largest)
    }

    /// The index of a path, which is added if it is new. Only packets of negotiated paths are
    /// opened, which bounds their number.
    fn index_or_new(&mut self, space: Space, path: PathId) -> usize {
        self.snapshot.index(space, path).unwrap_or_else(|| {
            self.snapshot.push_path(path);
            self.states.push_path();
            DATA + self.snapshot.paths.len()
        })
    }

    /// Both sides have abandoned the path.
    pub(crate) fn forget_path(&mut self, path: PathId) {
        if let Some(at) = self.snapshot.remove_path(path) {
            self.states.remove_path(at);
        }
    }

    /// True if no packet of this number or a higher one has arrived.
    pub(crate) fn is_ahead(&self, space: Space, path: PathId, number: u64) -> bool {
        self.largest(space, path).is_none_or(|largest| number > largest)
    }

    /// Notes `count` authentic packets from `number` on; false if it is or may be a duplicate.
    /// Several only if they are [ahead](Self::is_ahead).
    pub(crate) fn on_packets(
        &mut self,
        now: Instant,
        space: Space,
        path: PathId,
        number: u64,
        count: u32,
        eliciting: bool,
    ) -> bool {
        debug_assert!(count == 1 || self.is_ahead(space, path, number), "only packets that are ahead form a run");
        let index = self.index_or_new(space, path);
        let state = &mut self.states[index];
        let snapshot = &mut self.snapshot.spaces[index];
        if count > 1 {
            snapshot.ranges.insert(number..number + u64::from(count));
        } else if number < state.floor || !snapshot.ranges.insert_one(number) {
            return false;
        }
        let last = number + u64::from(count) - 1;
        if snapshot.ranges.range_count() > RANGES_MAX
            && let Some(oldest) = snapshot.ranges.pop_first_range()
        {
            state.floor = oldest.end;
        }
        let in_order = state.largest.is_none_or(|largest| number == largest + 1);
        if state.largest.is_none_or(|largest| last > largest) {
            state.largest = Some(last);
            snapshot.largest_at = now;
        }
        if eliciting {
            snapshot.eliciting += u64::from(count);
            if self.is_central && space == Space::Data {
                self.count_for_all(now, count, in_order);
                return true;
            }
            let Frequency { threshold, delay, reordering, .. } = self.frequency;
            // RFC 9000, section 13.2.1: at once during the handshake, and when packets are missing
            // or late.
            let disorder = !in_order && reordering > 0;
            let waiting = snapshot.eliciting - snapshot.acknowledged;
            if space != Space::Data || disorder || waiting > u64::from(threshold) {
                snapshot.make_due();
            } else {
                snapshot.deadline.get_or_insert(now + delay);
            }
        }
        true
    }

    /// Counts the ECN codepoint of `count` packets that [`on_packets`](Self::on_packets) has taken.
    /// A CE codepoint is reported at once (RFC 9000, section 13.2.1). If the peer has asked for
    /// fewer acknowledgements, only the first of several is (draft-14, section 6).
    pub(crate) fn on_codepoint(&mut self, space: Space, path: PathId, count: u32, ecn: Option<Ecn>) {
        let Some(index) = self.snapshot.index(space, path) else { return };
        let state = &mut self.states[index];
        if ecn.is_none() && !state.was_marked_ce {
            return;
        }
        let was_marked_ce = std::mem::replace(&mut state.was_marked_ce, ecn == Some(Ecn::Ce));
        let snapshot = &mut self.snapshot.spaces[index];
        let count = u64::from(count);
        match ecn {
            None => {}
            Some(Ecn::Ect0) => snapshot.ecn.ect0 += count,
            Some(Ecn::Ect1) => snapshot.ecn.ect1 += count,
            Some(Ecn::Ce) => {
                snapshot.ecn.ce += count;
                if snapshot.is_pending() && (!was_marked_ce || self.frequency.sequence.is_none()) {
                    self.ask_at_once_in(space, path);
                }
            }
        }
    }

    /// Counts `count` ack-eliciting packets of any path, which may make acknowledgements of all
    /// paths due.
    fn count_for_all(&mut self, now: Instant, count: u32, in_order: bool) {
        let Frequency { threshold, delay, reordering, .. } = self.frequency;
        self.central_count += u64::from(count);
        if (!in_order && reordering > 0) || self.central_count > u64::from(threshold) {
            self.snapshot.make_data_due();
        } else {
            self.snapshot.spaces[DATA].deadline.get_or_insert(now + delay);
        }
    }

    /// ACK_FREQUENCY: the peer requests more or fewer acknowledgements (draft-14, section 4).
    pub(crate) fn on_frequency(
        &mut self,
        path: PathId,
        sequence: u64,
        threshold: u64,
        delay: Duration,
        reordering: u64,
    ) -> Result<(), TransportError> {
        if delay < MIN_ACK_DELAY {
            return Err(TransportError::violation("a requested acknowledgement delay below our min_ack_delay"));
        }
        // One with a lower sequence number is outdated.
        if self.frequency.sequence.is_some_and(|latest| sequence <= latest) {
            return Ok(());
        }
        let threshold = u32::try_from(threshold).unwrap_or(u32::MAX);
        self.frequency = Frequency { sequence: Some(sequence), threshold, delay: delay.min(DELAY_MAX), reordering };
        // Under a stricter rule, the acknowledgements that wait now would be late.
        self.ask_at_once(path);
        Ok(())
    }

    /// IMMEDIATE_ACK (draft-14, section 5).
    pub(crate) fn ask_at_once(&mut self, path: PathId) {
        self.ask_at_once_in(Space::Data, path);
    }

    fn ask_at_once_in(&mut self, space: Space, path: PathId) {
        if self.is_central && space == Space::Data {
            return self.snapshot.make_data_due();
        }
        if let Some(index) = self.snapshot.index(space, path) {
            self.snapshot.spaces[index].make_due();
        }
    }

    /// An acknowledgement left when so many ack-eliciting packets of the path had arrived.
    pub(crate) fn on_ack_sent(&mut self, space: Space, path: PathId, eliciting: u64) {
        let Some(index) = self.snapshot.index(space, path) else { return };
        if !(self.is_central && space == Space::Data) {
            return self.snapshot.spaces[index].note_acknowledged(eliciting);
        }
        let deadline = self.snapshot.spaces[DATA].deadline;
        self.snapshot.spaces[index].note_acknowledged(eliciting);
        // Acknowledgements that did not fit the packet stay due, and later packets count with them.
        let is_all = self.snapshot.data_paths().all(|(_, ack)| !ack.is_pending());
        self.central_count = if is_all { 0 } else { self.central_count };
        self.snapshot.spaces[DATA].deadline = deadline.filter(|_| !is_all);
    }

    /// A stand-in while the receive half is detached.
    pub(crate) fn stand_in(&self) -> Self {
        let mut stand_in = Self::new(self.is_central);
        for (path, ack) in self.snapshot.data_paths() {
            let index = stand_in.index_or_new(Space::Data, path);
            stand_in.snapshot.spaces[index].copy_from(ack);
        }
        stand_in
    }

    /// Takes arrivals from a newer snapshot of another processor.
    pub(crate) fn refresh(&mut self, fresh: &Snapshot) {
        for (path, ack) in fresh.data_paths() {
            let index = self.index_or_new(Space::Data, path);
            self.snapshot.spaces[index].refresh(ack);
        }
        if self.snapshot.paths.len() > fresh.paths.len() {
            let forgotten = self.snapshot.paths.iter().copied().filter(|path| !fresh.paths.contains(path));
            forgotten.collect::<Vec<_>>().into_iter().for_each(|path| self.forget_path(path));
        }
        if self.is_central {
            let deadline = fresh.get(Space::Data, PathId::ZERO).deadline;
            let waits = self.snapshot.data_paths().any(|(_, ack)| ack.is_pending() && !ack.is_due());
            self.snapshot.spaces[DATA].deadline = deadline.filter(|_| waits);
        }
    }

    /// Takes from a stand-in which acknowledgements have left.
    pub(crate) fn take_acknowledged(&mut self, known: &Snapshot) {
        let of_paths: Vec<(PathId, u64)> = known.data_paths().map(|(path, ack)| (path, ack.acknowledged)).collect();
        for (path, acknowledged) in of_paths {
            self.on_ack_sent(Space::Data, path, acknowledged);
            let Some(index) = self.snapshot.index(Space::Data, path) else { continue };
            let ack = &mut self.snapshot.spaces[index];
            // An acknowledgement that never left is due again.
            ack.acknowledged = acknowledged;
            ack.due_up_to = ack.due_up_to.max(known.get(Space::Data, path).due_up_to.min(ack.eliciting));
        }
    }

    /// A planned acknowledgement never left: it is due again.
    pub(crate) fn renew(&mut self, space: Space) {
        // A batch may have carried acknowledgements of several paths.
        let all =
            if space == Space::Data { DATA..self.snapshot.spaces.count() } else { space.index()..space.index() + 1 };
        for index in all {
            // The space may have been discarded.
            let snapshot = &mut self.snapshot.spaces[index];
            if !snapshot.ranges.is_empty() && snapshot.eliciting > 0 {
                snapshot.acknowledged = snapshot.acknowledged.min(snapshot.eliciting - 1);
                snapshot.make_due();
            }
        }
    }

    /// The peer has our acknowledgement of everything up to `largest`.
    pub(crate) fn raise_floor(&mut self, space: Space, path: PathId, largest: u64) {
        let Some(index) = self.snapshot.index(space, path) else { return };
        let state = &mut self.states[index];
        state.floor = state.floor.max(largest + 1);
        self.snapshot.spaces[index].ranges.remove_below(state.floor);
    }

    /// The keys of this space were discarded.
    pub(crate) fn discard(&mut self, space: Space) {
        self.states.discard(space);
        self.snapshot.spaces.discard(space);
    }

    /// When an acknowledgement becomes due by time.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        let mut earliest = Earliest::default();
        self.snapshot.spaces.for_each(|ack| earliest.note(ack.deadline));
        earliest.get()
    }

    /// Makes acknowledgements due whose deadline has passed.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        for index in 0..self.snapshot.spaces.count() {
            let ack = &self.snapshot.spaces[index];
            if ack.deadline.is_some_and(|at| at <= now) {
                let ack = &mut self.snapshot.spaces[index];
                ack.make_due();
                if self.is_central && index == DATA {
                    self.snapshot.make_data_due();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
