//! Intake of the placement `pipeline`: a worker that receives for the receive worker, and does the
//! work that needs no connection.
//!
//! ```text
//!   sockets ─▶ intake: receive, parse, verify ── ring ─▶ receive worker: routes, receive halves
//! ```
//!
//! The receive worker uses it as a socket, [`Intake`], so the worker is the same as under `split`.
//! While the ring is full, the intake receives nothing and arrivals wait in the sockets.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Waker;

use units::{Duration, Instant};

use crate::crypto_pool::Tally;
use crate::driver::RECV_BATCHES_MAX;
use crate::env::{Clock, Env};
use crate::offload::NoOffload;
use crate::protocol::{Protocol, Verify};
use crate::socket::{Received, SendError, Socket};
use crate::worker::{Arrived, HangLimit, IoRole, IoWorker, OwnerEnd, RingSizes, WorkerIo, WorkerSocket, link};

/// The size of the ring to the receive worker: 4 MiB.
const ARRIVALS_MAX: usize = 64;

/// Number of remaining batches at which an intake that waits for space in the ring is woken.
const ARRIVALS_LOW: usize = ARRIVALS_MAX / 2;

const _: () = assert!(ARRIVALS_LOW + RECV_BATCHES_MAX <= ARRIVALS_MAX, "an intake that is woken finds space");

/// The link has neither commands nor events.
const SIZES: RingSizes = RingSizes { commands: 1, events: 1, arrivals: ARRIVALS_MAX };

/// This limit is not used: the receive worker waits for packets, not for turns of the intake.
const HANG_LIMIT: HangLimit = HangLimit { interval: Duration::from_secs(1), misses_max: 1 };

/// The receive worker's side of an intake. Dropping it ends the intake.
pub struct Intake<P: Protocol> {
    link: OwnerEnd<P, Infallible, Infallible>,
    tally: Arc<Tally>,
}

impl<P: Protocol> Intake<P> {
    /// Creates an intake that receives from `socket`, and its loop. `receiver` wakes the receive worker,
    /// `intake` the thread that runs the loop.
    pub fn new<E: Env<Protocol = P>>(
        clock: E::Clock,
        receiver: Waker,
        intake: Waker,
        socket: WorkerSocket<E>,
        verify: Option<Verify<P>>,
    ) -> (Self, IoWorker<E, IntakeRole<P>>) {
        let (owners, workers) = link(SIZES, HANG_LIMIT, clock.now(), receiver, intake);
        let tally = Arc::new(Tally::default());
        let role = IntakeRole { verify, tally: Arc::clone(&tally), batches: 0 };
        (Self { link: owners, tally }, IoWorker::new(clock, vec![socket], workers, role))
    }

    /// Returns its counters.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }
}

impl<P: Protocol> Socket<P> for Intake<P> {
    type Buffers = ();

    /// # Panics
    /// If the intake has ended: no more packets will arrive, so the receive worker ends, too.
    fn receive(&mut self, _buffers: &mut (), batches: &mut Vec<P::Batch>) -> Received {
        for _ in 0..RECV_BATCHES_MAX {
            let Ok(arrived) = self.link.arrivals.pop() else {
                assert!(!self.link.is_over(), "the processor that receives for this one has ended");
                return Received::NoMore;
            };
            if self.link.arrivals.slots() == ARRIVALS_LOW {
                // The intake may be waiting for space.
                self.link.worker.wake();
            }
            batches.push(arrived.batch);
        }
        Received::MayHaveMore
    }

    fn send(&mut self, _packets: &P::Sealed) -> Result<(), SendError> {
        Err(SendError::Refused("an intake only receives".to_owned()))
    }

    fn batch_max(&self) -> usize {
        1
    }

    fn announces_space(&self) -> bool {
        false
    }

    fn has_arrived(&self) -> bool {
        self.link.has_some() || self.link.is_abandoned()
    }

    fn take_arrived(&mut self) -> bool {
        self.has_arrived()
    }
}

/// The environment of a receive worker that receives through an [`Intake`]: only its types are used.
pub struct IntakeEnv<P, C> {
    never: Infallible,
    types: PhantomData<fn() -> (P, C)>,
}

impl<P: Protocol, C: Clock> Env for IntakeEnv<P, C> {
    type Protocol = P;
    type Socket = Intake<P>;
    type Offload = NoOffload;
    type Clock = C;

    fn now(&self) -> Instant {
        match self.never {}
    }
}

/// Receives, and verifies packets without their connection.
pub struct IntakeRole<P: Protocol> {
    verify: Option<Verify<P>>,
    tally: Arc<Tally>,
    /// Number of batches that the tally does not contain yet.
    batches: u64,
}

type Io<E> = WorkerIo<E, Infallible, Infallible>;

impl<P: Protocol, E: Env<Protocol = P>> IoRole<E> for IntakeRole<P> {
    type Command = Infallible;
    type Event = Infallible;

    const COMMANDS_PER_TURN: usize = 0;
    const COMMANDS_PER_CALL: usize = 0;
    const COMMANDS_PER_BATCH: usize = 0;

    fn execute(&mut self, _io: &mut Io<E>, command: Infallible) {
        match command {}
    }

    fn on_received(&mut self, batches: &[P::Batch]) {
        self.batches += batches.len() as u64;
    }

    fn handle_batch(&mut self, io: &mut Io<E>, _number: usize, socket: usize, mut batch: P::Batch) {
        if let Some(verify) = &self.verify {
            verify(&mut batch);
        }
        // The receive call was made with space for all its batches.
        io.link.pass_on(Arrived { socket, batch, opened: None });
    }

    fn finish_turn(&mut self, _io: &mut Io<E>) {}

    fn has_work(&self, _io: &Io<E>) -> bool {
        false
    }

    fn next_deadline(&self, _io: &Io<E>, _now: Instant) -> Option<Instant> {
        None
    }

    /// Returns false: a panic here cannot be attributed to a connection, so the worker ends.
    fn recover(&mut self, _io: &mut Io<E>) -> bool {
        false
    }

    fn on_rest(&mut self, awake: Duration, _is_idle: bool) {
        self.tally.add_some(std::mem::take(&mut self.batches), awake);
    }
}
