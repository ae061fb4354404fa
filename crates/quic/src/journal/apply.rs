//! The replay of one entry.

use std::cell::Cell;

use ::journal::transit::Mismatch;
use bytes::Bytes;
use units::Instant;
use wire::quic::StreamId;

use super::entry::Input;
use super::observe::Observer;
use super::outcome::{Answer, EventEntry, PlanEntry, Planned};
use crate::connection::Connection;
use crate::event::Event;
use crate::plan::{PLAN_DATAGRAMS_MAX, Plan};

/// The recorded result of an input, if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expected {
    Nothing,
    Answer(Answer),
    /// A plan, with the budget of each socket that was asked for.
    Planned(Vec<(u16, usize)>, Planned),
    /// The log was cut before the result.
    Unknown,
}

/// Applies inputs to a connection, with memory for their payload.
pub(crate) struct Replayer {
    pub(crate) zeros: Bytes,
    pub(crate) plan: Plan,
    /// Sees the plans, if the replay is observed.
    pub(super) observer: Option<Box<Observer>>,
}

/// The result of an input, as recorded.
#[derive(Debug)]
pub(crate) enum Output {
    /// None, or one that is not recorded.
    Nothing,
    Answer(Answer),
    Planned(Planned),
    Event(Event),
}

/// The result, or the recorded result and the different one of the replay.
pub(crate) type Compared = Result<Output, Mismatch>;

impl Replayer {
    /// Bytes of any value. No send buffer takes more than there are.
    fn bytes(&self, len: usize) -> Bytes {
        self.zeros.slice(..len.min(self.zeros.len()))
    }

    /// Applies the input to `connection` and compares the result.
    pub(crate) fn apply(
        &mut self,
        connection: &mut Connection,
        now: Instant,
        input: &mut Input,
        expected: &Expected,
    ) -> Compared {
        match input {
            Input::PlanAsked => return self.plan(connection, now, expected),
            Input::Event(event) => return compare_event(*event, connection.poll_event()),
            Input::Route(change) => {
                let got = connection.poll_route();
                return if got.as_ref() == Some(&*change) {
                    Ok(Output::Nothing)
                } else {
                    Err((format!("{change:?}"), got.map_or("no change of routes".to_owned(), |got| format!("{got:?}"))))
                };
            }
            _ => {}
        }
        let answer = match self.call(connection, now, input) {
            Some(answer) => answer,
            None => {
                self.drive(connection, now, input);
                return Ok(Output::Nothing);
            }
        };
        input.compare_answer(answer, expected)
    }

    /// The driver's inputs.
    fn drive(&mut self, connection: &mut Connection, now: Instant, input: &mut Input) {
        match input {
            Input::Timeout => connection.handle_timeout(now),
            Input::Emitted(receipt) => connection.handle_emitted(now, receipt),
            Input::NotEmitted(receipt) => connection.handle_not_emitted(receipt),
            Input::Arrival { path, addresses, count, len } => {
                connection.note_arrival(now, *path, addresses, *count, *len);
            }
            Input::Opened { batch, records } => {
                let buffer = records.buffer(&self.zeros);
                connection.absorb_batch(now, batch, &records.opened, &buffer);
                connection.settle(now);
            }
            Input::Single { source, records } => {
                let buffer = records.buffer(&self.zeros);
                connection.absorb_single(now, *source, &records.opened, &buffer, records.integrity_limit);
            }
            Input::Settle => connection.settle(now),
            Input::Trailer(trailer) => connection.note_trailer(now, *trailer),
            Input::Retry(source, token) => connection.on_retry(now, *source, token),
            Input::Token(token) => connection.present_token(std::mem::take(token)),
            Input::OtherVersion => connection.on_other_version(),
            Input::SetBackup(path, is_backup) => {
                connection.set_path_backup(now, *path, *is_backup);
            }
            Input::TooLarge(path) => {
                connection.handle_too_large(now, *path);
            }
            Input::Refused(path) => {
                connection.handle_refused(now, *path);
            }
            Input::SetRate(limit) => connection.set_rate(*limit),
            Input::Close { code, reason } => connection.close(now, *code, reason),
            other => unreachable!("{other:?} is no input of the driver"),
        }
    }

    /// Makes a call with an answer; none for other inputs.
    fn call(&self, connection: &mut Connection, now: Instant, input: &Input) -> Option<Answer> {
        Some(match input {
            Input::TailAsked(datagrams) => Answer::from_bool(connection.has_only_a_tail(*datagrams)),
            Input::Open(dir) => Answer::optional(connection.open(*dir).map(|id| id.raw())),
            Input::OpenEarly(dir) => Answer::optional(connection.open_early(*dir).map(|id| id.raw())),
            Input::Accept(dir) => Answer::optional(connection.accept(*dir).map(|id| id.raw())),
            Input::Write(id, len) => Answer::written(connection.write(*id, self.bytes(*len)), *len),
            Input::WriteSome(id, len) => {
                let mut chunk = self.bytes(*len);
                let len = chunk.len();
                let result = connection.write_some(*id, &mut chunk);
                Answer::written(result, len - chunk.len())
            }
            Input::Finish(id) => Answer::written(connection.finish(*id), 0),
            Input::Reset(id, code) => Answer::written(connection.reset(*id, *code), 0),
            Input::Priority(id, priority) => Answer::written(connection.set_priority(*id, *priority), 0),
            Input::SetStreamRate(id, limit) => Answer::written(connection.set_stream_rate(*id, *limit), 0),
            Input::SetStreamPaths(id, paths) => Answer::written(connection.set_stream_paths(*id, paths.clone()), 0),
            Input::SetBackground(id, is_background) => {
                Answer::written(connection.set_background(*id, *is_background), 0)
            }
            Input::Read(id, len) => Answer::read(&connection.read(now, *id, *len)),
            Input::Stop(id, code) => Answer::stopped(connection.stop(now, *id, *code)),
            Input::SendDatagram(len) => Answer::datagram(connection.send_datagram(self.bytes(*len))),
            Input::SendDatagramOn(len, paths) => {
                Answer::datagram(connection.send_datagram_on(self.bytes(*len), *paths))
            }
            Input::RecvDatagram => Answer::optional(connection.recv_datagram().map(|data| data.len() as u64)),
            Input::OpenPath { addresses, is_backup } => Answer::path(connection.open_path(now, *addresses, *is_backup)),
            Input::Migrate(addresses) => Answer::migration(connection.migrate(now, *addresses)),
            Input::AbandonPath(path, code) => Answer::from_bool(connection.abandon_path(now, *path, *code)),
            _ => return None,
        })
    }

    fn plan(&mut self, connection: &mut Connection, now: Instant, expected: &Expected) -> Compared {
        let socket_budgets: &[(u16, usize)] =
            if let Expected::Planned(socket_budgets, _) = expected { socket_budgets } else { &[] };
        let unlisted = Cell::new(None);
        let socket_budget = |socket: u16| match socket_budgets.iter().find(|(known, _)| *known == socket) {
            Some((_, budget)) => *budget,
            None => {
                unlisted.set(Some(socket));
                PLAN_DATAGRAMS_MAX
            }
        };
        let is_planned = connection.poll_plan_where(now, &socket_budget, &mut self.plan);
        let got = Planned { plan: is_planned.then(|| PlanEntry::of(&self.plan)), timeout: connection.poll_timeout() };
        if let Some(observer) = self.observer.as_mut().filter(|_| is_planned) {
            observer.on_plan(&self.plan);
        }
        self.plan.release();
        let Expected::Planned(_, expected) = expected else { return Ok(Output::Planned(got)) };
        if *expected != got {
            return Err((expected.to_string(), got.to_string()));
        }
        match unlisted.get() {
            None => Ok(Output::Planned(got)),
            Some(socket) => Err((
                format!("a plan from the budgets of {} sockets", socket_budgets.len()),
                format!("a plan that also needs the budget of socket {socket}"),
            )),
        }
    }
}

pub(crate) fn compare_event(expected: EventEntry, got: Option<Event>) -> Compared {
    match got {
        Some(got) if EventEntry::of(&got) == expected => Ok(Output::Event(got)),
        Some(got) => Err((expected.to_string(), EventEntry::of(&got).to_string())),
        None => Err((expected.to_string(), "no event".to_owned())),
    }
}

impl Input {
    /// An answer to this input, for people.
    pub(crate) fn answer_text(&self, answer: Answer) -> String {
        let Answer(Answer::DONE, number) = answer else { return answer.to_string() };
        match (self, number.checked_sub(1)) {
            (Self::Open(_) | Self::Accept(_) | Self::RecvDatagram, None) => "nothing".to_owned(),
            (Self::Open(_) | Self::Accept(_), Some(id)) => StreamId::from_raw(id).to_string(),
            (Self::RecvDatagram, Some(len)) => format!("{len} bytes"),
            (Self::Write(..) | Self::WriteSome(..) | Self::Read(..), _) => format!("{number} bytes"),
            (Self::TailAsked(_) | Self::AbandonPath(..), last) => if last.is_some() { "yes" } else { "no" }.to_owned(),
            _ => answer.to_string(),
        }
    }

    pub(crate) fn compare_answer(&self, answer: Answer, expected: &Expected) -> Compared {
        match expected {
            Expected::Answer(expected) if !answer.matches(*expected) => {
                Err((self.answer_text(*expected), self.answer_text(answer)))
            }
            _ => Ok(Output::Answer(answer)),
        }
    }

    /// Whether an answer follows it in a log.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(
            self,
            Self::TailAsked(_)
                | Self::Open(_)
                | Self::OpenEarly(_)
                | Self::Accept(_)
                | Self::Write(..)
                | Self::WriteSome(..)
                | Self::Finish(_)
                | Self::Reset(..)
                | Self::Priority(..)
                | Self::SetStreamRate(..)
                | Self::SetStreamPaths(..)
                | Self::SetBackground(..)
                | Self::Read(..)
                | Self::Stop(..)
                | Self::SendDatagram(_)
                | Self::SendDatagramOn(..)
                | Self::RecvDatagram
                | Self::OpenPath { .. }
                | Self::Migrate(_)
                | Self::AbandonPath(..)
        )
    }
}
