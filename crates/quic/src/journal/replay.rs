//! The replay of a log, entry by entry.

use std::fmt;
use std::io::Read;

use ::journal::blocks::Blocks;
use ::journal::format::Malformed;
use ::journal::out::Half;
use ::journal::replay::{Replayed, Unrecorded, begin as begin_connection, has_answer, open};
use ::journal::stopped::{Difference, LogEnd, Stopped};
use ::journal::transit::Mismatch;
use ::journal::{JournalError, zeros};
use units::Instant;

use super::apply::{Expected, Output, Replayer};
use super::begin::{JournalHead, begin};
use super::detached::DetachedReplay;
use super::entry::{Entry, Input, ReadState, Text};
use super::format::{FORMAT, tag};
use super::observe::{Observation, Observer};
use super::outcome::{Answer, Planned};
use super::session::SessionEntry;
use crate::connection::Connection;
use crate::event::Event;
use crate::observed::PathMetrics;
use crate::plan::Plan;

/// The most TLS entries of one call: a handshake takes a dozen.
const NOTES_MAX: usize = 256;

/// The most sockets whose budgets one call may ask for: more than any connection has paths.
const SOCKETS_ASKED_MAX: u64 = 256;

/// One entry whose replay had the recorded result.
#[derive(Debug)]
pub struct Step {
    /// The entry, counted from zero.
    pub number: u64,
    /// Its time, or that of the last entry that has one, since the run began.
    pub at: Instant,
    /// The entry itself.
    pub entry: Entry,
    output: Output,
}

impl Step {
    /// The event for the application, if it is one.
    pub fn event(&self) -> Option<&Event> {
        if let Output::Event(event) = &self.output { Some(event) } else { None }
    }

    /// The numbers of datagrams and bytes, if it was a plan.
    pub fn planned(&self) -> Option<(u64, u64)> {
        let Output::Planned(Planned { plan, .. }) = &self.output else { return None };
        plan.map(|plan| (plan.datagrams, plan.bytes))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.output {
            Output::Nothing => self.entry.fmt(f),
            Output::Planned(planned) => write!(f, "{}: {planned}", self.entry),
            Output::Answer(answer) => write!(f, "{}: {}", self.entry, self.entry.0.answer_text(*answer)),
            // The log has a digest of the reason; the replay has the reason.
            Output::Event(Event::Closed(error)) => write!(f, "event: closed: {error}"),
            Output::Event(_) => self.entry.fmt(f),
        }
    }
}

/// A connection that is replayed from its log.
///
/// Give it a reader with a buffer of its own. Memory is bounded by a block of the log and by what
/// the connection may hold: see [`UNREAD_MAX`](super::UNREAD_MAX).
pub struct Replay<R> {
    head: JournalHead,
    calls: ::journal::replay::Replay<ReplayedConnection, R>,
}

/// A connection, its receive half while it is detached, and the state of the reader.
struct ReplayedConnection {
    state: ReadState,
    connection: Connection,
    detached: DetachedReplay,
    replayer: Replayer,
    /// TLS was called in another way than recorded.
    mismatch: Option<&'static str>,
}

impl<R: Read> Replay<R> {
    /// Reads the first entry and begins the connection.
    ///
    /// # Errors
    /// [`Stopped::Journal`] if this is no log, has another version, or ends here;
    /// [`Stopped::Broke`] if no connection can begin with these values.
    pub fn begin(input: R) -> Result<Self, Stopped> {
        Self::begin_with(input, None)
    }

    /// As [`begin`](Self::begin), and collects what the connection does for
    /// [`take_observations`](Self::take_observations).
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn observed(input: R) -> Result<Self, Stopped> {
        Self::begin_with(input, Some(Box::default()))
    }

    fn begin_with(input: R, mut observer: Option<Box<Observer>>) -> Result<Self, Stopped> {
        let mut blocks = open(input, FORMAT)?;
        let (head, mut seed) = blocks.read(begin).map_err(|error| error.at(0))?;
        let entries = take_entries(&mut blocks).map_err(|error| error.at(0))?;
        if let Some(observer) = &mut observer {
            observer.on_session(head.side, &entries);
        }
        if let Some(session) = seed.control.session.replayed_mut() {
            entries.into_iter().for_each(|entry| session.push(entry));
        }
        let began_at = head.began_at;
        let mut connection = begin_connection(began_at, || Connection::new(began_at, seed))?;
        if let Some(mismatch) = connection.replay_mismatch() {
            let difference = Difference::of_begin(began_at, "as it was written".to_owned(), mismatch.to_owned());
            return Err(Stopped::Differs(Box::new(difference)));
        }
        if observer.is_some() {
            connection.observe_losses();
        }
        let replayer = Replayer { zeros: zeros::all(), plan: Plan::new(), observer };
        let state = ReadState::new(began_at);
        let detached = DetachedReplay::default();
        let replayed = ReplayedConnection { state, connection, detached, replayer, mismatch: None };
        Ok(Self { head, calls: ::journal::replay::Replay::new(blocks, replayed) })
    }

    /// The initial values of the connection.
    pub fn head(&self) -> &JournalHead {
        &self.head
    }

    /// The connection after the last step.
    pub fn connection(&self) -> &Connection {
        &self.calls.protocol().connection
    }

    /// What was observed since the last call, in its order: at the beginning, or in the last step,
    /// whose time it has. Nothing if the replay did not begin as [observed](Self::observed). Call it
    /// after each step, because observations are kept until then.
    pub fn take_observations(&mut self) -> Vec<Observation> {
        let Some(observer) = &mut self.calls.protocol_mut().replayer.observer else { return Vec::new() };
        std::mem::take(&mut observer.seen)
    }

    /// The recovery state of every path after the last step.
    pub fn path_metrics(&self) -> Vec<PathMetrics> {
        self.connection().path_metrics()
    }

    /// Entries replayed so far, including the first one.
    pub fn entry_count(&self) -> u64 {
        self.calls.entry_count()
    }

    /// The time of the next entry, or that of the last one if the next has none: to stop before it.
    ///
    /// # Errors
    /// As [`step`](Self::step), if the log cannot be read.
    pub fn next_at(&mut self) -> Result<Instant, Stopped> {
        self.calls.next_at()
    }

    /// How the log ends, once that is known.
    pub fn end(&self) -> Option<LogEnd> {
        self.calls.end()
    }

    /// Replays the next entry; none at the end of the log, and after the replay has stopped.
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
        let there = self.detached.state().map_or(0, |state| state.last);
        Instant::from_nanos(if half == Half::Receive { there } else { self.state.last })
    }

    fn time_ahead(&self, tag: u8, ahead: &[u8]) -> Option<Instant> {
        self.state.time_ahead(tag, ahead)
    }

    /// Reads an input, its TLS entries and its result.
    fn read<R: Read>(&mut self, half: Half, tag: u8, blocks: &mut Blocks<R>) -> Result<Self::Call, JournalError> {
        let state = if half == Half::Receive { self.detached.state_mut() } else { Some(&mut self.state) };
        let input = blocks.read(|reader| {
            let state = state.ok_or(Malformed("an entry of a receive half that is not detached"))?;
            state.read(half, tag, reader)
        })?;
        let entries = take_entries(blocks)?;
        if let Some(observer) = &mut self.replayer.observer {
            observer.on_session(self.connection.side(), &entries);
        }
        if !entries.is_empty() {
            let session = self.connection.replayed_session();
            let misplaced = Malformed("TLS entries of a connection without TLS");
            let session = session.ok_or_else(|| blocks.malformed(misplaced))?;
            entries.into_iter().for_each(|entry| session.push(entry));
        }
        let expected = read_expected(blocks, &input)?;
        Ok((input, expected))
    }

    fn apply(&mut self, half: Half, at: Instant, (input, expected): &mut Self::Call) -> Result<Output, Mismatch> {
        if let Some(observer) = &mut self.replayer.observer {
            observer.on_input(input);
        }
        let compared = match half {
            Half::Receive => self.detached.apply(&self.replayer, at, input, expected),
            Half::Connection => match self.detached.apply_to_both(&mut self.connection, at, input) {
                Some(compared) => compared,
                None => self.replayer.apply(&mut self.connection, at, input, expected),
            },
        };
        self.mismatch = self.connection.replay_mismatch();
        compared
    }

    fn verify(&mut self) -> Result<(), Unrecorded> {
        if self.detached.is_overfull(&self.connection) {
            let mismatch = ("as much in transit between the halves as fits".to_owned(), "more".to_owned());
            return Err(Unrecorded { mismatch, may_be_missing: false });
        }
        if let Some(mismatch) = self.mismatch.take() {
            let mismatch = ("as it was written".to_owned(), mismatch.to_owned());
            return Err(Unrecorded { mismatch, may_be_missing: true });
        }
        if let Some(observer) = &mut self.replayer.observer {
            observer.seen.extend(self.connection.take_losses().into_iter().map(Observation::Lost));
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
        Input::PlanAsked => tag::PLANNED,
        input if input.is_answered() => tag::ANSWER,
        _ => return Ok(Expected::Nothing),
    };
    if !has_answer(blocks, wanted)? {
        return Ok(Expected::Unknown);
    }
    if wanted == tag::ANSWER {
        return Ok(Expected::Answer(blocks.read(Answer::parse)?));
    }
    let (socket_budgets, planned) = blocks.read(|reader| {
        let mut socket_budgets = Vec::new();
        let count = reader.varint()?;
        if count > SOCKETS_ASKED_MAX {
            return Err(Malformed("the budgets of more sockets than a connection has"));
        }
        for _ in 0..count {
            let socket = u16::try_from(reader.varint()?).map_err(|_| Malformed("a socket above 65535"))?;
            socket_budgets.push((socket, usize::try_from(reader.varint()?).unwrap_or(usize::MAX)));
        }
        Ok((socket_budgets, Planned::parse(reader)?))
    })?;
    Ok(Expected::Planned(socket_budgets, planned))
}

/// Reads the TLS entries of the call whose entry was read last.
fn take_entries<R: Read>(blocks: &mut Blocks<R>) -> Result<Vec<SessionEntry>, JournalError> {
    let mut entries = Vec::new();
    while let Some(tag) = blocks.peek()?.filter(|tag| SessionEntry::is(*tag)) {
        entries.push(blocks.read(|reader| SessionEntry::read(tag, reader))?);
        if entries.len() > NOTES_MAX {
            return Err(blocks.malformed(Malformed("more TLS entries than one call can have")));
        }
    }
    Ok(entries)
}
