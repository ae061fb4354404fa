//! Scheduled changes of a link's settings, once or periodically.
//!
//! A schedule is a pure function of time and does not depend on the link's packets.

use core::fmt;
use std::error::Error;
use std::sync::Arc;

use units::{Duration, Instant, Rate, Ratio};

use crate::bursts::BurstLoss;
use crate::config::LinkConfig;
use crate::jitter::Jitter;

/// Largest number of changes in a schedule.
pub const CHANGES_MAX: usize = 1 << 16;

/// Whether a link is up, and if not, how it fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LineState {
    /// The link works.
    #[default]
    Up,
    /// A silent outage: sent packets are dropped without notice, and waiting packets are
    /// transmitted at the line's rate and then dropped. A packet that is in transmission at any
    /// time of the outage is dropped. Packets that departed before still arrive.
    Silent,
    /// The line stops and the queue fills. The packet in transmission stays on the line and resumes
    /// with its remaining bits. Packets that departed before still arrive.
    Held,
}

/// One change of a [`LinkConfig`], for the field of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// A change of [`LinkConfig::state`].
    State(LineState),
    /// A change of [`LinkConfig::rate`].
    Rate(Option<Rate>),
    /// A change of [`LinkConfig::delay`].
    Delay(Duration),
    /// A change of [`LinkConfig::jitter`].
    Jitter(Option<Jitter>),
    /// A change of [`LinkConfig::loss`].
    Loss(Ratio),
    /// A change of [`LinkConfig::burst_loss`].
    BurstLoss(Option<BurstLoss>),
    /// A change of [`LinkConfig::duplicate`].
    Duplicate(Ratio),
    /// A change of [`LinkConfig::corrupt`].
    Corrupt(Ratio),
    /// A change of [`LinkConfig::reorder`] and [`LinkConfig::reorder_by`].
    Reorder(Ratio, Duration),
}

/// Changes with their times. Clones share the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The changes, ascending; changes at equal times are applied in order.
    changes: Arc<[(Duration, Change)]>,
    /// The period, greater than the last time in `changes`.
    period: Option<Duration>,
    /// Index of the last change to a state in which the line operates.
    last_resume: Option<usize>,
}

/// An invalid list of changes. Indexes count from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleError {
    /// There are more than [`CHANGES_MAX`].
    TooMany,
    /// A change is earlier than the one before.
    OutOfOrder {
        /// Index of the change.
        index: usize,
    },
    /// A change is not before the end of the period.
    AfterPeriod {
        /// Index of the change.
        index: usize,
    },
    /// The period, or one of its parts, is zero.
    ZeroPeriod,
}

impl Schedule {
    /// Returns a schedule in which each change is applied once, at its time since the start of the
    /// run. Changes at equal times are applied in the given order.
    ///
    /// # Errors
    /// [`ScheduleError::OutOfOrder`], [`ScheduleError::TooMany`].
    pub fn once(changes: impl IntoIterator<Item = (Duration, Change)>) -> Result<Self, ScheduleError> {
        Self::checked(changes, None)
    }

    /// Returns a schedule in which each change is applied once per period, at its time since the
    /// start of the period. The first period begins at the start of the run.
    ///
    /// A link that holds packets applies every change, so a period far shorter than a packet costs
    /// time.
    ///
    /// # Errors
    /// [`ScheduleError`].
    pub fn repeating(
        period: Duration,
        changes: impl IntoIterator<Item = (Duration, Change)>,
    ) -> Result<Self, ScheduleError> {
        if period.is_zero() {
            return Err(ScheduleError::ZeroPeriod);
        }
        Self::checked(changes, Some(period))
    }

    /// Returns a schedule that alternates between [`LineState::Up`] and the state `how`, beginning
    /// with up.
    ///
    /// # Errors
    /// [`ScheduleError::ZeroPeriod`] if one of the times is zero.
    pub fn flapping(up: Duration, down: Duration, how: LineState) -> Result<Self, ScheduleError> {
        if up.is_zero() || down.is_zero() {
            return Err(ScheduleError::ZeroPeriod);
        }
        Self::repeating(up + down, [(Duration::ZERO, Change::State(LineState::Up)), (up, Change::State(how))])
    }

    fn checked(
        changes: impl IntoIterator<Item = (Duration, Change)>,
        period: Option<Duration>,
    ) -> Result<Self, ScheduleError> {
        // One more than the limit is sufficient to detect the error.
        let changes: Vec<_> = changes.into_iter().take(CHANGES_MAX + 1).collect();
        if changes.len() > CHANGES_MAX {
            return Err(ScheduleError::TooMany);
        }
        if let Some(index) = changes.windows(2).position(|pair| pair[0].0 > pair[1].0) {
            return Err(ScheduleError::OutOfOrder { index: index + 1 });
        }
        if let Some(index) = changes.iter().position(|(at, _)| period.is_some_and(|period| *at >= period)) {
            return Err(ScheduleError::AfterPeriod { index });
        }
        let last_resume = changes.iter().rposition(|(_, change)| change.resumes());
        Ok(Self { changes: changes.into(), period, last_resume })
    }

    /// Returns the changes of one period, or of the whole run, ordered by time.
    pub fn changes(&self) -> &[(Duration, Change)] {
        &self.changes
    }

    /// Returns the period of a repeating schedule.
    pub const fn period(&self) -> Option<Duration> {
        self.period
    }

    /// Returns the state of the line at `now`, if the schedule has set one by then.
    pub fn state_at(&self, now: Instant) -> Option<LineState> {
        let latest = |changes: &[(Duration, Change)]| {
            changes.iter().rev().find_map(|(_, change)| match change {
                Change::State(state) => Some(*state),
                _ => None,
            })
        };
        let (done, rounds) = self.done_by(now);
        latest(&self.changes[..done]).or_else(|| (rounds > 0).then(|| latest(&self.changes)).flatten())
    }

    /// Applies all changes up to and including `now` to `config`, as if it had been set since the
    /// start of the run, and returns the position of the next change.
    pub(crate) fn apply_until(&self, now: Instant, config: &mut LinkConfig) -> Cursor {
        let (done, rounds) = self.done_by(now);
        // Each complete round leaves the same values, so applying one is sufficient.
        let whole = if rounds > 0 { &self.changes[..] } else { &[] };
        for (_, change) in whole.iter().chain(&self.changes[..done]) {
            change.apply(config);
        }
        let round_start = Instant::ZERO + self.period.unwrap_or_default().saturating_mul(rounds);
        Cursor { index: done, round_start }.settled(self)
    }

    /// Returns the number of changes applied in the current round at `now`, and the number of
    /// rounds before it.
    fn done_by(&self, now: Instant) -> (usize, u64) {
        let (rounds, since) = match self.period {
            Some(period) => {
                let rounds = now.as_nanos() / period.as_nanos();
                (rounds, Duration::from_nanos(now.as_nanos() % period.as_nanos()))
            }
            None => (0, now.since_start()),
        };
        (self.changes.partition_point(|(at, _)| *at <= since), rounds)
    }
}

/// The position of the next change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// Index into the changes; their number if there are no more.
    index: usize,
    round_start: Instant,
}

impl Cursor {
    /// Creates a cursor before the first change.
    pub(crate) const fn start() -> Self {
        Self { index: 0, round_start: Instant::ZERO }
    }

    /// Returns the next change and its time. `None` after the last change, and if the time would
    /// not be representable.
    pub(crate) fn next_change<'a>(&self, schedule: &'a Schedule) -> Option<(Instant, &'a Change)> {
        let (at, change) = schedule.changes.get(self.index)?;
        let at = self.round_start + *at;
        (at < Instant::FAR_FUTURE).then_some((at, change))
    }

    /// Moves past the next change.
    pub(crate) fn advance(&mut self, schedule: &Schedule) {
        self.index += 1;
        *self = self.settled(schedule);
    }

    /// Skips rounds that ended before `now`, but leaves at least one complete round, so that its
    /// changes are applied. This serves links without events in between.
    pub(crate) fn skip_rounds(&mut self, now: Instant, schedule: &Schedule) {
        let Some(period) = schedule.period else { return };
        let rounds = now.saturating_since(self.round_start).as_nanos() / period.as_nanos();
        if rounds >= 2 {
            self.round_start += period.saturating_mul(rounds - 1);
            self.index = 0;
        }
    }

    /// Returns whether a future change will resume the line.
    pub(crate) fn resumes(&self, schedule: &Schedule) -> bool {
        schedule.last_resume.is_some_and(|last| schedule.period.is_some() || self.index <= last)
    }

    fn settled(mut self, schedule: &Schedule) -> Self {
        if let Some(period) = schedule.period
            && self.index == schedule.changes.len()
        {
            self.index = 0;
            self.round_start += period;
        }
        self
    }
}

impl Change {
    /// Returns the inverse of this change: a change that sets the same field or fields to their
    /// value in `config`.
    #[must_use]
    pub const fn undo(&self, config: &LinkConfig) -> Self {
        match self {
            Self::State(_) => Self::State(config.state),
            Self::Rate(_) => Self::Rate(config.rate),
            Self::Delay(_) => Self::Delay(config.delay),
            Self::Jitter(_) => Self::Jitter(config.jitter),
            Self::Loss(_) => Self::Loss(config.loss),
            Self::BurstLoss(_) => Self::BurstLoss(config.burst_loss),
            Self::Duplicate(_) => Self::Duplicate(config.duplicate),
            Self::Corrupt(_) => Self::Corrupt(config.corrupt),
            Self::Reorder(..) => Self::Reorder(config.reorder, config.reorder_by),
        }
    }

    /// Applies the change to `config`.
    pub const fn apply(&self, config: &mut LinkConfig) {
        match *self {
            Self::State(state) => config.state = state,
            Self::Rate(rate) => config.rate = rate,
            Self::Delay(delay) => config.delay = delay,
            Self::Jitter(jitter) => config.jitter = jitter,
            Self::Loss(loss) => config.loss = loss,
            Self::BurstLoss(burst_loss) => config.burst_loss = burst_loss,
            Self::Duplicate(duplicate) => config.duplicate = duplicate,
            Self::Corrupt(corrupt) => config.corrupt = corrupt,
            Self::Reorder(reorder, by) => {
                config.reorder = reorder;
                config.reorder_by = by;
            }
        }
    }

    fn resumes(&self) -> bool {
        matches!(self, Self::State(LineState::Up | LineState::Silent))
    }
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "a schedule holds at most {CHANGES_MAX} changes"),
            Self::OutOfOrder { index } => {
                write!(f, "change {index} of the schedule: its time must not be before that of the last one")
            }
            Self::AfterPeriod { index } => {
                write!(f, "change {index} of the schedule: its time must be before the end of the period")
            }
            Self::ZeroPeriod => f.write_str("the period of a schedule, and each part of it, must exceed zero"),
        }
    }
}

impl Error for ScheduleError {}

#[cfg(test)]
mod tests;
