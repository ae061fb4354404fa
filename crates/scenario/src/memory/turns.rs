//! What a host does at one moment: turns of its driver, each followed by its application.
//!
//! ```text
//!   turn:  what the application asked for ─ sockets ─ timers ─ events, plans, events          then the application
//! ```
//!
//! As the engine's driver does (`engine/src/driver.rs`), with the same bounds, and as an application on a thread of its own does, when
//! nothing takes them any time. `crates/scenario/tests/live.rs` holds it against the driver, packet by packet.

use super::joined::batch;
use super::run::Run;

/// Plans that a host sends in one visit of its connection.
const PLANS_PER_VISIT: usize = 4;

/// Calls to one socket in one turn, and batches that each gets at most: the buffers that it is offered.
const CALLS_PER_TURN: usize = 2;
const CALL_BATCHES_MAX: usize = 16;

/// A batch of fewer bytes is told before the next one of its call is opened.
const LITTLE_BATCH: usize = 16 << 10;

const _: () = assert!(quic::config::DATAGRAM_SIZE_MAX < LITTLE_BATCH, "a datagram alone is little");

/// What an application asks for and is no more than this leaves before anything is received, in bytes.
const LITTLE_MAX: u64 = 16 << 10;

/// What a turn does with data that fill no batch (`engine/src/driver.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tails {
    /// They leave.
    Sent,
    /// After a full batch they wait for the next call or turn.
    Held,
}

impl Run {
    /// Lets a host and its application do what is to be done now: an application whose time has come begins.
    pub(super) fn settle(&mut self, host: usize) {
        if self.app_timeout(host).is_some_and(|at| at <= self.now) {
            self.pump(host);
        }
        while self.turn(host, Tails::Sent) | self.let_application(host) {}
    }

    /// The application's turn. True if it asked for something.
    fn let_application(&mut self, host: usize) -> bool {
        self.pump(host);
        std::mem::take(&mut self.is_owed_turn[host]) || self.cells[host].has_changed()
    }

    /// A turn. True if there is more to do now.
    pub(super) fn turn(&mut self, host: usize, tails: Tails) -> bool {
        if self.cells[host].has_changed() {
            self.serve(host);
            let connection = self.nodes[host].connection.as_ref();
            let is_little = connection.is_some_and(|connection| connection.has_little_next(LITTLE_MAX));
            if is_little && tails == Tails::Sent {
                self.visit_connection(host, 1, tails);
            }
        }
        let has_more_arrivals = self.take_in(host);
        if self.timeouts[host].is_some_and(|at| at <= self.now) {
            self.nodes[host].handle_timeout(self.now);
        }
        // Each processor that may seal any of them has so many.
        let plans_max = PLANS_PER_VISIT * self.placements[host].helping_count(self.path_count());
        let has_more_to_send = self.visit_connection(host, plans_max, tails);
        has_more_arrivals || has_more_to_send
    }

    /// Takes batches from the sockets, in the order of their paths. What comes out of one call is told one by one if it is little, each
    /// before the next is opened (`driver/courtesy.rs`). True if some are left.
    fn take_in(&mut self, host: usize) -> bool {
        let joins = self.joins(host);
        let mut are_left = false;
        for path in 0..self.sockets[host].len() {
            for _ in 0..CALLS_PER_TURN {
                let mut is_to_be_told = false;
                for _ in 0..CALL_BATCHES_MAX {
                    let Some((count, bytes)) = batch(&self.sockets[host][path], joins) else { break };
                    if std::mem::replace(&mut is_to_be_told, bytes < LITTLE_BATCH) {
                        self.tell(host);
                    }
                    self.take_batch(host, path, count);
                }
            }
            are_left |= !self.sockets[host][path].is_empty();
        }
        are_left
    }

    fn take_batch(&mut self, host: usize, path: usize, count: usize) {
        let (socket, node) = (&mut self.sockets[host][path], &mut self.nodes[host]);
        if count > 1 {
            node.receive_joined(self.now, path, socket.drain(..count));
        } else if let Some(frame) = socket.pop_front() {
            node.receive(self.now, frame);
        }
    }

    /// Tells what has happened, and sends so many plans. True if there may be more to send.
    fn visit_connection(&mut self, host: usize, plans_max: usize, tails: Tails) -> bool {
        self.tell(host);
        let network = &mut self.network;
        let sent = self.nodes[host]
            .send(self.now, plans_max, tails == Tails::Held, |frame| network.send(self.now, host, frame));
        self.tell(host);
        self.timeouts[host] = self.nodes[host].timeout();
        sent == plans_max
    }
}
