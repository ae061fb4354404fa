//! The token's way, from station to station, worked out when somebody wants to know.
//!
//! ```text
//!            ┌────────────── nobody here has frames, or the token is late ─┐
//!            ▼                                                             │
//!       Travelling ── reaches a station with frames, early ──▶ Held ───────┤ (issued anew: a token's time)
//!            ▲                                                  │ ▲        │
//!            │                                                  └─┘        │
//!            └─────────────── holding time used, or no frames ◀─ next frame┘
//! ```
//!
//! Only what a station of the model sends is an event: the token's coming and the end of each frame. Passes of stations that have
//! nothing to send are a loop of additions, the background's use of a token is one step of it, and whole rotations that nobody uses
//! are one multiplication.

use units::{Duration, Instant};

use super::background::Others;
use super::config::RingConfig;
use super::station::Station;
use super::{Class, Frame};
use crate::Sim;
use crate::hardware::flight::Flight;
use crate::hardware::lane::Lane;
use crate::observe::Ledger;

enum Token {
    /// Its last bit left station `from` at `left`.
    Travelling { from: usize, left: Instant },
    /// Station `station` sends the first frame of `class`, until `ends`.
    Held { station: usize, class: Class, ends: Instant, rights: Rights },
}

/// What a station may still send with the token it holds.
#[derive(Clone, Copy)]
struct Rights {
    synchronous: Duration,
    /// An asynchronous frame may begin while this is not zero (THT).
    asynchronous: Duration,
}

pub(super) struct State<T> {
    name: String,
    config: RingConfig,
    latency: Duration,
    token_time: Duration,
    /// From each station to the next.
    hops: Vec<Duration>,
    pub(super) stations: Vec<Station<T>>,
    pub(super) others: Option<Others>,
    token: Token,
    /// Frames on their way to their receivers.
    pub(super) flight: Flight<Frame<T>>,
    /// Stations of the model with frames.
    stations_with_frames: usize,
    /// Passes since somebody last used the token or it came late. After a whole rotation of them all timers are as in an idle ring.
    idle_passes: usize,
    pub(super) books: Books,
}

/// What happened since the warm-up.
#[derive(Default)]
pub(super) struct Books {
    pub(super) ledger: Ledger,
    /// Time given to frames, with what lies beyond now.
    busy_ns: u128,
    /// When the last frame given to the ring ends.
    busy_until: Instant,
    pub(super) rotations: u64,
    pub(super) late_tokens: u64,
    pub(super) rotation_max: Duration,
}

impl Books {
    pub(super) fn reset(&mut self, now: Instant) {
        let mut ledger = std::mem::take(&mut self.ledger);
        ledger.reset(now);
        let busy_ns = self.beyond_ns(now);
        *self = Self { ledger, busy_ns, busy_until: self.busy_until, ..Self::default() };
    }

    pub(super) fn busy_ns(&self, now: Instant) -> u128 {
        self.busy_ns - self.beyond_ns(now)
    }

    /// What of the last use of the token lies beyond `now`; frames of one use follow each other without gaps.
    fn beyond_ns(&self, now: Instant) -> u128 {
        u128::from(self.busy_until.saturating_since(now).as_nanos())
    }

    fn send(&mut self, from: Instant, until: Instant) {
        self.busy_ns += u128::from(until.saturating_since(from).as_nanos());
        self.busy_until = until;
    }
}

impl<T> State<T> {
    pub(super) fn new(name: &str, config: RingConfig, others: Option<Others>) -> Self {
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
            others,
            token: Token::Travelling { from: count - 1, left: Instant::ZERO },
            flight: Flight::new(),
            stations_with_frames: 0,
            idle_passes: 0,
            books: Books::default(),
            config,
        }
    }

    pub(super) const fn config(&self) -> &RingConfig {
        &self.config
    }

    pub(super) const fn latency(&self) -> Duration {
        self.latency
    }

    /// From the moment a frame's last bit leaves `from` until it is at `to`.
    pub(super) fn distance(&self, from: usize, to: usize) -> Duration {
        let count = self.hops.len();
        let between = (to + count - from) % count;
        (0..between).fold(Duration::ZERO, |sum, step| sum + self.hops[(from + step) % count])
    }

    /// Puts a frame into its station's queue, or outside if there is no room; what happened before has been worked out. Returns its
    /// number in its class.
    pub(super) fn push(&mut self, now: Instant, class: Class, frame: Frame<T>, sim: &Sim) -> u64 {
        let from = frame.from;
        let station = &mut self.stations[from];
        let had_frames = station.has_frames();
        let (number, is_in) = station.lane(class).push(now, frame);
        if is_in {
            self.books.ledger.arrive(now);
            self.stations_with_frames += usize::from(!had_frames);
        }
        sim.trace(|trace| {
            let held = self.stations[from].lanes.iter().map(Lane::len).sum::<usize>();
            trace.level(&format!("{} station {from}", self.name), now, held as u64);
        });
        number
    }

    /// When the next thing happens to a station of the model, as things stand.
    pub(super) fn next_event(&self) -> Option<Instant> {
        self.next_of_token().into_iter().chain(self.flight.next_arrival()).min()
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
            let others_go =
                self.others.as_ref().is_some_and(|others| others.station() == station && others.has_work_at(at));
            if others_go || self.stations[station].has_frames() {
                return Some(at);
            }
        }
        unreachable!("a station has frames");
    }

    /// Works out what has happened before `now`.
    pub(super) fn catch_up(&mut self, now: Instant, sim: &Sim) {
        if let Some(before) = now.as_nanos().checked_sub(1) {
            self.advance(Instant::from_nanos(before), sim);
        }
    }

    /// Works out what happens until `now`, now included.
    pub(super) fn advance(&mut self, now: Instant, sim: &Sim) {
        loop {
            match self.token {
                Token::Held { station, class, ends, rights } => {
                    if ends > now {
                        return;
                    }
                    self.complete(station, class, ends, sim);
                    self.token = self
                        .next_frame(station, ends, rights)
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

    /// The token comes to `station` at `at`.
    fn pass(&mut self, station: usize, at: Instant, sim: &Sim) {
        let Station { timers, allowance, .. } = &mut self.stations[station];
        let asynchronous = timers.token(at, self.config.ttrt);
        let rights = Rights { synchronous: *allowance, asynchronous };
        self.books.rotation_max = self.books.rotation_max.max(timers.last_rotation);
        self.books.rotations += u64::from(station == 0);
        self.books.late_tokens += u64::from(asynchronous.is_zero());
        let is_others = self.others.as_ref().is_some_and(|others| others.station() == station);
        self.token = if is_others {
            self.pass_others(station, at, asynchronous, sim)
        } else {
            self.next_frame(station, at, rights)
        }
        .unwrap_or(Token::Travelling { from: station, left: at });
        let is_unused = matches!(self.token, Token::Travelling { left, .. } if left == at);
        self.idle_passes = if is_unused && !asynchronous.is_zero() { self.idle_passes + 1 } else { 0 };
    }

    fn pass_others(&mut self, station: usize, at: Instant, holding: Duration, sim: &Sim) -> Option<Token> {
        let done = self.others.as_mut()?.use_token(at, holding);
        if done == at {
            return None;
        }
        self.books.send(at, done);
        sim.trace(|trace| trace.span(&self.name, "others", at, done));
        Some(Token::Travelling { from: station, left: done + self.token_time })
    }

    /// The next frame that `station` may send at `now`, begun; `None` if it has none or may not.
    fn next_frame(&mut self, station: usize, now: Instant, rights: Rights) -> Option<Token> {
        let frame_time = |lanes: &[Lane<Frame<T>>; 2], class: Class| {
            lanes[class as usize].front().map(|frame| self.config.frame_time(frame.bytes))
        };
        let lanes = &self.stations[station].lanes;
        let synchronous = frame_time(lanes, Class::Synchronous).filter(|&time| time <= rights.synchronous);
        let asynchronous = || frame_time(lanes, Class::Asynchronous).filter(|_| !rights.asynchronous.is_zero());
        let (class, time, rights) = if let Some(time) = synchronous {
            (Class::Synchronous, time, Rights { synchronous: rights.synchronous - time, ..rights })
        } else {
            let time = asynchronous()?;
            // Synchronous frames come first: none begins once an asynchronous one has.
            let left = rights.asynchronous.saturating_sub(time);
            (Class::Asynchronous, time, Rights { synchronous: Duration::ZERO, asynchronous: left })
        };
        let frame = self.stations[station].lane(class).front_mut().expect("just seen");
        frame.began = now;
        self.books.ledger.begin(now.saturating_since(frame.queued));
        let ends = now + time;
        self.books.send(now, ends);
        Some(Token::Held { station, class, ends, rights })
    }

    /// The frame that `station` was sending has left.
    fn complete(&mut self, station: usize, class: Class, now: Instant, sim: &Sim) {
        let (frame, another_came) = self.stations[station].lane(class).complete(now, sim);
        self.books.ledger.depart(now, frame.queued);
        if another_came {
            self.books.ledger.arrive(now);
        }
        self.stations_with_frames -= usize::from(!self.stations[station].has_frames());
        sim.trace(|trace| {
            trace.span(&self.name, &format!("{} to {}", frame.from, frame.to), frame.began, now);
            let held = self.stations[station].lanes.iter().map(Lane::len).sum::<usize>();
            trace.level(&format!("{} station {station}", self.name), now, held as u64);
        });
        self.flight.push(now + self.distance(frame.from, frame.to), frame);
    }

    /// After a rotation that nobody used, all others until `limit` or until somebody has something to send are like it.
    fn skip_idle_rotations(&mut self, limit: Instant) {
        let Token::Travelling { left, .. } = self.token else { return };
        if self.idle_passes < self.hops.len() || self.stations_with_frames > 0 {
            return;
        }
        // A token that comes with a frame takes it along, so the last pass that is skipped is before.
        let before = |work: Instant| work.saturating_sub(Duration::from_nanos(1));
        let unused_until = self.others.as_ref().and_then(Others::work_from).map_or(limit, before).min(limit);
        let rotations = unused_until.saturating_since(left).as_nanos() / self.latency.as_nanos();
        if rotations == 0 {
            return;
        }
        let span = self.latency * rotations;
        for station in &mut self.stations {
            station.timers.idle(span, self.latency);
        }
        self.books.rotations += rotations;
        let Token::Travelling { left, .. } = &mut self.token else { return };
        *left += span;
    }
}
