//! Files in segments, and the hash tree over them.
//!
//! A file's hash is BLAKE3 of its content, equal to the output of `b3sum`. BLAKE3 is a binary tree
//! over 1 KiB chunks in which every left subtree is full, so a segment of a power of two (and at
//! least one chunk) is a subtree of its own: its chaining value can be computed anywhere, in any
//! order, and the root needs only these values (BLAKE3 paper, sections 2.1 and 2.4).
//!
//! ```text
//!                 root                     merged from the values, never from the bytes
//!            ┌─────┴─────┐
//!          ┌─┴─┐       ┌─┴─┐
//!         s0   s1     s2   s3(short)      one value a segment
//! ```

use std::fmt;

use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use serde::{Serialize, Serializer};

/// BLAKE3 of a whole file. Shown in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FileHash([u8; 32]);

/// The division of a file of a given size into segments. Both ends compute it from the size and the
/// agreed base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    size: u64,
    /// Binary logarithm of the segment length.
    log2: u8,
    count: u32,
}

/// A set of segments of one file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SegmentSet {
    /// Bits, least significant first; may have fewer than the file has segments.
    bits: Vec<u8>,
    len: u32,
}

/// An incremental hash of one segment.
pub(crate) struct SegmentHasher {
    hasher: blake3::Hasher,
    /// Whether the segment is the whole file, so that its value is the root.
    whole: bool,
}

/// Collects the values of a file's segments and computes the root once all are known.
pub(crate) struct HashTree {
    layout: Layout,
    known: SegmentSet,
    /// Values; zero where unknown. Pages that are never written use no memory, so memory grows as
    /// the file arrives.
    values: Vec<ChainingValue>,
}

impl Layout {
    /// Returns the layout of a file of `size` bytes with segments of at least `1 << base_log2`
    /// bytes. Returns `None` if `base_log2` is out of range.
    pub(crate) fn new(size: u64, base_log2: u8) -> Option<Self> {
        if !(BASE_LOG2_MIN..=BASE_LOG2_MAX).contains(&base_log2) {
            return None;
        }
        let mut log2 = base_log2;
        // Segments grow instead of their number, so that the state of a file stays bounded.
        while size.div_ceil(1 << log2) > u64::from(SEGMENTS_MAX) {
            log2 += 1;
        }
        Some(Self { size, log2, count: size.div_ceil(1 << log2) as u32 })
    }

    /// Returns the number of bytes in the file.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the number of segments in the file: 0 for an empty one.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the offset and length in bytes of `segment`.
    ///
    /// # Panics
    /// Panics if the file has no such segment.
    pub(crate) fn range(&self, segment: u32) -> (u64, u64) {
        assert!(segment < self.count, "segment {segment} of {}", self.count);
        let offset = u64::from(segment) << self.log2;
        (offset, (self.size - offset).min(1 << self.log2))
    }

    /// Creates a hasher for `segment`.
    ///
    /// # Panics
    /// Panics if the file has no such segment.
    pub(crate) fn hasher(&self, segment: u32) -> SegmentHasher {
        let (offset, _) = self.range(segment);
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(offset);
        SegmentHasher { hasher, whole: self.count == 1 }
    }
}

impl SegmentHasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Does the same as [`update`](Self::update) with `len` zeros.
    pub(crate) fn update_with_zeros(&mut self, len: u64) {
        let mut left = len;
        while left > 0 {
            let zeros = zeros(left);
            self.update(zeros);
            left -= zeros.len() as u64;
        }
    }

    /// Returns the segment's value, after exactly its bytes.
    pub(crate) fn finish(self) -> ChainingValue {
        if self.whole { *self.hasher.finalize().as_bytes() } else { self.hasher.finalize_non_root() }
    }
}

/// Number of zeros of a hole hashed between two checks of whether the transfer continues: 4 MiB.
pub(crate) const ZEROS_STEP: u64 = 4 << 20;

/// Unit of reading, hashing and writing: 256 KiB, which fits into a second-level cache.
pub(crate) const CHUNK_LEN_MAX: usize = 256 * 1024;

/// Returns at most `max` zeros, and at least one if `max` is not zero.
pub(crate) fn zeros(max: u64) -> &'static [u8] {
    static ZEROS: [u8; CHUNK_LEN_MAX] = [0; CHUNK_LEN_MAX];
    &ZEROS[..max.min(ZEROS.len() as u64) as usize]
}

impl SegmentSet {
    /// Creates a set from its wire form, for a file of `count` segments; returns `None` if it names
    /// segments that the file does not have.
    pub(crate) fn from_bytes(bytes: &[u8], count: u32) -> Option<Self> {
        if bytes.len() > count.div_ceil(8) as usize {
            return None;
        }
        let set = Self { len: bytes.iter().map(|byte| byte.count_ones()).sum(), bits: bytes.to_vec() };
        let beyond = bytes.len() as u32 * 8;
        (count..beyond).all(|segment| !set.contains(segment)).then_some(set)
    }

    /// Returns the wire form: without zero bytes at the end.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        let used = self.bits.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        &self.bits[..used]
    }

    /// Returns the number of segments in the set.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn contains(&self, segment: u32) -> bool {
        self.bits.get(segment as usize / 8).is_some_and(|byte| byte & (1 << (segment % 8)) != 0)
    }

    /// Adds `segment`; returns false if it was present.
    pub(crate) fn insert(&mut self, segment: u32) -> bool {
        if self.contains(segment) {
            return false;
        }
        let index = segment as usize / 8;
        if index >= self.bits.len() {
            self.bits.resize(index + 1, 0);
        }
        self.bits[index] |= 1 << (segment % 8);
        self.len += 1;
        true
    }

    /// Returns the segments in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.bits.len() as u32 * 8).filter(|segment| self.contains(*segment))
    }
}

impl HashTree {
    pub(crate) fn new(layout: Layout) -> Self {
        Self { layout, known: SegmentSet::default(), values: vec![[0; 32]; layout.count as usize] }
    }

    /// Records the value of `segment`; returns false if it is known already.
    pub(crate) fn insert(&mut self, segment: u32, value: ChainingValue) -> bool {
        let new = self.known.insert(segment);
        if new {
            self.values[segment as usize] = value;
        }
        new
    }

    /// Returns the value of `segment`, if it is known.
    pub(crate) fn value(&self, segment: u32) -> Option<ChainingValue> {
        self.known.contains(segment).then(|| self.values[segment as usize])
    }

    /// Returns the segments whose value is known.
    pub(crate) fn known(&self) -> &SegmentSet {
        &self.known
    }

    /// Returns the hash of the file, once all values are known.
    pub(crate) fn root(&self) -> Option<FileHash> {
        if self.known.len() < self.layout.count {
            return None;
        }
        Some(FileHash(match self.values.as_slice() {
            [] => *blake3::hash(&[]).as_bytes(),
            [whole] => *whole,
            values => {
                let (left, right) = halves(values);
                *merge_subtrees_root(&merge(left), &merge(right), Mode::Hash).as_bytes()
            }
        }))
    }
}

impl FileHash {
    /// Creates a hash from these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes of BLAKE3.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for FileHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for FileHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileHash({self})")
    }
}

impl Serialize for FileHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn merge(values: &[ChainingValue]) -> ChainingValue {
    match values {
        [value] => *value,
        _ => {
            let (left, right) = halves(values);
            merge_subtrees_non_root(&merge(left), &merge(right), Mode::Hash)
        }
    }
}

/// Splits like BLAKE3: the left half is the largest power of two that leaves at least one chunk for
/// the right.
fn halves(values: &[ChainingValue]) -> (&[ChainingValue], &[ChainingValue]) {
    values.split_at(values.len().next_power_of_two() / 2)
}

/// Default segment length of 4 MiB. Larger segments repeat more after an interruption and spread
/// worse over threads; smaller ones cost more hashes, journal records and streams. At 4 MiB all of
/// these are below a thousandth.
pub(crate) const BASE_LOG2_DEFAULT: u8 = 22;

/// Shortest segment: one BLAKE3 chunk. A shorter segment would not be a subtree.
pub(crate) const BASE_LOG2_MIN: u8 = 10;

/// Longest base: 1 GiB.
pub(crate) const BASE_LOG2_MAX: u8 = 30;

/// Limit on segments of one file: 2 MiB of hashes. Files beyond 256 GiB get longer segments
/// instead.
pub(crate) const SEGMENTS_MAX: u32 = 1 << 16;

#[cfg(test)]
mod tests;
