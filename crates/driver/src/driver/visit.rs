//! Visiting connections: routes, events, plans, deadlines.

use super::send::{PLANS_PER_VISIT, Remaining};
use super::{Driver, Flush};
use crate::activity::Activity;
use crate::env::Env;
use crate::offload::Offload;
use crate::protocol::{Connection, ConnectionKey, EndReason};

/// Limit of visits in one turn.
const VISITS_PER_TURN: usize = 64;

impl<E: Env> Driver<E> {
    /// Visits the scheduled connections in the order of the run queue. Returns the number of
    /// batches sent.
    pub(super) fn visit_scheduled(&mut self, flush: Flush) -> usize {
        let mut sent = 0;
        if self.offload.has_space_for_updates() {
            // Connections without space for an update are visited again.
            std::mem::take(&mut self.await_receiver).into_iter().for_each(|key| self.schedule(key));
        }
        for _ in 0..self.run.len().min(VISITS_PER_TURN) {
            // Reports of receive halves are processed first, so that a plan contains the latest
            // acknowledgements. So are finished plans, because they are older than the next plan.
            self.take_half_events();
            if self.offload.sealers().is_some() {
                self.take_reports();
                self.take_finished(None);
            }
            let Some(key) = self.run.pop() else { break };
            if let Some(entry) = self.entries.get_mut(key.0) {
                entry.is_scheduled = false;
            }
            sent += self.visit(key, flush, PLANS_PER_VISIT);
        }
        self.offload.wake();
        self.env.lap(Activity::HandOver);
        let now = self.env.now();
        for slot in &mut self.sockets {
            if let Some(socket) = slot.as_local_mut() {
                socket.flush(now);
            }
        }
        self.env.lap(Activity::SendCall);
        sent
    }

    /// Visits a connection: processes its events and sends at most `plans_max` batches. Returns the
    /// number of batches sent.
    pub(super) fn visit(&mut self, key: ConnectionKey, flush: Flush, plans_max: usize) -> usize {
        self.visited = Some(key);
        let sent = self.do_visit(key, flush, plans_max);
        self.visited = None;
        sent
    }

    fn do_visit(&mut self, key: ConnectionKey, flush: Flush, plans_max: usize) -> usize {
        self.update_routes(key);
        self.run_jobs(key);
        self.process_events(key);
        self.request_detach(key);
        if let Some(entry) = self.entries.get_mut(key.0) {
            // Events may have woken the application, which may have written more since.
            entry.connection.apply_limits();
        }
        self.env.lap(Activity::HandOver);
        if !self.update_receive_half(key) {
            return 0;
        }
        let (sent, remaining) = self.send_plans(key, flush, plans_max);
        // Planning may have ended streams or changed routes.
        self.update_routes(key);
        self.process_events(key);
        self.update_receive_half(key);
        let Some(entry) = self.entries.get_mut(key.0) else { return sent };
        if entry.connection.is_over() && !entry.connection.is_detached() {
            self.forget(key);
            return sent;
        }
        let timeout = entry.connection.poll_timeout().into_iter().chain(entry.refused_until).min();
        self.timers.replace(key.0, entry.deadline, timeout);
        entry.deadline = timeout;
        match remaining {
            Remaining::Nothing => {}
            Remaining::More => self.schedule(key),
            // Other events still cause visits. Only sending waits for the socket.
            Remaining::NoSpace => self.await_space(key),
        }
        sent
    }

    /// Adds a connection to the queues of the full sockets. Sockets whose worker has ended are
    /// omitted, because they never have space again.
    fn await_space(&mut self, key: ConnectionKey) {
        let Some(entry) = self.entries.get_mut(key.0) else { return };
        for (index, slot) in self.sockets.iter_mut().enumerate() {
            let is_full = match slot.worker() {
                Some(worker) => !self.offload.has_space(worker) && !self.offload.is_gone(worker),
                None => slot.as_local().is_some_and(|socket| !socket.has_space()),
            };
            if is_full && entry.awaits_space & 1 << index == 0 {
                entry.awaits_space |= 1 << index;
                slot.waiting.push_back(key);
            }
        }
    }

    /// Passes the events of a connection to its handles, and updates its entry.
    pub(super) fn process_events(&mut self, key: ConnectionKey) {
        let Some(entry) = self.entries.get_mut(key.0) else { return };
        let env = &self.env;
        let summary = entry.connection.process_events(&|| env.now());
        if summary.is_established || summary.is_over {
            entry.half_open = None;
        }
        if summary.is_available && entry.connection.is_accepted() && !self.shared.push_accepted(entry.cell.clone()) {
            // Its accept queue was closed.
            entry.connection.close(env.now(), EndReason::EndpointClosed);
            self.schedule(key);
        }
    }
}
