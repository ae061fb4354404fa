//! [`DigestKey`]: the Authentication Header between IP and TCP.
//!
//! ```text
//!    0                   1                   2                   3
//!   +---------------+---------------+-------------------------------+
//!   | next header 6 | length 4      | reserved 0                    |
//!   +---------------+---------------+-------------------------------+
//!   | security parameters index: 256 for MD5, 257 for BLAKE3        |
//!   +---------------------------------------------------------------+
//!   | 16 bytes of digest                                            |
//!   +---------------------------------------------------------------+
//! ```
//!
//! The header has the format of RFC 1826. It has no counter, so packets need no order and any
//! processor can fill it. The digest covers the whole packet; fields that routers change count as
//! zero (RFC 4302, section 3.3.3.1).

use std::fmt;

use aws_lc_rs::constant_time;
use md5::{Digest, Md5};
use wire::ip::{self, Protocol};

use crate::stack::DigestLayer;

/// Length of the header between IP and TCP.
pub const HEADER_LEN: usize = FIXED_LEN + DIGEST_LEN;

/// Length of the header before the digest.
const FIXED_LEN: usize = 8;

/// Length of an MD5 digest; BLAKE3 is truncated to the same length. A forged packet has a chance of
/// 2^-128.
const DIGEST_LEN: usize = 16;

/// SPI of MD5; values up to 255 are reserved (RFC 1826, section 2).
const SPI_MD5: u32 = 256;
const SPI_BLAKE3: u32 = 257;

/// The key of a digest. Both directions use the same key: addresses and ports are part of the
/// digested data.
#[derive(Clone)]
pub struct DigestKey(Kind);

#[derive(Clone)]
enum Kind {
    Md5 {
        key: [u8; 16],
        /// State after digesting the key and its filling, which are one block.
        keyed: Box<Md5>,
    },
    Blake3 {
        key: [u8; 32],
    },
}

/// Reason why a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DigestError {
    /// The packet is a fragment, or has options or extension headers, which Litz never sends.
    NotOurs,
    /// The packet has no such header.
    Missing,
    /// The header is truncated, or a field has an impossible value.
    Malformed,
    /// The digest belongs to another packet, or was made with another key.
    Mismatch,
}

impl fmt::Display for DigestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotOurs => "a fragment, or a packet with options",
            Self::Missing => "the packet has no digest",
            Self::Malformed => "the header of the digest is malformed",
            Self::Mismatch => "the digest is wrong",
        })
    }
}

impl std::error::Error for DigestError {}

impl DigestKey {
    pub(crate) fn new(layer: DigestLayer, key: &[u8; 32]) -> Self {
        Self(match layer {
            DigestLayer::Md5 => {
                let key: [u8; 16] = key[..16].try_into().expect("16 bytes");
                Kind::Md5 { key, keyed: Box::new(Md5::new_with_prefix(filled_key(&key))) }
            }
            DigestLayer::Blake3 => Kind::Blake3 { key: *key },
        })
    }

    fn spi(&self) -> u32 {
        match self.0 {
            Kind::Md5 { .. } => SPI_MD5,
            Kind::Blake3 { .. } => SPI_BLAKE3,
        }
    }

    /// Returns the first part of the header, which is the same in all packets.
    fn fixed(&self) -> [u8; FIXED_LEN] {
        let [a, b, c, d] = self.spi().to_be_bytes();
        // The length counts the 32-bit words of the digest (RFC 1826, section 3).
        [Protocol::TCP.0, (DIGEST_LEN / 4) as u8, 0, 0, a, b, c, d]
    }

    /// Fills the header at `ip_len`, after the IP header without options. The rest of the packet
    /// must be complete, and its IP header must contain [`Protocol::AH`].
    ///
    /// # Panics
    /// If the packet is too short for the header.
    pub fn fill(&self, packet: &mut [u8], ip_len: usize) {
        packet[ip_len..][..FIXED_LEN].copy_from_slice(&self.fixed());
        let digest = self.digest(&packet[..ip_len], &packet[ip_len + HEADER_LEN..]);
        packet[ip_len + FIXED_LEN..][..DIGEST_LEN].copy_from_slice(&digest);
    }

    /// Verifies the header of a received packet, and returns the bytes after it: a TCP segment.
    /// `bytes` is the whole packet.
    ///
    /// # Errors
    /// If the packet is not intact or was made with another key.
    pub fn verify<'a>(&self, packet: &ip::Packet<'a>, bytes: &[u8]) -> Result<&'a [u8], DigestError> {
        let ip_len = if packet.is_ipv6() { ip::IPV6_HEADER_LEN } else { ip::IPV4_HEADER_LEN };
        if packet.fragment.is_some() || packet.header_len != ip_len {
            return Err(DigestError::NotOurs);
        }
        if packet.protocol != Protocol::AH {
            return Err(DigestError::Missing);
        }
        let (header, rest) = packet.payload.split_at_checked(HEADER_LEN).ok_or(DigestError::Malformed)?;
        let (fixed, digest) = header.split_at(FIXED_LEN);
        if fixed != self.fixed() {
            return Err(DigestError::Malformed);
        }
        let expected = self.digest(&bytes[..ip_len], rest);
        constant_time::verify_slices_are_equal(digest, &expected).map_err(|_| DigestError::Mismatch)?;
        Ok(rest)
    }

    /// Returns the digest of a packet with this IP header and this content after the digest header,
    /// in which the digest counts as zero.
    fn digest(&self, ip_header: &[u8], rest: &[u8]) -> [u8; DIGEST_LEN] {
        let mut head = [0; ip::IPV6_HEADER_LEN + HEADER_LEN];
        let ip_len = ip_header.len();
        head[..ip_len].copy_from_slice(ip_header);
        zero_mutable(&mut head[..ip_len]);
        head[ip_len..][..FIXED_LEN].copy_from_slice(&self.fixed());
        let head = &head[..ip_len + HEADER_LEN];
        match &self.0 {
            // RFC 1828, section 1: key, filling, packet, key.
            Kind::Md5 { key, keyed } => {
                let mut hasher = Md5::clone(keyed);
                hasher.update(head);
                hasher.update(rest);
                hasher.update(key);
                hasher.finalize().into()
            }
            Kind::Blake3 { key } => {
                let mut hasher = blake3::Hasher::new_keyed(key);
                hasher.update(head);
                hasher.update(rest);
                hasher.finalize().as_bytes()[..DIGEST_LEN].try_into().expect("16 bytes")
            }
        }
    }
}

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestKey")
    }
}

/// Returns a key of 16 bytes padded to a block of 64 bytes in the same way as an MD5 message (RFC
/// 1828, section 1): a one bit, zeros, and the length in bits.
fn filled_key(key: &[u8; 16]) -> [u8; 64] {
    let mut block = [0; 64];
    block[..16].copy_from_slice(key);
    block[16] = 0x80;
    block[56..].copy_from_slice(&(16_u64 * 8).to_le_bytes());
    block
}

/// Sets the fields that routers change to zero (RFC 4302, sections 3.3.3.1.1 and 3.3.3.1.2).
fn zero_mutable(header: &mut [u8]) {
    if header.len() == ip::IPV4_HEADER_LEN {
        // DSCP and ECN; flags and offset; time to live; checksum.
        for at in [1, 6, 7, 8, 10, 11] {
            header[at] = 0;
        }
    } else {
        // DSCP, ECN and flow label; hop limit.
        header[0] &= 0xf0;
        header[1..4].fill(0);
        header[7] = 0;
    }
}

#[cfg(test)]
mod tests;
