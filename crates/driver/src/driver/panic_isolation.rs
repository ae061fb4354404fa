//! A connection that panics ends alone.
//!
//! What is wrong inside one connection, or in the session that its application gave it, shows as a
//! panic while the driver asks something of it. That connection ends, its application is told, and
//! the others go on. A panic while the driver asks nothing of a connection, such as in a socket,
//! ends the driver.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::{Driver, Flush, Work};
use crate::env::Env;
use crate::offload::Offload;
use crate::protocol::{Connection, ConnectionKey, EndReason, Protocol};

impl<E: Env> Driver<E> {
    /// One turn. Never blocks, never runs long.
    pub fn turn(&mut self, flush: Flush) -> Work {
        match catch_unwind(AssertUnwindSafe(|| self.do_turn(flush))) {
            Ok(work) => work,
            Err(panic) => {
                let Some(key) = self.visited.take() else { resume_unwind(panic) };
                tracing::error!(connection = key.0, "a connection has panicked: it ends, the others go on");
                self.evict(key);
                // The turn was cut short for connections that are not known, so all of them get
                // another.
                let keys: Vec<u32> = self.entries.keys().collect();
                keys.into_iter().for_each(|key| self.schedule(ConnectionKey(key)));
                Work { has_more: true, ..Work::default() }
            }
        }
    }

    /// Drops a connection that must not be asked for anything any more.
    fn evict(&mut self, key: ConnectionKey) {
        let Some(mut entry) = self.entries.remove(key.0) else { return };
        if entry.connection.has_detached_half() {
            // When it comes back it is dropped.
            self.offload.recall(self.env.now(), key);
        }
        self.timers.replace(key.0, entry.deadline, None);
        self.protocol.forget(key);
        entry.connection.abandon(EndReason::ProcessorGone);
        // Dropping it may panic again.
        if catch_unwind(AssertUnwindSafe(|| drop(entry))).is_err() {
            tracing::error!(connection = key.0, "dropping a connection that has panicked panicked again");
        }
    }
}
