//! The lifetime of tickets by a clock that may be wrong: hosts without a battery begin in 1970 and are
//! set later, and clocks are set back.
//!
//! A ticket is valid for a span from its issue, by the clock of its receiver alone. A clock that
//! was certainly wrong at issue or now cannot tell the age of a ticket. Then its span restarts, so
//! a ticket is never expired when it is issued, and never valid for years because the clock was
//! ahead.

use super::Issued;

impl Issued {
    /// Returns whether a sender may still use the ticket at `now_unix`.
    #[must_use]
    pub fn is_usable(&self, now_unix: u64) -> bool {
        !self.completed && !self.is_expired(now_unix)
    }

    /// Returns whether the ticket's lifetime is over at `now_unix`. It is not over if the clock was
    /// certainly wrong, now or when the ticket was issued.
    #[must_use]
    pub fn is_expired(&self, now_unix: u64) -> bool {
        now_unix >= self.expires_unix && !self.is_clock_set(now_unix)
    }

    /// Restarts the lifetime if the clock was set so that the ticket's age is unknown.
    pub(super) fn follow_clock(&mut self, now_unix: u64) {
        if let Some(issued) = self.issued_unix.filter(|_| self.is_clock_set(now_unix)) {
            self.expires_unix = now_unix.saturating_add(self.expires_unix.saturating_sub(issued));
            self.issued_unix = Some(now_unix);
        }
    }

    /// Returns whether the clock was set since the ticket was issued: back, or from a time before
    /// this program to one after it.
    fn is_clock_set(&self, now_unix: u64) -> bool {
        let was_wrong = |issued| issued < CLOCK_MIN_UNIX && now_unix >= CLOCK_MIN_UNIX;
        self.issued_unix.is_some_and(|issued| now_unix < issued || was_wrong(issued))
    }
}

/// The beginning of 2026, in seconds since 1970. This program is younger, so a clock that shows an earlier
/// time is wrong.
pub(super) const CLOCK_MIN_UNIX: u64 = 1_767_225_600;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::store::TicketStore;

    const DAY: u64 = 24 * 60 * 60;

    fn issue(now: u64, lifetime: u64) -> (tempfile::TempDir, TicketStore, Issued) {
        let folder = tempfile::tempdir().unwrap();
        let store = TicketStore::open(folder.path()).unwrap();
        let issued = store.issue(now, Path::new("/in"), 1, now + lifetime).unwrap();
        (folder, store, issued)
    }

    fn usable(store: &TicketStore, now: u64) -> usize {
        store.usable(now, Path::new("/in")).unwrap().len()
    }

    #[test]
    fn no_clock_makes_a_ticket_expired_when_it_is_issued() {
        for now in [0, 1, DAY, CLOCK_MIN_UNIX - 1, CLOCK_MIN_UNIX, 1 << 31, 1 << 33, (1 << 40) - 2 * DAY] {
            let (_folder, store, issued) = issue(now, DAY);
            assert!(issued.is_usable(now) && issued.is_usable(now + DAY - 1), "{now}");
            assert!(!issued.is_usable(now + DAY) || now + DAY >= CLOCK_MIN_UNIX && now < CLOCK_MIN_UNIX, "{now}");
            assert_eq!(usable(&store, now), 1, "{now}");
        }
    }

    #[test]
    fn a_clock_that_is_set_begins_the_lifetime_again_and_once() {
        let (_folder, store, issued) = issue(600, DAY);
        // The time comes from the network.
        let now = CLOCK_MIN_UNIX + 1000 * DAY;
        assert!(!issued.is_expired(now));
        assert_eq!(usable(&store, now), 1);
        let found = store.find(&issued.id).unwrap().unwrap();
        assert_eq!((found.issued_unix, found.expires_unix), (Some(now), now + DAY));
        assert_eq!((usable(&store, now + DAY - 1), usable(&store, now + DAY)), (1, 0));
        // The host begins in 1970 again: the age of the ticket is unknown.
        assert_eq!(usable(&store, 60), 1);
        assert_eq!(usable(&store, now + 5 * DAY), 1);
        assert_eq!(usable(&store, now + 6 * DAY), 0);
    }

    #[test]
    fn a_clock_that_was_ahead_makes_no_ticket_valid_for_years() {
        let now = CLOCK_MIN_UNIX + 1000 * DAY;
        let (_folder, store, _) = issue(now + 5000 * DAY, DAY);
        assert_eq!((usable(&store, now), usable(&store, now + DAY)), (1, 0));
    }
}
