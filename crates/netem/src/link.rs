//! The chain: queue, line, faults, flight, under a schedule.

mod steps;

use units::{Instant, Rng};

use crate::codel::Control;
use crate::faults::Faults;
use crate::flight::Flight;
use crate::line::Line;
use crate::queue::{Queue, Waiting};
use crate::schedule::Cursor;
use crate::{LineState, LinkConfig, LinkStats, Packet};

/// Packets that one link holds at most: waiting, on the line and in flight. More overflow.
///
/// 2^20 packets of 1250 bytes are 100 Gb/s over 100 ms. It bounds the memory of a link without a rate, whose delay alone
/// could hold any number.
pub const PACKETS_HELD_MAX: usize = 1 << 20;

/// One direction of a link.
///
/// Calls that take `now`, [`send`](Self::send), [`set_config`](Self::set_config) and
/// [`poll_deliver`](Self::poll_deliver), must be made in the order of time. After each `send` or `set_config`, ask
/// [`poll_timeout`](Self::poll_timeout) when to come back; at that time call `poll_deliver` until it returns `None`. Late
/// calls change no arrival: the link works out what happened meanwhile as of when it happened. So it is with the changes
/// of a [schedule](LinkConfig::schedule), for which nobody needs to call; a long silence costs no time for those that
/// repeat while the link is empty.
///
/// Of what happens in one nanosecond, a packet leaves the line first; then the schedule makes its changes; then the next
/// packet starts, and then packets are offered.
///
/// ```
/// use netem::{Link, LinkConfig};
/// use units::{Duration, Instant, Rate, Rng};
///
/// let config =
///     LinkConfig { rate: Some(Rate::from_mbps(8)), delay: Duration::from_millis(10), ..LinkConfig::default() };
/// let mut link = Link::new(config, Rng::from_seed(1));
/// link.send(Instant::ZERO, vec![7_u8; 1000]);
/// // A thousand bytes at a megabyte a second, then the delay.
/// let arrival = Instant::ZERO + Duration::from_millis(11);
/// assert_eq!(link.poll_timeout(), Some(arrival));
/// assert_eq!(link.poll_deliver(arrival), Some(vec![7; 1000]));
/// ```
#[derive(Clone, Debug)]
pub struct Link<P> {
    /// The settings in force.
    config: LinkConfig,
    /// The next change of the schedule.
    cursor: Cursor,
    /// The bound of the queue in bytes, as the settings in force say.
    queue_bytes_max: u64,
    queue: Queue<P>,
    codel: Control,
    line: Line<P>,
    /// Since when the packet on the line is there.
    on_line_since: Instant,
    /// Whether the packet on the line vanishes at its end.
    is_doomed: bool,
    faults: Faults,
    /// [`LinkConfig::has_faults`] of the settings in force: most links have none.
    has_faults: bool,
    /// No packet that keeps its turn arrives before: the last arrival under jitter that keeps order.
    turn: Instant,
    flight: Flight<P>,
    /// Before this time nothing happens that [`advance`](Self::advance) would have to do: most calls find nothing. Zero if that is
    /// to be worked out.
    idle_until: Instant,
    /// What [`next_from_line`](Self::next_from_line) says, as of when `idle_until` was worked out.
    from_line: Option<Instant>,
    stats: LinkStats,
}

impl<P: Packet> Link<P> {
    /// An empty link with its own generator.
    ///
    /// # Panics
    /// If [`LinkConfig::validate`] refuses `config`.
    pub fn new(config: LinkConfig, rng: Rng) -> Self {
        assert_valid(&config);
        let mut line = Line::new(config.rate, config.trace.as_ref());
        if config.state == LineState::Held {
            line.stop(Instant::ZERO);
        }
        Self {
            cursor: Cursor::start(),
            queue_bytes_max: config.queue_bytes_max(),
            queue: Queue::new(),
            codel: Control::default(),
            line,
            on_line_since: Instant::ZERO,
            is_doomed: false,
            faults: Faults::new(&rng),
            has_faults: config.has_faults(),
            turn: Instant::ZERO,
            flight: Flight::new(),
            idle_until: Instant::ZERO,
            from_line: None,
            stats: LinkStats::default(),
            config,
        }
    }

    /// Changes the settings as of `now`. What is in flight stays as it is, the packet on the line leaves when it would
    /// have, and what waits goes by the new settings; a queue that is now too long shrinks by itself, not by dropping.
    ///
    /// A schedule equal to the one in force goes on where it is: what it has changed so far is not changed again. Another
    /// one makes all its changes up to `now` at once, as if it had been in force since the run began.
    ///
    /// # Panics
    /// If [`LinkConfig::validate`] refuses `config`.
    pub fn set_config(&mut self, now: Instant, mut config: LinkConfig) {
        assert_valid(&config);
        self.advance(now);
        if config.schedule != self.config.schedule {
            self.cursor = match config.schedule.clone() {
                Some(schedule) => schedule.apply_until(now, &mut config),
                None => Cursor::start(),
            };
        }
        self.put_in_force(now, config);
    }

    /// Offers a packet at `now`. It may overflow the queue or vanish; [`stats`](Self::stats) tells.
    pub fn send(&mut self, now: Instant, packet: P) {
        self.advance(now);
        let bytes = packet.len_bytes() as u64;
        self.stats.offered += 1;
        self.stats.offered_bytes += bytes;
        if self.config.state == LineState::Silent {
            self.stats.vanished += 1;
            return;
        }
        let line_bytes = bytes.saturating_add(self.config.overhead_bytes);
        let must_wait = !self.line.is_idle() || !self.queue.is_empty();
        let has_room = !must_wait || self.queue.has_room(line_bytes, self.queue_bytes_max);
        if !has_room || self.held() >= PACKETS_HELD_MAX {
            self.stats.overflowed += 1;
            return;
        }
        self.queue.push(Waiting { since: now, line_bytes, packet });
        if self.line.is_idle() {
            // It takes the packet at once, and then that has not waited.
            self.idle_until = Instant::ZERO;
            self.advance(now);
        }
        self.stats.queue_bytes_max = self.stats.queue_bytes_max.max(self.queue.bytes());
    }

    /// The next packet that has arrived by `now`, in the order of arrival; equal times in the order of departure.
    #[must_use]
    #[inline]
    pub fn poll_deliver(&mut self, now: Instant) -> Option<P> {
        self.advance(now);
        let packet = self.flight.pop(now)?;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += packet.len_bytes() as u64;
        Some(packet)
    }

    /// When to call [`poll_deliver`](Self::poll_deliver) next: no packet arrives before. The packet on the line may still
    /// vanish or be late, and the schedule may change what is expected, so sometimes nothing comes then; ask again. `None`
    /// if nothing will arrive without another call: the link is empty, or its line is held and no scheduled change lets it
    /// go on.
    #[must_use]
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let is_known = self.idle_until != Instant::ZERO;
        debug_assert!(!is_known || self.from_line == self.next_from_line(), "nothing has happened since");
        let from_line = if is_known { self.from_line } else { self.next_from_line() };
        match (self.flight.next_arrival(), from_line) {
            (Some(arrival), Some(from_line)) => Some(arrival.min(from_line)),
            (arrival, from_line) => arrival.or(from_line),
        }
    }

    /// Does what happens by `now` but for handing out what has arrived: the counters are those of this moment then.
    pub fn catch_up(&mut self, now: Instant) {
        self.advance(now);
    }

    /// The counters.
    pub const fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// The settings in force, as the schedule has changed them by the last call that took the time.
    pub const fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Packets in the link: waiting, on the line and in flight, as of the last call that took the time. At most
    /// [`PACKETS_HELD_MAX`].
    pub fn held(&self) -> usize {
        self.queue.len() + usize::from(!self.line.is_idle()) + self.flight.len()
    }

    /// Bytes that wait for the line, overhead included, as of the last call that took the time.
    pub const fn queue_bytes(&self) -> u64 {
        self.queue.bytes()
    }
}

fn assert_valid(config: &LinkConfig) {
    if let Err(error) = config.validate() {
        panic!("{error}: {config:?}");
    }
}

#[cfg(test)]
mod tests;
