//! What can be set on a link.

mod error;

use units::{Duration, Instant, Rate, Ratio};

use crate::{BurstLoss, CoDel, Jitter, LineState, Schedule, Trace};

pub use error::ConfigError;

/// The settings of one direction of a link. The default is a perfect wire: no limit, no delay, no faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// What the line carries, [`overhead_bytes`](Self::overhead_bytes) included. `None` is a line that takes no time, or one
    /// with a [`trace`](Self::trace). Default: `None`.
    pub rate: Option<Rate>,
    /// A recording of what the line carries, in place of a rate. Default: `None`.
    pub trace: Option<Trace>,
    /// From the moment the last bit has left until it arrives. Default: zero.
    ///
    /// A shorter delay set during a run lets later packets overtake earlier ones, as a shorter route does.
    pub delay: Duration,
    /// How the delay varies from packet to packet. Default: not at all.
    pub jitter: Option<Jitter>,
    /// Share of packets that vanish. They vanish behind the line, so they have used it. Default: none.
    pub loss: Ratio,
    /// Loss in bursts, beside [`loss`](Self::loss) and independent of it; behind the line, too. Default: none.
    pub burst_loss: Option<BurstLoss>,
    /// Share of packets that arrive later than their turn, by [`reorder_by`](Self::reorder_by). Default: none.
    pub reorder: Ratio,
    /// How much later a reordered packet arrives. Default: zero.
    pub reorder_by: Duration,
    /// Share of packets that arrive twice. The copy is made behind the line and does not use it; it may be corrupted or
    /// reordered like any other. Default: none.
    pub duplicate: Ratio,
    /// Share of packets that arrive with a fault in them. Default: none.
    pub corrupt: Ratio,
    /// Bytes that may wait for the line, overhead included, without the packet that is on it. Default: 1 MiB, which is
    /// 84 ms at 100 Mb/s. A packet that finds too little room is dropped.
    ///
    /// One packet may always wait, so that something passes where the line takes nothing at once: while it is
    /// [held](LineState::Held), and between the opportunities of a trace.
    pub queue_bytes: u64,
    /// The bound in time, in place of `queue_bytes`: what the rate, or the mean rate of the trace, carries in this time.
    /// It follows the rate when that changes. Default: `None`.
    pub queue_delay: Option<Duration>,
    /// Which packets the queue drops. The bound in bytes holds for each. Default: [`Discipline::DropTail`].
    pub discipline: Discipline,
    /// Bytes that each packet costs on the line above its own length: 28 for IPv4 and UDP around a UDP payload, 0 where
    /// packets carry their headers. Default: 0.
    pub overhead_bytes: u64,
    /// Whether the link works. Default: [`LineState::Up`].
    pub state: LineState,
    /// Changes of these settings in time. Default: none.
    pub schedule: Option<Schedule>,
}

/// Which packets a queue drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// Those that find it full.
    #[default]
    DropTail,
    /// Also some of those that waited too long, when they reach the line.
    CoDel(CoDel),
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate: None,
            trace: None,
            delay: Duration::ZERO,
            jitter: None,
            loss: Ratio::ZERO,
            burst_loss: None,
            reorder: Ratio::ZERO,
            reorder_by: Duration::ZERO,
            duplicate: Ratio::ZERO,
            corrupt: Ratio::ZERO,
            queue_bytes: 1 << 20,
            queue_delay: None,
            discipline: Discipline::DropTail,
            overhead_bytes: 0,
            state: LineState::Up,
            schedule: None,
        }
    }
}

impl LinkConfig {
    /// Whether these settings describe a link, now and after each change of the [`schedule`](Self::schedule). Linear in the
    /// length of that.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_now()?;
        let Some(schedule) = &self.schedule else { return Ok(()) };
        let mut config = Self { schedule: None, ..self.clone() };
        // One round is enough: what a change sets is valid or not beside settings that no change can touch.
        for (index, (_, change)) in schedule.changes().iter().enumerate() {
            change.apply(&mut config);
            config.validate_now().map_err(|error| ConfigError::Scheduled { index, error: Box::new(error) })?;
        }
        Ok(())
    }

    fn validate_now(&self) -> Result<(), ConfigError> {
        let fails = [
            (self.rate.is_some_and(Rate::is_zero), ConfigError::ZeroRate),
            (self.rate.is_some() && self.trace.is_some(), ConfigError::RateAndTrace),
            (self.jitter.is_some_and(|jitter| !jitter.is_valid()), ConfigError::Jitter),
            (self.burst_loss.is_some_and(|loss| !loss.is_valid()), ConfigError::BurstLoss),
            (!self.reorder.is_zero() && self.reorder_by.is_zero(), ConfigError::ReorderedByNothing),
            (self.queue_delay.is_some() && self.line_rate().is_none(), ConfigError::QueueDelayWithoutRate),
            (matches!(self.discipline, Discipline::CoDel(codel) if !codel.is_valid()), ConfigError::CoDel),
        ];
        fails.into_iter().find_map(|(fails, error)| fails.then_some(error)).map_or(Ok(()), Err)
    }

    /// The bound of the queue in bytes: [`queue_bytes`](Self::queue_bytes), or what [`queue_delay`](Self::queue_delay) means
    /// at the rate.
    pub fn queue_bytes_max(&self) -> u64 {
        match (self.queue_delay, self.line_rate()) {
            (Some(delay), Some(rate)) => rate.bytes_in(delay),
            _ => self.queue_bytes,
        }
    }

    /// These settings as the schedule has changed them by `now`: a pure function of time.
    #[must_use]
    pub fn in_force_at(&self, now: Instant) -> Self {
        let mut config = self.clone();
        if let Some(schedule) = &self.schedule {
            schedule.apply_until(now, &mut config);
        }
        config
    }

    /// Whether anything but the delay may happen to a packet behind the line.
    pub(crate) fn has_faults(&self) -> bool {
        let shares = [self.loss, self.reorder, self.duplicate, self.corrupt];
        self.jitter.is_some() || self.burst_loss.is_some() || shares.iter().any(|share| !share.is_zero())
    }

    fn line_rate(&self) -> Option<Rate> {
        self.rate.or_else(|| self.trace.as_ref().map(Trace::mean_rate))
    }
}

#[cfg(test)]
mod tests;
