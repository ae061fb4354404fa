//! The state of the receiving machine: packets that wait for a processor, or for earlier packets.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use sim::{Sim, Store};

use super::config::Config;
use super::packet::Data;

/// Queue limit of a processor in packets. Windows set a much lower limit.
const INBOX_PACKETS: usize = 4096;

/// The receiving end of a connection.
#[derive(Default)]
pub(super) struct Resequencer {
    pub(super) expected: Cell<u64>,
    pub(super) ahead: RefCell<BTreeSet<u64>>,
}

/// The queue of each processor: a packet and whether it has an error.
pub(super) struct Inboxes(Vec<Store<(Data, bool)>>);

/// Resequencing at the host over all connections: packets that may not yet be delivered to the
/// application.
#[derive(Default)]
pub(super) struct HostResequencer {
    pub(super) expected: Cell<u64>,
    pub(super) ahead: RefCell<BTreeSet<u64>>,
}

impl Inboxes {
    pub(super) fn new(sim: &Sim, config: &Config) -> Self {
        let inbox = |index| Store::new(sim, &format!("packets for processor {index}"), INBOX_PACKETS);
        Self((0..config.protocol_processors).map(inbox).collect())
    }

    /// Queues a packet stored in the memory of `processor`.
    pub(super) async fn put(&self, processor: usize, data: Data, is_bad: bool) {
        self.0[processor].put((data, is_bad)).await;
    }

    /// Waits for a packet for `processor`. Returns it and whether it has an error.
    pub(super) async fn take(&self, processor: usize) -> (Data, bool) {
        self.0[processor].take().await
    }
}

impl Resequencer {
    /// Records packet `sequence`. Returns false if it arrived before.
    pub(super) fn record(&self, sequence: u64) -> bool {
        let is_new = sequence >= self.expected.get() && self.ahead.borrow_mut().insert(sequence);
        advance(&self.expected, &mut self.ahead.borrow_mut());
        is_new
    }
}

/// Moves `expected` past the packets that have arrived.
pub(super) fn advance(expected: &Cell<u64>, ahead: &mut BTreeSet<u64>) {
    while ahead.remove(&expected.get()) {
        expected.set(expected.get() + 1);
    }
}
