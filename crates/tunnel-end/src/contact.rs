//! How long a connection exists, and when something arrived on it last.

use std::sync::{Mutex, PoisonError};

use net::MonotonicClock;
use units::{Duration, Instant};

/// The latest contact with a peer, by samples of the bytes that have come from it: it is known to the time between two.
/// Peers that send nothing else answer a PING every 2 s.
#[derive(Debug)]
pub(crate) struct Contact {
    /// Begins with the connection.
    clock: MonotonicClock,
    latest: Mutex<Latest>,
}

#[derive(Debug, Default)]
struct Latest {
    bytes_received: u64,
    at: Instant,
}

impl Default for Contact {
    fn default() -> Self {
        Self { clock: MonotonicClock::start(), latest: Mutex::default() }
    }
}

impl Contact {
    /// So many bytes have come in all. Returns how long ago the latest did.
    pub(crate) fn note(&self, bytes_received: u64) -> Duration {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.note(self.clock.now(), bytes_received)
    }

    /// How long the connection exists.
    pub(crate) fn age(&self) -> Duration {
        self.clock.now().saturating_since(Instant::ZERO)
    }
}

impl Latest {
    fn note(&mut self, now: Instant, bytes_received: u64) -> Duration {
        if bytes_received != self.bytes_received {
            *self = Self { bytes_received, at: now };
        }
        now.saturating_since(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_contact_is_when_bytes_came_last() {
        let (mut latest, at) = (Latest::default(), |s| Instant::ZERO + Duration::from_secs(s));
        assert_eq!(latest.note(at(1), 0), Duration::from_secs(1), "since the connection began");
        assert_eq!(latest.note(at(5), 10), Duration::ZERO);
        assert_eq!(latest.note(at(9), 10), Duration::from_secs(4));
        // The path that carried most is gone, and its bytes with it.
        assert_eq!(latest.note(at(10), 7), Duration::ZERO);
    }
}
