//! The timestamps option of a connection (RFC 7323, sections 3 to 5).

use units::{Duration, Instant};
use wire::tcp::Timestamps;

/// Tick of the timestamp clock (RFC 7323, section 5.4: between a millisecond and a second).
const TICK: Duration = Duration::from_millis(1);

/// Number of ticks by which a timestamp may be older than the latest, as in Linux: the processors
/// of some hosts have separate clocks. Far less than the lifetime of a segment.
const TICKS_BACK: i32 = 1;

/// Silence after which the peer's clock may have wrapped (RFC 7323, section 5.5).
const RECENT_MAX: Duration = Duration::from_secs(24 * 24 * 3600);

/// Our clock and the peer's latest timestamp.
#[derive(Debug, Clone)]
pub(crate) struct TimestampClock {
    /// Random per connection, so that timestamps do not reveal the host's uptime (RFC 7323, section
    /// 7.1).
    offset: u32,
    /// Timestamp to echo, and its arrival time: TS.Recent.
    recent: Option<(u32, Instant)>,
}

impl TimestampClock {
    pub(crate) const fn new(offset: u32) -> Self {
        Self { offset, recent: None }
    }

    /// Returns the timestamps of a segment that leaves now.
    pub(crate) fn stamp(&self, now: Instant) -> Timestamps {
        Timestamps { value: self.value(now), echo: self.recent.map_or(0, |(value, _)| value) }
    }

    fn value(&self, now: Instant) -> u32 {
        ((now.as_nanos() / TICK.as_nanos()) as u32).wrapping_add(self.offset)
    }

    /// Returns the latest possible send time of the segment that the peer echoes: the end of the
    /// tick, and not after `now`. Returns `None` if the echo is none of ours, or older than half
    /// the clock's period.
    pub(crate) fn echoed(&self, now: Instant, echo: u32) -> Option<Instant> {
        let age_ticks = self.value(now).wrapping_sub(echo);
        if echo == 0 || age_ticks > u32::MAX / 2 {
            return None;
        }
        let tick = (now.as_nanos() / TICK.as_nanos()).checked_sub(age_ticks.into())?;
        let end = Instant::from_nanos((tick + 1) * TICK.as_nanos() - 1);
        Some(end.min(now))
    }

    /// Returns whether a segment with this timestamp is an old duplicate (RFC 7323, section 5.3,
    /// R1).
    ///
    /// Nothing is older than a timestamp of zero: some hosts send zero in their SYNs, and start
    /// their clock anywhere after that. All of their segments could look old for weeks.
    pub(crate) fn is_old(&self, now: Instant, value: u32) -> bool {
        self.is_older(now, value, TICKS_BACK)
    }

    /// Returns whether a SYN with this timestamp is older than the latest segment (RFC 6191,
    /// section 2).
    pub(crate) fn is_syn_old(&self, now: Instant, value: u32) -> bool {
        self.is_older(now, value, 0)
    }

    fn is_older(&self, now: Instant, value: u32, ticks: i32) -> bool {
        self.recent.is_some_and(|(recent, at)| {
            recent != 0 && (value.wrapping_sub(recent) as i32) < -ticks && now.saturating_since(at) < RECENT_MAX
        })
    }

    /// Returns whether a segment with this timestamp was sent after all those received.
    pub(crate) fn is_new(&self, now: Instant, value: u32) -> bool {
        let is_stale = |at| now.saturating_since(at) >= RECENT_MAX;
        self.recent.is_some_and(|(recent, at)| (value.wrapping_sub(recent) as i32) > 0 || is_stale(at))
    }

    /// Records the timestamp of a segment that begins at or before the last acknowledged position
    /// (RFC 7323, section 4.3).
    pub(crate) fn update(&mut self, now: Instant, value: u32) {
        if self.recent.is_none_or(|(recent, at)| {
            recent == 0 || (value.wrapping_sub(recent) as i32) >= 0 || now.saturating_since(at) >= RECENT_MAX
        }) {
            self.recent = Some((value, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn an_echo_tells_when_the_segment_was_sent() {
        for offset in [0, 7, u32::MAX - 3] {
            let clock = TimestampClock::new(offset);
            let value = clock.stamp(at(20)).value;
            let end = Instant::from_nanos(at(21).as_nanos() - 1);
            assert_eq!(clock.echoed(at(65), value), Some(end), "{offset}");
            assert_eq!(clock.echoed(at(20), value), Some(at(20)), "{offset}");
            assert_eq!(clock.echoed(at(19), value), None, "from the future");
        }
        assert_eq!(TimestampClock::new(0).echoed(at(65), 1 << 30), None, "before the start");
    }

    #[test]
    fn an_older_timestamp_is_an_old_duplicate_for_some_weeks() {
        let mut clock = TimestampClock::new(0);
        assert!(!clock.is_old(at(0), 5), "none was received");
        clock.update(at(0), u32::MAX);
        clock.update(at(0), 3);
        assert_eq!(clock.stamp(at(0)).echo, 3);
        clock.update(at(0), 2);
        assert_eq!(clock.stamp(at(0)).echo, 3);
        assert!(clock.is_old(at(0), 1) && !clock.is_old(at(0), 2) && !clock.is_old(at(0), 3));
        assert!(!clock.is_old(Instant::ZERO + RECENT_MAX, 1));
    }

    #[test]
    fn a_timestamp_of_zero_makes_no_other_one_old() {
        for first in [1, 1 << 31, (1 << 31) + 1, u32::MAX] {
            let mut clock = TimestampClock::new(0);
            clock.update(at(0), 0);
            assert!(!clock.is_old(at(0), first), "{first}");
            clock.update(at(0), first);
            assert_eq!(clock.stamp(at(0)).echo, first);
            assert!(clock.is_old(at(0), first.wrapping_sub(2)), "{first}");
        }
    }
}
