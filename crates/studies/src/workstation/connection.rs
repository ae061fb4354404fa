//! The state of the sending machine: segments to be sent, and connections with their windows.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use sim::{Sim, Store};
use units::Instant;

use super::config::Config;
use super::packet::Data;
use super::round_trip::RoundTrip;
use crate::conserved::assert_conserved;

/// A segment of the application.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// Time at which its generation started.
    pub(super) generated_at: Instant,
    pub(super) packets: u64,
    /// Bits per packet.
    pub(super) packet_bits: u64,
    /// Number of its first packet among all of the application's; `None` for a small message.
    pub(super) place: Option<u64>,
    /// Whether a failed processor returned it. It then holds no slot of the segments generated
    /// ahead.
    pub(super) is_returned: bool,
}

/// Segments that the application has generated and that are not taken.
pub(super) struct Supply {
    /// One slot per segment that may be generated ahead.
    pub(super) slots_ahead: Store<()>,
    pub(super) segments: Store<Segment>,
    /// Small messages, if they have a dedicated processor.
    pub(super) small: Store<Segment>,
}

/// Limit of small messages that wait for their dedicated processor; generation pauses at the limit.
const SMALL_WAITING: usize = 64;

/// The sending end of a connection.
pub(super) struct Connection {
    /// One token per packet that may be sent.
    pub(super) window: Store<()>,
    /// Window size in packets, and tokens taken for packets that are not yet sent.
    pub(super) window_packets: u64,
    pub(super) in_progress: Cell<u64>,
    pub(super) next: Cell<u64>,
    /// All packets before this one are acknowledged.
    pub(super) acked: Cell<u64>,
    /// Unacknowledged packets.
    pub(super) in_flight: RefCell<BTreeMap<u64, Sent>>,
    /// Segments that are not fully acknowledged, by the sequence number after their last packet,
    /// with the number of missing packets.
    pub(super) segments: RefCell<BTreeMap<u64, (Segment, u64)>>,
    pub(super) has_failed: Cell<bool>,
    pub(super) round_trip: RoundTrip,
}

/// A packet in flight.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    /// Time at which it was first sent.
    pub(super) at: Instant,
    /// Time at which it must be retransmitted; `None` without a timer.
    pub(super) deadline: Option<Instant>,
    pub(super) data: Data,
}

impl Connection {
    pub(super) fn new(sim: &Sim, index: usize, window_packets: u64) -> Self {
        let window = Store::new(sim, &format!("window {index}"), window_packets as usize);
        for _ in 0..window_packets {
            window.try_put(()).expect("the store holds the whole window");
        }
        Self {
            window,
            window_packets,
            in_progress: Cell::new(0),
            next: Cell::new(0),
            acked: Cell::new(0),
            in_flight: RefCell::default(),
            segments: RefCell::default(),
            has_failed: Cell::new(false),
            round_trip: RoundTrip::default(),
        }
    }

    /// Returns the time at which packet `sequence` must be retransmitted; `None` if it is
    /// acknowledged, has no timer, or its processor has failed.
    pub(super) fn deadline_of(&self, sequence: u64) -> Option<Instant> {
        if self.has_failed.get() {
            return None;
        }
        self.in_flight.borrow().get(&sequence)?.deadline
    }

    /// Sets the timers of all packets in flight from `sequence` on to `deadline`.
    pub(super) fn postpone(&self, sequence: u64, deadline: Option<Instant>) {
        for sent in self.in_flight.borrow_mut().range_mut(sequence..).map(|(_, sent)| sent) {
            sent.deadline = deadline;
        }
    }

    /// Returns the number of segments that are not fully acknowledged.
    pub(super) fn segments_in_flight(&self) -> u64 {
        self.segments.borrow().len() as u64
    }

    /// Takes a slot of the window for a packet about to be sent.
    pub(super) async fn take_slot(&self) {
        self.window.take().await;
        self.in_progress.set(self.in_progress.get() + 1);
    }

    /// Checks that each window slot is free, reserved for a packet about to be sent, or used by a
    /// packet.
    ///
    /// # Panics
    /// Panics if this does not hold. Slots of a failed processor are lost with it.
    pub(super) fn check_window(&self) {
        if self.has_failed.get() {
            return;
        }
        let in_flight = self.in_flight.borrow().len() as u64;
        let places =
            [("free", self.window.len() as u64), ("in progress", self.in_progress.get()), ("in flight", in_flight)];
        assert_conserved("window slots", self.window_packets, &places);
    }

    #[cfg(test)]
    pub(super) fn lose_slot(&self) {
        let lost = self.window.try_take().is_some() || self.in_flight.borrow_mut().pop_first().is_some();
        assert!(lost, "a window has a slot");
    }
}

impl Supply {
    /// Returns the numbers of segments and small messages that are not taken.
    pub(super) fn waiting(&self) -> [u64; 2] {
        [&self.segments, &self.small].map(|store| store.len() as u64)
    }

    pub(super) fn new(sim: &Sim, config: &Config) -> Self {
        let ahead = config.choices.segments_ahead;
        // Segments of a failed processor return in addition to those generated ahead.
        let returned = (config.window_packets() as usize + 1) * config.protocol_processors;
        Self {
            slots_ahead: Store::new(sim, "places ahead", ahead),
            segments: Store::new(sim, "segments", ahead + returned),
            small: Store::new(sim, "small messages", SMALL_WAITING),
        }
    }
}
