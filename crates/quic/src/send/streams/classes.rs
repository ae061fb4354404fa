//! What classes of service allow: rates of streams and of the connection, and the paths of streams.
//!
//! Only bytes that leave for the first time are counted, and only the application's. What was sent before and has to go again,
//! acknowledgements and control frames are exempt: the receiver waits for the former with data it cannot use yet, and both ends
//! need the latter to go on at all; a limit that held them back would make losses cost more than what it limits. How much the
//! paths carry is congestion control's to say, and the pacer's, which counts everything.
//!
//! ```text
//!              its turn comes                        no allowance: held, until a deadline
//!   ready ────────────────────▶ sent   or else ────▶ the connection has none: capped, until a deadline
//!     ▲                                         └──▶ not on this path, or not now: aside, until the plan is made
//!     └──────────────────────────────────────────────────┘
//! ```
//!
//! A connection without classes has none of this but an empty pointer.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use recovery::Allowance;
use units::Instant;
use wire::quic::{PathId, StreamId};

use super::{READY_COUNTED_MAX, SendStream, SendStreams, WriteError};
use crate::class::{BURST_LEAST, PathSet, RateLimit};
use crate::queue::Queue;
use crate::send::path::SendPath;

/// Bytes that a stream waits for if it has as many to send: less would make a small packet each time.
const WORTH_SENDING: u64 = BURST_LEAST;

/// What one stream has of a class, beside its priority.
#[derive(Debug, Default)]
pub(super) struct StreamClass {
    allowance: Option<Allowance>,
    paths: PathSet,
    is_background: bool,
    /// In [`Classes::held`], with this deadline.
    held_until: Option<Instant>,
}

/// What a connection needs once one of its streams, or it itself, has limits.
#[derive(Debug, Default)]
pub(super) struct Classes {
    /// When the present plan is made.
    now: Instant,
    /// The path it is for, once that is known, and what of the background may leave there.
    on: Option<PathId>,
    background_room: u64,
    /// Whose bytes the present plan holds.
    taken: Taken,
    /// The connection's own allowance.
    whole: Option<Allowance>,
    /// Streams out of allowance, by when they have some again. Each is here once at most.
    held: BTreeSet<(Instant, StreamId)>,
    /// Streams that wait for the connection's allowance, and until when. Each is here once at most.
    capped: Queue<StreamId>,
    capped_until: Option<Instant>,
    /// The highest priority of these. What is no more urgent waits as long: a few bytes find an allowance sooner than a packet's
    /// worth does, and would take it from under the hands of what is more urgent, for as long as there are some.
    capped_priority: Option<i32>,
    /// Streams that were passed over because the present plan is for another path, or the queue there is long enough, in their
    /// order. They count as ready.
    aside: Vec<StreamId>,
    /// Streams with a class, and those of them that may not take every path.
    classed_count: usize,
    confined_count: usize,
    background_count: usize,
}

/// Whose bytes a plan holds. What is in the background has plans of its own: a batch of it takes longer to be sealed, sent and opened
/// than the few packets of others that it would share a plan with, and these wait for all of it at both ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Taken {
    #[default]
    Nothing,
    /// Of streams in the background alone.
    Background,
    /// Of others.
    Others,
    /// Of others, and a stream in the background would have had its turn after them.
    OthersFirst,
}

/// Why a stream whose turn it is may not send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restraint {
    /// It may not take the path of this plan, or not now.
    Aside,
    /// It has used its allowance.
    Held(Instant),
    /// The connection has used its allowance.
    Capped(Instant),
}

impl Classes {
    /// Whether `stream` may send now; lowers `limit`, the offset it may send new bytes up to.
    #[cold] // Here and below: out of the way of connections without classes, which are most.
    pub(super) fn restrain(&mut self, stream: &mut SendStream, limit: &mut u64) -> Option<Restraint> {
        if let (Some(class), Some(on)) = (&stream.class, self.on)
            && !class.paths.allows(on)
        {
            return Some(Restraint::Aside);
        }
        let is_background = stream.is_background();
        if is_background && matches!(self.taken, Taken::Others | Taken::OthersFirst) {
            self.taken = Taken::OthersFirst;
            return Some(Restraint::Aside);
        }
        let unsent = stream.buffer.unsent();
        let available = stream.buffer.end().min(*limit).saturating_sub(unsent);
        if available == 0 || stream.buffer.has_lost() {
            return None;
        }
        let wanted = available.min(WORTH_SENDING);
        if is_background {
            if self.background_room < wanted {
                return Some(Restraint::Aside);
            }
            *limit = (*limit).min(unsent.saturating_add(self.background_room));
        }
        let now = self.now;
        let outranked_until = self.outranked_until(stream.priority);
        let mut budget = |allowance: &mut Allowance| {
            let budget = allowance.budget(now);
            *limit = (*limit).min(unsent + budget);
            (budget < wanted).then(|| allowance.next_release(now, wanted))
        };
        let own = stream.class.as_mut().and_then(|class| class.allowance.as_mut());
        if let Some(until) = own.and_then(&mut budget) {
            return Some(Restraint::Held(until));
        }
        let whole = self.whole.as_mut().and_then(budget);
        outranked_until.or(whole).map(Restraint::Capped)
    }

    /// Until when a stream of this priority waits for others that wait for the connection's allowance.
    fn outranked_until(&self, priority: i32) -> Option<Instant> {
        self.capped_until
            .filter(|until| *until > self.now && self.capped_priority.is_some_and(|capped| priority <= capped))
    }

    /// Something of `stream` leaves, `bytes` of it for the first time.
    #[cold]
    pub(super) fn on_taken(&mut self, stream: &mut SendStream, bytes: u64) {
        if stream.is_background() {
            self.background_room = self.background_room.saturating_sub(bytes);
            if self.taken == Taken::Nothing {
                self.taken = Taken::Background;
            }
        } else if self.taken != Taken::OthersFirst {
            self.taken = Taken::Others;
        }
        let own = stream.class.as_mut().and_then(|class| class.allowance.as_mut());
        own.into_iter().chain(&mut self.whole).for_each(|allowance| allowance.take(bytes));
    }

    fn is_idle(&self) -> bool {
        self.classed_count == 0 && self.whole.is_none() && self.capped.is_empty()
    }
}

impl SendStreams {
    /// Limits what leaves of a stream for the first time, or lifts the limit.
    pub(crate) fn set_rate(&mut self, id: StreamId, limit: Option<RateLimit>) -> Result<(), WriteError> {
        if limit.is_none() && self.is_unclassed(id) {
            return Ok(());
        }
        self.change_class(id, |class| {
            class.allowance = match (class.allowance.take(), limit) {
                (Some(mut allowance), Some(limit)) => {
                    allowance.set_limit(limit.cap());
                    Some(allowance)
                }
                (_, limit) => limit.map(|limit| Allowance::new(limit.cap())),
            };
        })
    }

    /// Says which paths a stream may take from now on.
    pub(crate) fn set_paths(&mut self, id: StreamId, paths: PathSet) -> Result<(), WriteError> {
        if paths.is_all() && self.is_unclassed(id) {
            return Ok(());
        }
        self.change_class(id, |class| class.paths = paths)
    }

    /// Puts a stream into the background, or back.
    pub(crate) fn set_background(&mut self, id: StreamId, is_background: bool) -> Result<(), WriteError> {
        if !is_background && self.is_unclassed(id) {
            return Ok(());
        }
        self.change_class(id, |class| class.is_background = is_background)
    }

    fn is_unclassed(&self, id: StreamId) -> bool {
        self.map.get(&id).is_some_and(|stream| stream.class.is_none())
    }

    fn change_class(&mut self, id: StreamId, change: impl FnOnce(&mut StreamClass)) -> Result<(), WriteError> {
        let stream = self.map.get_mut(&id).ok_or(WriteError::Closed)?;
        let classes = self.classes.get_or_insert_default();
        let mut class = match stream.class.take() {
            Some(class) => class,
            None => {
                classes.classed_count += 1;
                Box::default()
            }
        };
        let (was_confined, was_background) = (!class.paths.is_all(), class.is_background);
        change(&mut class);
        classes.confined_count += usize::from(!class.paths.is_all());
        classes.confined_count -= usize::from(was_confined);
        classes.background_count += usize::from(class.is_background);
        classes.background_count -= usize::from(was_background);
        // It is found out anew whether it has to wait, and for how long.
        if let Some(until) = class.held_until.take() {
            classes.held.remove(&(until, id));
        }
        if class.allowance.is_some() || !class.paths.is_all() || class.is_background {
            stream.class = Some(class);
        } else {
            classes.classed_count -= 1;
        }
        self.make_ready(id);
        Ok(())
    }

    /// Limits what leaves of all streams together for the first time, or lifts the limit.
    pub(crate) fn set_whole_rate(&mut self, limit: Option<RateLimit>) {
        if limit.is_none() && self.classes.is_none() {
            return;
        }
        let classes = self.classes.get_or_insert_default();
        match (&mut classes.whole, limit) {
            (Some(allowance), Some(limit)) => allowance.set_limit(limit.cap()),
            (whole, limit) => *whole = limit.map(|limit| Allowance::new(limit.cap())),
        }
        self.uncap();
    }

    /// The stream is over, or nothing more of it will be sent.
    #[cold]
    pub(super) fn forget_class(&mut self, id: StreamId, stream: &mut SendStream) {
        let Some(class) = stream.class.take() else { return };
        let Some(classes) = &mut self.classes else { return };
        classes.classed_count -= 1;
        classes.confined_count -= usize::from(!class.paths.is_all());
        classes.background_count -= usize::from(class.is_background);
        if let Some(until) = class.held_until {
            classes.held.remove(&(until, id));
        }
    }

    /// A stream has left the ready queue because it may not send.
    #[cold]
    pub(super) fn restrain(&mut self, id: StreamId, restraint: Restraint) {
        let (Some(stream), Some(classes)) = (self.map.get_mut(&id), &mut self.classes) else { return };
        match restraint {
            Restraint::Aside => {
                stream.ready = true;
                classes.aside.push(id);
            }
            Restraint::Held(until) => {
                let class = stream.class.as_mut().expect("only a class holds a stream");
                // Written to while it waits: it waits for the same moment still.
                if class.held_until.is_none() {
                    class.held_until = Some(until);
                    classes.held.insert((until, id));
                }
            }
            Restraint::Capped(until) => {
                if !std::mem::replace(&mut stream.capped, true) {
                    classes.capped.push_back(id);
                }
                classes.capped_until = classes.capped_until.into_iter().chain([until]).min();
                classes.capped_priority = classes.capped_priority.max(Some(stream.priority));
            }
        }
    }

    /// When [`on_allowance_timeout`](Self::on_allowance_timeout) has something to do.
    pub(crate) fn allowance_deadline(&self) -> Option<Instant> {
        let classes = self.classes.as_ref()?;
        classes.held.first().map(|(until, _)| *until).into_iter().chain(classes.capped_until).min()
    }

    /// Lets those go on whose time to wait is over.
    pub(crate) fn on_allowance_timeout(&mut self, now: Instant) {
        while let Some(classes) = &mut self.classes
            && let Some((_, id)) = classes.held.first().copied().filter(|(until, _)| *until <= now)
        {
            classes.held.pop_first();
            if let Some(class) = self.map.get_mut(&id).and_then(|stream| stream.class.as_mut()) {
                class.held_until = None;
            }
            self.make_ready(id);
        }
        if self.classes.as_ref().and_then(|classes| classes.capped_until).is_some_and(|until| until <= now) {
            self.uncap();
        }
    }

    /// Those that waited for the connection's allowance try again: the one last whose turn it was when that ran out.
    pub(super) fn uncap(&mut self) {
        let Some(classes) = &mut self.classes else { return };
        (classes.capped_until, classes.capped_priority) = (None, None);
        let mut capped = std::mem::take(&mut classes.capped);
        let had_its_turn = capped.pop_front();
        capped.extend(had_its_turn);
        for id in capped.iter() {
            if let Some(stream) = self.map.get_mut(id) {
                stream.capped = false;
            }
            self.make_ready(*id);
        }
    }

    /// A plan is to be made now, for path `on` if that is known already: streams that may not take it are passed over until
    /// [`end_plan`](Self::end_plan).
    pub(crate) fn begin_plan(&mut self, now: Instant, on: Option<&mut SendPath>) {
        // Those that were passed over between two plans, by somebody who only looked.
        self.end_plan();
        let Some(classes) = &mut self.classes else { return };
        (classes.now, classes.on, classes.background_room) = (now, on.as_ref().map(|path| path.id), u64::MAX);
        classes.taken = Taken::Nothing;
        if let Some(path) = on.filter(|_| classes.background_count > 0) {
            classes.background_room = path.background_room();
        }
        self.on_allowance_timeout(now);
    }

    /// The plan is made: those that were passed over have their turn next.
    pub(crate) fn end_plan(&mut self) {
        let Some(classes) = &mut self.classes else { return };
        (classes.on, classes.background_room, classes.taken) = (None, u64::MAX, Taken::Nothing);
        while let Some(id) = classes.aside.pop() {
            if let Some(stream) = self.map.get(&id) {
                self.ready.entry(Reverse(stream.priority)).or_default().push_front(id);
            }
        }
    }

    /// Something of the application's that is no stream data is in the plan that is made now.
    pub(crate) fn on_datagram_taken(&mut self) {
        if let Some(classes) = &mut self.classes
            && classes.taken != Taken::OthersFirst
        {
            classes.taken = Taken::Others;
        }
    }

    /// The stream data in the plan that is made now are of streams in the background, and there are some.
    pub(crate) fn holds_only_background(&self) -> bool {
        self.classes.as_ref().is_some_and(|classes| classes.taken == Taken::Background)
    }

    /// The plan that is made now ends early: what is in the background follows in the next.
    pub(crate) fn leaves_background_for_next(&self) -> bool {
        self.classes.as_ref().is_some_and(|classes| classes.taken == Taken::OthersFirst)
    }

    /// All that waits is in the background, as far as the first few streams tell.
    pub(crate) fn has_only_background(&mut self) -> bool {
        if self.classes.as_ref().is_none_or(|classes| classes.background_count == 0) || self.next_ready().is_none() {
            return false;
        }
        let mut first = self.ready.values().flatten().take(READY_COUNTED_MAX).filter_map(|id| self.map.get(id));
        first.all(SendStream::is_background)
    }

    /// Something has a class, or had one.
    pub(crate) fn has_classes(&self) -> bool {
        self.classes.is_some()
    }

    /// Some streams are in the background.
    pub(crate) fn has_background(&self) -> bool {
        self.classes.as_ref().is_some_and(|classes| classes.background_count > 0)
    }

    /// As [`has_ready`](Self::has_ready), of the streams that may take exactly these paths.
    pub(crate) fn has_ready_on(&mut self, paths: &PathSet) -> bool {
        if !self.has_confined() || self.next_ready().is_none() {
            return self.has_ready();
        }
        self.ready.values().flatten().filter_map(|id| self.map.get(id)).any(|stream| stream.paths() == paths)
    }

    /// Some streams may not take every path.
    pub(crate) fn has_confined(&self) -> bool {
        self.classes.as_ref().is_some_and(|classes| classes.confined_count > 0)
    }

    /// Whether what stream `id` has to send may take `path`. True for streams that are over.
    pub(crate) fn allows(&self, id: StreamId, path: PathId) -> bool {
        !self.has_confined() || self.map.get(&id).is_none_or(|stream| stream.paths().allows(path))
    }

    /// Whether what stream `id` has to send may take one of `paths`. True for streams that are over.
    pub(crate) fn allows_any(&self, id: StreamId, mut paths: impl Iterator<Item = PathId>) -> bool {
        self.map.get(&id).is_none_or(|stream| stream.paths().is_all() || paths.any(|path| stream.paths().allows(path)))
    }

    /// The different sets of paths that streams with something to send may take, those of the most urgent first. Takes time for
    /// each stream that is ready: none may be stopped by others that wait for paths of theirs.
    pub(crate) fn ready_path_sets(&mut self) -> Vec<PathSet> {
        let mut sets: Vec<PathSet> = Vec::new();
        // Those that turn out to be held back leave the queue.
        self.next_ready();
        for id in self.ready.values().flatten() {
            if let Some(paths) = self.map.get(id).map(SendStream::paths)
                && !sets.contains(paths)
            {
                sets.push(paths.clone());
            }
        }
        sets
    }

    /// As [`ready_bytes`](Self::ready_bytes), of the streams that may take exactly these paths. Rates do not count here: what waits for
    /// an allowance follows soon, and a scheduler that took it for the tail of something would wait for the best path with it.
    pub(crate) fn ready_bytes_on(&self, paths: &PathSet) -> u64 {
        let credit = self.max_data - self.data_sent;
        let streams = self.ready.values().flatten().filter_map(|id| self.map.get(id));
        let streams = streams.filter(|stream| stream.paths() == paths).take(READY_COUNTED_MAX);
        streams.map(|stream| stream.ready_bytes(credit)).sum()
    }

    /// Frees room that is not used.
    pub(super) fn shrink_classes(&mut self) {
        if self.classes.as_ref().is_some_and(|classes| classes.is_idle()) {
            self.classes = None;
        }
    }
}

impl SendStream {
    /// Bytes that could be sent now, with so much credit of the connection's.
    pub(super) fn ready_bytes(&self, credit: u64) -> u64 {
        self.buffer.ready_bytes(self.max_data.min(self.buffer.unsent() + credit))
    }

    pub(super) fn is_background(&self) -> bool {
        self.class.as_ref().is_some_and(|class| class.is_background)
    }

    fn paths(&self) -> &PathSet {
        self.class.as_ref().map_or(&PathSet::ALL, |class| &class.paths)
    }
}
