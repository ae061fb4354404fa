//! Faults in time: changes of a link's settings at given moments, once or again and again.
//!
//! A schedule is a pure function of time: what it does at a moment depends on nothing that happened on the link.

use core::fmt;
use std::error::Error;
use std::sync::Arc;

use units::{Duration, Instant, Rate, Ratio};

use crate::{BurstLoss, Jitter, LinkConfig};

/// Changes that a schedule holds at most.
pub const CHANGES_MAX: usize = 1 << 16;

/// Whether a link works, and if not, how it fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LineState {
    /// It works.
    #[default]
    Up,
    /// It is cut and nobody is told: what is offered vanishes, and what waits drains onto the line at its pace and vanishes
    /// there. A packet that is on the line at any moment of it is gone. What has left the line before arrives.
    Silent,
    /// The line stops and the queue fills. What was on the line stays there and goes on with the bits it still has. What
    /// has left the line before arrives.
    Held,
}

/// One change of a [`LinkConfig`], of the field that bears its name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// [`LinkConfig::state`].
    State(LineState),
    /// [`LinkConfig::rate`].
    Rate(Option<Rate>),
    /// [`LinkConfig::delay`].
    Delay(Duration),
    /// [`LinkConfig::jitter`].
    Jitter(Option<Jitter>),
    /// [`LinkConfig::loss`].
    Loss(Ratio),
    /// [`LinkConfig::burst_loss`].
    BurstLoss(Option<BurstLoss>),
    /// [`LinkConfig::duplicate`].
    Duplicate(Ratio),
    /// [`LinkConfig::corrupt`].
    Corrupt(Ratio),
    /// [`LinkConfig::reorder`] and [`LinkConfig::reorder_by`].
    Reorder(Ratio, Duration),
}

/// Changes with their times. Clones share the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Ascending; equal times in the order in which they happen.
    changes: Arc<[(Duration, Change)]>,
    /// Above the last time of `changes`.
    period: Option<Duration>,
    /// The last change to a state in which the line moves.
    last_release: Option<usize>,
}

/// Why a list of changes is no schedule. Changes count from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleError {
    /// There are more than [`CHANGES_MAX`].
    TooMany,
    /// A change is earlier than the one before.
    OutOfOrder {
        /// Which change.
        index: usize,
    },
    /// A change does not come before the end of the period.
    AfterPeriod {
        /// Which change.
        index: usize,
    },
    /// The period, or one of its parts, takes no time.
    NoPeriod,
}

impl Schedule {
    /// Each change happens once, at its time since the run began. Those of one moment happen in the order given.
    ///
    /// # Errors
    /// [`ScheduleError::OutOfOrder`], [`ScheduleError::TooMany`].
    pub fn once(changes: impl IntoIterator<Item = (Duration, Change)>) -> Result<Self, ScheduleError> {
        Self::checked(changes, None)
    }

    /// Each change happens once a period, at its time since that period began. The first period begins with the run.
    ///
    /// A link that holds packets does every change, so a period far shorter than a packet costs time.
    ///
    /// # Errors
    /// [`ScheduleError`].
    pub fn repeating(
        period: Duration,
        changes: impl IntoIterator<Item = (Duration, Change)>,
    ) -> Result<Self, ScheduleError> {
        if period.is_zero() {
            return Err(ScheduleError::NoPeriod);
        }
        Self::checked(changes, Some(period))
    }

    /// Up for a time, then `how` for another, for ever, beginning with up.
    ///
    /// # Errors
    /// [`ScheduleError::NoPeriod`] if one of the times is zero.
    pub fn flapping(up: Duration, down: Duration, how: LineState) -> Result<Self, ScheduleError> {
        if up.is_zero() || down.is_zero() {
            return Err(ScheduleError::NoPeriod);
        }
        Self::repeating(up + down, [(Duration::ZERO, Change::State(LineState::Up)), (up, Change::State(how))])
    }

    fn checked(
        changes: impl IntoIterator<Item = (Duration, Change)>,
        period: Option<Duration>,
    ) -> Result<Self, ScheduleError> {
        // One more than allowed is enough to know.
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
        let last_release = changes.iter().rposition(|(_, change)| change.releases());
        Ok(Self { changes: changes.into(), period, last_release })
    }

    /// The changes of one period, or of the whole run, by time.
    pub fn changes(&self) -> &[(Duration, Change)] {
        &self.changes
    }

    /// After this time the changes begin again, if they do.
    pub const fn period(&self) -> Option<Duration> {
        self.period
    }

    /// What the state of the line is at `now`, if the schedule has set one by then.
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

    /// Makes all changes up to and including `now` to `config`, as if it had been in force since the run began, and returns
    /// the place of the next one.
    pub(crate) fn apply_until(&self, now: Instant, config: &mut LinkConfig) -> Cursor {
        let (done, rounds) = self.done_by(now);
        // A whole round leaves what every earlier one left, so one is enough.
        let whole = if rounds > 0 { &self.changes[..] } else { &[] };
        for (_, change) in whole.iter().chain(&self.changes[..done]) {
            change.apply(config);
        }
        let round_start = Instant::ZERO + self.period.unwrap_or_default().saturating_mul(rounds);
        Cursor { index: done, round_start }.settled(self)
    }

    /// Both as of `now`: the changes done in the present round, and the rounds before it.
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

/// The place of the next change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// Into the changes; their number if none comes any more.
    index: usize,
    round_start: Instant,
}

impl Cursor {
    /// Before the first change.
    pub(crate) const fn start() -> Self {
        Self { index: 0, round_start: Instant::ZERO }
    }

    /// When the next change comes, and which. `None` after the last, and at the end of time.
    pub(crate) fn next_change<'a>(&self, schedule: &'a Schedule) -> Option<(Instant, &'a Change)> {
        let (at, change) = schedule.changes.get(self.index)?;
        let at = self.round_start + *at;
        (at < Instant::FAR_FUTURE).then_some((at, change))
    }

    /// The next change is done.
    pub(crate) fn advance(&mut self, schedule: &Schedule) {
        self.index += 1;
        *self = self.settled(schedule);
    }

    /// Jumps over rounds that ended before `now` and leaves at least one whole round to do, which makes their changes too.
    /// For a link on which nothing can happen in between.
    pub(crate) fn skip_rounds(&mut self, now: Instant, schedule: &Schedule) {
        let Some(period) = schedule.period else { return };
        let rounds = now.saturating_since(self.round_start).as_nanos() / period.as_nanos();
        if rounds >= 2 {
            self.round_start += period.saturating_mul(rounds - 1);
            self.index = 0;
        }
    }

    /// Whether the line will ever be let go on.
    pub(crate) fn releases(&self, schedule: &Schedule) -> bool {
        schedule.last_release.is_some_and(|last| schedule.period.is_some() || self.index <= last)
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
    /// The change that would set the same field, or fields, to what `config` has there: what undoes this one.
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

    /// Makes the change to `config`.
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

    fn releases(&self) -> bool {
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
            Self::NoPeriod => f.write_str("the period of a schedule, and each part of it, must exceed zero"),
        }
    }
}

impl Error for ScheduleError {}

#[cfg(test)]
mod tests;
