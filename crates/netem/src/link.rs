//! The chain: queue, line, faults, flight.

use units::{Instant, Rng};

use crate::faults::Faults;
use crate::flight::Flight;
use crate::line::Line;
use crate::queue::{Queue, Waiting};
use crate::{LinkConfig, LinkStats, Packet};

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
/// calls change no arrival: the link works out what happened meanwhile as of when it happened.
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
    config: LinkConfig,
    queue: Queue<P>,
    line: Line<P>,
    faults: Faults,
    flight: Flight<P>,
    stats: LinkStats,
}

impl<P: Packet> Link<P> {
    /// An empty link with its own generator.
    ///
    /// # Panics
    /// If [`LinkConfig::validate`] refuses `config`.
    pub fn new(config: LinkConfig, rng: Rng) -> Self {
        assert_valid(&config);
        Self {
            queue: Queue::new(),
            line: Line::new(config.rate),
            faults: Faults::new(&rng),
            flight: Flight::new(),
            stats: LinkStats::default(),
            config,
        }
    }

    /// Changes the settings as of `now`. What is in flight stays as it is, the packet on the line leaves when it would
    /// have, and what waits goes by the new settings; a queue that is now too long shrinks by itself, not by dropping.
    ///
    /// # Panics
    /// If [`LinkConfig::validate`] refuses `config`.
    pub fn set_config(&mut self, now: Instant, config: LinkConfig) {
        assert_valid(&config);
        self.advance(now);
        self.line.set_rate(config.rate);
        self.config = config;
    }

    /// Offers a packet at `now`. It may overflow the queue or vanish; [`stats`](Self::stats) tells.
    pub fn send(&mut self, now: Instant, packet: P) {
        self.advance(now);
        let bytes = packet.len_bytes() as u64;
        self.stats.offered += 1;
        self.stats.offered_bytes += bytes;
        let line_bytes = bytes.saturating_add(self.config.overhead_bytes);
        let must_wait = !self.line.is_idle() || !self.queue.is_empty();
        let has_room = !must_wait || self.queue.has_room(line_bytes, self.config.queue_bytes);
        if !has_room || self.held() >= PACKETS_HELD_MAX {
            self.stats.overflowed += 1;
            return;
        }
        self.queue.push(Waiting { since: now, line_bytes, packet });
        // An idle line takes it at once, and then it has not waited.
        self.advance(now);
        self.stats.queue_bytes_max = self.stats.queue_bytes_max.max(self.queue.bytes());
    }

    /// The next packet that has arrived by `now`, in the order of arrival; equal times in the order of departure.
    #[must_use]
    pub fn poll_deliver(&mut self, now: Instant) -> Option<P> {
        self.advance(now);
        let packet = self.flight.pop(now)?;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += packet.len_bytes() as u64;
        Some(packet)
    }

    /// When to call [`poll_deliver`](Self::poll_deliver) next: no packet arrives before. The packet on the line may still
    /// vanish or be late, so sometimes nothing comes then; ask again. `None` if the link is empty.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let from_line = self.line.departure().map(|departure| departure + self.config.delay);
        self.flight.next_arrival().into_iter().chain(from_line).min()
    }

    /// The counters.
    pub const fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// The settings in force.
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

    /// Lets pass what has passed by `now`: at most one step a packet held, and two a packet over its life.
    fn advance(&mut self, now: Instant) {
        loop {
            match self.line.departure() {
                Some(departure) if departure <= now => {
                    if let Some(packet) = self.line.finish() {
                        self.leave_line(departure, packet);
                    }
                }
                Some(_) => return,
                None => {
                    let Some(waiting) = self.queue.pop() else { return };
                    self.line.start(waiting.since, waiting.line_bytes, waiting.packet);
                }
            }
        }
    }

    /// The faults, which happen behind the line: a lost packet has used it, a copy does not.
    fn leave_line(&mut self, departure: Instant, packet: P) {
        // Both are drawn for every packet, so that more loss does not decide which packets are copied.
        let lost = self.faults.loss.chance(self.config.loss);
        let duplicated = self.faults.duplicate.chance(self.config.duplicate);
        if lost {
            self.stats.lost += 1;
            return;
        }
        let copy = (duplicated && self.held() + 1 < PACKETS_HELD_MAX).then(|| packet.duplicate());
        self.take_off(departure, packet);
        if let Some(copy) = copy {
            self.stats.duplicated += 1;
            self.take_off(departure, copy);
        }
    }

    fn take_off(&mut self, departure: Instant, mut packet: P) {
        if self.faults.corrupt.chance(self.config.corrupt) && packet.len_bytes() > 0 {
            packet.corrupt(&mut self.faults.corrupt_where);
            self.stats.corrupted += 1;
        }
        let arrival = departure + self.config.delay;
        if self.faults.reorder.chance(self.config.reorder) {
            self.stats.reordered += 1;
            self.flight.push_late(arrival + self.config.reorder_by, packet);
        } else {
            self.flight.push(arrival, packet);
        }
    }
}

fn assert_valid(config: &LinkConfig) {
    if let Err(error) = config.validate() {
        panic!("{error}: {config:?}");
    }
}

#[cfg(test)]
mod tests;
