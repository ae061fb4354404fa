//! [`Spawner`]: starts a thread for each worker, or collects the workers for the owner of a stepped
//! engine.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use driver::worker::WorkerLoop;

use super::idle::{Idle, ParkIdle, PollIdle, ServesSockets};
use super::thread::{WorkerSettings, WorkerThread};

/// Starts the workers of an engine.
pub(crate) enum Spawner {
    /// Each worker gets a thread. The variant holds the threads until they are
    /// [taken](Self::take_threads).
    Threads(Vec<WorkerThread>),
    /// The owner of the engine runs the workers, in this order.
    Stepped(Vec<Box<dyn WorkerLoop + Send>>),
}

impl Spawner {
    /// Creates a spawner that starts a thread for each worker.
    pub(crate) fn threads() -> Self {
        Self::Threads(Vec::new())
    }

    /// Starts a worker with sockets, which sleeps in a poll of them. `make` creates the driver's
    /// end and the worker from the waker that ends the worker's sleep.
    ///
    /// # Errors
    /// If the system refuses a thread or a poll.
    pub(crate) fn spawn_polling<O, W>(
        &mut self,
        settings: WorkerSettings,
        make: impl FnOnce(Waker) -> (O, W),
    ) -> io::Result<O>
    where
        W: WorkerLoop + ServesSockets + Send + 'static,
    {
        let (idle, waker) = PollIdle::new(&settings.clock, settings.busy_poll)?;
        let (owner, worker) = make(waker);
        self.spawn(settings, worker, idle)?;
        Ok(owner)
    }

    /// Starts a worker without sockets, which parks when it is idle. `make` has the same role as in
    /// [`spawn_polling`](Self::spawn_polling).
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(crate) fn spawn_parking<O, W>(
        &mut self,
        settings: WorkerSettings,
        make: impl FnOnce(Waker) -> (O, W),
    ) -> io::Result<O>
    where
        W: WorkerLoop + Send + 'static,
    {
        let (idle, waker) = ParkIdle::new(&settings.clock, settings.busy_poll);
        let (owner, worker) = make(waker);
        self.spawn(settings, worker, idle)?;
        Ok(owner)
    }

    /// Starts a worker that sleeps in `idle`.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(crate) fn spawn<W, R>(&mut self, settings: WorkerSettings, worker: W, idle: R) -> io::Result<()>
    where
        W: WorkerLoop + Send + 'static,
        R: Idle<W> + Send + 'static,
    {
        match self {
            Self::Threads(threads) => {
                let progress = Arc::clone(worker.progress());
                threads.push(WorkerThread::start(settings, progress, worker, idle)?);
            }
            Self::Stepped(workers) => workers.push(Box::new(worker)),
        }
        Ok(())
    }

    /// Takes the threads started since the last call. They must be dropped after the driver's ends
    /// of their workers.
    pub(crate) fn take_threads(&mut self) -> Vec<WorkerThread> {
        match self {
            Self::Threads(threads) => std::mem::take(threads),
            Self::Stepped(_) => Vec::new(),
        }
    }
}
