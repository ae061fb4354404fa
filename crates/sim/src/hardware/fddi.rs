//! FDDI rings by the rules of the timed token (ANSI X3.139).
//!
//! Each station measures how long the token takes to come again. If it comes before the target (`TTRT`) has passed, the station may
//! begin asynchronous frames for as long as the token was early; a late token it passes on. Synchronous frames it may send at each
//! token, early or late, for an allowance of its own. The frame that has begun is finished in any case. So no rotation takes twice
//! the target.
//!
//! | module | what |
//! |---|---|
//! | [`config`] | stations, fibre, target, what others send |
//! | `token` | the token's way |
//! | `station` | queues and timers |
//! | `background` | what others send |

mod background;
pub mod config;
mod station;
mod token;

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use units::{Duration, Instant};

use crate::hardware::ConfigError;
use crate::hardware::driver::{Driven, Driver};
use crate::hardware::lane::Lane;
use crate::kernel::Sim;
use crate::observe::{Observed, Report};
use crate::store::Store;

use background::Others;
use token::State;

pub use background::BackgroundReport;
pub use config::{Arrivals, Background, RingConfig};

/// What a frame carries, and its way and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<T> {
    /// The station that sends it.
    pub from: usize,
    /// The station that gets it.
    pub to: usize,
    /// Its length in bytes, without the ring's overhead.
    pub bytes: u64,
    /// When its station took it into its queue.
    pub queued: Instant,
    /// When its first bit left; before that, when it was queued.
    pub began: Instant,
    /// What it carries.
    pub item: T,
}

/// With what right a frame is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// At each token, for the station's allowance.
    Synchronous,
    /// While the token is early.
    Asynchronous,
}

/// What a ring did since the warm-up, beside its [`Report`].
#[derive(Clone, Debug, PartialEq)]
pub struct RingReport {
    /// How often the token came to station 0.
    pub rotations: u64,
    /// The longest time that the token took to come again to any station.
    pub rotation_max: Duration,
    /// Tokens that came late to a station.
    pub late_tokens: u64,
    /// What others sent.
    pub background: BackgroundReport,
}

/// A ring. Cheap to clone: all clones are the same ring. Frames carry a `T`.
pub struct Ring<T> {
    inner: Rc<Inner<T>>,
}

impl<T> Clone for Ring<T> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

struct Inner<T> {
    sim: Sim,
    name: String,
    state: RefCell<State<T>>,
    driver: Driver<Frame<T>>,
}

impl<T: 'static> Ring<T> {
    /// A ring called `name`; the token is about to come to station 0. Its background draws from the stream `name background`.
    ///
    /// # Errors
    /// If [`RingConfig::validate`] refuses `config`.
    ///
    /// # Panics
    /// If the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, config: RingConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let stations = config.positions_m.len();
        let stream = sim.stream(&format!("{name} background"));
        let others = config.background.clone().map(|others| Others::new(others, &config, stream, sim.now()));
        let inner = Rc::new(Inner {
            sim: sim.clone(),
            name: name.to_owned(),
            state: RefCell::new(State::new(name, config, others)),
            driver: Driver::new(sim),
        });
        sim.register(name, Rc::clone(&inner) as Rc<dyn Observed>);
        Driver::start(&inner, stations);
        Ok(Self { inner })
    }

    /// Sends `bytes` bytes from `from` to `to` as an asynchronous frame, waiting for room in the queue, and until it has left. Who
    /// gives up waiting does not take the frame back.
    ///
    /// # Panics
    /// See [`enqueue`](Self::enqueue).
    pub async fn send(&self, from: usize, to: usize, bytes: u64, item: T) {
        self.send_as(Class::Asynchronous, from, to, bytes, item).await;
    }

    /// Sends with the right of `class`; otherwise as [`send`](Self::send).
    ///
    /// # Panics
    /// See [`enqueue`](Self::enqueue).
    pub async fn send_as(&self, class: Class, from: usize, to: usize, bytes: u64, item: T) {
        let number = self.push(class, from, to, bytes, item);
        let inner = &*self.inner;
        poll_fn(|_| {
            let mut state = inner.state.borrow_mut();
            if state.stations[from].lane(class).has_left(number, inner.sim.current_task()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Queues an asynchronous frame of `bytes` bytes from `from` to `to`, or gives `item` back if the queue is full.
    ///
    /// # Errors
    /// The item, if there is no room.
    ///
    /// # Panics
    /// If a station does not exist, is the background's, or both are the same; if the frame is empty or longer than the ring carries.
    pub fn enqueue(&self, from: usize, to: usize, bytes: u64, item: T) -> Result<(), T> {
        self.enqueue_as(Class::Asynchronous, from, to, bytes, item)
    }

    /// Queues a frame with the right of `class`; otherwise as [`enqueue`](Self::enqueue).
    ///
    /// # Errors
    /// The item, if there is no room.
    ///
    /// # Panics
    /// As [`enqueue`](Self::enqueue), and if a synchronous frame is longer than its station's allowance.
    pub fn enqueue_as(&self, class: Class, from: usize, to: usize, bytes: u64, item: T) -> Result<(), T> {
        if !self.has_room(from, class) {
            return Err(item);
        }
        self.push(class, from, to, bytes, item);
        Ok(())
    }

    /// True if `station` has room for another frame of `class`.
    pub fn has_room(&self, station: usize, class: Class) -> bool {
        self.inner.state.borrow().stations[station].lanes[class as usize].has_room()
    }

    /// Calls `receiver` with each frame for `station`, when its last bit is there. It replaces the one before. A frame for a station
    /// without a receiver is gone.
    pub fn on_delivery(&self, station: usize, receiver: impl FnMut(Frame<T>) + 'static) {
        self.inner.driver.set_receiver(station, receiver);
    }

    /// Puts each frame for `station` into `store`; one that finds it full is refused and gone.
    pub fn deliver_into(&self, station: usize, store: Store<Frame<T>>) {
        let inner = Rc::downgrade(&self.inner);
        self.on_delivery(station, move |frame| {
            if store.try_put(frame).is_err()
                && let Some(inner) = inner.upgrade()
            {
                inner.driver.refuse();
            }
        });
    }

    /// Frames of `station` that have not left, those outside its queue and the one that is being sent included.
    pub fn queue_frames(&self, station: usize) -> usize {
        self.inner.state.borrow().stations[station].lanes.iter().map(Lane::len).sum()
    }

    /// Their bytes, without overhead.
    pub fn queue_bytes(&self, station: usize) -> u64 {
        self.inner.state.borrow().stations[station].lanes.iter().map(Lane::bytes).sum()
    }

    /// Frames whose last bit has left and is not yet there.
    pub fn frames_in_flight(&self) -> usize {
        self.inner.state.borrow().flight.len()
    }

    /// How long the token took to come to `station` again when it last came: what an adaptive scheduler reads.
    pub fn last_rotation(&self, station: usize) -> Duration {
        self.current().stations[station].timers.last_rotation
    }

    /// Lets the background ask for `share` of the ring from now on.
    ///
    /// # Panics
    /// If the ring has no background, or `share` is not between 0 and 100.
    pub fn set_background(&self, share: f64) {
        assert!((0.0..=100.0).contains(&share), "{share} is no share of a ring");
        let now = self.inner.sim.now();
        let mut state = self.current();
        state.others.as_mut().expect("the ring has a background").set_share(now, share);
        let next = state.next_event();
        drop(state);
        self.inner.driver.arm(next);
    }

    /// What the token takes for the way round if nobody sends.
    pub fn latency(&self) -> Duration {
        self.inner.state.borrow().latency()
    }

    /// From the moment the last bit leaves `from` until it is at `to`.
    pub fn distance(&self, from: usize, to: usize) -> Duration {
        self.inner.state.borrow().distance(from, to)
    }

    /// Frames that came to a station without a receiver or to a full store, since the run began.
    pub fn refused(&self) -> u64 {
        self.inner.driver.refused()
    }

    /// What was done since the warm-up ended: customers are the frames of the model's stations, from being queued to having left; the
    /// utilisation counts all frames, the background's too, with their overhead.
    pub fn report(&self) -> Report {
        Observed::report(&*self.inner, self.inner.sim.now())
    }

    /// Rotations and background since the warm-up ended.
    pub fn ring_report(&self) -> RingReport {
        let now = self.inner.sim.now();
        let mut state = self.current();
        let background = state.others.as_mut().map(|others| {
            others.take_in(now);
            others.report()
        });
        RingReport {
            rotations: state.books.rotations,
            rotation_max: state.books.rotation_max,
            late_tokens: state.books.late_tokens,
            background: background.unwrap_or_default(),
        }
    }

    /// The state with all worked out that happened before now.
    fn current(&self) -> std::cell::RefMut<'_, State<T>> {
        let mut state = self.inner.state.borrow_mut();
        state.catch_up(self.inner.sim.now(), &self.inner.sim);
        state
    }

    fn push(&self, class: Class, from: usize, to: usize, bytes: u64, item: T) -> u64 {
        let now = self.inner.sim.now();
        let mut state = self.current();
        let stations = state.stations.len();
        assert!(from < stations && to < stations && from != to, "no way from station {from} to {to} of {stations}");
        let is_free = state.others.as_ref().is_none_or(|others| others.station() != from);
        assert!(is_free, "station {from} is the background's");
        let config = state.config();
        assert!((1..=config.frame_bytes_max).contains(&bytes), "a frame of {bytes} bytes");
        let fits = class == Class::Asynchronous || config.frame_time(bytes) <= state.stations[from].allowance;
        assert!(fits, "{bytes} bytes are more than the synchronous allowance of station {from}");
        let frame = Frame { from, to, bytes, queued: now, began: now, item };
        let number = state.push(now, class, frame, &self.inner.sim);
        let next = state.next_event();
        drop(state);
        self.inner.driver.arm(next);
        number
    }
}

impl<T: 'static> Driven<Frame<T>> for Inner<T> {
    fn driver(&self) -> &Driver<Frame<T>> {
        &self.driver
    }

    fn advance(&self, now: Instant) {
        self.state.borrow_mut().advance(now, &self.sim);
    }

    fn pop_arrival(&self, now: Instant) -> Option<(usize, Frame<T>)> {
        self.state.borrow_mut().flight.pop(now).map(|frame| (frame.to, frame))
    }

    fn next_event(&self) -> Option<Instant> {
        self.state.borrow().next_event()
    }
}

impl<T> Observed for Inner<T> {
    fn reset(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        state.catch_up(now, &self.sim);
        state.books.reset(now);
        if let Some(others) = &mut state.others {
            others.take_in(now);
            others.reset();
        }
    }

    fn report(&self, now: Instant) -> Report {
        let mut state = self.state.borrow_mut();
        state.catch_up(now, &self.sim);
        let busy_ns = state.books.busy_ns(now);
        state.books.ledger.report(&self.name, now, None, busy_ns)
    }
}

#[cfg(test)]
mod tests;
