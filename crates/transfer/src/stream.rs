//! A file of unknown length in pieces: their order, and the hash over them. No I/O.
//!
//! ```text
//!   pieces     0 ... next-1   |  next ... next+window-1  |
//!              taken in order    may arrive, in any order    not sent without credit
//! ```
//!
//! A piece is a subtree of BLAKE3's tree, like a segment. Its value is always the chaining value,
//! because neither side knows whether the first piece is the only one.

use std::collections::BTreeMap;

use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

use super::record::CHUNK_LEN_MAX;
use super::segment::FileHash;

/// Length of a piece in bytes; the last may be shorter. A worker's buffer holds one.
pub(crate) const PIECE_LEN: usize = CHUNK_LEN_MAX;

/// Number of pieces that may be in transit beyond those that the receiver has taken: 64 MiB, which
/// the receiver keeps in memory if the first of them is late or its reader slow. 64 MiB are 1.8
/// Gb/s for 300 ms.
pub(crate) const WINDOW: u32 = 256;

/// Number of taken pieces after which the receiver grants more.
const CREDIT_STEP: u32 = WINDOW / 8;

/// The hash of one piece.
pub(crate) struct PieceHash {
    /// Its chaining value.
    pub(crate) value: ChainingValue,
    /// BLAKE3 of the piece, if it is the first and so may be the whole stream.
    root: Option<[u8; 32]>,
}

/// Hashes piece `number`, which is not empty.
pub(crate) fn hash_piece(number: u32, bytes: &[u8]) -> PieceHash {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(u64::from(number) * PIECE_LEN as u64);
    hasher.update(bytes);
    let root = (number == 0).then(|| *hasher.finalize().as_bytes());
    PieceHash { value: hasher.finalize_non_root(), root }
}

/// The hash of a stream, computed from those of its pieces in order. At most 33 values are kept.
#[derive(Default)]
pub(crate) struct StreamHash {
    /// Values of complete subtrees, the largest first.
    stack: Vec<ChainingValue>,
    count: u64,
    first_root: Option<[u8; 32]>,
}

impl StreamHash {
    pub(crate) fn push(&mut self, piece: &PieceHash) {
        // Subtrees are merged only when more data follow: the last merge is the root, which is
        // computed differently.
        while self.stack.len() > self.count.count_ones() as usize {
            self.merge_last();
        }
        self.first_root = self.first_root.or(piece.root);
        self.stack.push(piece.value);
        self.count += 1;
    }

    pub(crate) fn finish(mut self) -> FileHash {
        FileHash::from_bytes(match (self.stack.len(), self.first_root) {
            (0, _) => *blake3::hash(&[]).as_bytes(),
            (1, Some(root)) => root,
            _ => {
                while self.stack.len() > 2 {
                    self.merge_last();
                }
                *merge_subtrees_root(&self.stack[0], &self.stack[1], Mode::Hash).as_bytes()
            }
        })
    }

    fn merge_last(&mut self) {
        if let (Some(right), Some(left)) = (self.stack.pop(), self.stack.pop()) {
            self.stack.push(merge_subtrees_non_root(&left, &right, Mode::Hash));
        }
    }
}

/// The pieces of a stream being received.
#[derive(Default)]
pub(crate) struct Assembly {
    /// Verified pieces that wait for earlier ones: at most [`WINDOW`].
    waiting: BTreeMap<u32, (Vec<u8>, PieceHash)>,
    /// Number of the first piece not taken.
    next: u32,
    /// Number of pieces that the sender may send.
    granted: u32,
    /// Number of bytes taken.
    bytes: u64,
    /// Whether the last piece taken was short, so that it is the final one.
    is_last_taken: bool,
    hash: StreamHash,
    end: Option<(u64, FileHash)>,
}

impl Assembly {
    /// Creates an empty assembly.
    pub(crate) fn new() -> Self {
        Self { granted: WINDOW, ..Self::default() }
    }

    /// Adds a verified piece.
    ///
    /// # Errors
    /// Fails if the sender was not allowed to send it.
    pub(crate) fn insert(&mut self, number: u32, bytes: Vec<u8>, hash: PieceHash) -> Result<(), &'static str> {
        if number >= self.granted {
            return Err("a piece of a stream without credit");
        }
        if bytes.is_empty() || bytes.len() > PIECE_LEN {
            return Err("a piece of a stream has no valid length");
        }
        if number < self.next || self.waiting.insert(number, (bytes, hash)).is_some() {
            return Err("a piece of a stream came twice");
        }
        Ok(())
    }

    /// Returns the next piece in order, if it has arrived.
    ///
    /// # Errors
    /// Fails if a piece follows one that is not full.
    pub(crate) fn take(&mut self) -> Result<Option<Vec<u8>>, &'static str> {
        let Some((bytes, hash)) = self.waiting.remove(&self.next) else { return Ok(None) };
        if self.is_last_taken {
            return Err("a piece follows the last one of a stream");
        }
        self.is_last_taken = bytes.len() < PIECE_LEN;
        self.hash.push(&hash);
        self.next += 1;
        self.bytes += bytes.len() as u64;
        Ok(Some(bytes))
    }

    /// Returns whether there is a piece to take, or the stream can be concluded.
    pub(crate) fn is_ready(&self) -> bool {
        self.waiting.contains_key(&self.next) || self.end.is_some_and(|(size, _)| size <= self.bytes)
    }

    /// Returns the number of bytes taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the new credit, if it is time to grant some; call it after a taken piece is stored.
    pub(crate) fn credit(&mut self) -> Option<u32> {
        let granted = self.next.saturating_add(WINDOW);
        if granted - self.granted < CREDIT_STEP {
            return None;
        }
        self.granted = granted;
        Some(granted)
    }

    /// Records the sender's end of the stream.
    ///
    /// # Errors
    /// Fails if it was reported before.
    pub(crate) fn on_end(&mut self, size: u64, hash: FileHash) -> Result<(), &'static str> {
        self.end.replace((size, hash)).map_or(Ok(()), |_| Err("a stream has two ends"))
    }

    /// Returns the outcome, once, when all bytes were taken: whether their hash is the sender's.
    ///
    /// # Errors
    /// Fails if there are more bytes than the sender announced.
    pub(crate) fn outcome(&mut self) -> Result<Option<Result<FileHash, FileHash>>, &'static str> {
        match self.end {
            Some((size, _)) if size < self.bytes => Err("a stream is longer than its sender says"),
            Some((size, hash)) if size == self.bytes && self.waiting.is_empty() => {
                let ours = std::mem::take(&mut self.hash).finish();
                Ok(Some(if ours == hash { Ok(hash) } else { Err(ours) }))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests;
