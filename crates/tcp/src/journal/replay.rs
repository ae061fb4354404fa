//! The replay of a log, call by call.

use std::fmt;
use std::io::Read;

use ::journal::JournalError;
use ::journal::blocks::Blocks;
use ::journal::format::Malformed;
use ::journal::out::Half;
use ::journal::replay::{Replayed, Unrecorded, begin as begin_connection, has_answer, open};
use ::journal::stopped::{LogEnd, Stopped};
use ::journal::transit::Mismatch;
use units::Instant;

use super::apply::{DetachedReplay, Expected, Output, Replayer};
use super::begin::{JournalHead, begin};
use super::entry::{Input, ReadState};
use super::format::{FORMAT, tag};
use super::outcome::{Answer, Planned};
use super::text::{Entry, Text};
use crate::budget::Grant;
use crate::connection::Connection;
use crate::event::Event;

/// Limit on grants in one call: each buffer grows once.
const GRANTS_MAX: usize = 16;

/// An entry whose replay gave the recorded result.
#[derive(Debug)]
pub struct Step {
    /// Number of the entry, from zero.
    pub number: u64,
    /// Time of the entry, or of the last one that has a time, since the run began.
    pub at: Instant,
    /// The entry itself.
    pub entry: Entry,
    output: Output,
}

impl Step {
    /// Returns the event of an entry for the application.
    pub fn event(&self) -> Option<Event> {
        if let Output::Event(event) = self.output { Some(event) } else { None }
    }

    /// Returns the numbers of segments and of data bytes of a plan.
    pub fn planned(&self) -> Option<(u64, u64)> {
        let Output::Planned(Planned { plan, .. }) = &self.output else { return None };
        plan.map(|plan| (plan.segments, plan.bytes))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.output {
            Output::Nothing | Output::Event(_) => self.entry.fmt(f),
            Output::Planned(planned) => write!(f, "{}: {planned}", self.entry),
            Output::Answer(answer) => write!(f, "{}: {answer}", self.entry),
        }
    }
}

/// A connection replayed from its log.
///
/// Pass a buffered reader. Memory is bounded by a block of the log and the connection's own limit:
/// see [`BUFFER_MAX`](super::BUFFER_MAX).
pub struct Replay<R> {
    head: JournalHead,
    calls: ::journal::replay::Replay<ReplayedConnection, R>,
}

/// A connection, its receive half while it is detached, and the reader state.
struct ReplayedConnection {
    state: ReadState,
    connection: Connection,
    detached: DetachedReplay,
    replayer: Replayer,
}

impl<R: Read> Replay<R> {
    /// Reads the first entry and begins the connection.
    ///
    /// # Errors
    /// [`Stopped::Journal`] if the input is no log, has another version, or ends here;
    /// [`Stopped::Broke`] if no connection can begin with these values.
    pub fn begin(input: R) -> Result<Self, Stopped> {
        let mut blocks = open(input, FORMAT)?;
        let (head, seed, syn) = blocks.read(begin).map_err(|error| error.at(0))?;
        let (began_at, tuple) = (head.began_at, head.tuple);
        let connection = begin_connection(began_at, || Connection::begin(began_at, seed, syn.as_ref()))?;
        let state = ReadState::new(began_at, tuple);
        let (detached, replayer) = (DetachedReplay::default(), Replayer::default());
        let replayed = ReplayedConnection { state, connection, detached, replayer };
        Ok(Self { head, calls: ::journal::replay::Replay::new(blocks, replayed) })
    }

    /// Returns the initial values of the connection.
    pub fn head(&self) -> &JournalHead {
        &self.head
    }

    /// Returns the connection after the last step.
    pub fn connection(&self) -> &Connection {
        &self.calls.protocol().connection
    }

    /// Returns the number of entries replayed so far, including the first one.
    pub fn entry_count(&self) -> u64 {
        self.calls.entry_count()
    }

    /// Returns the time of the next entry, or that of the last one if the next has none, so that
    /// the caller can stop before it.
    ///
    /// # Errors
    /// Same errors as [`step`](Self::step) if the log cannot be read.
    pub fn next_at(&mut self) -> Result<Instant, Stopped> {
        self.calls.next_at()
    }

    /// Returns how the log ends, once that is known.
    pub fn end(&self) -> Option<LogEnd> {
        self.calls.end()
    }

    /// Replays the next entry; returns `None` at the end of the log, and after the replay has
    /// stopped.
    ///
    /// # Errors
    /// [`Stopped`] says why the replay stopped.
    pub fn step(&mut self) -> Result<Option<Step>, Stopped> {
        let Some(stepped) = self.calls.step()? else { return Ok(None) };
        let (entry, output) = (Entry(stepped.call.0, stepped.half), stepped.output);
        Ok(Some(Step { number: stepped.number, at: stepped.at, entry, output }))
    }
}

impl Replayed for ReplayedConnection {
    type Call = (Input, Expected);
    type Output = Output;

    fn last(&self, half: Half) -> Instant {
        match (half, self.detached.state()) {
            (Half::Receive, Some(state)) => state.last(),
            _ => self.state.last(),
        }
    }

    fn time_ahead(&self, tag: u8, ahead: &[u8]) -> Option<Instant> {
        self.state.time_ahead(tag, ahead)
    }

    /// Reads an input, the grants of the budget during it, and its result.
    fn read<R: Read>(&mut self, half: Half, tag: u8, blocks: &mut Blocks<R>) -> Result<Self::Call, JournalError> {
        let state = if half == Half::Receive { self.detached.state_mut() } else { Some(&mut self.state) };
        let input = blocks.read(|reader| {
            let state = state.ok_or(Malformed("an entry of a receive half that is not detached"))?;
            state.read(half, tag, reader)
        })?;
        let mut count = 0;
        while let Some(tag::GRANT) = blocks.peek()? {
            let grant = blocks.read(|reader| Ok(Grant { wanted: reader.varint()?, granted: reader.varint()? }))?;
            count += 1;
            if count > GRANTS_MAX || grant.granted > grant.wanted {
                return Err(blocks.malformed(Malformed("grants that no call can have")));
            }
            if half == Half::Receive {
                return Err(blocks.malformed(Malformed("a grant to the receive half, which makes no plans")));
            }
            self.connection.expect_grant(grant);
        }
        let expected = read_expected(blocks, &input)?;
        Ok((input, expected))
    }

    fn apply(&mut self, half: Half, at: Instant, (input, expected): &mut Self::Call) -> Result<Output, Mismatch> {
        match half {
            Half::Receive => self.detached.apply(at, input, expected),
            Half::Connection => match self.detached.apply_to_both(&mut self.connection, at, input) {
                Some(compared) => compared,
                None => self.replayer.apply(&mut self.connection, at, input, expected),
            },
        }
    }

    fn verify(&mut self) -> Result<(), Unrecorded> {
        if self.detached.is_overfull() {
            let mismatch = ("as much in transit between the halves as fits".to_owned(), "more".to_owned());
            return Err(Unrecorded { mismatch, may_be_missing: false });
        }
        if !self.connection.take_grants_match() {
            let mismatch =
                ("buffers that grow as recorded".to_owned(), "a buffer that grows in another way".to_owned());
            return Err(Unrecorded { mismatch, may_be_missing: true });
        }
        Ok(())
    }

    fn text((input, _): &Self::Call, half: Half) -> String {
        Text(input, half).to_string()
    }
}

impl<R> fmt::Debug for Replay<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("head", &self.head).finish_non_exhaustive()
    }
}

/// Reads the result of an input.
fn read_expected<R: Read>(blocks: &mut Blocks<R>, input: &Input) -> Result<Expected, JournalError> {
    let wanted = match input {
        Input::PlanAsked(_) => tag::PLANNED,
        input if input.is_answered() => tag::ANSWER,
        _ => return Ok(Expected::Nothing),
    };
    if !has_answer(blocks, wanted)? {
        return Ok(Expected::Unknown);
    }
    if wanted == tag::ANSWER {
        return Ok(Expected::Answer(blocks.read(Answer::parse)?));
    }
    Ok(Expected::Planned(blocks.read(Planned::parse)?))
}
