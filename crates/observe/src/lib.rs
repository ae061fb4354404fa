//! Journals of connections as qlog files, for qvis and other tools that show QUIC connections.
//!
//! A connection writes no qlog. Its [journal](quic::journal) has all its inputs, and a replay
//! recreates its packets; [`QlogWriter`] writes the actions of the replay. So qlog costs a live
//! connection nothing beyond the journal, and any journal can be converted later.
//!
//! ```text
//!   journal ──▶ Replay::observed ── step ──▶ QlogWriter ──▶ NUMBER-SIDE.sqlog
//! ```
//!
//! Start reading at [`convert`]. The format is specified in `docs/spec/qlog.md`.
//!
//! | file | content |
//! |---|---|
//! | `writer` | the file of one connection |
//! | `events` | its records, in the order of their times |
//! | `packets` | packets and frames |
//! | `connection` | the beginning, the handshake and the end of a connection |
//! | `paths` | the state of each path, written when it changes |

mod connection;
mod events;
mod packets;
mod paths;
mod writer;

use std::fmt;
use std::io::{self, Read, Write};

use quic::Replay;
use quic::journal::{LogEnd, Stopped};

pub use writer::{EXTENSION, QlogWriter};

/// Result of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Converted {
    /// End of the journal.
    pub end: LogEnd,
    /// Number of events in the qlog file.
    pub events: u64,
}

/// Reason why a journal was not converted, or not to its end. The output is complete up to that
/// place.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConvertError {
    /// The journal cannot be replayed any further.
    Replay(Stopped),
    /// The qlog file cannot be written.
    Write(io::Error),
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replay(stopped) => stopped.fmt(f),
            Self::Write(error) => write!(f, "cannot write the qlog file: {error}"),
        }
    }
}

impl std::error::Error for ConvertError {}

impl From<Stopped> for ConvertError {
    fn from(stopped: Stopped) -> Self {
        Self::Replay(stopped)
    }
}

impl From<io::Error> for ConvertError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

/// Replays the journal `log` and writes it as qlog to `out`. Pass a buffered reader and a buffered
/// writer. `about` is the description in the file: the program, the journal.
///
/// Memory is bounded as for a [`Replay`]: `out` gets each event at once.
///
/// # Errors
/// Returns a [`ConvertError`] if the journal cannot be replayed to its end, or `out` fails.
pub fn convert(log: impl Read, out: impl Write, about: &str) -> Result<Converted, ConvertError> {
    let mut replay = Replay::observed(log)?;
    let mut writer = QlogWriter::begin(out, &mut replay, about)?;
    while let Some(step) = replay.step()? {
        writer.step(&mut replay, &step)?;
    }
    let end = replay.end().unwrap_or(LogEnd::Cut(0));
    Ok(Converted { end, events: writer.finish()? })
}
