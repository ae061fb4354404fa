//! Classes of service: rate limits of streams and of the connection, permitted paths of streams,
//! and background streams.
//!
//! Only application bytes sent for the first time are counted. Retransmissions, acknowledgements
//! and control frames are exempt: the receiver holds data that it cannot use until the
//! retransmission arrives, and both ends need control frames to make progress, so limiting them
//! would make a loss cost more than the limit saves. The capacity of the paths is the concern of
//! congestion control and of the pacer, which count everything.
//!
//! ```text
//!              its turn comes                        no limiter: held, until a deadline
//!   ready ────────────────────▶ sent   or else ────▶ the connection has none: connection_limited, until a deadline
//!     ▲                                         └──▶ not on this path, or not now: skipped, until the plan is made
//!     └──────────────────────────────────────────────────┘
//! ```
//!
//! A connection without classes stores only an empty pointer.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use recovery::RateLimiter;
use units::Instant;
use wire::quic::{PathId, StreamId};

use super::{READY_COUNTED_MAX, SendStream, SendStreams, WriteError};
use crate::class::{BURST_MIN, PathSet, RateLimit};
use crate::queue::Queue;

/// A stream waits until its rate limit allows this many bytes, if it has as many to send: less
/// would produce many small packets.
const RELEASE_MIN: u64 = BURST_MIN;

/// The class of one stream, besides its priority.
#[derive(Debug, Default)]
pub(super) struct StreamClass {
    limiter: Option<RateLimiter>,
    paths: PathSet,
    is_background: bool,
    /// The time under which it is stored in [`Classes::rate_limited`].
    rate_limited_until: Option<Instant>,
}

/// State of a connection that has, or had, limits on itself or on one of its streams.
#[derive(Debug, Default)]
pub(super) struct Classes {
    /// When the current plan is made.
    now: Instant,
    /// The path of the current plan, once it is known, and the background bytes that may leave
    /// there.
    on: Option<PathId>,
    background_budget: u64,
    /// The kind of data in the current plan.
    plan_content: PlanContent,
    /// The rate limiter of the whole connection.
    connection_limiter: Option<RateLimiter>,
    /// Streams that exhausted their rate limit, by the time it allows bytes again. Each is here at
    /// most once.
    rate_limited: BTreeSet<(Instant, StreamId)>,
    /// Streams that wait for the connection's rate limiter, and the time until which they wait.
    /// Each is here at most once.
    connection_limited: Queue<StreamId>,
    connection_limited_until: Option<Instant>,
    /// The highest priority among these. Streams of equal or lower priority wait as long: otherwise
    /// their small writes, which fit the limit earlier than a full packet, would keep using it up
    /// before the more urgent stream can.
    connection_limited_priority: Option<i32>,
    /// Streams skipped because the current plan is for another path, or because its scavenger
    /// window is exhausted, in order. They count as ready.
    skipped: Vec<StreamId>,
    /// Streams with a class, and those among them that may not take every path.
    classed_count: usize,
    confined_count: usize,
    background_count: usize,
}

/// The kind of data in a plan. Background data have plans of their own: a background batch takes
/// longer to be sealed, sent and opened than the few foreground packets that would share its plan,
/// and at both ends these would wait for the whole batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum PlanContent {
    #[default]
    Nothing,
    /// Of background streams only.
    Background,
    /// Of foreground data.
    Foreground,
    /// Of foreground data, with background streams next in order.
    ForegroundFirst,
}

/// Why the next stream may not send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deferral {
    /// It may not take the path of this plan, or not now.
    Skip,
    /// Its own rate limit is exhausted.
    StreamRate(Instant),
    /// The connection's rate limit is exhausted.
    ConnectionRate(Instant),
}

impl Classes {
    /// Whether `stream` may send now. Lowers `limit`, the offset up to which it may send new bytes.
    #[cold] // Here and below: out of the way of connections without classes, which are most.
    pub(super) fn check(&mut self, stream: &mut SendStream, limit: &mut u64) -> Option<Deferral> {
        if let (Some(class), Some(on)) = (&stream.class, self.on)
            && !class.paths.allows(on)
        {
            return Some(Deferral::Skip);
        }
        let is_background = stream.is_background();
        if is_background && matches!(self.plan_content, PlanContent::Foreground | PlanContent::ForegroundFirst) {
            self.plan_content = PlanContent::ForegroundFirst;
            return Some(Deferral::Skip);
        }
        let unsent = stream.buffer.unsent();
        let available = stream.buffer.end().min(*limit).saturating_sub(unsent);
        if available == 0 || stream.buffer.has_lost() {
            return None;
        }
        let wanted = available.min(RELEASE_MIN);
        if is_background {
            if self.background_budget < wanted {
                return Some(Deferral::Skip);
            }
            *limit = (*limit).min(unsent.saturating_add(self.background_budget));
        }
        let now = self.now;
        let outranked_until = self.outranked_until(stream.priority);
        let mut budget = |limiter: &mut RateLimiter| {
            let budget = limiter.budget(now);
            *limit = (*limit).min(unsent + budget);
            (budget < wanted).then(|| limiter.next_release(now, wanted))
        };
        let own = stream.class.as_mut().and_then(|class| class.limiter.as_mut());
        if let Some(until) = own.and_then(&mut budget) {
            return Some(Deferral::StreamRate(until));
        }
        let connection = self.connection_limiter.as_mut().and_then(budget);
        outranked_until.or(connection).map(Deferral::ConnectionRate)
    }

    /// Until when a stream of this priority waits for more urgent ones that wait for the
    /// connection's rate limit.
    fn outranked_until(&self, priority: i32) -> Option<Instant> {
        self.connection_limited_until.filter(|until| {
            *until > self.now && self.connection_limited_priority.is_some_and(|limited| priority <= limited)
        })
    }

    /// `stream` sends bytes, `bytes` of them for the first time.
    #[cold]
    pub(super) fn on_planned(&mut self, stream: &mut SendStream, bytes: u64) {
        if stream.is_background() {
            self.background_budget = self.background_budget.saturating_sub(bytes);
            if self.plan_content == PlanContent::Nothing {
                self.plan_content = PlanContent::Background;
            }
        } else if self.plan_content != PlanContent::ForegroundFirst {
            self.plan_content = PlanContent::Foreground;
        }
        let own = stream.class.as_mut().and_then(|class| class.limiter.as_mut());
        own.into_iter().chain(&mut self.connection_limiter).for_each(|limiter| limiter.take(bytes));
    }

    fn is_idle(&self) -> bool {
        self.classed_count == 0 && self.connection_limiter.is_none() && self.connection_limited.is_empty()
    }
}

impl SendStreams {
    /// Sets or removes the limit on the rate at which a stream sends new bytes.
    pub(crate) fn set_rate(&mut self, id: StreamId, limit: Option<RateLimit>) -> Result<(), WriteError> {
        if limit.is_none() && self.is_unclassed(id) {
            return Ok(());
        }
        self.change_class(id, |class| {
            class.limiter = match (class.limiter.take(), limit) {
                (Some(mut limiter), Some(limit)) => {
                    limiter.set_limit(limit.cap());
                    Some(limiter)
                }
                (_, limit) => limit.map(|limit| RateLimiter::new(limit.cap())),
            };
        })
    }

    /// Sets the paths that a stream may take from now on.
    pub(crate) fn set_paths(&mut self, id: StreamId, paths: PathSet) -> Result<(), WriteError> {
        if paths.is_all() && self.is_unclassed(id) {
            return Ok(());
        }
        self.change_class(id, |class| class.paths = paths)
    }

    /// Makes a stream a background stream, or a foreground stream again.
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
        // Whether it has to wait, and for how long, is determined anew.
        if let Some(until) = class.rate_limited_until.take() {
            classes.rate_limited.remove(&(until, id));
        }
        if class.limiter.is_some() || !class.paths.is_all() || class.is_background {
            stream.class = Some(class);
        } else {
            classes.classed_count -= 1;
        }
        self.make_ready(id);
        Ok(())
    }

    /// Sets or removes the limit on the rate at which all streams together send new bytes.
    pub(crate) fn set_connection_rate(&mut self, limit: Option<RateLimit>) {
        if limit.is_none() && self.classes.is_none() {
            return;
        }
        let classes = self.classes.get_or_insert_default();
        match (&mut classes.connection_limiter, limit) {
            (Some(limiter), Some(limit)) => limiter.set_limit(limit.cap()),
            (connection_limiter, limit) => *connection_limiter = limit.map(|limit| RateLimiter::new(limit.cap())),
        }
        self.release_connection_limited();
    }

    /// The stream has ended, or sends nothing more.
    #[cold]
    pub(super) fn forget_class(&mut self, id: StreamId, stream: &mut SendStream) {
        let Some(class) = stream.class.take() else { return };
        let Some(classes) = &mut self.classes else { return };
        classes.classed_count -= 1;
        classes.confined_count -= usize::from(!class.paths.is_all());
        classes.background_count -= usize::from(class.is_background);
        if let Some(until) = class.rate_limited_until {
            classes.rate_limited.remove(&(until, id));
        }
    }

    /// A stream has left the ready queue because it may not send.
    #[cold]
    pub(super) fn defer(&mut self, id: StreamId, deferral: Deferral) {
        let (Some(stream), Some(classes)) = (self.map.get_mut(&id), &mut self.classes) else { return };
        match deferral {
            Deferral::Skip => {
                stream.ready = true;
                classes.skipped.push(id);
            }
            Deferral::StreamRate(until) => {
                let class = stream.class.as_mut().expect("only a class holds a stream");
                // A write to a waiting stream does not change the time it waits for.
                if class.rate_limited_until.is_none() {
                    class.rate_limited_until = Some(until);
                    classes.rate_limited.insert((until, id));
                }
            }
            Deferral::ConnectionRate(until) => {
                if !std::mem::replace(&mut stream.connection_limited, true) {
                    classes.connection_limited.push_back(id);
                }
                classes.connection_limited_until = classes.connection_limited_until.into_iter().chain([until]).min();
                classes.connection_limited_priority = classes.connection_limited_priority.max(Some(stream.priority));
            }
        }
    }

    /// When [`on_rate_limit_timeout`](Self::on_rate_limit_timeout) must run.
    pub(crate) fn rate_limit_deadline(&self) -> Option<Instant> {
        let classes = self.classes.as_ref()?;
        classes.rate_limited.first().map(|(until, _)| *until).into_iter().chain(classes.connection_limited_until).min()
    }

    /// Makes streams ready whose waiting time is over.
    pub(crate) fn on_rate_limit_timeout(&mut self, now: Instant) {
        while let Some(classes) = &mut self.classes
            && let Some((_, id)) = classes.rate_limited.first().copied().filter(|(until, _)| *until <= now)
        {
            classes.rate_limited.pop_first();
            if let Some(class) = self.map.get_mut(&id).and_then(|stream| stream.class.as_mut()) {
                class.rate_limited_until = None;
            }
            self.make_ready(id);
        }
        if self.classes.as_ref().and_then(|classes| classes.connection_limited_until).is_some_and(|until| until <= now)
        {
            self.release_connection_limited();
        }
    }

    /// Makes the streams that waited for the connection's rate limit ready again. The stream that
    /// was next when the limit was exhausted goes last.
    pub(super) fn release_connection_limited(&mut self) {
        let Some(classes) = &mut self.classes else { return };
        (classes.connection_limited_until, classes.connection_limited_priority) = (None, None);
        let mut connection_limited = std::mem::take(&mut classes.connection_limited);
        let last_served = connection_limited.pop_front();
        connection_limited.extend(last_served);
        for id in connection_limited.iter() {
            if let Some(stream) = self.map.get_mut(id) {
                stream.connection_limited = false;
            }
            self.make_ready(*id);
        }
    }

    /// Starts a plan, for path `on` if it is already known: streams that may not take it are
    /// skipped until [`end_plan`](Self::end_plan). `background_budget` says how many bytes of background
    /// streams the path takes.
    pub(crate) fn begin_plan(&mut self, now: Instant, on: Option<PathId>, background_budget: impl FnOnce() -> u64) {
        // Streams may have been skipped between two plans, by a caller that only looked.
        self.end_plan();
        let Some(classes) = &mut self.classes else { return };
        (classes.now, classes.on, classes.background_budget) = (now, on, u64::MAX);
        classes.plan_content = PlanContent::Nothing;
        if on.is_some() && classes.background_count > 0 {
            classes.background_budget = background_budget();
        }
        self.on_rate_limit_timeout(now);
    }

    /// Ends the plan: the streams skipped are next.
    pub(crate) fn end_plan(&mut self) {
        let Some(classes) = &mut self.classes else { return };
        (classes.on, classes.background_budget, classes.plan_content) = (None, u64::MAX, PlanContent::Nothing);
        while let Some(id) = classes.skipped.pop() {
            if let Some(stream) = self.map.get(&id) {
                self.ready.entry(Reverse(stream.priority)).or_default().push_front(id);
            }
        }
    }

    /// The current plan contains a DATAGRAM frame.
    pub(crate) fn on_datagram_taken(&mut self) {
        if let Some(classes) = &mut self.classes
            && classes.plan_content != PlanContent::ForegroundFirst
        {
            classes.plan_content = PlanContent::Foreground;
        }
    }

    /// True if the current plan holds stream data, all of it of background streams.
    pub(crate) fn holds_only_background(&self) -> bool {
        self.classes.as_ref().is_some_and(|classes| classes.plan_content == PlanContent::Background)
    }

    /// True if the current plan ends early: background data follow in the next.
    pub(crate) fn defers_background(&self) -> bool {
        self.classes.as_ref().is_some_and(|classes| classes.plan_content == PlanContent::ForegroundFirst)
    }

    /// True if all waiting data are background data, judging by the first few streams.
    pub(crate) fn has_only_background(&mut self) -> bool {
        if self.classes.as_ref().is_none_or(|classes| classes.background_count == 0) || self.next_ready().is_none() {
            return false;
        }
        let mut first = self.ready.values().flatten().take(READY_COUNTED_MAX).filter_map(|id| self.map.get(id));
        first.all(SendStream::is_background)
    }

    /// True if a stream or the connection has a class, or had one.
    pub(crate) fn has_classes(&self) -> bool {
        self.classes.is_some()
    }

    /// True if there are background streams.
    pub(crate) fn has_background(&self) -> bool {
        self.classes.as_ref().is_some_and(|classes| classes.background_count > 0)
    }

    /// As [`has_ready`](Self::has_ready), for streams that may take exactly these paths.
    pub(crate) fn has_ready_on(&mut self, paths: &PathSet) -> bool {
        if !self.has_confined() || self.next_ready().is_none() {
            return self.has_ready();
        }
        self.ready.values().flatten().filter_map(|id| self.map.get(id)).any(|stream| stream.paths() == paths)
    }

    /// True if some streams may not take every path.
    pub(crate) fn has_confined(&self) -> bool {
        self.classes.as_ref().is_some_and(|classes| classes.confined_count > 0)
    }

    /// Whether data of stream `id` may take `path`. True for streams that have ended.
    pub(crate) fn allows(&self, id: StreamId, path: PathId) -> bool {
        !self.has_confined() || self.map.get(&id).is_none_or(|stream| stream.paths().allows(path))
    }

    /// Whether data of stream `id` may take one of `paths`. True for streams that have ended.
    pub(crate) fn allows_any(&self, id: StreamId, mut paths: impl Iterator<Item = PathId>) -> bool {
        self.map.get(&id).is_none_or(|stream| stream.paths().is_all() || paths.any(|path| stream.paths().allows(path)))
    }

    /// The distinct path sets of the ready streams, those of the most urgent first. Linear in the
    /// number of ready streams: no stream may be stopped by others that wait for their own paths.
    pub(crate) fn ready_path_sets(&mut self) -> Vec<PathSet> {
        let mut sets: Vec<PathSet> = Vec::new();
        // Streams found to be blocked leave the queue.
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

    /// As [`ready_bytes`](Self::ready_bytes), for streams that may take exactly these paths. Rate
    /// limits do not count: data blocked by one follow soon, and a scheduler that took them for the
    /// end of a transfer would wait for the best path.
    pub(crate) fn ready_bytes_on(&self, paths: &PathSet) -> u64 {
        let credit = self.max_data - self.data_sent;
        let streams = self.ready.values().flatten().filter_map(|id| self.map.get(id));
        let streams = streams.filter(|stream| stream.paths() == paths).take(READY_COUNTED_MAX);
        streams.map(|stream| stream.ready_bytes(credit)).sum()
    }

    /// Releases unused memory.
    pub(super) fn shrink_classes(&mut self) {
        if self.classes.as_ref().is_some_and(|classes| classes.is_idle()) {
            self.classes = None;
        }
    }
}

impl SendStream {
    /// Bytes that could be sent now, with `credit` bytes left for the connection.
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
