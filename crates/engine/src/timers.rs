//! When which connection wants to be called.

use std::collections::BTreeSet;

use units::Instant;

/// One deadline a connection, ordered; every operation costs the logarithm of their number.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    order: BTreeSet<(Instant, u32)>,
}

impl Timers {
    /// Replaces the deadline `old` of `key`, which the caller remembers, by `new`.
    pub(crate) fn replace(&mut self, key: u32, old: Option<Instant>, new: Option<Instant>) {
        if old == new {
            return;
        }
        if let Some(at) = old {
            self.order.remove(&(at, key));
        }
        if let Some(at) = new {
            self.order.insert((at, key));
        }
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes out one connection whose deadline has come.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        if self.next()? > now {
            return None;
        }
        self.order.pop_first().map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use units::Duration;

    use super::*;

    #[test]
    fn deadlines_fire_in_order_and_only_the_last_one_set() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut timers = Timers::default();
        timers.replace(1, None, Some(at(30)));
        timers.replace(2, None, Some(at(20)));
        timers.replace(3, None, Some(at(20)));
        timers.replace(1, Some(at(30)), Some(at(10)));
        timers.replace(3, Some(at(20)), None);
        assert_eq!((timers.next(), timers.pop_due(at(9))), (Some(at(10)), None));
        assert_eq!(timers.pop_due(at(25)), Some(1));
        assert_eq!(timers.pop_due(at(25)), Some(2));
        assert_eq!((timers.pop_due(at(99)), timers.next()), (None, None));
    }
}
