//! ATM lines: frames of several circuits cut into cells that take turns on the line (AAL5, ITU-T I.363.5).
//!
//! A frame gets a trailer of 8 bytes (length and CRC among them), is padded to whole cells of 48 bytes of payload, and is there when
//! its last cell is. Circuits with frames take turns, a cell each. As long as no circuit gets or runs out of frames, the turns repeat,
//! so the end of a frame is a multiplication away and a train of cells is one event.
//!
//! A lost cell spoils its frame: the CRC does not fit. If the last cell is lost, which alone marks the end, the frame runs into the
//! next one of its circuit and spoils that as well.

mod train;

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use units::{Duration, Instant, Rate};

use crate::hardware::ConfigError;
use crate::hardware::driver::{Driven, Driver};
use crate::hardware::lane::{Lane, Queued};
use crate::kernel::Sim;
use crate::observe::{Observed, Report};
use crate::store::Store;

use train::State;

/// A cell on the line.
pub const CELL_BYTES: u64 = 53;

/// What of it is payload.
pub const CELL_PAYLOAD_BYTES: u64 = 48;

/// AAL5's trailer: user byte, part indicator, length (2), CRC-32 (4).
pub const TRAILER_BYTES: u64 = 8;

/// The longest frame: its length field has 16 bits.
pub const FRAME_BYTES_MAX: u64 = 65_535;

/// Circuits that a line has at most.
pub const CIRCUITS_MAX: usize = 65_536;

/// Cells of a frame of `bytes` bytes.
pub const fn cells(bytes: u64) -> u64 {
    (bytes + TRAILER_BYTES).div_ceil(CELL_PAYLOAD_BYTES)
}

/// One direction of an ATM line.
#[derive(Clone, Debug, PartialEq)]
pub struct AtmConfig {
    /// What the line carries in cells, headers included. STM-1 and OC-3c: 149.76 Mb/s.
    pub rate: Rate,
    /// From the moment a cell's last bit has left until it is there.
    pub delay: Duration,
    /// Circuits, numbered from 0.
    pub circuits: usize,
    /// Frames that a circuit holds, with the one that is being sent.
    pub queue_frames: usize,
    /// The probability that a cell is lost, each by itself.
    pub cell_loss: f64,
}

impl AtmConfig {
    /// An OC-3c with `circuits` circuits of 64 frames each, without loss, and with `delay`.
    pub const fn oc3(circuits: usize, delay: Duration) -> Self {
        Self { rate: Rate::from_bps(149_760_000), delay, circuits, queue_frames: 64, cell_loss: 0.0 }
    }

    /// Whether such a line can be.
    ///
    /// # Errors
    /// Names the key that cannot be.
    pub fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::require(!self.rate.is_zero(), "rate", || "a line without a rate carries nothing".to_owned())?;
        ConfigError::require((1..=CIRCUITS_MAX).contains(&self.circuits), "circuits", || {
            format!("{} is not between 1 and {CIRCUITS_MAX}", self.circuits)
        })?;
        ConfigError::require(self.queue_frames > 0, "queue_frames", || "a circuit needs room for a frame".to_owned())?;
        ConfigError::require((0.0..=1.0).contains(&self.cell_loss), "cell_loss", || {
            format!("{} is no probability", self.cell_loss)
        })
    }
}

/// A frame of a circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtmFrame<T> {
    /// Its circuit.
    pub circuit: usize,
    /// Its length in bytes, without trailer and padding.
    pub bytes: u64,
    /// When the circuit took it into its queue.
    pub queued: Instant,
    /// What it carries.
    pub item: T,
}

impl<T> Queued for AtmFrame<T> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn enter(&mut self, now: Instant) {
        self.queued = now;
    }
}

/// What an ATM line did since the warm-up, beside its [`Report`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtmReport {
    /// Cells of the frames that were sent.
    pub cells: u64,
    /// Frames that were sent.
    pub frames: u64,
    /// Frames that a lost cell spoiled.
    pub spoiled: u64,
}

/// One direction of an ATM line. Cheap to clone: all clones are the same line. Frames carry a `T`.
pub struct AtmLine<T> {
    inner: Rc<Inner<T>>,
}

impl<T> Clone for AtmLine<T> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

struct Inner<T> {
    sim: Sim,
    state: RefCell<State<T>>,
    driver: Driver<AtmFrame<T>>,
}

impl<T: 'static> AtmLine<T> {
    /// An idle line called `name`. Its losses draw from the stream `name losses`.
    ///
    /// # Errors
    /// If [`AtmConfig::validate`] refuses `config`.
    ///
    /// # Panics
    /// If the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, config: AtmConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let circuits = config.circuits;
        let inner = Rc::new(Inner {
            sim: sim.clone(),
            state: RefCell::new(State::new(name, config, sim.stream(&format!("{name} losses")))),
            driver: Driver::new(sim),
        });
        sim.register(name, Rc::clone(&inner) as Rc<dyn Observed>);
        Driver::start(&inner, circuits);
        Ok(Self { inner })
    }

    /// Sends a frame of `bytes` bytes on `circuit`, waiting for room in its queue, and until its last cell has left. Who gives up
    /// waiting does not take the frame back.
    ///
    /// # Panics
    /// See [`enqueue`](Self::enqueue).
    pub async fn send(&self, circuit: usize, bytes: u64, item: T) {
        let number = self.push(circuit, bytes, item);
        let inner = &*self.inner;
        poll_fn(|_| {
            let has_left = inner.state.borrow_mut().lane(circuit).has_left(number, inner.sim.current_task());
            if has_left { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Queues a frame of `bytes` bytes on `circuit`, or gives `item` back if the queue is full.
    ///
    /// # Errors
    /// The item, if there is no room.
    ///
    /// # Panics
    /// If there is no such circuit, or the frame is longer than [`FRAME_BYTES_MAX`].
    pub fn enqueue(&self, circuit: usize, bytes: u64, item: T) -> Result<(), T> {
        if !self.has_room(circuit) {
            return Err(item);
        }
        self.push(circuit, bytes, item);
        Ok(())
    }

    /// True if `circuit` has room for another frame.
    pub fn has_room(&self, circuit: usize) -> bool {
        self.inner.state.borrow_mut().lane(circuit).has_room()
    }

    /// Frames of `circuit` that have not left, those outside its queue and the one that is being sent included.
    pub fn queue_frames(&self, circuit: usize) -> usize {
        Lane::len(self.inner.state.borrow_mut().lane(circuit))
    }

    /// Their bytes, without trailers and padding.
    pub fn queue_bytes(&self, circuit: usize) -> u64 {
        Lane::bytes(self.inner.state.borrow_mut().lane(circuit))
    }

    /// Calls `receiver` with each frame of `circuit`, when its last cell is there. It replaces the one before. A frame without a
    /// receiver is refused and gone.
    pub fn on_delivery(&self, circuit: usize, receiver: impl FnMut(AtmFrame<T>) + 'static) {
        self.inner.driver.set_receiver(circuit, receiver);
    }

    /// Puts each frame of `circuit` into `store`; one that finds it full is refused and gone.
    pub fn deliver_into(&self, circuit: usize, store: Store<AtmFrame<T>>) {
        let inner = Rc::downgrade(&self.inner);
        self.on_delivery(circuit, move |frame| {
            if store.try_put(frame).is_err()
                && let Some(inner) = inner.upgrade()
            {
                inner.driver.refuse();
            }
        });
    }

    /// Frames that came to a circuit without a receiver or to a full store, since the run began.
    pub fn refused(&self) -> u64 {
        self.inner.driver.refused()
    }

    /// What was done since the warm-up ended: customers are frames, from being queued until their last cell has left; they wait until
    /// their first one leaves.
    pub fn report(&self) -> Report {
        Observed::report(&*self.inner, self.inner.sim.now())
    }

    /// Cells and spoiled frames since the warm-up ended.
    pub fn atm_report(&self) -> AtmReport {
        self.inner.state.borrow().counts
    }

    fn push(&self, circuit: usize, bytes: u64, item: T) -> u64 {
        assert!(bytes <= FRAME_BYTES_MAX, "a frame of {bytes} bytes");
        let now = self.inner.sim.now();
        let mut state = self.inner.state.borrow_mut();
        state.advance(now, &self.inner.sim);
        let number = state.push(now, AtmFrame { circuit, bytes, queued: now, item }, &self.inner.sim);
        let next = state.next_event();
        drop(state);
        self.inner.driver.arm(next);
        number
    }
}

impl<T: 'static> Driven<AtmFrame<T>> for Inner<T> {
    fn driver(&self) -> &Driver<AtmFrame<T>> {
        &self.driver
    }

    fn advance(&self, now: Instant) {
        self.state.borrow_mut().advance(now, &self.sim);
    }

    fn pop_arrival(&self, now: Instant) -> Option<(usize, AtmFrame<T>)> {
        self.state.borrow_mut().flight.pop(now).map(|frame| (frame.circuit, frame))
    }

    fn next_event(&self) -> Option<Instant> {
        self.state.borrow().next_event()
    }
}

impl<T> Observed for Inner<T> {
    fn reset(&self, now: Instant) {
        self.state.borrow_mut().reset(now);
    }

    fn report(&self, now: Instant) -> Report {
        self.state.borrow().report(now)
    }
}

#[cfg(test)]
mod tests;
