//! A connection that breaks takes nobody along.
//!
//! What is wrong inside one connection, or in the session that its application gave it, shows as a panic while the driver attends
//! to it. That connection ends, its users are told, and the others go on. A panic while the driver attends to nobody, such as
//! in a socket, is the driver's own end.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use quic::ConnectionKey;

use super::{Driver, Tails, Work};
use crate::error::Closed;

impl Driver {
    /// One turn. Never blocks, never runs long.
    pub(crate) fn turn(&mut self, tails: Tails) -> Work {
        match catch_unwind(AssertUnwindSafe(|| self.do_turn(tails))) {
            Ok(work) => work,
            Err(panic) => {
                let Some(key) = self.attended.take() else { resume_unwind(panic) };
                tracing::error!(connection = key.0, "a connection has broken: it ends, the others go on");
                self.bury(key);
                // What the turn had not come to is done in the next: whose turn was cut short is not known, so all have one.
                let keys: Vec<u32> = self.slots.keys().collect();
                keys.into_iter().for_each(|key| self.schedule(ConnectionKey(key)));
                Work { has_more: true, ..Work::default() }
            }
        }
    }

    /// Lets go of a connection of which nothing may be asked any more.
    fn bury(&mut self, key: ConnectionKey) {
        let Some(mut slot) = self.slots.remove(key.0) else { return };
        let is_wanted = slot.away.as_ref().is_some_and(|away| !away.is_recalled);
        if let Some(receiver) = self.receiver.as_mut().filter(|_| is_wanted) {
            // It comes back to nobody.
            receiver.recall(self.clock.now(), key);
        }
        self.timers.replace(key.0, slot.deadline, None);
        self.endpoint.forget(key);
        slot.abandon(Closed::ProcessorGone);
        // Dropping it may panic again.
        if catch_unwind(AssertUnwindSafe(|| drop(slot))).is_err() {
            tracing::error!(connection = key.0, "a broken connection does not even end in order");
        }
    }
}
