//! The replay of a log, entry by entry.

use std::fmt;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};

use units::Instant;

use crate::blocks::{Blocks, JournalError, JournalErrorKind};
use crate::format::{Ending, Format, Malformed, tag};
use crate::out::Half;
use crate::stopped::{Difference, LogEnd, Stopped, panic_message};
use crate::transit::Mismatch;

/// A connection of some protocol that can be replayed.
pub trait Replayed {
    /// A call of the connection as recorded in the log: its input, related entries, and its result.
    type Call;
    /// Result of a call in the replay, which equals the recorded one.
    type Output;

    /// Returns the time of the last entry of this half that has one.
    fn last(&self, half: Half) -> Instant;

    /// Returns the time of the next entry of the connection, if it has one and can be parsed.
    /// `ahead` begins after its tag.
    fn time_ahead(&self, tag: u8, ahead: &[u8]) -> Option<Instant>;

    /// Reads the call whose first entry has this tag.
    ///
    /// # Errors
    /// If the log cannot be read, or an entry is not valid at its position.
    fn read<R: Read>(&mut self, half: Half, tag: u8, blocks: &mut Blocks<R>) -> Result<Self::Call, JournalError>;

    /// Makes the call, at the time of its entry, and compares its result.
    ///
    /// # Errors
    /// If the result differs.
    fn apply(&mut self, half: Half, at: Instant, call: &mut Self::Call) -> Result<Self::Output, Mismatch>;

    /// Compares the effects of the call besides its result.
    ///
    /// # Errors
    /// If the effects differ from the recorded ones.
    fn verify(&mut self) -> Result<(), Unrecorded>;

    /// Returns a description of a call for people.
    fn text(call: &Self::Call, half: Half) -> String;
}

/// Error: the effects of a call besides its result differ from the recorded ones.
#[derive(Debug)]
pub struct Unrecorded {
    /// The recorded result and the different one.
    pub mismatch: Mismatch,
    /// Whether the record may be missing because it is written with the next call, which the last
    /// one lacks.
    pub may_be_missing: bool,
}

/// A call whose replay gave the recorded result.
pub struct Stepped<P: Replayed> {
    /// Its number, counted from zero.
    pub number: u64,
    /// The time of its entry, or of the last entry that has one.
    pub at: Instant,
    /// The half that wrote it.
    pub half: Half,
    /// The call.
    pub call: P::Call,
    /// Its result.
    pub output: P::Output,
}

/// A replay of a log. Use a buffered reader. Memory is bounded by a block of the log and by the
/// memory of the connection.
pub struct Replay<P, R> {
    blocks: Blocks<R>,
    protocol: P,
    /// The writer of the entries that are read.
    half: Half,
    /// Number of calls read so far, including the first entry.
    count: u64,
    end: Option<LogEnd>,
    is_over: bool,
}

/// Opens a log, and positions it after the tag of its first entry, which is read next.
///
/// # Errors
/// If the log does not have this format, or ends here.
pub fn open<R: Read>(input: R, format: Format) -> Result<Blocks<R>, JournalError> {
    let mut blocks = Blocks::begin(input, format)?;
    match blocks.peek()? {
        None => Err(blocks.error(JournalErrorKind::Empty)),
        Some(tag::BEGIN) => Ok(blocks),
        Some(_) => Err(blocks.malformed(Malformed("it does not begin with its connection")).at(0)),
    }
}

/// Begins the connection of a log.
///
/// # Errors
/// If it panics.
pub fn begin<T>(began_at: Instant, make: impl FnOnce() -> T) -> Result<T, Stopped> {
    catch_unwind(AssertUnwindSafe(make)).map_err(|panic| {
        let got = panic_message(panic.as_ref());
        Stopped::Broke(Box::new(Difference::of_begin(began_at, String::new(), got)))
    })
}

/// Returns whether the result of the call whose entry was read last follows, with the tag `wanted`.
/// Returns false if the connection or a half of it panicked before it could answer, or the log has
/// ended.
///
/// # Errors
/// If another entry follows, or the log cannot be read.
pub fn has_answer<R: Read>(blocks: &mut Blocks<R>, wanted: u8) -> Result<bool, JournalError> {
    match blocks.peek()? {
        None | Some(tag::END | tag::OF_CONNECTION | tag::OF_RECEIVE_HALF) => Ok(false),
        Some(tag) if tag == wanted => Ok(true),
        Some(_) => Err(blocks.malformed(Malformed("a call without an answer"))),
    }
}

impl<P: Replayed, R: Read> Replay<P, R> {
    /// Continues after the first entry, with the connection that it began.
    pub fn new(blocks: Blocks<R>, protocol: P) -> Self {
        Self { blocks, protocol, half: Half::Connection, count: 1, end: None, is_over: false }
    }

    /// Returns the connection after the last step.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Returns the connection after the last step, mutably.
    pub fn protocol_mut(&mut self) -> &mut P {
        &mut self.protocol
    }

    /// Returns the number of calls replayed so far, including the first entry.
    pub fn entry_count(&self) -> u64 {
        self.count
    }

    /// Returns the time of the next entry, or of the last one if the next has none: a caller can
    /// stop before it.
    ///
    /// # Errors
    /// Same errors as [`step`](Self::step) if the log cannot be read.
    pub fn next_at(&mut self) -> Result<Instant, Stopped> {
        let tag = if self.is_over { None } else { self.blocks.peek()? };
        let ahead = tag.and_then(|tag| self.protocol.time_ahead(tag, self.blocks.ahead()));
        Ok(ahead.unwrap_or_else(|| self.protocol.last(Half::Connection)))
    }

    /// Returns the end of the log, once it is known.
    pub fn end(&self) -> Option<LogEnd> {
        self.end
    }

    /// Replays the next call; returns `None` at the end of the log, and after the replay has
    /// stopped.
    ///
    /// # Errors
    /// [`Stopped`] contains the reason why the replay stopped.
    pub fn step(&mut self) -> Result<Option<Stepped<P>>, Stopped> {
        if self.is_over {
            return Ok(None);
        }
        let stepped = self.next();
        self.is_over = !matches!(stepped, Ok(Some(_)));
        stepped
    }

    fn next(&mut self) -> Result<Option<Stepped<P>>, Stopped> {
        let number = self.count;
        let Some(mut call) = self.read_call().map_err(|error| error.at(number))? else { return Ok(None) };
        let (half, at) = (self.half, self.protocol.last(self.half));
        let protocol = &mut self.protocol;
        let difference = |call: &P::Call, expected: String, got: String| {
            Box::new(Difference { entry: number, at, input: P::text(call, half), expected, got })
        };
        let output = match catch_unwind(AssertUnwindSafe(|| protocol.apply(half, at, &mut call))) {
            Ok(Ok(output)) => output,
            Ok(Err((expected, got))) => return Err(Stopped::Differs(difference(&call, expected, got))),
            Err(panic) => {
                return Err(Stopped::Broke(difference(&call, String::new(), panic_message(panic.as_ref()))));
            }
        };
        if let Err(Unrecorded { mismatch: (expected, got), may_be_missing }) = self.protocol.verify()
            && !(may_be_missing && matches!(self.blocks.peek()?, None | Some(tag::END)))
        {
            return Err(Stopped::Differs(difference(&call, expected, got)));
        }
        self.count += 1;
        Ok(Some(Stepped { number, at, half, call, output }))
    }

    /// Reads a call.
    fn read_call(&mut self) -> Result<Option<P::Call>, JournalError> {
        while let Some(half) = self.blocks.peek()?.and_then(Half::of_tag) {
            self.blocks.read(|_| Ok(()))?;
            self.half = half;
        }
        let Some(tag) = self.blocks.peek()? else {
            self.end = Some(LogEnd::Cut(self.blocks.cut_bytes()));
            return Ok(None);
        };
        if tag == tag::END {
            self.end = Some(self.blocks.read(|reader| match reader.u8()? {
                ending if ending == Ending::Dropped as u8 => Ok(LogEnd::Complete),
                ending if ending == Ending::TooLong as u8 => Ok(LogEnd::TooLong),
                _ => Err(Malformed("an unknown end")),
            })?);
            return match self.blocks.peek()? {
                None if self.blocks.cut_bytes() == 0 => Ok(None),
                _ => Err(self.blocks.malformed(Malformed("something follows its end"))),
            };
        }
        self.protocol.read(self.half, tag, &mut self.blocks).map(Some)
    }
}

impl<P, R> fmt::Debug for Replay<P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("count", &self.count).finish_non_exhaustive()
    }
}
