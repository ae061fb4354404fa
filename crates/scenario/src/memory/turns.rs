//! What a host does at one moment: turns of its driver, each followed by its application.
//!
//! ```text
//!   turn:  what the application asked for ─ sockets ─ timers ─ events, plans, events          then the application
//! ```
//!
//! As the engine's driver does (`engine/src/driver.rs`), with the same bounds, and as an application on a thread of its own does, when
//! nothing takes them any time. `crates/scenario/tests/live.rs` holds it against the driver, packet by packet.

use super::run::Run;

/// Plans that a host sends in one visit of its connection.
const PLANS_PER_VISIT: usize = 4;

/// Calls to one socket in one turn, and datagrams that each gets at most: the buffers that it is offered.
const CALLS_PER_TURN: usize = 2;
const CALL_DATAGRAMS_MAX: usize = 16;

/// What an application asks for and is no more than this leaves before anything is received, in bytes.
const LITTLE_MAX: u64 = 16 << 10;

impl Run {
    /// Lets a host and its application do what is to be done now: an application whose time has come begins.
    pub(super) fn settle(&mut self, host: usize) {
        if self.app_timeout(host).is_some_and(|at| at <= self.now) {
            self.pump(host);
        }
        while self.turn(host) {}
    }

    /// A turn, and what the application does after it. True if there is more to do now.
    fn turn(&mut self, host: usize) -> bool {
        if self.cells[host].has_changed() {
            self.serve(host);
            let connection = self.nodes[host].connection.as_ref();
            if connection.is_some_and(|connection| connection.has_little_next(LITTLE_MAX)) {
                self.visit_connection(host, 1);
            }
        }
        let has_more_arrivals = self.take_in(host);
        if self.timeouts[host].is_some_and(|at| at <= self.now) {
            self.nodes[host].handle_timeout(self.now);
        }
        let has_more_to_send = self.visit_connection(host, PLANS_PER_VISIT);
        self.pump(host);
        has_more_arrivals || has_more_to_send || self.cells[host].has_changed()
    }

    /// Takes datagrams from the sockets, in the order of their paths. What comes out of one call is told one by one, each before the
    /// next is opened (`driver/courtesy.rs`). True if some are left.
    fn take_in(&mut self, host: usize) -> bool {
        let mut are_left = false;
        for path in 0..self.sockets[host].len() {
            for _ in 0..CALLS_PER_TURN {
                let count = self.sockets[host][path].len().min(CALL_DATAGRAMS_MAX);
                for number in 0..count {
                    if number > 0 {
                        self.tell(host);
                    }
                    let frame = self.sockets[host][path].pop_front().expect("there are so many");
                    self.nodes[host].receive(self.now, frame);
                }
            }
            are_left |= !self.sockets[host][path].is_empty();
        }
        are_left
    }

    /// Tells what has happened, and sends so many plans. True if there may be more to send.
    fn visit_connection(&mut self, host: usize, plans_max: usize) -> bool {
        self.tell(host);
        let network = &mut self.network;
        let sent = self.nodes[host].send(self.now, plans_max, |frame| network.send(self.now, host, frame));
        self.tell(host);
        self.timeouts[host] = self.nodes[host].timeout();
        sent == plans_max
    }
}
