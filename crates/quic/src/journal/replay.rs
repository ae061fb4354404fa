//! The replay of a log, entry by entry.

use std::any::Any;
use std::fmt;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use bytes::Bytes;
use units::Instant;
use wire::quic::Reader;

use super::apply::{Expected, Output, Replayer};
use super::begin::{JournalHead, begin};
use super::blocks::{Blocks, JournalError, JournalErrorKind};
use super::detached::DetachedReplay;
use super::entry::{Entry, Input, ReadState};
use super::format::{Ending, Malformed, Parsed, tag};
use super::observe::{Observation, Observer};
use super::out::Half;
use super::outcome::{Answer, Planned};
use super::session::SessionEntry;
use crate::connection::Connection;
use crate::event::Event;
use crate::observed::PathMetrics;
use crate::plan::Plan;

/// The most bytes that one call may take of a chunk.
const ZEROS_LEN: usize = 64 << 20;

/// Zeros that all chunks of all replays share. Made once, because mapping and unmapping them costs
/// more than a short replay. Pages that no replay touches take no memory.
static ZEROS: LazyLock<&[u8]> = LazyLock::new(|| vec![0; ZEROS_LEN].leak());

/// The most TLS entries of one call: a handshake takes a dozen.
const NOTES_MAX: usize = 256;

/// The most sockets whose budgets one call may ask for: more than any connection has paths.
const SOCKETS_ASKED_MAX: u64 = 256;

/// How a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogEnd {
    /// With its connection.
    Complete,
    /// It is cut: the process was killed, or the log was abandoned because its disk was full or too
    /// slow. This many bytes of an incomplete last block were not used.
    Cut(u64),
    /// With an entry that would have exceeded the longest length.
    TooLong,
}

/// A result that differs from the recorded one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The entry, counted from zero.
    pub entry: u64,
    /// Its time, since the run began.
    pub at: Instant,
    /// The input, as text.
    pub input: String,
    /// The recorded result.
    pub expected: String,
    /// The result of the replay.
    pub got: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, at, input, expected, got } = self;
        write!(f, "entry {entry} at {}: {input}: expected {expected}; got {got}", at.since_start())
    }
}

/// Why a replay stopped.
#[derive(Debug)]
pub enum Stopped {
    /// The log cannot be read any further.
    Journal(JournalError),
    /// The first difference: another program has written the log, the log was changed, or the
    /// connection depends on more than its inputs, which is a bug.
    Differs(Box<Difference>),
    /// The connection panicked, as it may have done when the log was written: the entry, its time,
    /// the input, and the message.
    Broke(Box<Difference>),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal(error) => error.fmt(f),
            Self::Differs(difference) => difference.fmt(f),
            Self::Broke(difference) => {
                let Difference { entry, at, input, got, .. } = difference.as_ref();
                write!(f, "entry {entry} at {}: {input}: the connection broke: {got}", at.since_start())
            }
        }
    }
}

impl std::error::Error for Stopped {}

impl From<JournalError> for Stopped {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

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
    blocks: Blocks<R>,
    state: ReadState,
    head: JournalHead,
    connection: Connection,
    /// Its receive half while it is detached.
    detached: DetachedReplay,
    /// The writer of the entries that are read.
    half: Half,
    replayer: Replayer,
    /// Entries read so far.
    count: u64,
    end: Option<LogEnd>,
    is_over: bool,
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
        let mut blocks = Blocks::begin(input)?;
        let malformed = |blocks: &Blocks<R>, Malformed(what)| JournalError {
            entry: Some(0),
            ..blocks.error(JournalErrorKind::Malformed(what))
        };
        match blocks.peek()? {
            None => return Err(blocks.error(JournalErrorKind::Empty).into()),
            Some(tag::BEGIN) => {}
            Some(_) => return Err(malformed(&blocks, Malformed("it does not begin with its connection")).into()),
        }
        let (head, mut seed) = blocks.read(begin).map_err(|error| malformed(&blocks, error))?;
        let entries = take_entries(&mut blocks).map_err(|error| error.at(0))?;
        if let Some(observer) = &mut observer {
            observer.on_session(head.side, &entries);
        }
        if let Some(session) = seed.control.session.replayed_mut() {
            entries.into_iter().for_each(|entry| session.push(entry));
        }
        let began_at = head.began_at;
        let broke = |got| Difference { entry: 0, at: began_at, input: "begin".into(), expected: String::new(), got };
        let begun = catch_unwind(AssertUnwindSafe(|| Connection::new(began_at, seed)));
        let mut connection = begun.map_err(|panic| Stopped::Broke(Box::new(broke(panic_message(panic.as_ref())))))?;
        if let Some(mismatch) = connection.replay_mismatch() {
            let expected = "as it was written".to_owned();
            return Err(Stopped::Differs(Box::new(Difference { expected, ..broke(mismatch.to_owned()) })));
        }
        if observer.is_some() {
            connection.observe_losses();
        }
        let replayer = Replayer { zeros: Bytes::from_static(*ZEROS), plan: Plan::new(), observer };
        let state = ReadState::new(began_at);
        let (detached, half) = (DetachedReplay::default(), Half::Connection);
        Ok(Self { blocks, state, head, connection, detached, half, replayer, count: 1, end: None, is_over: false })
    }

    /// The initial values of the connection.
    pub fn head(&self) -> &JournalHead {
        &self.head
    }

    /// The connection after the last step.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// What was observed since the last call, in its order: at the beginning, or in the last step,
    /// whose time it has. Nothing if the replay did not begin as [observed](Self::observed). Call it
    /// after each step, because observations are kept until then.
    pub fn take_observations(&mut self) -> Vec<Observation> {
        let Some(observer) = &mut self.replayer.observer else { return Vec::new() };
        std::mem::take(&mut observer.seen)
    }

    /// The recovery state of every path after the last step.
    pub fn path_metrics(&self) -> Vec<PathMetrics> {
        self.connection.path_metrics()
    }

    /// Entries replayed so far, including the first one.
    pub fn entry_count(&self) -> u64 {
        self.count
    }

    /// The time of the next entry, or that of the last one if the next has none: to stop before it.
    ///
    /// # Errors
    /// As [`step`](Self::step), if the log cannot be read.
    pub fn next_at(&mut self) -> Result<Instant, Stopped> {
        let tag = if self.is_over { None } else { self.blocks.peek()? };
        let ahead = tag.and_then(|tag| self.state.time_ahead(tag, self.blocks.ahead()));
        Ok(ahead.unwrap_or(Instant::from_nanos(self.state.last)))
    }

    /// How the log ends, once that is known.
    pub fn end(&self) -> Option<LogEnd> {
        self.end
    }

    /// Replays the next entry; none at the end of the log, and after the replay has stopped.
    ///
    /// # Errors
    /// [`Stopped`] says why the replay stopped.
    pub fn step(&mut self) -> Result<Option<Step>, Stopped> {
        if self.is_over {
            return Ok(None);
        }
        let stepped = self.next();
        self.is_over = !matches!(stepped, Ok(Some(_)));
        stepped
    }

    fn next(&mut self) -> Result<Option<Step>, Stopped> {
        let number = self.count;
        let Some((mut input, expected)) = self.read_input().map_err(|error| error.at(number))? else {
            return Ok(None);
        };
        let (half, there) = (self.half, self.detached.state().map_or(0, |state| state.last));
        let at = Instant::from_nanos(if half == Half::Receive { there } else { self.state.last });
        if let Some(observer) = &mut self.replayer.observer {
            observer.on_input(&input);
        }
        let (connection, detached, replayer) = (&mut self.connection, &mut self.detached, &mut self.replayer);
        let applied = catch_unwind(AssertUnwindSafe(|| {
            let compared = match half {
                Half::Receive => detached.apply(replayer, at, &mut input, &expected),
                Half::Connection => match detached.apply_to_both(connection, at, &input) {
                    Some(compared) => compared,
                    None => replayer.apply(connection, at, &mut input, &expected),
                },
            };
            (compared, connection.replay_mismatch())
        }));
        let difference = |input: Input, expected: String, got: String| {
            Box::new(Difference { entry: number, at, input: Entry(input, half).to_string(), expected, got })
        };
        let (compared, mismatch) = match applied {
            Ok(applied) => applied,
            Err(panic) => {
                return Err(Stopped::Broke(difference(input, String::new(), panic_message(panic.as_ref()))));
            }
        };
        let output = match compared {
            Ok(output) => output,
            Err((expected, got)) => return Err(Stopped::Differs(difference(input, expected, got))),
        };
        if self.detached.is_overfull(&self.connection) {
            let [expected, got] = ["as much in transit between the halves as fits".to_owned(), "more".to_owned()];
            return Err(Stopped::Differs(difference(input, expected, got)));
        }
        // The last TLS entries may be missing from the log.
        if let Some(mismatch) = mismatch
            && self.blocks.peek()?.is_some()
        {
            return Err(Stopped::Differs(difference(input, "as it was written".into(), mismatch.into())));
        }
        if let Some(observer) = &mut self.replayer.observer {
            observer.seen.extend(self.connection.take_losses().into_iter().map(Observation::Lost));
        }
        self.count += 1;
        Ok(Some(Step { number, at, entry: Entry(input, half), output }))
    }

    /// Reads an input, its TLS entries and its result.
    fn read_input(&mut self) -> Result<Option<(Input, Expected)>, JournalError> {
        while let Some(half) = self.blocks.peek()?.and_then(Half::of_tag) {
            self.read_as(|_| Ok(()))?;
            self.half = half;
        }
        let Some(tag) = self.blocks.peek()? else {
            self.end = Some(LogEnd::Cut(self.blocks.cut_bytes));
            return Ok(None);
        };
        if tag == tag::END {
            self.end = Some(self.read_as(|reader| match reader.u8()? {
                ending if ending == Ending::Dropped as u8 => Ok(LogEnd::Complete),
                ending if ending == Ending::TooLong as u8 => Ok(LogEnd::TooLong),
                _ => Err(Malformed("an unknown end")),
            })?);
            return match self.blocks.peek()? {
                None if self.blocks.cut_bytes == 0 => Ok(None),
                _ => Err(self.blocks.error(JournalErrorKind::Malformed("something follows its end"))),
            };
        }
        let half = self.half;
        let state = if half == Half::Receive { self.detached.state() } else { Some(&mut self.state) };
        let input = self.blocks.read(|reader| {
            let state = state.ok_or(Malformed("an entry of a receive half that is not detached"))?;
            state.read(half, tag, reader)
        });
        let input = input.map_err(|Malformed(what)| self.blocks.error(JournalErrorKind::Malformed(what)))?;
        let entries = take_entries(&mut self.blocks)?;
        if let Some(observer) = &mut self.replayer.observer {
            observer.on_session(self.head.side, &entries);
        }
        if !entries.is_empty() {
            let session = self.connection.replayed_session();
            let misplaced = JournalErrorKind::Malformed("TLS entries of a connection without TLS");
            let session = session.ok_or_else(|| self.blocks.error(misplaced))?;
            entries.into_iter().for_each(|entry| session.push(entry));
        }
        let expected = self.read_expected(&input)?;
        Ok(Some((input, expected)))
    }

    fn read_expected(&mut self, input: &Input) -> Result<Expected, JournalError> {
        let wanted = match input {
            Input::PlanAsked => tag::PLANNED,
            input if input.is_answered() => tag::ANSWER,
            _ => return Ok(Expected::Nothing),
        };
        match self.blocks.peek()? {
            None => Ok(Expected::Unknown),
            // The connection or a half of it panicked before it could answer, or the log ended.
            Some(tag::END | tag::OF_CONNECTION | tag::OF_RECEIVE_HALF) => Ok(Expected::Unknown),
            Some(tag::PLANNED) if wanted == tag::PLANNED => {
                let (socket_budgets, planned) = self.read_as(|reader| {
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
            Some(tag::ANSWER) if wanted == tag::ANSWER => Ok(Expected::Answer(self.read_as(Answer::parse)?)),
            Some(_) => Err(self.blocks.error(JournalErrorKind::Malformed("a call without an answer"))),
        }
    }

    fn read_as<T>(&mut self, parse: impl FnOnce(&mut Reader<'_>) -> Parsed<T>) -> Result<T, JournalError> {
        let parsed = self.blocks.read(parse);
        parsed.map_err(|Malformed(what)| self.blocks.error(JournalErrorKind::Malformed(what)))
    }
}

impl<R> fmt::Debug for Replay<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("head", &self.head).field("count", &self.count).finish_non_exhaustive()
    }
}

impl JournalError {
    /// Adds the number of the entry, unless a whole block is wrong.
    fn at(self, entry: u64) -> Self {
        let is_of_entry = matches!(self.kind, JournalErrorKind::Malformed(_));
        Self { entry: is_of_entry.then_some(entry), ..self }
    }
}

/// Reads the TLS entries of the call whose entry was read last.
fn take_entries<R: Read>(blocks: &mut Blocks<R>) -> Result<Vec<SessionEntry>, JournalError> {
    let mut entries = Vec::new();
    while let Some(tag) = blocks.peek()?.filter(|tag| SessionEntry::is(*tag)) {
        let entry = blocks.read(|reader| SessionEntry::read(tag, reader));
        let entry = entry.map_err(|Malformed(what)| blocks.error(JournalErrorKind::Malformed(what)))?;
        entries.push(entry);
        if entries.len() > NOTES_MAX {
            return Err(blocks.error(JournalErrorKind::Malformed("more TLS entries than one call can have")));
        }
    }
    Ok(entries)
}

/// The message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().cloned();
    words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned())).unwrap_or_default()
}
