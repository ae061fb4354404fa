//! Isolation of panics: a panic in a connection ends only that connection.
//!
//! A bug in a connection, or in the TLS session of its application, shows as a panic while the
//! driver calls the connection. That connection ends, its handles report it, and the others
//! continue. A panic outside a connection, such as in a socket, ends the driver.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::{Driver, Flush, Work};
use crate::env::Env;
use crate::offload::Offload;
use crate::protocol::{Connection, ConnectionKey, EndReason, Protocol};

impl<E: Env> Driver<E> {
    /// Runs one turn. It does not block, and its work is bounded.
    pub fn turn(&mut self, flush: Flush) -> Work {
        match catch_unwind(AssertUnwindSafe(|| self.do_turn(flush))) {
            Ok(work) => work,
            Err(panic) => {
                let visited = self.visited.take().filter(|_| self.env.isolates_panics());
                let Some(key) = visited else { resume_unwind(panic) };
                tracing::error!(connection = key.0, "a connection has panicked: it ends, the others continue");
                self.evict(key);
                // It is unknown which connections the turn had not visited yet, so all are visited
                // again.
                let keys: Vec<u32> = self.entries.keys().collect();
                keys.into_iter().for_each(|key| self.schedule(ConnectionKey(key)));
                Work { has_more: true, ..Work::default() }
            }
        }
    }

    /// Drops a connection without calling it again.
    fn evict(&mut self, key: ConnectionKey) {
        let Some(mut entry) = self.entries.remove(key.0) else { return };
        if entry.connection.has_detached_half() {
            // The half is dropped when it returns.
            self.offload.recall(self.env.now(), key);
        }
        self.timers.replace(key.0, entry.deadline, None);
        self.protocol.forget(key);
        entry.connection.abandon(EndReason::ProcessorGone);
        // Dropping the connection may panic again.
        if catch_unwind(AssertUnwindSafe(|| drop(entry))).is_err() {
            tracing::error!(connection = key.0, "dropping a connection that has panicked panicked again");
        }
    }
}
