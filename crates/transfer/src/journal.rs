//! The verified segments of an unfinished file: an append-only file of checksummed records next to
//! the part file.
//!
//! ```text
//!   header   "litzjrn1" 8 | base 1 | size 8 | modified 8 + 4 | sender key 32 | check 8
//!   record   segment 4 | value 32 | check 8
//! ```
//!
//! A record is one `write`, made after the segment's bytes were written. Neither is synced: a
//! killed process loses neither, and after a power loss the values are compared with the part file
//! before use. If syncing the part file fails, the records of segments not synced before are
//! removed. A torn or damaged record ends the journal; of two records of one segment the later one
//! is used.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use super::manifest::Modified;
use super::segment::Layout;
use quic_endpoint::identity::PublicKey;

/// Identity of the file: a file of another size, time or sender does not resume from this journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct JournalKey {
    pub(crate) base_log2: u8,
    pub(crate) size: u64,
    pub(crate) modified: Modified,
    pub(crate) sender: PublicKey,
}

/// A journal open for appending.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    /// Check of the header, which ties each record to its header.
    seed: Check,
}

/// Contents of a journal: segments with their values, each segment once.
pub(crate) type Recorded = std::collections::BTreeMap<u32, [u8; 32]>;

type Check = [u8; 8];

impl Journal {
    /// Starts a new journal in `file` and discards its content.
    pub(crate) fn create(mut file: File, key: &JournalKey) -> io::Result<Self> {
        let header = header(key);
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&header)?;
        Ok(Self { file, seed: check_of(&header) })
    }

    /// Reads the journal in `file` and continues it. Returns `None` if it is for another key than
    /// `key`, or not a journal.
    pub(crate) fn resume(mut file: File, key: &JournalKey, layout: Layout) -> io::Result<Option<(Self, Recorded)>> {
        let len_max = HEADER_LEN + RECORD_LEN * layout.count() as usize * REPEATS_MAX;
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        (&mut file).take(len_max as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > len_max {
            return Ok(None);
        }
        let Some((recorded, valid_len)) = parse(&bytes, key, layout) else { return Ok(None) };
        // The next record must not follow a torn one.
        file.set_len(valid_len as u64)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Some((Self { file, seed: check_of(&bytes[..HEADER_LEN]) }, recorded)))
    }

    /// Records that `segment` is written and has `value`.
    pub(crate) fn append(&mut self, segment: u32, value: &[u8; 32]) -> io::Result<()> {
        self.file.write_all(&record(&self.seed, segment, value))
    }

    /// Removes the records of all segments but those in `kept`.
    pub(crate) fn retain(&mut self, kept: &BTreeSet<u32>) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(HEADER_LEN as u64))?;
        self.file.read_to_end(&mut bytes)?;
        let is_kept = |record: &&[u8]| kept.contains(&segment_of(record));
        let records: Vec<u8> = bytes.chunks_exact(RECORD_LEN).filter(is_kept).flatten().copied().collect();
        self.file.set_len(HEADER_LEN as u64)?;
        self.file.seek(SeekFrom::Start(HEADER_LEN as u64))?;
        self.file.write_all(&records)
    }
}

/// Returns the records for `key` in `bytes`, and how many of the bytes are valid.
pub(crate) fn parse(bytes: &[u8], key: &JournalKey, layout: Layout) -> Option<(Recorded, usize)> {
    if bytes.get(..HEADER_LEN)? != header(key) {
        return None;
    }
    let seed = check_of(&bytes[..HEADER_LEN]);
    let mut recorded = Recorded::new();
    let mut valid_len = HEADER_LEN;
    for bytes in bytes[HEADER_LEN..].chunks_exact(RECORD_LEN) {
        let segment = segment_of(bytes);
        let mut value = [0; 32];
        value.copy_from_slice(&bytes[4..36]);
        if bytes != record(&seed, segment, &value) || segment >= layout.count() {
            break;
        }
        recorded.insert(segment, value);
        valid_len += RECORD_LEN;
    }
    Some((recorded, valid_len))
}

fn header(key: &JournalKey) -> [u8; HEADER_LEN] {
    let mut bytes = Vec::with_capacity(HEADER_LEN);
    bytes.extend_from_slice(MAGIC);
    bytes.push(key.base_log2);
    bytes.extend_from_slice(&key.size.to_be_bytes());
    bytes.extend_from_slice(&key.modified.seconds.to_be_bytes());
    bytes.extend_from_slice(&key.modified.nanoseconds.to_be_bytes());
    bytes.extend_from_slice(key.sender.as_bytes());
    bytes.extend_from_slice(&checksum(&[&bytes]));
    let mut header = [0; HEADER_LEN];
    header.copy_from_slice(&bytes);
    header
}

fn record(seed: &Check, segment: u32, value: &[u8; 32]) -> [u8; RECORD_LEN] {
    let mut record = [0; RECORD_LEN];
    record[..4].copy_from_slice(&segment.to_be_bytes());
    record[4..36].copy_from_slice(value);
    let check = checksum(&[seed, &record[..36]]);
    record[36..].copy_from_slice(&check);
    record
}

/// Returns the segment of a record.
fn segment_of(record: &[u8]) -> u32 {
    let mut segment = [0; 4];
    segment.copy_from_slice(&record[..4]);
    u32::from_be_bytes(segment)
}

/// Returns the check at the end of a header.
fn check_of(header: &[u8]) -> Check {
    let mut check = [0; CHECK_LEN];
    check.copy_from_slice(&header[HEADER_LEN - CHECK_LEN..HEADER_LEN]);
    check
}

/// Detects torn writes and bit rot. It does not authenticate the journal.
fn checksum(parts: &[&[u8]]) -> Check {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    let mut check = [0; CHECK_LEN];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..CHECK_LEN]);
    check
}

const MAGIC: &[u8; 8] = b"litzjrn1";
const CHECK_LEN: usize = 8;
const HEADER_LEN: usize = 8 + 1 + 8 + 8 + 4 + 32 + CHECK_LEN;
const RECORD_LEN: usize = 4 + 32 + CHECK_LEN;

/// Average number of records per segment that a journal may hold. A segment is recorded again only
/// after its bytes in the part file were found wrong; a journal with more records is discarded.
const REPEATS_MAX: usize = 4;

#[cfg(test)]
mod tests;
