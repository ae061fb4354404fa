//! Support for tests: [`MemoryJournals`], journals kept in memory, and logs that are [taken
//! apart](entries) and [reassembled](sealed).

use std::sync::{Arc, Mutex, PoisonError};

use wire::quic::{Reader, Side, put_varint};

use crate::digest::check_of;
use crate::format::{ENTRY_LEN_MAX, Format};
use crate::sink::{JournalSink, JournalSource};

/// Journals of all connections that were given its [source](Self::source), in order. Clones refer
/// to the same journals.
#[derive(Debug, Clone, Default)]
pub struct MemoryJournals(Arc<Mutex<Vec<(Side, Log)>>>);

type Log = Arc<Mutex<Vec<u8>>>;

struct MemorySink(Log);

impl JournalSink for MemorySink {
    fn take(&mut self, bytes: &[u8]) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        true
    }
}

impl MemoryJournals {
    /// Returns a source for configurations.
    pub fn source(&self) -> JournalSource {
        let logs = Arc::clone(&self.0);
        JournalSource(Arc::new(move |side| {
            let log = Log::default();
            logs.lock().unwrap_or_else(PoisonError::into_inner).push((side, Arc::clone(&log)));
            Some(Box::new(MemorySink(log)))
        }))
    }

    /// Returns the journals so far, one per connection.
    pub fn logs(&self) -> Vec<(Side, Vec<u8>)> {
        let logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let logs = logs.iter().map(|(side, log)| (*side, log.lock().unwrap_or_else(PoisonError::into_inner).clone()));
        logs.filter(|(_, log)| !log.is_empty()).collect()
    }
}

/// Returns the head of a log and its entries, without blocks.
///
/// # Panics
/// If the log is truncated.
pub fn entries(log: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut reader = Reader::new(log);
    let head = reader.bytes(8).is_ok_and(|_| reader.varint().is_ok()).then(|| log[..reader.position()].to_vec());
    let mut entries = Vec::new();
    while !reader.is_empty() {
        let block = reader.varint().and_then(|len| {
            reader.bytes(8)?;
            reader.bytes(len as usize)
        });
        entries.extend_from_slice(block.expect("the log has whole blocks"));
    }
    (head.expect("the log has a head"), entries)
}

/// Returns a log of these entries, with matching checks.
pub fn sealed(head: &[u8], entries: &[u8]) -> Vec<u8> {
    let (mut log, mut chain) = (head.to_vec(), 0);
    // No entry spans two blocks.
    for block in entries.chunks(ENTRY_LEN_MAX) {
        chain = check_of(chain, block);
        put_varint(&mut log, block.len() as u64);
        log.extend_from_slice(&chain.to_le_bytes());
        log.extend_from_slice(block);
    }
    log
}

/// Returns the head of a log of this format.
pub fn head(format: Format) -> Vec<u8> {
    let mut head = format.magic.to_vec();
    put_varint(&mut head, format.version);
    head
}
