//! The Internet checksum (RFC 1071) of IPv4, TCP, UDP, ICMP and ICMPv6.
//!
//! A sum here is not yet complemented. A checksum field holds the complement of the sum over the
//! bytes it covers, computed with the field as zero. So the sum over bytes with a valid checksum is
//! `0xffff`. A sum is zero only if all bytes are zero.

use std::net::IpAddr;

use crate::ip::protocol::Protocol;

#[cfg(test)]
mod tests;

/// Returns the ones' complement sum of `bytes`, added to `initial`. An odd last byte counts as the
/// upper half of a word, so only the last piece of divided data may have an odd length.
#[inline]
pub fn sum(bytes: &[u8], initial: u16) -> u16 {
    // The sum is the same in either byte order (RFC 1071, section 2, B), so words are added in
    // machine order. Words of 128 bits take two additions with carry each. The loop contains no
    // calls: a call that is not inlined, as without link-time optimisation, would cost more than
    // the loop body.
    let (mut total, mut carries) = (0_u128, 0_u64);
    let (words, rest) = bytes.as_chunks();
    for word in words {
        let (sum, carry) = total.overflowing_add(u128::from_ne_bytes(*word));
        total = sum;
        carries += u64::from(carry);
    }
    // 2^128 and 2^64 are one modulo 2^16 - 1.
    let mut total = halves(total as u64) + halves((total >> 64) as u64) + carries;
    let (words, mut rest) = rest.as_chunks();
    for word in words {
        total += halves(u64::from_ne_bytes(*word));
    }
    if let Some((word, tail)) = rest.split_first_chunk() {
        total += u64::from(u32::from_ne_bytes(*word));
        rest = tail;
    }
    if let Some((word, tail)) = rest.split_first_chunk() {
        total += u64::from(u16::from_ne_bytes(*word));
        rest = tail;
    }
    if let [last] = *rest {
        total += u64::from(u16::from_ne_bytes([last, 0]));
    }
    add(u16::from_be(fold(total)), initial)
}

/// Returns the ones' complement sum of two sums.
#[inline]
pub const fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    // After a carry the sum is at most 0xfffe.
    sum + carry as u16
}

/// Updates `sum` for the replacement of `old` by `new` (RFC 1624, equation 3, before the last
/// complement).
#[inline]
pub const fn replace(sum: u16, old: u16, new: u16) -> u16 {
    add(add(sum, !old), new)
}

/// Returns the sum of the pseudo-header that TCP, UDP and ICMPv6 include in their checksum (RFC
/// 9293, section 3.1; RFC 8200, section 8.1). `transport_len` counts the bytes of the transport
/// header and of the data. Both addresses must be of one version.
#[inline]
pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: Protocol, transport_len: u32) -> u16 {
    let addresses = add(address(source), address(destination));
    let len = add((transport_len >> 16) as u16, transport_len as u16);
    add(addresses, add(u16::from(protocol.0), len))
}

/// Writes the checksum of an IPv4 header (RFC 791, section 3.1).
///
/// # Panics
///
/// If `header` has fewer than 20 bytes.
#[inline]
pub fn fill_ipv4(header: &mut [u8]) {
    fill(header, 10, 0);
}

/// Writes the checksum of `bytes`, whose field is at `offset`; `initial` is the sum of the other
/// covered bytes. Panics if the field is not inside `bytes`.
#[inline]
pub(crate) fn fill(bytes: &mut [u8], offset: usize, initial: u16) {
    bytes[offset..offset + 2].fill(0);
    let checksum = !sum(bytes, initial);
    bytes[offset..offset + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[inline]
fn address(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(address) => sum(&address.octets(), 0),
        IpAddr::V6(address) => sum(&address.octets(), 0),
    }
}

/// Returns the sum of the two halves of a word, without losing the carry.
#[inline]
const fn halves(word: u64) -> u64 {
    (word & 0xffff_ffff) + (word >> 32)
}

/// Reduces a sum of 16-bit words modulo 2^16 - 1; zero only for zero.
#[inline]
const fn fold(sum: u64) -> u16 {
    let sum = halves(halves(sum));
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}
