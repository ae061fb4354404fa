//! Destinations of journals.

use std::fmt;
use std::sync::Arc;

use wire::quic::Side;

/// Takes the journal of a connection, block by block.
pub trait JournalSink: Send {
    /// Takes the next bytes of the journal, which are whole blocks. It is called on the processor
    /// of the connection, between two datagrams, or on the processor of its detached receive half,
    /// and never on both at a time. It must not block.
    ///
    /// Returns false to end the journal: nothing more is recorded, and the connection continues.
    fn take(&mut self, bytes: &[u8]) -> bool;
}

/// Creates the journal sink of each connection, or `None` for a connection that is not recorded.
#[derive(Clone)]
pub struct JournalSource(pub Arc<dyn Fn(Side) -> Option<Box<dyn JournalSink>> + Send + Sync>);

impl fmt::Debug for JournalSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JournalSource")
    }
}
