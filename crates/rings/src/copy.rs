//! Copies between bytes and the words of a ring.
//!
//! The other side may change the words at any time, so each access is an atomic one of a whole
//! word, which is a plain load or store for the processor. No ordering is needed here: the counts
//! of the ring provide it.

use crate::primitives::{AtomicU64, Ordering};

/// Length of a word in bytes.
pub(crate) const WORD_LEN: usize = 8;

/// Copies `bytes` to the words, starting at byte `at`.
///
/// The words at both ends keep their other bytes, which may wait for the reader: they are stored
/// again unchanged. There is one writer.
pub(crate) fn copy_in(words: &[AtomicU64], at: usize, bytes: &[u8]) {
    let (mut index, offset) = (at / WORD_LEN, at % WORD_LEN);
    let mut rest = bytes;
    if offset != 0 {
        let (head, behind) = rest.split_at(rest.len().min(WORD_LEN - offset));
        merge(&words[index], offset, head);
        (index, rest) = (index + 1, behind);
    }
    let (whole, tail) = rest.as_chunks::<WORD_LEN>();
    for (word, bytes) in words[index..index + whole.len()].iter().zip(whole) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    if !tail.is_empty() {
        merge(&words[index + whole.len()], 0, tail);
    }
}

/// Copies from the words, starting at byte `at`, to `bytes`. Each word is read once.
pub(crate) fn copy_out(words: &[AtomicU64], at: usize, bytes: &mut [u8]) {
    let (mut index, offset) = (at / WORD_LEN, at % WORD_LEN);
    let mut rest = bytes;
    if offset != 0 {
        let len = rest.len().min(WORD_LEN - offset);
        let (head, behind) = rest.split_at_mut(len);
        head.copy_from_slice(&load(&words[index])[offset..offset + len]);
        (index, rest) = (index + 1, behind);
    }
    let (whole, tail) = rest.as_chunks_mut::<WORD_LEN>();
    for (word, bytes) in words[index..index + whole.len()].iter().zip(whole.iter_mut()) {
        *bytes = load(word);
    }
    if !tail.is_empty() {
        tail.copy_from_slice(&load(&words[index + whole.len()])[..tail.len()]);
    }
}

fn load(word: &AtomicU64) -> [u8; WORD_LEN] {
    word.load(Ordering::Relaxed).to_ne_bytes()
}

/// Changes some bytes of a word.
fn merge(word: &AtomicU64, offset: usize, bytes: &[u8]) {
    let mut all = load(word);
    all[offset..offset + bytes.len()].copy_from_slice(bytes);
    word.store(u64::from_ne_bytes(all), Ordering::Relaxed);
}
