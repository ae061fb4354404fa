//! [`LiveDriver`]: a driver with its sleeper, and the loop of its thread.

use std::sync::Arc;

use driver::{Activity, Driver, Env, Flush, Work};
use units::{Duration, Instant};

use crate::device::Device;
use crate::event_handler::EventHandler;
use crate::live::LiveEnv;
use crate::sleep::Sleeper;

/// Time for which a stopping engine waits for its last packets to leave. They leave within a turn
/// unless a socket buffer is full or the system refuses them.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);

/// A driver and its sleeper. A thread runs it, or callers under `inline`.
pub(crate) struct LiveDriver<D: Device> {
    driver: Driver<LiveEnv<D>>,
    sleeper: Sleeper,
    handler: Option<Arc<dyn EventHandler>>,
    /// Whether there was an event for the handler.
    has_event: bool,
}

impl<D: Device> LiveDriver<D> {
    /// Creates a driver whose thread calls `handler`, which the sleeper watches.
    pub(crate) fn new(driver: Driver<LiveEnv<D>>, sleeper: Sleeper, handler: Option<Arc<dyn EventHandler>>) -> Self {
        let mut live = Self { driver, sleeper, handler, has_event: false };
        live.watch_sockets();
        live
    }

    pub(crate) fn turn(&mut self, flush: Flush) -> Work {
        self.driver.turn(flush)
    }

    pub(crate) fn now(&self) -> Instant {
        self.driver.env().now()
    }

    /// Returns whether [`Drivers::stop`](crate::Drivers::stop) was called.
    pub(crate) fn is_stopping(&self) -> bool {
        self.driver.shared().is_stopping()
    }

    /// Returns the time at which the next turn is due; `now` if there is work.
    pub(crate) fn due_at(&self, now: Instant) -> Option<Instant> {
        self.driver.due_at(now)
    }

    /// Registers the sockets with the poll, see [`Sleeper::watch`].
    fn watch_sockets(&mut self) {
        for index in 0..self.driver.socket_count() {
            if let Some(socket) = self.driver.socket_mut(index) {
                self.sleeper.watch(index, socket);
            }
        }
    }

    /// Sleeps until a turn is due, or until `deadline`. If a turn is due already, only polls for
    /// events.
    pub(crate) fn wait(&mut self, deadline: Option<Instant>) {
        self.driver.env().lap(Activity::Application);
        if self.driver.take_yield_due() {
            // Background transfers yield the processor to other threads, such as woken
            // applications.
            std::thread::yield_now();
        }
        self.watch_sockets();
        self.sleeper.announce_sleep();
        let now = self.now();
        let busy = self.driver.is_busy() || self.handler.as_ref().is_some_and(|handler| handler.is_due());
        let until = if busy { Some(now) } else { self.driver.next_deadline().into_iter().chain(deadline).min() };
        match self.sleeper.wait(now, until) {
            Ok(ready) => {
                for ready in ready {
                    if let Some(socket) = self.driver.socket_mut(ready.socket) {
                        socket.note_ready(ready.readable, ready.writable);
                    }
                }
            }
            // Fails only for an invalid poll descriptor, which is a bug. The driver continues.
            Err(error) => tracing::error!(%error, "cannot wait for sockets"),
        }
        self.has_event = self.sleeper.has_handler_event();
        self.driver.env().lap(if busy { Activity::Poll } else { Activity::Waiting });
    }

    /// Calls the event handler if it is due. Its time counts as time of the application.
    pub(crate) fn handle_event(&mut self) {
        let has_event = std::mem::take(&mut self.has_event);
        if let Some(handler) = &self.handler
            && (has_event || handler.is_due())
        {
            handler.handle_event();
        }
    }

    /// Runs turns until the engine is stopped and the last packets have left.
    pub(crate) fn run(&mut self) {
        while !self.is_stopping() {
            let work = self.turn(Flush::Now);
            tracing::trace!(?work, "a turn");
            if self.is_stopping() {
                // The turn may have closed all connections already. Nothing would then end the
                // wait.
                break;
            }
            self.wait(None);
            self.handle_event();
        }
        self.close_all();
    }

    /// Closes all connections and waits until the last packets have left.
    pub(crate) fn close_all(&mut self) {
        let deadline = self.now() + CLOSE_TIME_MAX;
        loop {
            self.turn(Flush::Now);
            if self.driver.is_drained() || self.now() >= deadline {
                return;
            }
            self.wait(Some(deadline));
        }
    }
}
