//! Acknowledgements: ACK (RFC 9000 §19.3) and PATH_ACK (multipath draft-21 §4.1), which adds a path
//! ID.
//!
//! On the wire the ranges are in descending order, each relative to the one before:
//!
//! ```text
//! largest, count-1, len₀ | gap₁, len₁ | gap₂, len₂ ...
//!
//! end₀ = largest, start = end - len, end' = start - gap - 2
//! ```

use std::iter::FusedIterator;
use std::ops::RangeInclusive;

use super::error::Fault;
use super::ty;
use crate::quic::id::PathId;
use crate::quic::reader::Reader;
use crate::quic::varint::{put_varint, varint_len};

/// Number of packets of a packet number space received with each ECN codepoint since the connection
/// began (RFC 9000 §19.3.2).
#[derive(Debug, Copy, Clone, Eq, PartialEq, Default)]
pub struct EcnCounts {
    /// Packets with ECT(0).
    pub ect0: u64,
    /// Packets with ECT(1).
    pub ect1: u64,
    /// Packets with ECN-CE.
    pub ce: u64,
}

/// A received acknowledgement. Parsing has validated the ranges, so iterating over them cannot
/// fail.
#[derive(Debug, Copy, Clone)]
pub struct Ack<'a> {
    /// The path whose packets are acknowledged (`Some` for PATH_ACK).
    pub path: Option<PathId>,
    /// The largest acknowledged packet number.
    pub largest: u64,
    /// Time by which the peer delayed the acknowledgement, in units of 2^`ack_delay_exponent`
    /// microseconds (the peer's parameter).
    pub delay: u64,
    /// ECN counts, if the frame has them.
    pub ecn: Option<EcnCounts>,
    /// Packets in the first range, minus one. At most `largest`.
    first_len: u64,
    /// Number of ranges after the first.
    more: usize,
    /// A gap and a length for each range after the first: `2 * more` variable-length integers.
    /// Parsing has checked that no range goes below zero.
    encoded: &'a [u8],
}

impl<'a> Ack<'a> {
    /// Parses the fields after the type and the path ID.
    pub(super) fn parse(path: Option<PathId>, with_ecn: bool, reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let largest = reader.varint()?;
        let delay = reader.varint()?;
        let more = reader.varint()?;
        let first_len = reader.varint()?;
        let mut smallest = largest.checked_sub(first_len).ok_or(NEGATIVE_NUMBER)?;
        let encoded = reader.peek();
        let before = reader.remaining();
        // The packet's length bounds this loop, not `more`: each iteration takes at least two
        // bytes.
        for _ in 0..more {
            let step = reader.varint()? + 2 + reader.varint()?;
            smallest = smallest.checked_sub(step).ok_or(NEGATIVE_NUMBER)?;
        }
        let encoded = &encoded[..before - reader.remaining()];
        let ecn = if with_ecn {
            Some(EcnCounts { ect0: reader.varint()?, ect1: reader.varint()?, ce: reader.varint()? })
        } else {
            None
        };
        // The loop ran `more` times over bytes in memory, so `more` fits a `usize`.
        Ok(Self { path, largest, delay, ecn, first_len, more: more as usize, encoded })
    }

    /// Returns the acknowledged packet numbers: at least one range, in descending order, neither
    /// adjacent nor overlapping.
    #[inline]
    pub const fn ranges(&self) -> AckRanges<'a> {
        AckRanges { end: self.largest, len: self.first_len, left: self.more + 1, encoded: Reader::new(self.encoded) }
    }

    pub(super) const fn frame_type(&self) -> u64 {
        ack_type(self.path, self.ecn)
    }

    pub(super) fn encoded_len(&self) -> usize {
        head_len(self.path, self.largest, self.delay, self.more, self.first_len, self.ecn) + self.encoded.len()
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        put_head(self.path, self.ecn, self.largest, self.delay, self.more, self.first_len, out);
        out.extend_from_slice(self.encoded);
        put_ecn(self.ecn, out);
    }
}

impl PartialEq for Ack<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.path, self.delay, self.ecn) == (other.path, other.delay, other.ecn) && self.ranges().eq(other.ranges())
    }
}

impl Eq for Ack<'_> {}

/// The ranges of an [`Ack`], in descending order.
#[derive(Debug, Clone)]
pub struct AckRanges<'a> {
    /// Last number of the next range.
    end: u64,
    /// Numbers in the next range, minus one.
    len: u64,
    /// Remaining ranges.
    left: usize,
    /// The encoded ranges after the next one.
    encoded: Reader<'a>,
}

impl Iterator for AckRanges<'_> {
    type Item = RangeInclusive<u64>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let end = self.end;
        // Exact for a parsed `Ack`. Saturating, because `Ack::largest` is public and may have been
        // changed.
        let start = end.saturating_sub(self.len);
        if self.left > 0 {
            let (Ok(gap), Ok(len)) = (self.encoded.varint(), self.encoded.varint()) else {
                unreachable!("checked by Ack::parse")
            };
            self.end = start.saturating_sub(gap + 2);
            self.len = len;
        }
        Some(start..=end)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for AckRanges<'_> {}
impl FusedIterator for AckRanges<'_> {}

/// Appends an ACK frame, or a PATH_ACK frame if `path` is `Some`. `delay` is in units of
/// 2^`ack_delay_exponent` microseconds. `ranges` is iterated twice.
///
/// # Panics
///
/// If `ranges` is empty, not descending, or has adjacent ranges.
pub fn emit_ack(
    path: Option<PathId>,
    delay: u64,
    ranges: impl Iterator<Item = RangeInclusive<u64>> + Clone,
    ecn: Option<EcnCounts>,
    out: &mut Vec<u8>,
) {
    let (first, rest) = split_first(ranges);
    put_head(path, ecn, *first.end(), delay, rest.clone().count(), range_len(&first), out);
    let mut above = *first.start();
    for range in rest {
        put_varint(out, gap(above, &range));
        put_varint(out, range_len(&range));
        above = *range.start();
    }
    put_ecn(ecn, out);
}

/// Returns the number of bytes that [`emit_ack`] writes for the same arguments.
///
/// # Panics
///
/// Under the same conditions as [`emit_ack`].
pub fn ack_len(
    path: Option<PathId>,
    delay: u64,
    ranges: impl Iterator<Item = RangeInclusive<u64>> + Clone,
    ecn: Option<EcnCounts>,
) -> usize {
    let (first, rest) = split_first(ranges);
    let mut len = head_len(path, *first.end(), delay, rest.clone().count(), range_len(&first), ecn);
    let mut above = *first.start();
    for range in rest {
        len += varint_len(gap(above, &range)) + varint_len(range_len(&range));
        above = *range.start();
    }
    len
}

/// Returns an upper bound of the bytes that [`emit_ack`] writes for `range_count` ranges, with a
/// path and ECN counts. Real packet numbers are far below 2^62 and need about a quarter of it;
/// [`ack_len`] is exact.
pub const fn ack_len_max(range_count: usize) -> usize {
    // The type; path, largest, delay, count and first length; a gap and a length for each further
    // range; three ECN counts.
    1 + 5 * 8 + range_count.saturating_sub(1) * 16 + 3 * 8
}

/// "If any computed packet number is negative, an endpoint MUST generate a connection error of type
/// FRAME_ENCODING_ERROR" (§19.3.1).
const NEGATIVE_NUMBER: Fault = Fault::encoding("acknowledges packet numbers below zero");

/// Returns the type of an acknowledgement of `path` (`None` for ACK) with or without ECN counts.
pub const fn ack_type(path: Option<PathId>, ecn: Option<EcnCounts>) -> u64 {
    match (path, ecn) {
        (None, None) => ty::ACK,
        (None, Some(_)) => ty::ACK_ECN,
        (Some(_), None) => ty::PATH_ACK,
        (Some(_), Some(_)) => ty::PATH_ACK_ECN,
    }
}

fn split_first<I: Iterator<Item = RangeInclusive<u64>> + Clone>(mut ranges: I) -> (RangeInclusive<u64>, I) {
    let first = ranges.next().expect("an acknowledgement has at least one range");
    (first, ranges)
}

/// Returns the number of packets in a range, minus one.
#[inline]
fn range_len(range: &RangeInclusive<u64>) -> u64 {
    range.end().checked_sub(*range.start()).expect("an acknowledged range is not empty")
}

/// Returns the number of packet numbers missing between `range` and the range above it, which
/// begins at `above`; minus one.
#[inline]
fn gap(above: u64, range: &RangeInclusive<u64>) -> u64 {
    above
        .checked_sub(2)
        .and_then(|top| top.checked_sub(*range.end()))
        .expect("acknowledged ranges must descend and must not be adjacent")
}

fn head_len(
    path: Option<PathId>,
    largest: u64,
    delay: u64,
    more: usize,
    first_len: u64,
    ecn: Option<EcnCounts>,
) -> usize {
    // Each of the four types takes one byte.
    1 + path.map_or(0, |path| varint_len(u64::from(path.0)))
        + varint_len(largest)
        + varint_len(delay)
        + varint_len(more as u64)
        + varint_len(first_len)
        + ecn.map_or(0, |counts| varint_len(counts.ect0) + varint_len(counts.ect1) + varint_len(counts.ce))
}

fn put_head(
    path: Option<PathId>,
    ecn: Option<EcnCounts>,
    largest: u64,
    delay: u64,
    more: usize,
    first_len: u64,
    out: &mut Vec<u8>,
) {
    out.push(ack_type(path, ecn) as u8);
    if let Some(path) = path {
        put_varint(out, u64::from(path.0));
    }
    put_varint(out, largest);
    put_varint(out, delay);
    put_varint(out, more as u64);
    put_varint(out, first_len);
}

fn put_ecn(ecn: Option<EcnCounts>, out: &mut Vec<u8>) {
    if let Some(counts) = ecn {
        put_varint(out, counts.ect0);
        put_varint(out, counts.ect1);
        put_varint(out, counts.ce);
    }
}
