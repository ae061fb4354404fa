//! Small writes bypass bulk data, and bulk in the background yields to them.
//!
//! A turn processes requests, receives, and sends. With bulk data each of these takes tens to
//! hundreds of microseconds, and a message of a few bytes would wait for several of them at each
//! end. So the driver
//!
//! - sends interactive data before it receives,
//! - passes received interactive data to the application before it opens later batches.
//!
//! While interactive data is expected, background data is sent one batch at a time: between two
//! batches the driver serves other connections and yields to other threads that wait for its
//! processor. Otherwise background data is sent like all other data.

use units::{Duration, Instant};

use super::limits::INTERACTIVE_MAX;
use super::{Driver, Flush};
use crate::env::Env;
use crate::protocol::ConnectionKey;

/// For this long after an interactive write, more are expected. A shorter time makes an application
/// that writes ten times a second wait for background data. A longer one slows background data down
/// for writes that may not follow.
const EXPECTED_FOR: Duration = Duration::from_secs(1);

/// The connections with interactive data, and its recent history.
#[derive(Debug, Default)]
pub(super) struct Interactive {
    /// Connections whose application has just written interactive data. An entry is added for each
    /// time that the connection was in the list of requests, so the length is bounded by that list.
    at_once: Vec<ConnectionKey>,
    last_at: Option<Instant>,
    /// Background data was sent since the thread last yielded.
    owes_yield: bool,
}

impl Interactive {
    /// Notes that the application of `key` has written interactive data and that no earlier data
    /// waits.
    pub(super) fn note(&mut self, now: Instant, key: ConnectionKey) {
        self.last_at = Some(now);
        self.at_once.push(key);
    }

    /// Called when background data is sent. Returns whether other connections are served next.
    pub(super) fn wants_pause(&mut self, now: Instant) -> bool {
        let is_expected = self.last_at.is_some_and(|at| now.saturating_since(at) < EXPECTED_FOR);
        self.owes_yield |= is_expected;
        is_expected
    }

    pub(super) fn take_yield_due(&mut self) -> bool {
        std::mem::take(&mut self.owes_yield)
    }
}

impl<E: Env> Driver<E> {
    /// Sends one batch of interactive data for each connection whose application has just written
    /// some. The connections are visited again in this turn, for further data. Returns the number
    /// of batches sent.
    pub(super) fn send_interactive(&mut self, flush: Flush) -> usize {
        let mut sent = 0;
        while let Some(key) = self.interactive.at_once.pop() {
            // Whether to send a tail is decided after everything of this turn was received.
            if flush == Flush::Now {
                self.take_half_events();
                sent += self.visit(key, flush, 1);
            }
        }
        sent
    }

    /// Called after a batch of `len_bytes` was absorbed. The application gets the data of a small
    /// batch before later batches are opened.
    pub(super) fn report_interactive(&mut self, key: ConnectionKey, len_bytes: usize) {
        if len_bytes < INTERACTIVE_MAX && self.has_more_arrivals {
            self.visited = Some(key);
            self.process_events(key);
            self.visited = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
