//! The chain of queue, line, faults and flight, controlled by a schedule.

mod steps;

use units::{Instant, Rng};

use crate::codel::Control;
use crate::config::LinkConfig;
use crate::faults::Faults;
use crate::flight::Flight;
use crate::line::Line;
use crate::packet::Packet;
use crate::queue::{Queue, Waiting};
use crate::schedule::{Cursor, LineState};
use crate::stats::LinkStats;

/// Largest number of packets in one link: waiting, in transmission and in propagation. Further
/// packets overflow.
///
/// 2^20 packets of 1250 bytes are 100 Gb/s over 100 ms. This bounds the memory of a link without a
/// rate, whose delay alone could hold any number of packets.
pub const PACKETS_HELD_MAX: usize = 1 << 20;

/// One direction of a link.
///
/// The calls that take `now` ([`send`](Self::send), [`set_config`](Self::set_config) and
/// [`poll_deliver`](Self::poll_deliver)) must be made in the order of time. After each `send` or
/// `set_config`, call [`poll_timeout`](Self::poll_timeout) for the time of the next `poll_deliver`;
/// at that time call `poll_deliver` until it returns `None`. Late calls change no arrival: the link
/// processes each event as of its time. The same holds for the changes of a
/// [schedule](LinkConfig::schedule), which need no call. A long time without calls costs no time
/// for repeating changes while the link is empty.
///
/// Events in the same nanosecond are processed in this order: departure from the line, changes of
/// the schedule, start of the next packet, packets sent.
///
/// ```
/// use netem::{Link, LinkConfig};
/// use units::{Duration, Instant, Rate, Rng};
///
/// let config = LinkConfig {
///     rate: Some(Rate::from_mbps(8)),
///     delay: Duration::from_millis(10),
///     ..LinkConfig::default()
/// };
/// let mut link = Link::new(config, Rng::from_seed(1));
/// link.send(Instant::ZERO, vec![7_u8; 1000]);
/// // A thousand bytes at a megabyte per second, then the delay.
/// let arrival = Instant::ZERO + Duration::from_millis(11);
/// assert_eq!(link.poll_timeout(), Some(arrival));
/// assert_eq!(link.poll_deliver(arrival), Some(vec![7; 1000]));
/// ```
#[derive(Clone, Debug)]
pub struct Link<P> {
    /// The current settings.
    config: LinkConfig,
    /// The next change of the schedule.
    cursor: Cursor,
    /// The limit of the queue in bytes, from the current settings.
    queue_bytes_max: u64,
    queue: Queue<P>,
    codel: Control,
    line: Line<P>,
    /// Start of the transmission of the packet on the line.
    on_line_since: Instant,
    /// Whether the packet on the line is dropped at its departure.
    drops_on_departure: bool,
    faults: Faults,
    /// The value of [`LinkConfig::has_faults`] for the current settings: most links have none.
    has_faults: bool,
    /// Time of the latest arrival so far, before which no packet arrives under jitter that keeps
    /// order.
    order_floor: Instant,
    flight: Flight<P>,
    /// Time before which no event for [`advance`](Self::advance) occurs, so that most calls return
    /// at once. Zero if it must be recomputed.
    idle_until: Instant,
    /// The result of [`next_arrival_from_line`](Self::next_arrival_from_line) when `idle_until` was
    /// computed.
    arrival_from_line: Option<Instant>,
    stats: LinkStats,
}

impl<P: Packet> Link<P> {
    /// Creates an empty link with its own generator.
    ///
    /// # Panics
    /// If [`LinkConfig::validate`] rejects `config`.
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
            drops_on_departure: false,
            faults: Faults::new(&rng),
            has_faults: config.has_faults(),
            order_floor: Instant::ZERO,
            flight: Flight::new(),
            idle_until: Instant::ZERO,
            arrival_from_line: None,
            stats: LinkStats::default(),
            config,
        }
    }

    /// Changes the settings at `now`. Packets in propagation are not affected, the packet in
    /// transmission departs at its old time, and waiting packets follow the new settings. A queue
    /// above its new limit shrinks by transmission, not by drops.
    ///
    /// A schedule equal to the current one continues at its position: its past changes are not
    /// applied again. A different schedule applies all its changes up to `now` at once, as if it
    /// had been set since the start of the run.
    ///
    /// # Panics
    /// If [`LinkConfig::validate`] rejects `config`.
    pub fn set_config(&mut self, now: Instant, mut config: LinkConfig) {
        assert_valid(&config);
        self.advance(now);
        if config.schedule != self.config.schedule {
            self.cursor = match config.schedule.clone() {
                Some(schedule) => schedule.apply_until(now, &mut config),
                None => Cursor::start(),
            };
        }
        self.apply_config(now, config);
    }

    /// Sends a packet at `now`. It may overflow the queue or be dropped by a silent outage, as
    /// counted in [`stats`](Self::stats).
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
        let fits = !must_wait || self.queue.has_space(line_bytes, self.queue_bytes_max);
        if !fits || self.held() >= PACKETS_HELD_MAX {
            self.stats.overflowed += 1;
            return;
        }
        self.queue.push(Waiting { since: now, line_bytes, packet });
        if self.line.is_idle() {
            // An idle line takes the packet at once, so it does not count as waiting.
            self.idle_until = Instant::ZERO;
            self.advance(now);
        }
        self.stats.queue_bytes_max = self.stats.queue_bytes_max.max(self.queue.bytes());
    }

    /// Returns the next packet that has arrived by `now`, in the order of arrival; at equal times
    /// in the order of departure.
    #[must_use]
    #[inline]
    pub fn poll_deliver(&mut self, now: Instant) -> Option<P> {
        self.advance(now);
        let packet = self.flight.pop(now)?;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += packet.len_bytes() as u64;
        Some(packet)
    }

    /// Returns the time of the next [`poll_deliver`](Self::poll_deliver): no packet arrives before.
    /// There may be none at that time, because the packet in transmission may be lost or delayed
    /// and the schedule may change the settings; then call this again. `None` if no packet will
    /// arrive without another call: the link is empty, or its line is held and no scheduled change
    /// resumes it.
    #[must_use]
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let is_known = self.idle_until != Instant::ZERO;
        debug_assert!(
            !is_known || self.arrival_from_line == self.next_arrival_from_line(),
            "the cached arrival is stale"
        );
        let arrival_from_line = if is_known { self.arrival_from_line } else { self.next_arrival_from_line() };
        match (self.flight.next_arrival(), arrival_from_line) {
            (Some(arrival), Some(arrival_from_line)) => Some(arrival.min(arrival_from_line)),
            (arrival, arrival_from_line) => arrival.or(arrival_from_line),
        }
    }

    /// Processes all events up to `now` without delivering packets, so that the counters are
    /// current.
    pub fn catch_up(&mut self, now: Instant) {
        self.advance(now);
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// Returns the current settings, including scheduled changes up to the last call that took the
    /// time.
    pub const fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Returns the number of packets in the link (waiting, in transmission and in propagation) as
    /// of the last call that took the time. It is at most [`PACKETS_HELD_MAX`].
    pub fn held(&self) -> usize {
        self.queue.len() + usize::from(!self.line.is_idle()) + self.flight.len()
    }

    /// Returns the bytes that wait for the line, including overhead, as of the last call that took
    /// the time.
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
