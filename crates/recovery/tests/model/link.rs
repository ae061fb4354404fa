//! The bottleneck: a rate, a delay, a drop-tail queue, and optional impairments.

use std::collections::VecDeque;

use units::{Duration, Instant, Rate, Ratio, Rng};

/// The bottleneck.
pub(crate) struct Link {
    rate: Rate,
    one_way: Duration,
    queue_bytes_max: u64,
    /// Interval in which sent packets are lost; acknowledgements are not.
    outage: Option<(Instant, Instant)>,
    /// Times, in order, at each of which the next packet is lost.
    drop_next_at: VecDeque<Instant>,
    /// Times, in order, from each of which on the link has that rate.
    rate_changes: VecDeque<(Instant, Rate)>,
    random_loss: Ratio,
    rng: Rng,
    /// Interval at whose multiples aggregated acknowledgements arrive.
    ack_slot: Option<Duration>,
    busy_until: Instant,
    pub(crate) overflowed: u64,
    pub(crate) dropped_on_purpose: u64,
    pub(crate) queue_bytes_peak: u64,
    /// Sums over the offered packets: bytes that each found queued, and packets.
    queued_sum: u64,
    offered: u64,
}

impl Link {
    /// Creates a link with a queue of `queue_percent` of its bandwidth-delay product.
    pub(crate) fn new(rate: Rate, round_trip: Duration, queue_percent: u64) -> Self {
        Self {
            rate,
            one_way: round_trip / 2,
            queue_bytes_max: rate.bytes_in(round_trip) * queue_percent / 100,
            outage: None,
            drop_next_at: VecDeque::new(),
            rate_changes: VecDeque::new(),
            random_loss: Ratio::ZERO,
            rng: Rng::from_seed(0),
            ack_slot: None,
            busy_until: Instant::ZERO,
            overflowed: 0,
            dropped_on_purpose: 0,
            queue_bytes_peak: 0,
            queued_sum: 0,
            offered: 0,
        }
    }

    pub(crate) fn with_outage(mut self, from: Instant, until: Instant) -> Self {
        self.outage = Some((from, until));
        self
    }

    pub(crate) fn losing_one_packet_at(mut self, times: &[Instant]) -> Self {
        self.drop_next_at = times.iter().copied().collect();
        self
    }

    pub(crate) fn losing_at_random(mut self, ratio: Ratio, seed: u64) -> Self {
        (self.random_loss, self.rng) = (ratio, Rng::from_seed(seed));
        self
    }

    /// Changes the rate at these times. The queue keeps its size in bytes. Data queued at the
    /// change still leaves at the old rate, and packets that arrive later wait accordingly.
    pub(crate) fn changing_rate(mut self, changes: &[(Instant, Rate)]) -> Self {
        self.rate_changes = changes.iter().copied().collect();
        self
    }

    pub(crate) fn aggregating_acks(mut self, slot: Duration) -> Self {
        self.ack_slot = Some(slot);
        self
    }

    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns the bandwidth-delay product in bytes: the data that fits into the link without a
    /// queue.
    pub(crate) fn bdp(&self) -> u64 {
        self.rate.bytes_in(self.one_way * 2)
    }

    /// Returns the average queue found by packets since the last call, in bytes.
    pub(crate) fn take_mean_queue(&mut self) -> u64 {
        let mean = self.queued_sum / self.offered.max(1);
        (self.queued_sum, self.offered) = (0, 0);
        mean
    }

    fn backlog(&self, now: Instant) -> u64 {
        self.rate.bytes_in(self.busy_until.saturating_since(now))
    }

    fn change_rate(&mut self, now: Instant) {
        while let Some(&(at, rate)) = self.rate_changes.front()
            && at <= now
        {
            let backlog = self.backlog(at);
            self.rate = rate;
            self.busy_until = at + rate.time_for(backlog);
            self.rate_changes.pop_front();
        }
    }

    /// Returns the time at which a packet offered now is acknowledged; `None` if it is lost.
    pub(crate) fn offer(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        self.change_rate(now);
        if self.drop_next_at.front().is_some_and(|&at| at <= now) {
            self.drop_next_at.pop_front();
            self.dropped_on_purpose += 1;
            return None;
        }
        let out = self.outage.is_some_and(|(from, until)| (from..until).contains(&now));
        if out || self.rng.chance(self.random_loss) {
            self.dropped_on_purpose += 1;
            return None;
        }
        let backlog = self.backlog(now);
        self.queued_sum += backlog;
        self.offered += 1;
        if backlog + bytes > self.queue_bytes_max {
            self.overflowed += 1;
            return None;
        }
        self.queue_bytes_peak = self.queue_bytes_peak.max(backlog + bytes);
        self.busy_until = self.busy_until.max(now) + self.rate.time_for(bytes);
        let acked_at = self.busy_until + self.one_way * 2;
        let Some(slot) = self.ack_slot else { return Some(acked_at) };
        Some(Instant::from_nanos(acked_at.as_nanos().next_multiple_of(slot.as_nanos())))
    }
}
