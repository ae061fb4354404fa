//! Blocks of a log. One is in memory at a time, and it is checked before its entries are read.

use std::fmt;
use std::io::{self, Read};

use wire::quic::{Reader, VARINT_MAX};

use crate::digest::check_of;
use crate::format::{BLOCK_LEN_MAX, Format, Malformed, Parsed};

/// Error that prevents reading a log, or the rest of it.
#[derive(Debug)]
pub struct JournalError {
    /// The offset of the invalid block in the log, in bytes.
    pub offset: u64,
    /// The entry, counted from zero; `None` if a whole block is invalid.
    pub entry: Option<u64>,
    /// The error.
    pub kind: JournalErrorKind,
}

/// Kinds of errors.
#[derive(Debug)]
#[non_exhaustive]
pub enum JournalErrorKind {
    /// The log cannot be read.
    Io(io::Error),
    /// The log does not begin like a log of this protocol.
    NotAJournal,
    /// The log has another version of the format.
    OtherVersion {
        /// Its version.
        found: u64,
        /// The supported version.
        known: u64,
    },
    /// The check of a block does not match.
    Damaged,
    /// A block exceeds the maximum length.
    TooLong,
    /// The log ends before its first entry.
    Empty,
    /// An entry is invalid.
    Malformed(&'static str),
}

impl fmt::Display for JournalErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot be read: {error}"),
            Self::NotAJournal => f.write_str("not a journal of a connection"),
            Self::OtherVersion { found, known } => {
                write!(f, "version {found} of the format; this program reads version {known}")
            }
            Self::Damaged => f.write_str("damaged: a block is not what was written"),
            Self::TooLong => write!(f, "damaged: a block of more than {BLOCK_LEN_MAX} bytes"),
            Self::Empty => f.write_str("it ends before the connection has begun"),
            Self::Malformed(what) => write!(f, "not as the format says: {what}"),
        }
    }
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.kind, self.entry) {
            (JournalErrorKind::NotAJournal | JournalErrorKind::OtherVersion { .. }, _) => self.kind.fmt(f),
            (kind, Some(entry)) => write!(f, "entry {entry}, in the block at byte {}: {kind}", self.offset),
            (kind, None) => write!(f, "at byte {}: {kind}", self.offset),
        }
    }
}

impl JournalError {
    /// Adds the number of the entry, unless a whole block is invalid.
    #[must_use]
    pub fn at(self, entry: u64) -> Self {
        let is_of_entry = matches!(self.kind, JournalErrorKind::Malformed(_));
        Self { entry: is_of_entry.then_some(entry), ..self }
    }
}

impl std::error::Error for JournalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            JournalErrorKind::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// Reads a log block by block.
pub struct Blocks<R> {
    input: R,
    block: Vec<u8>,
    /// Position in the block.
    read: usize,
    /// Offset of the block in the log, and offset of the next one.
    offset: u64,
    next_offset: u64,
    chain: u64,
    /// Whether the log has ended, with `cut_bytes` bytes of an incomplete block.
    is_over: bool,
    cut_bytes: u64,
}

impl<R: Read> Blocks<R> {
    /// Reads the head, which must match `format`.
    ///
    /// # Errors
    /// If the head differs, or cannot be read.
    pub fn begin(input: R, format: Format) -> Result<Self, JournalError> {
        let mut blocks = Self {
            input,
            block: Vec::new(),
            read: 0,
            offset: 0,
            next_offset: 0,
            chain: 0,
            is_over: false,
            cut_bytes: 0,
        };
        let mut magic = [0; 8];
        if blocks.fill(&mut magic)? < magic.len() || magic != format.magic {
            return Err(blocks.error(JournalErrorKind::NotAJournal));
        }
        match blocks.varint()? {
            Some(found) if found == format.version => Ok(blocks),
            Some(found) => Err(blocks.error(JournalErrorKind::OtherVersion { found, known: format.version })),
            None => Err(blocks.error(JournalErrorKind::NotAJournal)),
        }
    }

    /// Returns the number of bytes of an incomplete block at the end of the log.
    pub const fn cut_bytes(&self) -> u64 {
        self.cut_bytes
    }

    /// Returns an error of this block.
    pub fn error(&self, kind: JournalErrorKind) -> JournalError {
        JournalError { offset: self.offset, entry: None, kind }
    }

    /// Reads bytes into `into` until it is full or the input ends. Returns their number.
    fn fill(&mut self, into: &mut [u8]) -> Result<usize, JournalError> {
        let mut filled = 0;
        while filled < into.len() {
            match self.input.read(&mut into[filled..]) {
                Ok(0) => break,
                Ok(len) => filled += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(JournalErrorKind::Io(error))),
            }
        }
        self.next_offset += filled as u64;
        Ok(filled)
    }

    /// Returns `None` at the end of the log, within the number or before it.
    fn varint(&mut self) -> Result<Option<u64>, JournalError> {
        let mut bytes = [0; 8];
        if self.fill(&mut bytes[..1])? == 0 {
            return Ok(None);
        }
        let len = 1 << (bytes[0] >> 6);
        if self.fill(&mut bytes[1..len])? < len - 1 {
            return Ok(None);
        }
        let mut reader = Reader::new(&bytes[..len]);
        Ok(Some(reader.varint().unwrap_or(VARINT_MAX)))
    }

    /// Reads the next block; returns false at the end of the log.
    fn advance(&mut self) -> Result<bool, JournalError> {
        if self.is_over {
            return Ok(false);
        }
        self.offset = self.next_offset;
        self.read = 0;
        self.block.clear();
        let len = self.varint()?;
        let mut check = [0; 8];
        let is_whole = match len {
            None => false,
            Some(len) => {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                if len > BLOCK_LEN_MAX {
                    return Err(self.error(JournalErrorKind::TooLong));
                }
                let mut block = std::mem::take(&mut self.block);
                block.resize(len, 0);
                let is_whole = self.fill(&mut check)? == check.len() && self.fill(&mut block)? == len;
                self.block = block;
                is_whole
            }
        };
        if !is_whole {
            self.cut_bytes = self.next_offset - self.offset;
            self.is_over = true;
            self.block.clear();
            return Ok(false);
        }
        self.chain = check_of(self.chain, &self.block);
        if self.chain.to_le_bytes() != check {
            return Err(self.error(JournalErrorKind::Damaged));
        }
        Ok(true)
    }

    /// Returns the first byte of the next entry, which is its tag; `None` at the end of the log.
    ///
    /// # Errors
    /// If the next block cannot be read.
    pub fn peek(&mut self) -> Result<Option<u8>, JournalError> {
        while self.read == self.block.len() {
            if !self.advance()? {
                return Ok(None);
            }
        }
        Ok(Some(self.block[self.read]))
    }

    /// Returns the rest of the block after the first byte of the entry that [`peek`](Self::peek)
    /// has returned.
    pub fn ahead(&self) -> &[u8] {
        self.block.get(self.read + 1..).unwrap_or_default()
    }

    /// Reads the rest of the entry that [`peek`](Self::peek) has returned.
    ///
    /// # Errors
    /// If the entry is not valid.
    pub fn read<T>(&mut self, parse: impl FnOnce(&mut Reader<'_>) -> Parsed<T>) -> Result<T, JournalError> {
        let mut reader = Reader::new(self.ahead());
        match parse(&mut reader) {
            Ok(parsed) => {
                self.read += 1 + reader.position();
                Ok(parsed)
            }
            Err(error) => Err(self.malformed(error)),
        }
    }

    /// Returns the error of an entry that is not valid at its position.
    pub fn malformed(&self, Malformed(what): Malformed) -> JournalError {
        self.error(JournalErrorKind::Malformed(what))
    }
}
