//! A log made to happen again, entry by entry.

use std::any::Any;
use std::fmt;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use units::Instant;
use wire::quic::Reader;

use super::Ending;
use super::apply::{Came, Expected, Hands};
use super::begin::{JournalHead, begin};
use super::blocks::{Blocks, JournalError, JournalErrorKind};
use super::entry::{Entry, Input, Memory};
use super::format::{Malformed, Parsed, tag};
use super::halves::Halves;
use super::out::Half;
use super::outcome::{Answer, Planned};
use super::session::SessionNote;
use crate::connection::Connection;
use crate::event::Event;
use crate::plan::Plan;

/// Bytes to write and to read that all chunks share: what one call may take of a longer chunk, at most. Memory that nobody
/// touches costs nothing.
const ZEROS_LEN: usize = 64 << 20;

/// What TLS may say during one call: a handshake takes a dozen.
const NOTES_MAX: usize = 256;

/// Sockets that a connection may ask for room during one call: more than any has paths.
const ROOMS_MAX: u64 = 256;

/// How a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogEnd {
    /// With its connection.
    Complete,
    /// Somewhere: its process was killed, or the log was given up because its disk was full or too slow. So many bytes of a last
    /// block could not be used.
    Cut(u64),
    /// With an entry that would have been longer than any may be.
    TooLong,
}

/// What came out differs from what the log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The entry, counted from zero.
    pub entry: u64,
    /// Its time, since the run began.
    pub at: Instant,
    /// What was done, in words.
    pub input: String,
    /// What the log says that came of it.
    pub expected: String,
    /// What came of it now.
    pub got: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, at, input, expected, got } = self;
        write!(f, "entry {entry} at {}: {input}: expected {expected}; got {got}", at.since_start())
    }
}

/// Why a replay goes no further.
#[derive(Debug)]
pub enum Stopped {
    /// The log cannot be read any further.
    Journal(JournalError),
    /// The first difference: this program is not the one that wrote the log, the log was changed, or something other than its
    /// inputs decided, which is a bug.
    Differs(Box<Difference>),
    /// The connection broke one of its own rules, as it may have done when the log was written: the entry, its time, what was
    /// done, and what the connection said.
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

/// One entry that went as the log says.
#[derive(Debug)]
pub struct Step {
    /// The entry, counted from zero.
    pub number: u64,
    /// Its time, or that of the last entry that has one, since the run began.
    pub at: Instant,
    /// What was done.
    pub entry: Entry,
    came: Came,
}

impl Step {
    /// What was planned: datagrams and their bytes, if it was a plan.
    pub fn planned(&self) -> Option<(u64, u64)> {
        let Came::Planned(Planned { plan, .. }) = &self.came else { return None };
        plan.map(|plan| (plan.datagrams, plan.bytes))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.came {
            Came::Nothing => self.entry.fmt(f),
            Came::Planned(planned) => write!(f, "{}: {planned}", self.entry),
            Came::Answer(answer) => write!(f, "{}: {}", self.entry, self.entry.0.answer_text(*answer)),
            // The log has a digest of the reason; the replay has its words.
            Came::Event(Event::Closed(error)) => write!(f, "event: closed: {error}"),
            Came::Event(_) => self.entry.fmt(f),
        }
    }
}

/// A connection made again from its log.
///
/// Give it a reader with a buffer of its own. Memory is bounded by a block of the log and by what the connection may hold: see
/// [`HELD_MAX`](super::HELD_MAX).
pub struct Replay<R> {
    blocks: Blocks<R>,
    memory: Memory,
    head: JournalHead,
    connection: Connection,
    /// Its receive half while it is apart.
    halves: Halves,
    /// Whose entries are read.
    half: Half,
    hands: Hands,
    /// Entries read so far.
    count: u64,
    end: Option<LogEnd>,
    is_over: bool,
}

impl<R: Read> Replay<R> {
    /// Reads how the connection began, and begins it.
    ///
    /// # Errors
    /// [`Stopped::Journal`] if this is no log, one of another version, or one that ends here; [`Stopped::Broke`] if no connection
    /// can begin so.
    pub fn begin(input: R) -> Result<Self, Stopped> {
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
        let notes = take_notes(&mut blocks).map_err(|error| error.at(0))?;
        if let Some(session) = seed.beginning.session.replayed_mut() {
            notes.into_iter().for_each(|note| session.push(note));
        }
        let began_at = head.began_at;
        let broke = |got| Difference { entry: 0, at: began_at, input: "begin".into(), expected: String::new(), got };
        let begun = catch_unwind(AssertUnwindSafe(|| Connection::new(began_at, seed)));
        let mut connection = begun.map_err(|panic| Stopped::Broke(Box::new(broke(words_of(panic.as_ref())))))?;
        if let Some(trouble) = connection.replay_trouble() {
            let expected = "as it was written".to_owned();
            return Err(Stopped::Differs(Box::new(Difference { expected, ..broke(trouble.to_owned()) })));
        }
        let hands = Hands { zeros: Bytes::from(vec![0; ZEROS_LEN]), plan: Plan::new() };
        let memory = Memory::new(began_at);
        let (halves, half) = (Halves::default(), Half::Connection);
        Ok(Self { blocks, memory, head, connection, halves, half, hands, count: 1, end: None, is_over: false })
    }

    /// What the log says about its connection.
    pub fn head(&self) -> &JournalHead {
        &self.head
    }

    /// The connection, as it stands after the last step.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Entries made to happen so far, the beginning included.
    pub fn entry_count(&self) -> u64 {
        self.count
    }

    /// The time of the next entry, or that of the last one if the next has none: to stop before it.
    ///
    /// # Errors
    /// As [`step`](Self::step), if the log cannot be read.
    pub fn next_at(&mut self) -> Result<Instant, Stopped> {
        let tag = if self.is_over { None } else { self.blocks.peek()? };
        let ahead = tag.and_then(|tag| self.memory.time_ahead(tag, self.blocks.ahead()));
        Ok(ahead.unwrap_or(Instant::from_nanos(self.memory.last)))
    }

    /// How the log ends, once that is known.
    pub fn end(&self) -> Option<LogEnd> {
        self.end
    }

    /// Makes the next entry happen; none at the end of the log, and after the replay has stopped.
    ///
    /// # Errors
    /// [`Stopped`] says why it goes no further.
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
        let (half, there) = (self.half, self.halves.memory().map_or(0, |memory| memory.last));
        let at = Instant::from_nanos(if half == Half::Receive { there } else { self.memory.last });
        let (connection, halves, hands) = (&mut self.connection, &mut self.halves, &mut self.hands);
        let applied = catch_unwind(AssertUnwindSafe(|| {
            let compared = match half {
                Half::Receive => halves.apply(hands, at, &mut input, &expected),
                Half::Connection => match halves.apply_to_both(connection, at, &input) {
                    Some(compared) => compared,
                    None => hands.apply(connection, at, &mut input, &expected),
                },
            };
            (compared, connection.replay_trouble())
        }));
        let difference = |input: Input, expected: String, got: String| {
            Box::new(Difference { entry: number, at, input: Entry(input, half).to_string(), expected, got })
        };
        let (compared, trouble) = match applied {
            Ok(applied) => applied,
            Err(panic) => {
                return Err(Stopped::Broke(difference(input, String::new(), words_of(panic.as_ref()))));
            }
        };
        let came = match compared {
            Ok(came) => came,
            Err((expected, got)) => return Err(Stopped::Differs(difference(input, expected, got))),
        };
        if self.halves.is_overfull(&self.connection) {
            let [expected, got] = ["as much on its way between the halves as fits".to_owned(), "more".to_owned()];
            return Err(Stopped::Differs(difference(input, expected, got)));
        }
        // What TLS said last may not have been written any more.
        if let Some(trouble) = trouble
            && self.blocks.peek()?.is_some()
        {
            return Err(Stopped::Differs(difference(input, "as it was written".into(), trouble.into())));
        }
        self.count += 1;
        Ok(Some(Step { number, at, entry: Entry(input, half), came }))
    }

    /// Reads an input with what TLS said and what came of it.
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
        let memory = if half == Half::Receive { self.halves.memory() } else { Some(&mut self.memory) };
        let input = self.blocks.read(|reader| {
            let memory = memory.ok_or(Malformed("an entry of a receive half that is not apart"))?;
            memory.read(half, tag, reader)
        });
        let input = input.map_err(|Malformed(what)| self.blocks.error(JournalErrorKind::Malformed(what)))?;
        let notes = take_notes(&mut self.blocks)?;
        if !notes.is_empty() {
            let session = self.connection.replayed_session();
            let misplaced = JournalErrorKind::Malformed("words of TLS where there is none");
            let session = session.ok_or_else(|| self.blocks.error(misplaced))?;
            notes.into_iter().for_each(|note| session.push(note));
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
            // The connection or a half of it broke before it could answer, or the log ended.
            Some(tag::END | tag::OF_CONNECTION | tag::OF_RECEIVE_HALF) => Ok(Expected::Unknown),
            Some(tag::PLANNED) if wanted == tag::PLANNED => {
                let (rooms, planned) = self.read_as(|reader| {
                    let mut rooms = Vec::new();
                    let count = reader.varint()?;
                    if count > ROOMS_MAX {
                        return Err(Malformed("room of more sockets than a connection has"));
                    }
                    for _ in 0..count {
                        let socket = u16::try_from(reader.varint()?).map_err(|_| Malformed("a socket above 65535"))?;
                        rooms.push((socket, usize::try_from(reader.varint()?).unwrap_or(usize::MAX)));
                    }
                    Ok((rooms, Planned::parse(reader)?))
                })?;
                Ok(Expected::Planned(rooms, planned))
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
    /// With the entry that it is about, unless a whole block is wrong.
    fn at(self, entry: u64) -> Self {
        let is_of_entry = matches!(self.kind, JournalErrorKind::Malformed(_));
        Self { entry: is_of_entry.then_some(entry), ..self }
    }
}

/// What TLS said during the call whose entry was read last.
fn take_notes<R: Read>(blocks: &mut Blocks<R>) -> Result<Vec<SessionNote>, JournalError> {
    let mut notes = Vec::new();
    while let Some(tag) = blocks.peek()?.filter(|tag| SessionNote::is(*tag)) {
        let note = blocks.read(|reader| SessionNote::read(tag, reader));
        let note = note.map_err(|Malformed(what)| blocks.error(JournalErrorKind::Malformed(what)))?;
        notes.push(note);
        if notes.len() > NOTES_MAX {
            return Err(blocks.error(JournalErrorKind::Malformed("TLS says more than it can at once")));
        }
    }
    Ok(notes)
}

/// What a panic said.
fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().cloned();
    words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned())).unwrap_or_default()
}
