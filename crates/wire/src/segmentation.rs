//! Headers of the packets of one super-packet: segmentation offload (GSO) derives them from its
//! headers, and receive offload (GRO) joins packets with such headers.
//!
//! Each packet has a copy of the super-packet's headers except for its length, its checksums, the
//! IPv4 identification, which counts the packets, and the TCP sequence number. Some TCP flags
//! belong to the first or the last packet.

#[cfg(test)]
mod tests;

/// TCP flags that only the last packet has: FIN and PSH (RFC 9293, section 3.1).
pub const TCP_FLAGS_OF_LAST: u8 = 0x01 | 0x08;

/// TCP flag that only the first packet has: CWR (RFC 3168, section 6.1).
pub const TCP_FLAG_OF_FIRST: u8 = 0x80;

/// TCP flags that all packets may have: ACK and ECE. Other flags concern one segment alone.
pub const TCP_FLAGS_OF_ALL: u8 = 0x10 | 0x40;

/// Offset of the flags in a TCP header (RFC 9293, section 3.1).
pub const TCP_FLAGS_OFFSET: usize = 13;

/// Returns whether `next` is the IP header that segmentation gives to packet `index`, counted from
/// zero, if `first` is the header of packet 0. Lengths and checksums are not compared. Both slices
/// contain only the headers, with options or extension headers.
///
/// # Panics
/// If a header is shorter than its version requires.
#[inline]
#[must_use]
pub fn continues_ip(first: &[u8], next: &[u8], index: u16) -> bool {
    if first[0] >> 4 == 6 {
        return first[..4] == next[..4] && first[6..] == next[6..];
    }
    first[..2] == next[..2]
        && u16_at(next, 4) == u16_at(first, 4).wrapping_add(index)
        && first[6..10] == next[6..10]
        && first[12..] == next[12..]
}

/// Returns whether `next` is the TCP header that segmentation gives to a segment that begins
/// `offset` bytes after the segment of `first`. Checksums are not compared. Both slices contain
/// only the headers, with options.
///
/// # Panics
/// If a header is shorter than 20 bytes.
#[inline]
#[must_use]
pub fn continues_tcp(first: &[u8], next: &[u8], offset: u32) -> bool {
    let sequence = |tcp: &[u8]| u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    first[..4] == next[..4]
        && sequence(next) == sequence(first).wrapping_add(offset)
        && first[8..TCP_FLAGS_OFFSET] == next[8..TCP_FLAGS_OFFSET]
        && first[TCP_FLAGS_OFFSET] & !TCP_FLAG_OF_FIRST == next[TCP_FLAGS_OFFSET] & !TCP_FLAGS_OF_LAST
        && first[14..16] == next[14..16]
        && first[18..] == next[18..]
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
