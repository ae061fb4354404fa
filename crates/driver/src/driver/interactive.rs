//! Small writes overtake bulk data, and background bulk data yields to them.
//!
//! A turn processes requests, receives, and sends. With bulk data each of these steps takes tens to
//! hundreds of microseconds, and a message of a few bytes would wait for several of them at each
//! end. So the driver
//!
//! - sends interactive data before it receives,
//! - passes received interactive data to the application before it opens a large batch, or one of
//!   another connection.
//!
//! While interactive data is expected, background data is sent one batch at a time: between two
//! batches the driver serves other connections and yields to other threads that wait for its
//! processor. Otherwise background data is sent like all other data.

use units::{Duration, Instant};

use super::limits::INTERACTIVE_MAX;
use super::{Driver, Flush};
use crate::env::Env;
use crate::protocol::ConnectionKey;

/// Time after an interactive write during which more writes are expected. A shorter time makes an
/// application that writes ten times a second wait for background data. A longer one slows
/// background data down for writes that may not follow.
const EXPECTED_FOR: Duration = Duration::from_secs(1);

/// Connections with interactive data, and its recent history.
#[derive(Debug, Default)]
pub(super) struct Interactive {
    /// Connections whose application has just written interactive data. An entry is added for each
    /// time that the connection was in the list of requests, so the length is bounded by that list.
    at_once: Vec<ConnectionKey>,
    last_at: Option<Instant>,
    /// The connection of which small batches were received since its events were last processed.
    received: Option<ConnectionKey>,
    /// Whether background data was sent since the thread last yielded.
    owes_yield: bool,
}

impl Interactive {
    /// Records that the application of `key` has written interactive data and that no earlier data
    /// waits.
    pub(super) fn note(&mut self, now: Instant, key: ConnectionKey) {
        self.last_at = Some(now);
        self.at_once.push(key);
    }

    /// Handles the sending of background data. Returns whether other connections are served next.
    pub(super) fn wants_pause(&mut self, now: Instant) -> bool {
        let is_expected = self.last_at.is_some_and(|at| now.saturating_since(at) < EXPECTED_FOR);
        self.owes_yield |= is_expected;
        is_expected
    }

    pub(super) fn take_yield_due(&mut self) -> bool {
        std::mem::take(&mut self.owes_yield)
    }

    /// Records that a batch of `len_bytes` was absorbed and that others follow.
    fn note_received(&mut self, key: ConnectionKey, len_bytes: usize) {
        if len_bytes < INTERACTIVE_MAX {
            self.received = Some(key);
        }
    }

    /// Returns the connection whose received data goes to its application before a batch of
    /// `len_bytes` of `next` is opened. Returns `None` if this is another small batch of the same
    /// connection: a device without receive offload returns bulk data packet by packet, and a
    /// wake-up takes longer than opening a packet.
    fn take_received_before(&mut self, next: ConnectionKey, len_bytes: usize) -> Option<ConnectionKey> {
        self.received.take_if(|received| *received != next || len_bytes >= INTERACTIVE_MAX)
    }
}

impl<E: Env> Driver<E> {
    /// Sends one batch of interactive data for each connection whose application has just written
    /// some. The connections are visited again in this turn, for further data. Returns the number
    /// of batches sent.
    pub(super) fn send_interactive(&mut self, flush: Flush) -> usize {
        let mut sent = 0;
        while let Some(key) = self.interactive.at_once.pop() {
            // The decision about a partial batch follows after everything of this turn was
            // received.
            if flush == Flush::Now {
                self.take_half_events();
                sent += self.visit(key, flush, 1);
            }
        }
        sent
    }

    /// Prepares for a batch of `len_bytes` that is about to be opened.
    pub(super) fn begin_arrival(&mut self, key: ConnectionKey, len_bytes: usize) {
        if let Some(received) = self.interactive.take_received_before(key, len_bytes) {
            self.visited = Some(received);
            self.process_events(received);
            self.visited = None;
        }
    }

    /// Handles the end of absorbing a batch of `len_bytes`.
    pub(super) fn end_arrival(&mut self, key: ConnectionKey, len_bytes: usize) {
        if self.has_more_arrivals {
            self.interactive.note_received(key, len_bytes);
        }
    }

    /// Handles the end of the turn's arrivals. Visits follow.
    pub(super) fn end_arrivals(&mut self) {
        self.interactive.received = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_batches_of_a_connection_are_passed_on_together_and_before_others() {
        let (mut interactive, [one, other]) = (Interactive::default(), [1, 2].map(ConnectionKey));
        interactive.note_received(one, INTERACTIVE_MAX);
        assert_eq!(interactive.take_received_before(other, 1), None, "it was a large one");
        interactive.note_received(one, INTERACTIVE_MAX - 1);
        assert_eq!(interactive.take_received_before(one, INTERACTIVE_MAX - 1), None, "more of the same");
        interactive.note_received(one, 1);
        assert_eq!(interactive.take_received_before(one, INTERACTIVE_MAX), Some(one), "a large one takes long");
        assert_eq!(interactive.take_received_before(other, 1), None, "it was passed on");
        interactive.note_received(one, 1);
        assert_eq!(interactive.take_received_before(other, 1), Some(one), "another connection");
    }

    #[test]
    fn the_background_pauses_while_interactive_data_is_expected_and_not_otherwise() {
        let (mut interactive, mut now) = (Interactive::default(), Instant::ZERO + Duration::from_secs(5));
        assert!(!interactive.wants_pause(now) && !interactive.take_yield_due(), "nothing was written");
        interactive.note(now, ConnectionKey(7));
        assert!(!interactive.take_yield_due(), "no background data was sent");
        assert!(interactive.wants_pause(now) && interactive.take_yield_due());
        now += EXPECTED_FOR;
        assert!(!interactive.wants_pause(now) && !interactive.take_yield_due(), "the write was long ago");
    }
}
