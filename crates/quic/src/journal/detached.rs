//! Replays a connection with a detached receive half: both on one thread, with the reports and
//! commands they exchanged.

use ::journal::transit::InTransit;
use units::Instant;

use super::apply::{Compared, Expected, Output, Replayer, compare_event};
use super::entry::{Input, ReadState};
use super::outcome::Answer;
use crate::connection::Connection;
use crate::detached::{DetachedReceiveHalf, ReceiveCommands, ReceiveReport};
use crate::exchange::Exchange;

/// Values and acknowledged ranges in transit at most: some 100 MB. An engine stops receiving long
/// before.
const VALUES_MAX: usize = 1 << 20;

/// The receive half while it is detached, and what is in transit between it and the connection.
#[derive(Default)]
pub(crate) struct DetachedReplay {
    half: Option<(DetachedReceiveHalf, ReadState)>,
    commands: InTransit<ReceiveCommands>,
    reports: InTransit<ReceiveReport>,
}

impl DetachedReplay {
    /// The state for reading entries of the receive half; none if it is not detached.
    pub(crate) fn state(&self) -> Option<&ReadState> {
        self.half.as_ref().map(|(_, state)| state)
    }

    /// As [`state`](Self::state).
    pub(crate) fn state_mut(&mut self) -> Option<&mut ReadState> {
        self.half.as_mut().map(|(_, state)| state)
    }

    /// Whether more values are in transit than any log may make a replay keep.
    pub(crate) fn is_overfull(&self, connection: &Connection) -> bool {
        let Some((half, _)) = &self.half else { return false };
        let size_of = |exchange: &Exchange| exchange.to_send.len() + exchange.to_control.len() + exchange.ranges.len();
        // Few are in transit as a rule, and mostly one.
        let commands: usize = self.commands.iter().map(|commands| commands.values.len()).sum();
        let reports: usize = self.reports.iter().map(|report| size_of(&report.exchange)).sum();
        commands + reports + size_of(&half.core.exchange) + connection.pending_commands() > VALUES_MAX
    }

    /// Applies an input of the connection that concerns its receive half; none for other inputs.
    pub(crate) fn apply_to_both(
        &mut self,
        connection: &mut Connection,
        now: Instant,
        input: &Input,
    ) -> Option<Compared> {
        Some(match input {
            Input::Detached => match connection.detach() {
                Some(half) => {
                    *self = Self { half: Some((half, ReadState::new(now))), ..Self::default() };
                    Ok(Output::Nothing)
                }
                None => Err(("a receive half to detach".to_owned(), "none".to_owned())),
            },
            Input::GaveCommands(number) => {
                let mut commands = ReceiveCommands::default();
                let given = connection.poll_commands(&mut commands).then_some((commands.number, commands));
                self.commands.give(given, *number).map(|()| Output::Nothing)
            }
            Input::TookReport(number) => self
                .reports
                .take(*number)
                .map(|mut report| connection.handle_report(now, &mut report))
                .map(|()| Output::Nothing),
            Input::Attached => match self.half.take() {
                Some((half, _)) => {
                    connection.attach(now, half);
                    Ok(Output::Nothing)
                }
                None => Err(("a detached receive half".to_owned(), "none".to_owned())),
            },
            _ => return None,
        })
    }

    /// Applies an input of the detached receive half.
    pub(crate) fn apply(
        &mut self,
        replayer: &Replayer,
        now: Instant,
        input: &mut Input,
        expected: &Expected,
    ) -> Compared {
        let Some((half, _)) = &mut self.half else { unreachable!("its entries are read only while it is detached") };
        match input {
            Input::Arrival { path, addresses, count, len } => {
                if !half.note_arrival(now, *path, addresses, *count, *len) {
                    return Err(("a batch of a known path".to_owned(), "one that needs the connection".to_owned()));
                }
                return Ok(Output::Nothing);
            }
            Input::Opened { batch, records } => {
                let buffer = records.buffer(&replayer.zeros);
                half.absorb(now, &records.opened, &buffer, batch.integrity_limit);
                return Ok(Output::Nothing);
            }
            Input::Trailer(trailer) => {
                half.note_trailer(now, *trailer);
                return Ok(Output::Nothing);
            }
            Input::TookCommands(number) => {
                let mut commands = self.commands.take(*number)?;
                half.handle_commands(now, &mut commands);
                return Ok(Output::Nothing);
            }
            Input::GaveReport(number) => {
                let mut report = ReceiveReport::default();
                let given = half.poll_report(&mut report).then_some((report.number, report));
                return self.reports.give(given, *number).map(|()| Output::Nothing);
            }
            Input::Event(event) => return compare_event(*event, half.poll_event()),
            _ => {}
        }
        let answer = match input {
            Input::Accept(dir) => Answer::optional(half.accept(*dir).map(|id| id.raw())),
            Input::Read(id, len) => Answer::read(&half.read(now, *id, *len)),
            Input::Stop(id, code) => Answer::stopped(half.stop(now, *id, *code)),
            Input::RecvDatagram => Answer::optional(half.recv_datagram().map(|data| data.len() as u64)),
            other => unreachable!("{other:?} is no input of a receive half"),
        };
        input.compare_answer(answer, expected)
    }
}
