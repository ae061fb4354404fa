//! The movement of the token from station to station, computed on demand.
//!
//! ```text
//!            ┌────────────── no frames in the model, or the token is late─┐
//!            ▼                                                             │
//!       Travelling ── reaches a station with frames, early ──▶ Held ───────┤ (token transmission time)
//!            ▲                                                  │ ▲        │
//!            │                                                  └─┘        │
//!            └─────────────── holding time used, or no frames ◀─ next frame┘
//! ```
//!
//! Only the use of the token by stations of the model causes events: the arrival of the token and
//! the end of each frame. Passes of stations without frames are a loop of additions, the
//! background's use of a token is one step of it, and unused whole rotations are skipped with one
//! multiplication.

use units::{Duration, Instant};

use super::background::BackgroundStation;
use super::config::RingConfig;
use super::station::Station;
use super::{Class, FddiFrame};
use crate::hardware::frame_queue::FrameQueue;
use crate::hardware::in_flight::InFlight;
use crate::kernel::Sim;
use crate::observe::Accounting;

enum Token {
    /// The last bit was sent by station `from` at `left`.
    Travelling { from: usize, left: Instant },
    /// Station `station` sends the first frame of `class` until `ends`.
    Held { station: usize, class: Class, ends: Instant, budget: TokenBudget },
}

/// Remaining transmission time of the station that holds the token.
#[derive(Clone, Copy)]
struct TokenBudget {
    synchronous: Duration,
    /// Asynchronous frames may start while this is not zero (THT).
    asynchronous: Duration,
}

pub(super) struct RingState<T> {
    name: String,
    config: RingConfig,
    latency: Duration,
    token_time: Duration,
    /// Delay from each station to the next.
    hops: Vec<Duration>,
    pub(super) stations: Vec<Station<T>>,
    pub(super) background: Option<BackgroundStation>,
    token: Token,
    /// Frames that have been sent and have not arrived.
    pub(super) in_flight: InFlight<FddiFrame<T>>,
    /// Number of stations of the model with frames.
    stations_with_frames: usize,
    /// Token passes since the token was last used or late. After a whole rotation of them, all
    /// timers are those of an idle ring.
    idle_passes: usize,
    pub(super) stats: RingStats,
}

/// Statistics since the end of the warm-up.
#[derive(Default)]
pub(super) struct RingStats {
    pub(super) accounting: Accounting,
    /// Transmission time of frames, including the part after the present time.
    busy_ns: u128,
    /// End of the last frame given to the ring.
    busy_until: Instant,
    pub(super) rotations: u64,
    pub(super) late_tokens: u64,
    pub(super) rotation_max: Duration,
}

impl RingStats {
    pub(super) fn reset(&mut self, now: Instant) {
        let mut accounting = std::mem::take(&mut self.accounting);
        accounting.reset(now);
        let busy_ns = self.beyond_ns(now);
        *self = Self { accounting, busy_ns, busy_until: self.busy_until, ..Self::default() };
    }

    pub(super) fn busy_ns(&self, now: Instant) -> u128 {
        self.busy_ns - self.beyond_ns(now)
    }

    /// Returns the part of the last use of the token that lies after `now`. Frames of one use
    /// follow each other without gaps.
    fn beyond_ns(&self, now: Instant) -> u128 {
        u128::from(self.busy_until.saturating_since(now).as_nanos())
    }

    fn send(&mut self, from: Instant, until: Instant) {
        self.busy_ns += u128::from(until.saturating_since(from).as_nanos());
        self.busy_until = until;
    }
}

impl<T> RingState<T> {
    pub(super) fn new(name: &str, config: RingConfig, background: Option<BackgroundStation>) -> Self {
        let count = config.positions_m.len();
        let along = |metres: u64| metres * super::config::FIBRE_NS_PER_KM / 1000;
        let hops = (0..count)
            .map(|index| {
                let end = config.positions_m.get(index + 1).copied().unwrap_or(config.length_m + config.positions_m[0]);
                Duration::from_nanos(along(end) - along(config.positions_m[index])) + config.station_latency
            })
            .collect::<Vec<_>>();
        let allowance =
            |station| config.synchronous.iter().find(|&&(other, _)| other == station).map_or(Duration::ZERO, |of| of.1);
        Self {
            name: name.to_owned(),
            latency: hops.iter().fold(Duration::ZERO, |sum, &hop| sum + hop),
            token_time: config.token_time(),
            hops,
            stations: (0..count)
                .map(|station| Station::new(config.ttrt, allowance(station), config.queue_frames))
                .collect(),
            background,
            token: Token::Travelling { from: count - 1, left: Instant::ZERO },
            in_flight: InFlight::new(),
            stations_with_frames: 0,
            idle_passes: 0,
            stats: RingStats::default(),
            config,
        }
    }

    pub(super) const fn config(&self) -> &RingConfig {
        &self.config
    }

    pub(super) const fn latency(&self) -> Duration {
        self.latency
    }

    /// Returns the propagation delay from `from` to `to`.
    pub(super) fn distance(&self, from: usize, to: usize) -> Duration {
        let count = self.hops.len();
        let between = (to + count - from) % count;
        (0..between).fold(Duration::ZERO, |sum, step| sum + self.hops[(from + step) % count])
    }

    /// Adds a frame to its station's queue, or to the frames that wait for space. The state must be
    /// up to date. Returns its number within its class.
    pub(super) fn push(&mut self, now: Instant, class: Class, frame: FddiFrame<T>, sim: &Sim) -> u64 {
        let from = frame.from;
        let station = &mut self.stations[from];
        let had_frames = station.has_frames();
        let (number, is_in) = station.queue(class).push(now, frame);
        if is_in {
            self.stats.accounting.arrive(now);
            self.stations_with_frames += usize::from(!had_frames);
        }
        sim.trace(|trace| {
            let held = self.stations[from].queues.iter().map(FrameQueue::len).sum::<usize>();
            trace.level(&format!("{} station {from}", self.name), now, held as u64);
        });
        number
    }

    /// Returns when the next event of a station of the model happens in the present state.
    pub(super) fn next_event(&self) -> Option<Instant> {
        self.next_of_token().into_iter().chain(self.in_flight.next_arrival()).min()
    }

    fn next_of_token(&self) -> Option<Instant> {
        let (from, left) = match self.token {
            Token::Held { ends, .. } => return Some(ends),
            Token::Travelling { .. } if self.stations_with_frames == 0 => return None,
            Token::Travelling { from, left } => (from, left),
        };
        let count = self.hops.len();
        let mut at = left;
        for step in 0..count {
            at += self.hops[(from + step) % count];
            let station = (from + step + 1) % count;
            let others_go = self
                .background
                .as_ref()
                .is_some_and(|background| background.station() == station && background.has_work_at(at));
            if others_go || self.stations[station].has_frames() {
                return Some(at);
            }
        }
        unreachable!("a station has frames");
    }

    /// Computes events before `now`.
    pub(super) fn catch_up(&mut self, now: Instant, sim: &Sim) {
        if let Some(before) = now.as_nanos().checked_sub(1) {
            self.advance(Instant::from_nanos(before), sim);
        }
    }

    /// Computes events until `now`, inclusive.
    pub(super) fn advance(&mut self, now: Instant, sim: &Sim) {
        loop {
            match self.token {
                Token::Held { station, class, ends, budget } => {
                    if ends > now {
                        return;
                    }
                    self.complete(station, class, ends, sim);
                    self.token = self
                        .next_frame(station, ends, budget)
                        .unwrap_or(Token::Travelling { from: station, left: ends + self.token_time });
                }
                Token::Travelling { from, left } => {
                    let at = left + self.hops[from];
                    if at > now {
                        return;
                    }
                    self.pass(if from + 1 == self.hops.len() { 0 } else { from + 1 }, at, sim);
                    self.skip_idle_rotations(now);
                }
            }
        }
    }

    /// Processes the arrival of the token at `station` at `at`.
    fn pass(&mut self, station: usize, at: Instant, sim: &Sim) {
        let Station { timers, allowance, .. } = &mut self.stations[station];
        let asynchronous = timers.token(at, self.config.ttrt);
        let budget = TokenBudget { synchronous: *allowance, asynchronous };
        self.stats.rotation_max = self.stats.rotation_max.max(timers.last_rotation);
        self.stats.rotations += u64::from(station == 0);
        self.stats.late_tokens += u64::from(asynchronous.is_zero());
        let is_background = self.background.as_ref().is_some_and(|background| background.station() == station);
        self.token = if is_background {
            self.pass_background(station, at, asynchronous, sim)
        } else {
            self.next_frame(station, at, budget)
        }
        .unwrap_or(Token::Travelling { from: station, left: at });
        let is_unused = matches!(self.token, Token::Travelling { left, .. } if left == at);
        self.idle_passes = if is_unused && !asynchronous.is_zero() { self.idle_passes + 1 } else { 0 };
    }

    fn pass_background(&mut self, station: usize, at: Instant, holding: Duration, sim: &Sim) -> Option<Token> {
        let done = self.background.as_mut()?.use_token(at, holding);
        if done == at {
            return None;
        }
        self.stats.send(at, done);
        sim.trace(|trace| trace.span(&self.name, "background", at, done));
        Some(Token::Travelling { from: station, left: done + self.token_time })
    }

    /// Starts the next frame that `station` may send at `now`; returns `None` if it has none or may
    /// not send.
    fn next_frame(&mut self, station: usize, now: Instant, budget: TokenBudget) -> Option<Token> {
        let frame_time = |queues: &[FrameQueue<FddiFrame<T>>; 2], class: Class| {
            queues[class as usize].front().map(|frame| self.config.frame_time(frame.bytes))
        };
        let queues = &self.stations[station].queues;
        let synchronous = frame_time(queues, Class::Synchronous).filter(|&time| time <= budget.synchronous);
        let asynchronous = || frame_time(queues, Class::Asynchronous).filter(|_| !budget.asynchronous.is_zero());
        let (class, time, budget) = if let Some(time) = synchronous {
            (Class::Synchronous, time, TokenBudget { synchronous: budget.synchronous - time, ..budget })
        } else {
            let time = asynchronous()?;
            // Synchronous frames come first: none starts after an asynchronous one.
            let left = budget.asynchronous.saturating_sub(time);
            (Class::Asynchronous, time, TokenBudget { synchronous: Duration::ZERO, asynchronous: left })
        };
        let frame = self.stations[station].queue(class).front_mut().expect("has a frame");
        frame.began = now;
        self.stats.accounting.begin(now.saturating_since(frame.queued));
        let ends = now + time;
        self.stats.send(now, ends);
        Some(Token::Held { station, class, ends, budget })
    }

    /// Completes the frame that `station` was sending.
    fn complete(&mut self, station: usize, class: Class, now: Instant, sim: &Sim) {
        let (frame, another_came) = self.stations[station].queue(class).complete(now, sim);
        self.stats.accounting.depart(now, frame.queued);
        if another_came {
            self.stats.accounting.arrive(now);
        }
        self.stations_with_frames -= usize::from(!self.stations[station].has_frames());
        sim.trace(|trace| {
            trace.span(&self.name, &format!("{} to {}", frame.from, frame.to), frame.began, now);
            let held = self.stations[station].queues.iter().map(FrameQueue::len).sum::<usize>();
            trace.level(&format!("{} station {station}", self.name), now, held as u64);
        });
        self.in_flight.push(now + self.distance(frame.from, frame.to), frame);
    }

    /// Skips the rotations after an unused one until `limit`, or until a station has a frame,
    /// because they are all identical.
    fn skip_idle_rotations(&mut self, limit: Instant) {
        let Token::Travelling { left, .. } = self.token else { return };
        if self.idle_passes < self.hops.len() || self.stations_with_frames > 0 {
            return;
        }
        // A token that arrives together with a frame is used for it, so the last skipped pass is
        // before the arrival.
        let before = |work: Instant| work.saturating_sub(Duration::from_nanos(1));
        let unused_until =
            self.background.as_ref().and_then(BackgroundStation::work_from).map_or(limit, before).min(limit);
        let rotations = unused_until.saturating_since(left).as_nanos() / self.latency.as_nanos();
        if rotations == 0 {
            return;
        }
        let span = self.latency * rotations;
        for station in &mut self.stations {
            station.timers.idle(span, self.latency);
        }
        self.stats.rotations += rotations;
        let Token::Travelling { left, .. } = &mut self.token else { return };
        *left += span;
    }
}
