//! [`IoWorker`]: the turn of a worker with sockets.
//!
//! ```text
//!   commands ─▶ role ─▶ a receive call for each socket ─▶ role, batch by batch ─▶ owner
//! ```
//!
//! The [`IoRole`] processes commands and batches: a path worker seals, sends and opens; the receive
//! worker passes batches to receive halves.

use std::sync::Arc;

use units::{Duration, Instant};

use super::liveness::Progress;
use super::rings::WorkerEnd;
use super::turn::WorkerLoop;
use crate::driver::{DriverSocket, RECV_BATCHES_MAX};
use crate::env::Env;
use crate::protocol::Protocol;
use crate::socket::Socket;

/// A socket with its index among the driver's sockets.
pub struct WorkerSocket<E: Env> {
    /// Its index.
    pub index: usize,
    /// The socket.
    pub socket: DriverSocket<E>,
}

/// The batches of a driver in the environment `E`.
type BatchOf<E> = <<E as Env>::Protocol as Protocol>::Batch;

/// The state of an I/O worker that does not depend on its role.
pub struct WorkerIo<E: Env, C, V> {
    /// The clock.
    pub clock: E::Clock,
    /// The sockets that the worker serves.
    pub sockets: Vec<WorkerSocket<E>>,
    pub(crate) link: WorkerEnd<E::Protocol, C, V>,
    buffers: <E::Socket as Socket<E::Protocol>>::Buffers,
    /// Batches of a receive call, reused so that nothing is allocated.
    batches: Vec<BatchOf<E>>,
}

/// Processes the commands and batches of an I/O worker.
pub trait IoRole<E: Env> {
    /// A command of the owner.
    type Command;
    /// An event for the owner.
    type Event;

    /// Limit of commands that are executed before the sockets are polled.
    const COMMANDS_PER_TURN: usize;
    /// Limit of commands that are executed after a receive call, before its batches are processed.
    const COMMANDS_PER_CALL: usize;
    /// Limit of commands that are executed after each batch.
    const COMMANDS_PER_BATCH: usize;

    /// Executes a command of the owner.
    fn execute(&mut self, io: &mut WorkerIo<E, Self::Command, Self::Event>, command: Self::Command);

    /// Called at the beginning of a turn.
    fn begin_turn(&mut self, io: &mut WorkerIo<E, Self::Command, Self::Event>) {
        let _ = io;
    }

    /// Called after commands were executed, before the sockets are polled.
    fn before_receiving(&mut self, io: &mut WorkerIo<E, Self::Command, Self::Event>) {
        let _ = io;
    }

    /// Returns whether more may be received. The caller also checks the space in the ring of
    /// arrivals.
    fn may_receive(&self) -> bool {
        true
    }

    /// Called with the batches of one receive call, before they are processed.
    fn on_received(&mut self, batches: &[BatchOf<E>]);

    /// Processes batch `number` of a receive call.
    fn handle_batch(
        &mut self,
        io: &mut WorkerIo<E, Self::Command, Self::Event>,
        number: usize,
        socket: usize,
        batch: BatchOf<E>,
    );

    /// Called after the batches of the socket at `at` were processed.
    fn after_receiving(&mut self, io: &mut WorkerIo<E, Self::Command, Self::Event>, at: usize) {
        let (_, _) = (io, at);
    }

    /// Called after all sockets were polled. If there are events for the owner, it is woken next.
    fn finish_turn(&mut self, io: &mut WorkerIo<E, Self::Command, Self::Event>);

    /// Called after the owner was woken.
    fn after_turn(&mut self) {}

    /// Returns whether there is work other than commands and arrivals.
    fn has_work(&self, io: &WorkerIo<E, Self::Command, Self::Event>) -> bool;

    /// Returns the time at which there will be such work.
    fn next_deadline(&self, io: &WorkerIo<E, Self::Command, Self::Event>, now: Instant) -> Option<Instant>;

    /// Called after a turn panicked: see [`WorkerLoop::recover`].
    fn recover(&mut self, io: &mut WorkerIo<E, Self::Command, Self::Event>) -> bool;

    /// See [`WorkerLoop::on_rest`].
    fn on_rest(&mut self, awake: Duration, is_idle: bool);
}

/// A worker with sockets.
pub struct IoWorker<E: Env, R: IoRole<E>> {
    io: WorkerIo<E, R::Command, R::Event>,
    role: R,
}

impl<E: Env, C, V> WorkerIo<E, C, V> {
    /// Returns the socket with this index, if the worker serves it.
    pub fn socket_mut(&mut self, index: usize) -> Option<&mut DriverSocket<E>> {
        self.sockets.iter_mut().find(|known| known.index == index).map(|known| &mut known.socket)
    }

    /// Returns whether there are commands, or arrivals that may be received.
    pub fn has_input(&self, may_receive: bool) -> bool {
        !self.link.commands.is_empty()
            || self.link.commands.is_abandoned()
            || (may_receive
                && self.has_space_for_arrivals()
                && self.sockets.iter().any(|known| known.socket.is_readable()))
    }

    /// Returns whether the ring of arrivals has space for the batches of a receive call.
    fn has_space_for_arrivals(&self) -> bool {
        self.link.arrivals.slots() >= RECV_BATCHES_MAX
    }
}

impl<E: Env, R: IoRole<E>> IoWorker<E, R> {
    pub(crate) fn new(
        clock: E::Clock,
        sockets: Vec<WorkerSocket<E>>,
        link: WorkerEnd<E::Protocol, R::Command, R::Event>,
        role: R,
    ) -> Self {
        Self { io: WorkerIo { clock, sockets, link, buffers: Default::default(), batches: Vec::new() }, role }
    }

    fn take_commands(&mut self, max: usize) {
        for _ in 0..max {
            let Ok(command) = self.io.link.commands.pop() else { break };
            self.role.execute(&mut self.io, command);
        }
    }

    /// Makes one receive call, if the ring of arrivals has space, and processes the batches.
    fn receive(&mut self, at: usize) {
        if !self.io.sockets[at].socket.take_readable() || !self.io.has_space_for_arrivals() || !self.role.may_receive()
        {
            return;
        }
        let mut batches = std::mem::take(&mut self.io.batches);
        self.io.sockets[at].socket.receive(&mut self.io.buffers, &mut batches);
        if !batches.is_empty() {
            let socket = self.io.sockets[at].index;
            self.role.on_received(&batches);
            self.take_commands(R::COMMANDS_PER_CALL);
            for (number, batch) in batches.drain(..).enumerate() {
                self.role.handle_batch(&mut self.io, number, socket, batch);
                self.take_commands(R::COMMANDS_PER_BATCH);
            }
        }
        self.io.batches = batches;
    }
}

impl<E: Env, R: IoRole<E>> WorkerLoop for IoWorker<E, R> {
    fn turn(&mut self) {
        self.role.begin_turn(&mut self.io);
        self.take_commands(R::COMMANDS_PER_TURN);
        self.role.before_receiving(&mut self.io);
        for at in 0..self.io.sockets.len() {
            self.receive(at);
            self.role.after_receiving(&mut self.io, at);
        }
        self.role.finish_turn(&mut self.io);
        self.io.link.owner.flush();
        self.role.after_turn();
    }

    fn due_at(&self, now: Instant) -> Option<Instant> {
        if self.io.has_input(self.role.may_receive()) || self.role.has_work(&self.io) {
            return Some(now);
        }
        self.role.next_deadline(&self.io, now).map(|at| at.max(now))
    }

    fn is_abandoned(&self) -> bool {
        self.io.link.commands.is_abandoned()
    }

    fn progress(&self) -> &Arc<Progress> {
        &self.io.link.progress
    }

    fn recover(&mut self) -> bool {
        self.role.recover(&mut self.io)
    }

    fn on_rest(&mut self, awake: Duration, is_idle: bool) {
        self.role.on_rest(awake, is_idle);
    }
}

impl<E: Env, R: IoRole<E>> IoWorker<E, R> {
    /// Returns the sockets that it serves, in the order in which a poll numbers them.
    pub fn sockets_mut(&mut self) -> &mut [WorkerSocket<E>] {
        &mut self.io.sockets
    }
}
