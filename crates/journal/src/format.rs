//! Constants and basic elements of the format, which `docs/spec/replay.md` describes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use units::{Duration, Instant};
use wire::quic::{Reader, UnexpectedEnd, VARINT_MAX, put_varint};

/// Head of a log, which determines the meaning of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// The first bytes of a log.
    pub magic: [u8; 8],
    /// The version that is written, and the only supported one.
    pub version: u64,
}

/// Reason why a journal ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The connection was dropped.
    Dropped = 0,
    /// An entry would have exceeded the maximum length.
    TooLong = 1,
}

/// Approximate size of the blocks for the sink in bytes: large enough that the check of each costs
/// nothing, small enough that little is lost when the process is killed.
pub const BLOCK_LEN_WANTED: usize = 16 << 10;

/// Maximum length of an entry in bytes. A batch of datagrams full of the smallest frames takes a
/// quarter of this. A log that would need a longer entry ends there.
pub const ENTRY_LEN_MAX: usize = 1 << 20;

/// Maximum length of a block in bytes: one that was almost full before the longest entry.
pub const BLOCK_LEN_MAX: usize = BLOCK_LEN_WANTED + ENTRY_LEN_MAX;

/// Tags of entries, their first byte: the tags that do not depend on the protocol.
pub mod tag {
    /// The first entry, written once: the initial values of the connection.
    pub const BEGIN: u8 = 1;
    /// The last entry.
    pub const END: u8 = 2;
    /// The next entries belong to the connection.
    pub const OF_CONNECTION: u8 = 64;
    /// The next entries belong to its detached receive half.
    pub const OF_RECEIVE_HALF: u8 = 65;
    /// The receive half was detached.
    pub const DETACHED: u8 = 66;
    /// The receive half was attached again.
    pub const ATTACHED: u8 = 67;
    /// Commands pass to the detached receive half.
    pub const GAVE_COMMANDS: u8 = 68;
    /// The receive half has taken commands.
    pub const TOOK_COMMANDS: u8 = 69;
    /// A report passes to the connection.
    pub const GAVE_REPORT: u8 = 70;
    /// The connection has taken a report.
    pub const TOOK_REPORT: u8 = 71;
}

/// Description of an invalid entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl From<UnexpectedEnd> for Malformed {
    fn from(_: UnexpectedEnd) -> Self {
        Self("it ends too early")
    }
}

/// The parsed value, or the reason why it is invalid.
pub type Parsed<T> = Result<T, Malformed>;

/// Writes a number. A number that is too large for a varint is written as the largest one, which
/// has the same effect in every call.
#[inline]
pub fn put(out: &mut Vec<u8>, value: u64) {
    put_varint(out, value.min(VARINT_MAX));
}

/// Writes any 64 bits in eight bytes.
pub fn put_word(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Reads a word written by [`put_word`].
pub fn word(reader: &mut Reader<'_>) -> Parsed<u64> {
    Ok(u64::from_le_bytes(reader.array()?))
}

/// Writes the number of bytes and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads bytes written by [`put_bytes`].
pub fn bytes<'a>(reader: &mut Reader<'a>) -> Parsed<&'a [u8]> {
    let len = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
    Ok(reader.bytes(len)?)
}

/// Reads a text: the number of bytes and the bytes.
pub fn text(reader: &mut Reader<'_>) -> Parsed<String> {
    Ok(String::from_utf8_lossy(bytes(reader)?).into_owned())
}

/// Reads a number of at most 32 bits.
pub fn short(reader: &mut Reader<'_>) -> Parsed<u32> {
    u32::try_from(reader.varint()?).map_err(|_| Malformed("a number is too large"))
}

/// Reads a byte that is 0 or 1.
pub fn flag(reader: &mut Reader<'_>) -> Parsed<bool> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed("a flag is neither 0 nor 1")),
    }
}

/// Returns a signed number as an unsigned one, small if it is near zero.
pub const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// Returns the signed number that [`zigzag`] has encoded.
pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// Latest time in a log in nanoseconds: 36 years, so that differences with their sign fit into
/// varints.
pub const NANOS_MAX: u64 = 1 << 60;

/// Writes a time as its difference from the previous one. It may be a little earlier, because
/// reports come from other processors.
#[inline]
pub fn put_time(out: &mut Vec<u8>, last: &mut u64, now: Instant) {
    let now = now.as_nanos().min(NANOS_MAX);
    put(out, zigzag(now.cast_signed() - last.cast_signed()));
    *last = now;
}

/// Reads a time written by [`put_time`].
pub fn time(reader: &mut Reader<'_>, last: &mut u64) -> Parsed<Instant> {
    let now = last.cast_signed().checked_add(unzigzag(reader.varint()?));
    let now = now.filter(|now| (0..=NANOS_MAX.cast_signed()).contains(now)).ok_or(Malformed("an impossible time"))?;
    *last = now.cast_unsigned();
    Ok(Instant::from_nanos(*last))
}

/// Writes an address after its family.
pub fn put_ip(out: &mut Vec<u8>, ip: &IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend_from_slice(&ip.octets());
        }
    }
}

/// Reads the address of this family.
pub fn ip_of(family: u8, reader: &mut Reader<'_>) -> Parsed<IpAddr> {
    match family {
        4 => Ok(Ipv4Addr::from(reader.array::<4>()?).into()),
        6 => Ok(Ipv6Addr::from(reader.array::<16>()?).into()),
        _ => Err(Malformed("an address of an unknown family")),
    }
}

/// Reads a port, or the number of a socket.
pub fn port(reader: &mut Reader<'_>) -> Parsed<u16> {
    u16::try_from(reader.varint()?).map_err(|_| Malformed("a port or socket above 65535"))
}

/// Writes a span, or its absence.
pub fn put_span(out: &mut Vec<u8>, span: Option<Duration>) {
    out.push(u8::from(span.is_some()));
    put_word(out, span.unwrap_or_default().as_nanos());
}

/// Reads a span written by [`put_span`].
pub fn span(reader: &mut Reader<'_>) -> Parsed<Option<Duration>> {
    let is_there = flag(reader)?;
    Ok(Some(Duration::from_nanos(word(reader)?)).filter(|_| is_there))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn signed_numbers_and_times_come_back(values in proptest::collection::vec(0..NANOS_MAX, 1..20), any: i64) {
            prop_assert_eq!(unzigzag(zigzag(any)), any);
            let (mut out, mut last) = (Vec::new(), 0);
            values.iter().for_each(|value| put_time(&mut out, &mut last, Instant::from_nanos(*value)));
            let (mut reader, mut last) = (Reader::new(&out), 0);
            for value in values {
                prop_assert_eq!(time(&mut reader, &mut last), Ok(Instant::from_nanos(value)));
            }
            prop_assert!(reader.is_empty());
        }
    }
}
