//! ATM lines: frames of several circuits are segmented into cells that take turns on the line
//! (AAL5, ITU-T I.363.5).
//!
//! A frame gets a trailer of 8 bytes (with length and CRC), is padded to whole cells of 48 payload
//! bytes, and has arrived when its last cell has. Circuits with frames take turns, one cell each.
//! While the set of circuits with frames does not change, the turns repeat, so the end of a frame
//! is computed by a multiplication and a train of cells is one event.
//!
//! A lost cell corrupts its frame: the CRC fails. The last cell alone marks the end of a frame. If
//! it is lost, the frame is joined with the next one of its circuit and corrupts that one as well.

mod train;

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use units::{Duration, Instant, Rate};

use super::config_error::ConfigError;
use crate::hardware::component_process::{ComponentProcess, TimedComponent};
use crate::hardware::frame_queue::{FrameQueue, Queued};
use crate::kernel::Sim;
use crate::observe::{ComponentReport, Observed};
use crate::store::Store;

use train::AtmState;

/// Size of a cell on the line.
pub const CELL_BYTES: u64 = 53;

/// Payload of a cell.
pub const CELL_PAYLOAD_BYTES: u64 = 48;

/// AAL5 trailer: user byte, part indicator, length (2), CRC-32 (4).
pub const TRAILER_BYTES: u64 = 8;

/// Maximum frame size: the length field has 16 bits.
pub const FRAME_BYTES_MAX: u64 = 65_535;

/// Maximum number of circuits of a line.
pub const CIRCUITS_MAX: usize = 65_536;

/// Returns the number of cells of a frame of `bytes` bytes.
pub const fn cells(bytes: u64) -> u64 {
    (bytes + TRAILER_BYTES).div_ceil(CELL_PAYLOAD_BYTES)
}

/// One direction of an ATM line.
#[derive(Clone, Debug, PartialEq)]
pub struct AtmConfig {
    /// Line rate in cells, including headers. STM-1 and OC-3c: 149.76 Mb/s.
    pub rate: Rate,
    /// Propagation delay, from the end of a cell's transmission to its arrival.
    pub delay: Duration,
    /// Circuits, numbered from 0.
    pub circuits: usize,
    /// Queue limit per circuit, including the frame in transmission.
    pub queue_frames: usize,
    /// Probability that a cell is lost, independently of all others.
    pub cell_loss: f64,
}

impl AtmConfig {
    /// Creates a lossless OC-3c line with `circuits` circuits of 64 frames each and propagation
    /// delay `delay`.
    pub const fn oc3(circuits: usize, delay: Duration) -> Self {
        Self { rate: Rate::from_bps(149_760_000), delay, circuits, queue_frames: 64, cell_loss: 0.0 }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// Returns an error that names the invalid key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::require(!self.rate.is_zero(), "rate", || "must not be zero".to_owned())?;
        ConfigError::require((1..=CIRCUITS_MAX).contains(&self.circuits), "circuits", || {
            format!("{} is not between 1 and {CIRCUITS_MAX}", self.circuits)
        })?;
        ConfigError::require(self.queue_frames > 0, "queue_frames", || "must be at least one frame".to_owned())?;
        ConfigError::require((0.0..=1.0).contains(&self.cell_loss), "cell_loss", || {
            format!("{} is not a probability", self.cell_loss)
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
    /// Time at which the circuit accepted it into its queue.
    pub queued: Instant,
    /// Payload of the model.
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

/// Statistics of an ATM line since the end of the warm-up, in addition to its [`ComponentReport`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtmReport {
    /// Cells of the frames sent.
    pub cells: u64,
    /// Frames sent.
    pub frames: u64,
    /// Frames corrupted by cell loss.
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
    state: RefCell<AtmState<T>>,
    process: ComponentProcess<AtmFrame<T>>,
}

impl<T: 'static> AtmLine<T> {
    /// Creates an idle line called `name`. Cell losses use the random stream `name losses`.
    ///
    /// # Errors
    /// Fails if [`AtmConfig::validate`] rejects `config`.
    ///
    /// # Panics
    /// Panics if the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, config: AtmConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let circuits = config.circuits;
        let inner = Rc::new(Inner {
            sim: sim.clone(),
            state: RefCell::new(AtmState::new(name, config, sim.stream(&format!("{name} losses")))),
            process: ComponentProcess::new(sim),
        });
        sim.register(name, Rc::clone(&inner) as Rc<dyn Observed>);
        ComponentProcess::start(&inner, circuits);
        Ok(Self { inner })
    }

    /// Sends a frame of `bytes` bytes on `circuit`. Waits for space in its queue and until the last
    /// cell has been sent. Dropping this future does not withdraw the frame.
    ///
    /// # Panics
    /// See [`enqueue`](Self::enqueue).
    pub async fn send(&self, circuit: usize, bytes: u64, item: T) {
        let number = self.push(circuit, bytes, item);
        let inner = &*self.inner;
        poll_fn(|_| {
            let has_left = inner.state.borrow_mut().queue(circuit).has_left(number, inner.sim.current_task());
            if has_left { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Queues a frame of `bytes` bytes on `circuit`.
    ///
    /// # Errors
    /// Returns `item` if the queue is full.
    ///
    /// # Panics
    /// Panics if the circuit does not exist, or the frame is longer than [`FRAME_BYTES_MAX`].
    pub fn enqueue(&self, circuit: usize, bytes: u64, item: T) -> Result<(), T> {
        if !self.has_space(circuit) {
            return Err(item);
        }
        self.push(circuit, bytes, item);
        Ok(())
    }

    /// Returns true if `circuit` has space for another frame.
    pub fn has_space(&self, circuit: usize) -> bool {
        self.inner.state.borrow_mut().queue(circuit).has_space()
    }

    /// Returns the number of unsent frames of `circuit`, including the one in transmission and
    /// those of processes that wait for space.
    pub fn queue_frames(&self, circuit: usize) -> usize {
        FrameQueue::len(self.inner.state.borrow_mut().queue(circuit))
    }

    /// Returns the number of unsent bytes of `circuit`, without trailers and padding.
    pub fn queue_bytes(&self, circuit: usize) -> u64 {
        FrameQueue::bytes(self.inner.state.borrow_mut().queue(circuit))
    }

    /// Calls `receiver` with each frame of `circuit` when its last cell arrives. Replaces the
    /// previous receiver. Frames of a circuit without a receiver are refused and dropped.
    pub fn on_delivery(&self, circuit: usize, receiver: impl FnMut(AtmFrame<T>) + 'static) {
        self.inner.process.set_receiver(circuit, receiver);
    }

    /// Puts each frame of `circuit` into `store`. Frames that find it full are refused and dropped.
    pub fn deliver_into(&self, circuit: usize, store: Store<AtmFrame<T>>) {
        let inner = Rc::downgrade(&self.inner);
        self.on_delivery(circuit, move |frame| {
            if store.try_put(frame).is_err()
                && let Some(inner) = inner.upgrade()
            {
                inner.process.refuse();
            }
        });
    }

    /// Returns the number of frames refused since the start of the run, because their circuit had
    /// no receiver or its store was full.
    pub fn refused(&self) -> u64 {
        self.inner.process.refused()
    }

    /// Returns the statistics since the end of the warm-up. Customers are frames, from their
    /// arrival in the queue until their last cell has been sent; their wait ends when their first
    /// cell is sent.
    pub fn report(&self) -> ComponentReport {
        Observed::report(&*self.inner, self.inner.sim.now())
    }

    /// Returns the numbers of cells and frames since the end of the warm-up.
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
        self.inner.process.arm(next);
        number
    }
}

impl<T: 'static> TimedComponent<AtmFrame<T>> for Inner<T> {
    fn process(&self) -> &ComponentProcess<AtmFrame<T>> {
        &self.process
    }

    fn advance(&self, now: Instant) {
        self.state.borrow_mut().advance(now, &self.sim);
    }

    fn pop_arrival(&self, now: Instant) -> Option<(usize, AtmFrame<T>)> {
        self.state.borrow_mut().in_flight.pop(now).map(|frame| (frame.circuit, frame))
    }

    fn next_event(&self) -> Option<Instant> {
        self.state.borrow().next_event()
    }
}

impl<T> Observed for Inner<T> {
    fn reset(&self, now: Instant) {
        self.state.borrow_mut().reset(now);
    }

    fn report(&self, now: Instant) -> ComponentReport {
        self.state.borrow().report(now)
    }
}

#[cfg(test)]
mod tests;
