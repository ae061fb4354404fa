//! Small writes bypass bulk data, and bulk in the background yields to them.
//!
//! A turn takes what applications ask for, receives, and sends. Beside bulk each of these lasts
//! tens to hundreds of microseconds, and a message of a few bytes would wait for several of them at
//! each end. So interactive data
//!
//! - leaves before anything is received,
//! - is told to the application before the batches are opened that arrived after it,
//!
//! and while some is expected, what is in the background leaves batch by batch: between two of them
//! the driver serves other connections, and any thread that waits for its processor gets it.
//! Otherwise the background is sent like everything else.

use units::{Duration, Instant};

use super::{Driver, Flush};
use crate::env::Env;
use crate::protocol::ConnectionKey;

/// A batch of fewer bytes is small: opening it takes less time than waking the application for it,
/// and what the application asks for that is no more takes less time to send than opening what has
/// arrived. More is bulk: it waits for the acknowledgements that have arrived and for what the
/// application writes meanwhile, and leaves in full batches.
pub const INTERACTIVE_MAX: usize = 16 << 10;

/// For so long after an interactive write more are expected. A shorter time makes an application
/// that writes ten times a second wait for the background; a longer one slows the background down
/// for what may never come.
const EXPECTED_FOR: Duration = Duration::from_secs(1);

/// Which connections have interactive data.
#[derive(Debug, Default)]
pub(super) struct Interactive {
    /// Connections whose application has just written some; each as often as it was taken from the
    /// driver's list, so as many as that had.
    at_once: Vec<ConnectionKey>,
    last_at: Option<Instant>,
    /// Something of the background has left since other threads last had the processor.
    owes_yield: bool,
}

impl Interactive {
    /// The application of `key` has written a little, and nothing before it waits.
    pub(super) fn note(&mut self, now: Instant, key: ConnectionKey) {
        self.last_at = Some(now);
        self.at_once.push(key);
    }

    /// Something of the background leaves. Whether other connections are to be served next.
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
    /// Interactive data that applications have just written leaves, a batch of each connection;
    /// they may have more, and are visited again in this turn. Returns the batches sent.
    pub(super) fn send_interactive(&mut self, flush: Flush) -> usize {
        let mut sent = 0;
        while let Some(key) = self.interactive.at_once.pop() {
            // What to do with a tail is known only when all of the turn has been received.
            if flush == Flush::Now {
                self.take_half_events();
                sent += self.visit(key, flush, 1);
            }
        }
        sent
    }

    /// A batch of `len_bytes` has been absorbed. If it was small, its application need not wait
    /// until those after it are opened.
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
        assert!(!interactive.take_yield_due(), "nothing of the background has left");
        assert!(interactive.wants_pause(now) && interactive.take_yield_due());
        now += EXPECTED_FOR;
        assert!(!interactive.wants_pause(now) && !interactive.take_yield_due(), "it was long ago");
    }
}
