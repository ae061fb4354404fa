//! The settings of a link.

mod error;

use units::{Duration, Instant, Rate, Ratio};

use crate::bursts::BurstLoss;
use crate::codel::CoDel;
use crate::jitter::Jitter;
use crate::schedule::{LineState, Schedule};
use crate::trace::Trace;

pub use error::ConfigError;

/// The settings of one direction of a link. The default is an ideal link: no rate limit, no delay,
/// no faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// The rate of the line, including [`overhead_bytes`](Self::overhead_bytes). With `None`,
    /// transmission takes no time, or a [`trace`](Self::trace) is set. Default: `None`.
    pub rate: Option<Rate>,
    /// A recorded rate, in place of `rate`. Default: `None`.
    pub trace: Option<Trace>,
    /// Propagation delay, from the departure of the last bit to its arrival. Default: zero.
    ///
    /// If the delay is shortened during a run, later packets overtake earlier ones, as on a shorter
    /// route.
    pub delay: Duration,
    /// Variation of the delay between packets. Default: none.
    pub jitter: Option<Jitter>,
    /// Loss probability. Packets are lost after the line, so they consume its rate. Default: zero.
    pub loss: Ratio,
    /// Loss in bursts, in addition to [`loss`](Self::loss) and independent of it; also after the
    /// line. Default: none.
    pub burst_loss: Option<BurstLoss>,
    /// Probability that a packet is delayed by an additional [`reorder_by`](Self::reorder_by).
    /// Default: zero.
    pub reorder: Ratio,
    /// Additional delay of a reordered packet. Default: zero.
    pub reorder_by: Duration,
    /// Probability that a packet is duplicated. The copy is made after the line and does not
    /// consume its rate. It may be corrupted or reordered like any other packet. Default: zero.
    pub duplicate: Ratio,
    /// Probability that a packet is corrupted. Default: zero.
    pub corrupt: Ratio,
    /// Limit of the queue in bytes, including overhead and excluding the packet in transmission.
    /// Default: 1 MiB, which is 84 ms at 100 Mb/s. A packet that does not fit is dropped.
    ///
    /// One packet may always wait. Otherwise nothing would pass while the line takes no packet at
    /// once: while it is [held](LineState::Held), and between the opportunities of a trace.
    pub queue_bytes: u64,
    /// Limit of the queue in time, in place of `queue_bytes`: the bytes that the rate, or the mean
    /// rate of the trace, carries in this time. It follows changes of the rate. Default: `None`.
    pub queue_delay: Option<Duration>,
    /// The queue discipline. The byte limit applies to each. Default: [`Discipline::DropTail`].
    pub discipline: Discipline,
    /// Bytes added to each packet's length on the line: 28 for UDP payloads (IPv4 and UDP headers),
    /// 0 for packets that include their headers. Default: 0.
    pub overhead_bytes: u64,
    /// Whether the link is up. Default: [`LineState::Up`].
    pub state: LineState,
    /// Changes of these settings over time. Default: none.
    pub schedule: Option<Schedule>,
}

/// A queue discipline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// Drops packets that arrive at a full queue.
    #[default]
    DropTail,
    /// Also drops or marks packets that waited too long, when they leave the queue.
    CoDel(CoDel),
    /// Marks packets of scalable senders (ECT(1)) that waited longer than this when they leave the
    /// queue, as the low-latency queue of a dual queue does (RFC 9332, section 2.5.1). Other
    /// packets are not touched.
    Step(Duration),
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
    /// Checks the settings, now and after each change of the [`schedule`](Self::schedule). Takes
    /// time linear in the length of the schedule.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_now()?;
        let Some(schedule) = &self.schedule else { return Ok(()) };
        let mut config = Self { schedule: None, ..self.clone() };
        // One round is sufficient: every later round sets the same values.
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
            (!self.reorder.is_zero() && self.reorder_by.is_zero(), ConfigError::ZeroReorderDelay),
            (self.queue_delay.is_some() && self.line_rate().is_none(), ConfigError::QueueDelayWithoutRate),
            (matches!(self.discipline, Discipline::CoDel(codel) if !codel.is_valid()), ConfigError::CoDel),
        ];
        fails.into_iter().find_map(|(fails, error)| fails.then_some(error)).map_or(Ok(()), Err)
    }

    /// Returns the limit of the queue in bytes: [`queue_bytes`](Self::queue_bytes), or the
    /// equivalent of [`queue_delay`](Self::queue_delay) at the rate.
    pub fn queue_bytes_max(&self) -> u64 {
        match (self.queue_delay, self.line_rate()) {
            (Some(delay), Some(rate)) => rate.bytes_in(delay),
            _ => self.queue_bytes,
        }
    }

    /// Returns the settings after the changes of the schedule up to `now`: a pure function of time.
    #[must_use]
    pub fn effective_at(&self, now: Instant) -> Self {
        let mut config = self.clone();
        if let Some(schedule) = &self.schedule {
            schedule.apply_until(now, &mut config);
        }
        config
    }

    /// Returns whether a fault or jitter may affect packets after the line.
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
