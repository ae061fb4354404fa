//! FDDI rings with the timed-token protocol (ANSI X3.139).
//!
//! Each station measures the time until the token returns. If it returns before the target token
//! rotation time (`TTRT`), the station may start asynchronous frames for the time by which the
//! token was early; it passes a late token on. It may send synchronous frames at every token, early
//! or late, within an allowance of its own. A started frame is always completed. Thus no rotation
//! takes more than twice the target.
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | stations, fibre, target rotation time, background load |
//! | `token` | the movement of the token |
//! | `station` | queues and timers |
//! | `background` | background load |

mod background;
pub mod config;
mod station;
mod token;

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use units::{Duration, Instant};

use super::config_error::ConfigError;
use crate::hardware::component_process::{ComponentProcess, TimedComponent};
use crate::hardware::frame_queue::FrameQueue;
use crate::kernel::Sim;
use crate::observe::{ComponentReport, Observed};
use crate::store::Store;

use background::BackgroundStation;
use token::RingState;

pub use background::BackgroundReport;
pub use config::{Arrivals, Background, RingConfig};

/// A frame with its addresses and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FddiFrame<T> {
    /// The sending station.
    pub from: usize,
    /// The receiving station.
    pub to: usize,
    /// Its length in bytes, without the ring's overhead.
    pub bytes: u64,
    /// Time at which the sending station accepted it into its queue.
    pub queued: Instant,
    /// Time at which its first bit was sent; before that, equal to `queued`.
    pub began: Instant,
    /// Payload of the model.
    pub item: T,
}

/// Service class of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Sent at every token, within the station's allowance.
    Synchronous,
    /// Sent while the token is early.
    Asynchronous,
}

/// Statistics of a ring since the end of the warm-up, in addition to its [`ComponentReport`].
#[derive(Clone, Debug, PartialEq)]
pub struct RingReport {
    /// Number of token arrivals at station 0.
    pub rotations: u64,
    /// The longest rotation seen by any station.
    pub rotation_max: Duration,
    /// Token arrivals that were late.
    pub late_tokens: u64,
    /// The background load.
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
    state: RefCell<RingState<T>>,
    process: ComponentProcess<FddiFrame<T>>,
}

impl<T: 'static> Ring<T> {
    /// Creates a ring called `name`. The token is about to arrive at station 0. The background uses
    /// the random stream `name background`.
    ///
    /// # Errors
    /// Fails if [`RingConfig::validate`] rejects `config`.
    ///
    /// # Panics
    /// Panics if the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, config: RingConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let stations = config.positions_m.len();
        let stream = sim.stream(&format!("{name} background"));
        let background =
            config.background.clone().map(|background| BackgroundStation::new(background, &config, stream, sim.now()));
        let inner = Rc::new(Inner {
            sim: sim.clone(),
            name: name.to_owned(),
            state: RefCell::new(RingState::new(name, config, background)),
            process: ComponentProcess::new(sim),
        });
        sim.register(name, Rc::clone(&inner) as Rc<dyn Observed>);
        ComponentProcess::start(&inner, stations);
        Ok(Self { inner })
    }

    /// Sends `bytes` bytes from `from` to `to` as an asynchronous frame. Waits for space in the
    /// queue and until the frame has been sent. Dropping this future does not withdraw the frame.
    ///
    /// # Panics
    /// See [`enqueue`](Self::enqueue).
    pub async fn send(&self, from: usize, to: usize, bytes: u64, item: T) {
        self.send_as(Class::Asynchronous, from, to, bytes, item).await;
    }

    /// Like [`send`](Self::send), with a frame of class `class`.
    ///
    /// # Panics
    /// See [`enqueue`](Self::enqueue).
    pub async fn send_as(&self, class: Class, from: usize, to: usize, bytes: u64, item: T) {
        let number = self.push(class, from, to, bytes, item);
        let inner = &*self.inner;
        poll_fn(|_| {
            let mut state = inner.state.borrow_mut();
            if state.stations[from].queue(class).has_left(number, inner.sim.current_task()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Queues an asynchronous frame of `bytes` bytes from `from` to `to`.
    ///
    /// # Errors
    /// Returns `item` if the queue is full.
    ///
    /// # Panics
    /// Panics if a station does not exist or is the background's, if both are the same, or if the
    /// frame is empty or longer than the ring allows.
    pub fn enqueue(&self, from: usize, to: usize, bytes: u64, item: T) -> Result<(), T> {
        self.enqueue_as(Class::Asynchronous, from, to, bytes, item)
    }

    /// Like [`enqueue`](Self::enqueue), with a frame of class `class`.
    ///
    /// # Errors
    /// Returns `item` if the queue is full.
    ///
    /// # Panics
    /// Same panics as [`enqueue`](Self::enqueue); also panics if a synchronous frame is longer than
    /// its station's allowance.
    pub fn enqueue_as(&self, class: Class, from: usize, to: usize, bytes: u64, item: T) -> Result<(), T> {
        if !self.has_space(from, class) {
            return Err(item);
        }
        self.push(class, from, to, bytes, item);
        Ok(())
    }

    /// Returns true if `station` has space for another frame of `class`.
    pub fn has_space(&self, station: usize, class: Class) -> bool {
        self.inner.state.borrow().stations[station].queues[class as usize].has_space()
    }

    /// Calls `receiver` with each frame for `station` when its last bit arrives. Replaces the
    /// previous receiver. Frames for a station without a receiver are dropped.
    pub fn on_delivery(&self, station: usize, receiver: impl FnMut(FddiFrame<T>) + 'static) {
        self.inner.process.set_receiver(station, receiver);
    }

    /// Puts each frame for `station` into `store`. Frames that find it full are refused and
    /// dropped.
    pub fn deliver_into(&self, station: usize, store: Store<FddiFrame<T>>) {
        let inner = Rc::downgrade(&self.inner);
        self.on_delivery(station, move |frame| {
            if store.try_put(frame).is_err()
                && let Some(inner) = inner.upgrade()
            {
                inner.process.refuse();
            }
        });
    }

    /// Returns the number of unsent frames of `station`, including the one in transmission and
    /// those of processes that wait for space.
    pub fn queue_frames(&self, station: usize) -> usize {
        self.inner.state.borrow().stations[station].queues.iter().map(FrameQueue::len).sum()
    }

    /// Returns the number of unsent bytes of `station`, without overhead.
    pub fn queue_bytes(&self, station: usize) -> u64 {
        self.inner.state.borrow().stations[station].queues.iter().map(FrameQueue::bytes).sum()
    }

    /// Returns the number of frames that have been sent and have not arrived.
    pub fn frames_in_flight(&self) -> usize {
        self.inner.state.borrow().in_flight.len()
    }

    /// Returns the latest rotation time at `station`: the input of an adaptive scheduler.
    pub fn last_rotation(&self, station: usize) -> Duration {
        self.current().stations[station].timers.last_rotation
    }

    /// Sets the offered background load to `share` of the ring from now on.
    ///
    /// # Panics
    /// Panics if the ring has no background, or `share` is not between 0 and 100.
    pub fn set_background(&self, share: f64) {
        assert!((0.0..=100.0).contains(&share), "{share} is not between 0 and 100");
        let now = self.inner.sim.now();
        let mut state = self.current();
        state.background.as_mut().expect("the ring has a background").set_share(now, share);
        let next = state.next_event();
        drop(state);
        self.inner.process.arm(next);
    }

    /// Returns the rotation time of the token if no station sends.
    pub fn latency(&self) -> Duration {
        self.inner.state.borrow().latency()
    }

    /// Returns the propagation delay from `from` to `to`.
    pub fn distance(&self, from: usize, to: usize) -> Duration {
        self.inner.state.borrow().distance(from, to)
    }

    /// Returns the number of frames refused since the start of the run, because their station had
    /// no receiver or its store was full.
    pub fn refused(&self) -> u64 {
        self.inner.process.refused()
    }

    /// Returns the statistics since the end of the warm-up. Customers are the frames of the model's
    /// stations, from their arrival in the queue to the end of transmission. The utilisation counts
    /// all frames, including the background's, with their overhead.
    pub fn report(&self) -> ComponentReport {
        Observed::report(&*self.inner, self.inner.sim.now())
    }

    /// Returns the rotations and background load since the end of the warm-up.
    pub fn ring_report(&self) -> RingReport {
        let now = self.inner.sim.now();
        let mut state = self.current();
        let background = state.background.as_mut().map(|background| {
            background.process_arrivals(now);
            background.report()
        });
        RingReport {
            rotations: state.stats.rotations,
            rotation_max: state.stats.rotation_max,
            late_tokens: state.stats.late_tokens,
            background: background.unwrap_or_default(),
        }
    }

    /// Returns the state, brought up to date.
    fn current(&self) -> std::cell::RefMut<'_, RingState<T>> {
        let mut state = self.inner.state.borrow_mut();
        state.catch_up(self.inner.sim.now(), &self.inner.sim);
        state
    }

    fn push(&self, class: Class, from: usize, to: usize, bytes: u64, item: T) -> u64 {
        let now = self.inner.sim.now();
        let mut state = self.current();
        let stations = state.stations.len();
        assert!(from < stations && to < stations && from != to, "invalid stations: from {from} to {to} of {stations}");
        let is_free = state.background.as_ref().is_none_or(|background| background.station() != from);
        assert!(is_free, "station {from} belongs to the background");
        let config = state.config();
        assert!((1..=config.frame_bytes_max).contains(&bytes), "a frame of {bytes} bytes");
        let fits = class == Class::Asynchronous || config.frame_time(bytes) <= state.stations[from].allowance;
        assert!(fits, "{bytes} bytes exceed the synchronous allowance of station {from}");
        let frame = FddiFrame { from, to, bytes, queued: now, began: now, item };
        let number = state.push(now, class, frame, &self.inner.sim);
        let next = state.next_event();
        drop(state);
        self.inner.process.arm(next);
        number
    }
}

impl<T: 'static> TimedComponent<FddiFrame<T>> for Inner<T> {
    fn process(&self) -> &ComponentProcess<FddiFrame<T>> {
        &self.process
    }

    fn advance(&self, now: Instant) {
        self.state.borrow_mut().advance(now, &self.sim);
    }

    fn pop_arrival(&self, now: Instant) -> Option<(usize, FddiFrame<T>)> {
        self.state.borrow_mut().in_flight.pop(now).map(|frame| (frame.to, frame))
    }

    fn next_event(&self) -> Option<Instant> {
        self.state.borrow().next_event()
    }
}

impl<T> Observed for Inner<T> {
    fn reset(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        state.catch_up(now, &self.sim);
        state.stats.reset(now);
        if let Some(background) = &mut state.background {
            background.process_arrivals(now);
            background.reset();
        }
    }

    fn report(&self, now: Instant) -> ComponentReport {
        let mut state = self.state.borrow_mut();
        state.catch_up(now, &self.sim);
        let busy_ns = state.stats.busy_ns(now);
        state.stats.accounting.report(&self.name, now, None, busy_ns)
    }
}

#[cfg(test)]
mod tests;
