//! The connection interface that the file protocol requires, so that it runs over QUIC and over
//! memory in tests.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::revision::Revision;

/// An authenticated, encrypted connection with unidirectional streams. All calls block.
///
/// When the connection ends, by loss or by [`Link::close`] on either side, every blocked and later
/// call on it and on its streams must return an error promptly, because nothing else wakes the
/// threads of a transfer.
pub trait Link: Sync {
    /// Opens a stream to the peer, waiting while the peer permits no more.
    ///
    /// # Errors
    /// Fails if the connection has ended.
    fn open_uni(&self) -> io::Result<Box<dyn SendStream>>;

    /// Returns the peer's next stream, in the order in which the peer opened them, waiting until
    /// there is one.
    ///
    /// # Errors
    /// Fails if the connection has ended.
    fn accept_uni(&self) -> io::Result<Box<dyn Read + Send>>;

    /// Ends the connection at once, with `reason` for the peer's log. Repeated calls do nothing.
    fn close(&self, reason: &str);

    /// Returns the protocol revision that both ends support. It is the same at both ends: the first
    /// one, unless a link overrides this.
    fn revision(&self) -> Revision {
        Revision::First
    }
}

/// The sending half of a stream. Dropping it before [`SendStream::finish`] resets the stream: its
/// reader gets an error.
pub trait SendStream: Write + Send {
    /// Writes all of `chunk`, if possible without copying it. Blocks while the stream accepts no
    /// more.
    ///
    /// # Errors
    /// Fails if the connection has ended, or the peer stopped the stream.
    fn write_chunk(&mut self, chunk: Bytes) -> io::Result<()> {
        self.write_all(&chunk)
    }

    /// Marks the end: the reader gets all written data, then the end of the stream. Need not wait
    /// for that.
    ///
    /// # Errors
    /// Fails if the connection has ended.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// The one bidirectional stream of a transfer, opened by the sending side.
pub struct Control {
    /// Stream from the peer.
    pub reader: Box<dyn Read + Send>,
    /// Stream to the peer.
    pub writer: Box<dyn SendStream>,
}

/// Ends a transfer from outside: from a signal handler, another thread or an event callback.
#[derive(Clone, Default, Debug)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Creates a token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a token behind a flag that already exists, such as one that a signal sets.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Requests the end of the transfer. The transfer stops within a fraction of a second, informs
    /// the peer, and can be resumed later.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether cancellation was requested.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
