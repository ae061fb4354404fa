//! The turns of a host's driver at one time, each followed by a turn of its application.
//!
//! ```text
//!   turn:  application requests ─ sockets ─ timers ─ events, plans, events          then the application
//! ```
//!
//! This reproduces the engine's driver with the same bounds, and an application on its own thread,
//! if neither takes time. `crates/scenario/tests/live` compares it with the engine, packet by
//! packet.

use super::joined::batch;
use super::run::Run;
use crate::placement::ThreadCounts as _;

/// Maximum plans of one visit of the connection.
const PLANS_PER_VISIT: usize = 4;

/// Receive calls to one socket in one turn, and maximum batches of each call (the number of its
/// buffers).
const CALLS_PER_TURN: usize = 2;
const CALL_BATCHES_MAX: usize = 16;

/// The events of a batch with fewer bytes are processed before the next batch of the call is
/// opened.
const SMALL_BATCH: usize = 16 << 10;

const _: () = assert!(quic::config::DATAGRAM_SIZE_MAX < SMALL_BATCH, "a single datagram is a small batch");

/// Writes of at most this many bytes are sent before anything is received.
const SMALL_MAX: u64 = 16 << 10;

/// How a turn treats data that does not fill a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// Send it.
    Now,
    /// After a full batch, hold it back until the next call or turn.
    Cork,
}

impl Run {
    /// Runs turns of a host and its application until both are idle. An application that is due
    /// begins.
    pub(super) fn settle(&mut self, host: usize) {
        if self.app_timeout(host).is_some_and(|at| at <= self.now) {
            self.pump(host);
        }
        while self.turn(host, Flush::Now) | self.let_application(host) {}
    }

    /// Runs the application. True if it made a request.
    fn let_application(&mut self, host: usize) -> bool {
        self.pump(host);
        std::mem::take(&mut self.is_owed_turn[host]) || self.cells[host].has_changed()
    }

    /// Runs a turn. True if there is more to do now.
    pub(super) fn turn(&mut self, host: usize, flush: Flush) -> bool {
        if self.cells[host].has_changed() {
            self.serve(host);
            let connection = self.nodes[host].connection.as_ref();
            let is_small = connection.is_some_and(|connection| connection.has_interactive_next(SMALL_MAX));
            if is_small && flush == Flush::Now {
                self.visit_connection(host, 1, flush);
            }
        }
        let has_more_arrivals = self.take_in(host);
        if self.timeouts[host].is_some_and(|at| at <= self.now) {
            self.nodes[host].handle_timeout(self.now);
        }
        // The bound applies to each thread that may seal.
        let plans_max = PLANS_PER_VISIT * self.placements[host].sealer_count(self.path_count());
        let has_more_to_send = self.visit_connection(host, plans_max, flush);
        has_more_arrivals || has_more_to_send
    }

    /// Receives batches from the sockets, in path order. Events of a small batch are processed
    /// before the next batch of the call is opened. True if datagrams are left.
    fn take_in(&mut self, host: usize) -> bool {
        let joins = self.joins(host);
        let mut are_left = false;
        for path in 0..self.sockets[host].len() {
            for _ in 0..CALLS_PER_TURN {
                let mut has_events_due = false;
                for _ in 0..CALL_BATCHES_MAX {
                    let Some((count, bytes)) = batch(&self.sockets[host][path], joins) else { break };
                    if std::mem::replace(&mut has_events_due, bytes < SMALL_BATCH) {
                        self.process_events(host);
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
        } else if let Some(datagram) = socket.pop_front() {
            node.receive(self.now, datagram);
        }
    }

    /// Processes events and sends at most `plans_max` plans. True if there may be more to send.
    fn visit_connection(&mut self, host: usize, plans_max: usize, flush: Flush) -> bool {
        self.process_events(host);
        let network = &mut self.network;
        let sent = self.nodes[host]
            .send(self.now, plans_max, flush == Flush::Cork, |datagram| network.send(self.now, host, datagram));
        self.process_events(host);
        self.timeouts[host] = self.nodes[host].timeout();
        sent == plans_max
    }
}
