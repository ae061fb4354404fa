//! Sleep of a worker's thread between turns.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::task::{Wake, Waker};

use units::{Duration, Instant};

use driver::Protocol;
use driver::intake::IntakeEnv;
use driver::worker::{IoRole, IoWorker, WorkerLoop};

use super::thread_park::ThreadPark;
use crate::busy_poll::BusyPoll;
use crate::clock::Clock;
use crate::device::Device;
use crate::live::LiveEnv;
use crate::sleep::{Ready, Sleeper};

/// Sleeps between turns of workers of type `W`.
pub(crate) trait Idle<W> {
    /// Initializes the value on the worker's thread; called once.
    fn begin(&mut self) {}

    /// Sleeps until a turn of `worker` is due. If one is due already, only polls for events.
    fn sleep(&mut self, worker: &mut W);
}

/// A worker with sockets. A poll identifies them by their position.
pub(crate) trait ServesSockets {
    /// Makes `sleeper` wait for its sockets.
    fn watch(&mut self, sleeper: &Sleeper);

    /// Records that a socket may be ready.
    fn note_ready(&mut self, ready: Ready);
}

impl<D: Device, R: IoRole<LiveEnv<D>>> ServesSockets for IoWorker<LiveEnv<D>, R> {
    fn watch(&mut self, sleeper: &Sleeper) {
        for (at, socket) in self.sockets_mut().iter_mut().enumerate() {
            sleeper.watch(at, &mut socket.socket);
        }
    }

    fn note_ready(&mut self, ready: Ready) {
        if let Some(socket) = self.sockets_mut().get_mut(ready.socket) {
            socket.socket.note_ready(ready.readable, ready.writable);
        }
    }
}

/// An intake wakes the worker, so there are no sockets to watch.
impl<P: Protocol, R: IoRole<IntakeEnv<P, Clock>>> ServesSockets for IoWorker<IntakeEnv<P, Clock>, R> {
    fn watch(&mut self, _sleeper: &Sleeper) {}

    fn note_ready(&mut self, _ready: Ready) {}
}

/// Sleep of workers with sockets: in a poll of the sockets.
pub(crate) struct PollIdle {
    sleeper: Sleeper,
    clock: Clock,
    awake_since: Instant,
}

impl PollIdle {
    /// Creates the poll together with the waker that ends the sleep.
    ///
    /// # Errors
    /// If the system refuses a poll.
    pub(crate) fn new(clock: &Clock, busy_poll: Duration) -> io::Result<(Self, Waker)> {
        let (sleeper, waker) = Sleeper::new(clock.clone(), busy_poll)?;
        Ok((Self { sleeper, clock: clock.clone(), awake_since: clock.now() }, waker))
    }
}

impl<W: WorkerLoop + ServesSockets> Idle<W> for PollIdle {
    fn sleep(&mut self, worker: &mut W) {
        worker.watch(&self.sleeper);
        self.sleeper.announce_sleep();
        let now = self.clock.now();
        let due_at = worker.due_at(now);
        worker.on_rest(now.saturating_since(self.awake_since), due_at.is_none_or(|due_at| due_at > now));
        let ready = self.sleeper.wait(now, due_at);
        self.awake_since = self.clock.now();
        match ready {
            Ok(ready) => ready.for_each(|ready| worker.note_ready(ready)),
            // Fails only for an invalid poll descriptor, which is a bug. The worker continues.
            Err(error) => tracing::error!(%error, "cannot wait for sockets"),
        }
    }
}

/// Sleep of workers without sockets and deadlines: parks the thread.
pub(super) struct ParkIdle {
    park: Arc<ThreadPark>,
    clock: Clock,
    busy_poll: BusyPoll,
}

impl ParkIdle {
    /// Creates the value together with the waker that ends the sleep.
    pub(super) fn new(clock: &Clock, busy_poll: Duration) -> (Self, Waker) {
        let park = Arc::new(ThreadPark::default());
        (Self { park: Arc::clone(&park), clock: clock.clone(), busy_poll: BusyPoll::new(busy_poll) }, Waker::from(park))
    }
}

impl<W: WorkerLoop> Idle<W> for ParkIdle {
    fn begin(&mut self) {
        self.park.register();
    }

    fn sleep(&mut self, worker: &mut W) {
        let begun = self.clock.now();
        let has_work = || worker.due_at(begun).is_some() || worker.is_abandoned();
        let polled = self.busy_poll.poll(&self.clock, begun, None, || Ok::<_, Infallible>(has_work()));
        if let Ok(Some(_)) = polled {
            self.park.sleep_unless(has_work);
        }
    }
}

impl Wake for ThreadPark {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.unpark();
    }
}
