//! The replay of one call.

use ::journal::transit::{InTransit, Mismatch};
use ::journal::zeros;
use units::Instant;

use super::entry::{Input, ReadState};
use super::outcome::{Answer, EventEntry, PlanEntry, Planned};
use crate::connection::Connection;
use crate::detached::{DetachedReceiveHalf, ReceiveCommands, ReceiveReport};
use crate::event::Event;
use crate::plan::Plan;
use crate::results::Read;

/// Limit on values that the detached half has not reported plus reported values in transit: some
/// 100 MB. An engine stops receiving long before.
const VALUES_MAX: usize = 1 << 20;

/// Recorded result of an input, if any.
#[derive(Debug)]
pub(crate) enum Expected {
    Nothing,
    Answer(Answer),
    Planned(Planned),
    /// The log was cut before the result.
    Unknown,
}

/// Result of an input, as recorded.
#[derive(Debug)]
pub(crate) enum Output {
    /// No result, or one that is not recorded.
    Nothing,
    Answer(Answer),
    Planned(Planned),
    Event(Event),
}

/// The result; or the recorded result and the replay's different one.
pub(crate) type Compared = Result<Output, Mismatch>;

/// Applies inputs to a connection.
#[derive(Default)]
pub(crate) struct Replayer {
    plan: Plan,
}

impl Replayer {
    /// Applies the input to `connection` and compares the result with the recorded one.
    pub(crate) fn apply(
        &mut self,
        connection: &mut Connection,
        now: Instant,
        input: &mut Input,
        expected: &Expected,
    ) -> Compared {
        match input {
            Input::Timeout => connection.handle_timeout(now),
            Input::Emitted(transmission) => connection.handle_emitted(now, *transmission),
            Input::NotEmitted(transmission) => connection.handle_not_emitted(*transmission),
            Input::Segment(arrival) => connection.handle_segment(now, arrival.clone()),
            Input::Icmp(error) => connection.handle_icmp(now, error),
            Input::PassOverSyn => connection.pass_over_syn(now),
            Input::Finish => connection.finish(),
            Input::Abort => connection.abort(),
            Input::Orphan => connection.orphan(),
            Input::SetNagle(nagle) => connection.set_nagle(*nagle),
            Input::SetKeepAlive(keep_alive) => connection.set_keep_alive(*keep_alive),
            Input::SetDscp(dscp) => connection.set_dscp(*dscp),
            Input::PlanAsked(segments_max) => return self.plan(connection, now, *segments_max, expected),
            Input::Event(event) => return compare_event(*event, connection.poll_event()),
            Input::Write(len) => {
                let mut bytes = zeros::take(*len);
                let len = bytes.len();
                let result = connection.write(&mut bytes);
                return compare_answer(Answer::written(result, len - bytes.len()), expected);
            }
            Input::Read(len_max) => return compare_read(&connection.read(*len_max), expected),
            Input::Detached
            | Input::Attached
            | Input::GaveCommands(_)
            | Input::TookCommands(_)
            | Input::GaveReport(_)
            | Input::TookReport(_) => unreachable!("{input:?} concerns both halves"),
        }
        Ok(Output::Nothing)
    }

    fn plan(
        &mut self,
        connection: &mut Connection,
        now: Instant,
        segments_max: usize,
        expected: &Expected,
    ) -> Compared {
        let is_planned = connection.poll_plan(now, segments_max, &mut self.plan);
        let got = Planned { plan: is_planned.then(|| PlanEntry::of(&self.plan)), timeout: connection.poll_timeout() };
        self.plan.release();
        match expected {
            Expected::Planned(expected) if *expected != got => Err((expected.to_string(), got.to_string())),
            _ => Ok(Output::Planned(got)),
        }
    }
}

fn compare_event(expected: EventEntry, got: Option<Event>) -> Compared {
    match got {
        Some(got) if EventEntry::of(got) == expected => Ok(Output::Event(got)),
        Some(got) => Err((expected.to_string(), EventEntry::of(got).to_string())),
        None => Err((expected.to_string(), "no event".to_owned())),
    }
}

fn compare_answer(answer: Answer, expected: &Expected) -> Compared {
    match expected {
        Expected::Answer(expected) if answer != *expected => Err((expected.to_string(), answer.to_string())),
        _ => Ok(Output::Answer(answer)),
    }
}

fn compare_read(read: &Read, expected: &Expected) -> Compared {
    compare_answer(Answer::read(read), expected)
}

/// A receive half while it is detached, and the values in transit between it and the connection.
#[derive(Default)]
pub(crate) struct DetachedReplay {
    half: Option<(DetachedReceiveHalf, ReadState)>,
    commands: InTransit<ReceiveCommands>,
    reports: InTransit<ReceiveReport>,
}

impl DetachedReplay {
    /// Returns the reader state for entries of the receive half; `None` unless it is detached.
    pub(crate) fn state(&self) -> Option<&ReadState> {
        self.half.as_ref().map(|(_, state)| state)
    }

    /// Mutable counterpart of [`state`](Self::state).
    pub(crate) fn state_mut(&mut self) -> Option<&mut ReadState> {
        self.half.as_mut().map(|(_, state)| state)
    }

    /// Returns whether more values are in transit than a valid log may cause.
    pub(crate) fn is_overfull(&self) -> bool {
        let Some((half, _)) = &self.half else { return false };
        // Usually few are in transit, and mostly one.
        let reported: usize = self.reports.iter().map(|report| report.acks.len()).sum();
        reported + half.unreported() > VALUES_MAX
    }

    /// Applies an input of the connection that concerns its receive half; returns `None` for other
    /// inputs.
    pub(crate) fn apply_to_both(
        &mut self,
        connection: &mut Connection,
        now: Instant,
        input: &Input,
    ) -> Option<Compared> {
        let result = match input {
            Input::Detached => match connection.detach() {
                Some(half) => {
                    let state = ReadState::new(now, *connection.tuple());
                    *self = Self { half: Some((half, state)), ..Self::default() };
                    Ok(())
                }
                None => Err(("a receive half to detach".to_owned(), "none".to_owned())),
            },
            Input::Attached => match self.half.take() {
                Some((half, _)) => {
                    connection.attach(now, half);
                    Ok(())
                }
                None => Err(("a detached receive half".to_owned(), "none".to_owned())),
            },
            Input::GaveCommands(number) => {
                let given = connection.poll_commands().map(|commands| (commands.number, commands));
                self.commands.give(given, *number)
            }
            Input::TookReport(number) => {
                self.reports.take(*number).map(|mut report| connection.handle_report(now, &mut report))
            }
            _ => return None,
        };
        Some(result.map(|()| Output::Nothing))
    }

    /// Applies an input of the detached receive half.
    pub(crate) fn apply(&mut self, now: Instant, input: &mut Input, expected: &Expected) -> Compared {
        let Some((half, _)) = &mut self.half else { unreachable!("its entries are read only while it is detached") };
        match input {
            Input::Segment(arrival) => {
                // If it needs the connection, that is the next entry of the log.
                let _needs_connection = half.handle_segment(now, &mut arrival.clone());
            }
            Input::Read(len_max) => return compare_read(&half.read(*len_max), expected),
            Input::TookCommands(number) => half.handle_commands(&self.commands.take(*number)?),
            Input::GaveReport(number) => {
                let mut report = ReceiveReport::default();
                let given = half.poll_report(&mut report).then_some((report.number, report));
                self.reports.give(given, *number)?;
            }
            other => unreachable!("{other:?} is no input of a receive half"),
        }
        Ok(Output::Nothing)
    }
}
