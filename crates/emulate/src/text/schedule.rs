//! Scheduled changes.

use netem::{Change, LineState, Schedule};
use units::Duration;

use super::error::LinkTextError;
use super::{Item, value};

/// The items that form the schedule of one direction.
#[derive(Default)]
pub(super) struct ScheduleText {
    changes: Vec<(Duration, Change)>,
    /// Times at which the link is down, to detect overlaps.
    downs: Vec<(Duration, Duration)>,
    flap: Option<Schedule>,
    every: Option<Duration>,
}

impl ScheduleText {
    pub(super) fn add(&mut self, item: &Item<'_>) -> Result<(), LinkTextError> {
        match item.key {
            "down" => self.down(item),
            "flap" => self.flap(item),
            "every" => {
                self.every = Some(item.quantity()?);
                Ok(())
            }
            _ => self.at(item),
        }
    }

    /// Parses `2s..3s silent`.
    fn down(&mut self, item: &Item<'_>) -> Result<(), LinkTextError> {
        if item.value == value::NONE {
            return Ok(());
        }
        let expected = || {
            item.error("expected a start, an end and a state, such as 2s..3s silent (packets are dropped) or 2s..3s held (packets wait); or none")
        };
        let (span, how) = item.value.split_once(' ').ok_or_else(expected)?;
        let (from, to) = span.split_once("..").ok_or_else(expected)?;
        let (from, to) = (from.parse().map_err(|_| expected())?, to.parse().map_err(|_| expected())?);
        let how = down_state(how).ok_or_else(expected)?;
        if from >= to {
            return Err(item.error("the end is before the start"));
        }
        if self.downs.iter().any(|&(other_from, other_to)| from < other_to && other_from < to) {
            return Err(item.error("the time overlaps another `down`, so the state at its end is ambiguous"));
        }
        self.downs.push((from, to));
        self.changes.push((from, Change::State(how)));
        self.changes.push((to, Change::State(LineState::Up)));
        Ok(())
    }

    /// Parses `10s 1s silent`.
    fn flap(&mut self, item: &Item<'_>) -> Result<(), LinkTextError> {
        let expected = || {
            item.error("expected the time up, the time down and a state, with times above zero, such as 10s 1s silent")
        };
        let [up, down, how] = item.value.split_whitespace().collect::<Vec<_>>()[..] else { return Err(expected()) };
        let (up, down) = (up.parse().map_err(|_| expected())?, down.parse().map_err(|_| expected())?);
        let how = down_state(how).ok_or_else(expected)?;
        self.flap = Some(Schedule::flapping(up, down, how).map_err(|_| expected())?);
        Ok(())
    }

    /// Parses `5s rate=10Mb/s`.
    fn at(&mut self, item: &Item<'_>) -> Result<(), LinkTextError> {
        let expected = || {
            item.error(
                "expected a time and a setting, such as 5s rate=10Mb/s; settings that can change are rate, delay, jitter, loss, \
                 bursts, reorder, duplicate, corrupt and state",
            )
        };
        let (at, setting) = item.value.split_once(' ').ok_or_else(expected)?;
        let at = at.parse().map_err(|_| expected())?;
        let (key, value) = setting.split_once('=').ok_or_else(expected)?;
        let change = value::change(key.trim(), value.trim()).ok_or_else(expected)?;
        self.changes.push((at, change.map_err(|message| item.error(&message))?));
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Option<Schedule>, LinkTextError> {
        if let Some(flap) = self.flap {
            if !self.changes.is_empty() || self.every.is_some() {
                let message = "`flap` cannot be combined with `down`, `at` and `every`: remove them, or write it as a `down` \
                             with an `every`";
                return Err(LinkTextError::whole(message.to_owned()));
            }
            return Ok(Some(flap));
        }
        if self.changes.is_empty() {
            return match self.every {
                Some(_) => {
                    Err(LinkTextError::whole("`every` without `down` or `at`: there is nothing to repeat".to_owned()))
                }
                None => Ok(None),
            };
        }
        // The sort is stable: changes at equal times stay in the order of the text.
        self.changes.sort_by_key(|&(at, _)| at);
        let schedule = match self.every {
            Some(period) => Schedule::repeating(period, self.changes),
            None => Schedule::once(self.changes),
        };
        schedule.map(Some).map_err(|error| LinkTextError::whole(format!("`every`, `down` and `at`: {error}")))
    }
}

/// Parses a state in which the link is down.
fn down_state(word: &str) -> Option<LineState> {
    value::state(word.trim()).ok().filter(|&state| state != LineState::Up)
}
