//! [`Md5Key`]: the TCP MD5 signature option (RFC 2385), which protects BGP sessions of routers. It
//! is obsolete (RFC 5925 replaces it), but still the only protection that many peers support.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use md5::{Digest, Md5};
use wire::ip::Protocol;
use wire::tcp::{HEADER_LEN, Header};
use zeroize::Zeroizing;

use crate::tuple::Tuple;

/// Length of the option with padding, in bytes.
pub(crate) const MD5_LEN: u16 = 20;

/// Key length limit, as in other systems (RFC 2385, section 4.5, says at least 80).
pub const MD5_KEY_MAX: usize = 80;

/// A key shared by both ends of a connection. Each segment carries a digest of its addresses,
/// header and data with the key.
#[derive(Clone)]
pub struct Md5Key {
    bytes: Arc<Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for Md5Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Md5Key")
    }
}

/// Error for a key that is empty or longer than [`MD5_KEY_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Md5KeyError;

impl fmt::Display for Md5KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a key of TCP-MD5 has from 1 to {MD5_KEY_MAX} bytes")
    }
}

impl std::error::Error for Md5KeyError {}

impl Md5Key {
    /// Creates a key from these bytes.
    ///
    /// # Errors
    /// Fails if there are none, or more than [`MD5_KEY_MAX`].
    pub fn new(bytes: &[u8]) -> Result<Self, Md5KeyError> {
        let is_valid = (1..=MD5_KEY_MAX).contains(&bytes.len());
        is_valid.then(|| Self { bytes: Arc::new(Zeroizing::new(bytes.to_vec())) }).ok_or(Md5KeyError)
    }

    /// Returns the digest of a segment sent by `tuple.local` (RFC 2385, section 2.0). `header` has
    /// no options, and its checksum is ignored.
    pub(crate) fn digest(&self, tuple: &Tuple, header: &[u8; HEADER_LEN], options_len: usize, data: &[u8]) -> [u8; 16] {
        let len = (HEADER_LEN + options_len + data.len()) as u32;
        let mut md5 = Md5::new();
        match (tuple.local.ip(), tuple.remote.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                md5.update(source.octets());
                md5.update(destination.octets());
                md5.update([0, Protocol::TCP.0]);
                md5.update((len as u16).to_be_bytes());
            }
            (source, destination) => {
                for ip in [source, destination] {
                    match ip {
                        IpAddr::V4(ip) => md5.update(ip.to_ipv6_mapped().octets()),
                        IpAddr::V6(ip) => md5.update(ip.octets()),
                    }
                }
                // The pseudo-header of IPv6 (RFC 8200, section 8.1).
                md5.update(len.to_be_bytes());
                md5.update([0, 0, 0, Protocol::TCP.0]);
            }
        }
        let mut header = *header;
        header[16..18].fill(0);
        md5.update(header);
        md5.update(data);
        md5.update(&**self.bytes);
        md5.finalize().into()
    }

    /// Returns whether `segment`, received for `tuple`, has the digest that only a peer with this
    /// key can compute.
    pub fn verifies(&self, tuple: &Tuple, segment: &[u8]) -> bool {
        let Ok((header, len)) = Header::parse(segment) else { return false };
        let (Some(found), Some(first)) = (header.options.md5, segment.first_chunk()) else { return false };
        let sent = Tuple { local: tuple.remote, remote: tuple.local };
        let expected = self.digest(&sent, first, len - HEADER_LEN, &segment[len..]);
        // The time does not depend on the position of a difference.
        expected.iter().zip(found).fold(0, |differences, (expected, found)| differences | expected ^ found) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_from_one_to_eighty_bytes() {
        assert!(Md5Key::new(&[]).is_err() && Md5Key::new(&[7; 81]).is_err());
        assert!(Md5Key::new(&[7]).is_ok() && Md5Key::new(&[7; 80]).is_ok());
    }
}
