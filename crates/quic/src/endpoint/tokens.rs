//! The tokens of Retry packets: a client that returns one has received the packet at its address (RFC
//! 9000, section 8.1.2).
//!
//! ```text
//! kind (8) | nonce (96) | sealed: issued at (64) | original destination, length and ID (168) | tag (128)
//! ```
//!
//! The kind distinguishes these tokens from any others that a client may present (section 8.1.1).
//! The client's address is authenticated with the token and not contained in it.

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use units::{Duration, Instant};
use wire::quic::{ConnectionId, MAX_CID_LEN};

use crate::session::TAG_LEN;

const RETRY: u8 = 0x3b;

const ISSUED_LEN: usize = 8;
const ID_FIELD_LEN: usize = 1 + MAX_CID_LEN;
const RETRY_LEN: usize = 1 + NONCE_LEN + ISSUED_LEN + ID_FIELD_LEN + TAG_LEN;

/// The lifetime of a token from a Retry packet: the client returns it within a round trip or a few
/// repetitions. Short, because anyone who has seen it can send it from the same address (RFC 9000,
/// section 8.1.4).
const RETRY_LIFETIME: Duration = Duration::from_secs(15);

/// Why a token does not validate an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenError {
    /// It claims to be from a Retry packet, and is forged, from another address or too old. The
    /// client accepts no further Retry packet (RFC 9000, section 8.1.2).
    Retry,
    /// Any other: the client is treated as one without a token (section 8.1.3).
    Other,
}

/// The destination of the first packet of the client at `remote`, if `token` shows that it responds
/// to a Retry packet. Its packets go to `destination` now.
pub(super) fn open(
    key: &[u8; 32],
    now: Instant,
    remote: SocketAddr,
    destination: &ConnectionId,
    token: &[u8],
) -> Result<ConnectionId, TokenError> {
    if token.len() != RETRY_LEN || token[0] != RETRY {
        return Err(TokenError::Other);
    }
    open_retry(key, now, remote, destination, token).ok_or(TokenError::Retry)
}

fn open_retry(
    key: &[u8; 32],
    now: Instant,
    remote: SocketAddr,
    destination: &ConnectionId,
    token: &[u8],
) -> Option<ConnectionId> {
    let plain = unseal(key, token, &context(remote, destination))?;
    if now.saturating_since(issued_at(&plain)) > RETRY_LIFETIME {
        return None;
    }
    let (len, id) = plain[ISSUED_LEN..].split_first()?;
    ConnectionId::new(id.get(..usize::from(*len))?)
}

/// The token of a Retry packet with the source connection ID `source`, in response to a client at
/// `remote` whose first packet has the destination `original`. `nonce` must never repeat.
pub(super) fn retry_token(
    key: &[u8; 32],
    nonce: [u8; NONCE_LEN],
    now: Instant,
    remote: SocketAddr,
    original: &ConnectionId,
    source: &ConnectionId,
) -> Vec<u8> {
    let mut plain = [0; ISSUED_LEN + ID_FIELD_LEN];
    plain[..ISSUED_LEN].copy_from_slice(&now.as_nanos().to_be_bytes());
    plain[ISSUED_LEN] = original.len() as u8;
    plain[ISSUED_LEN + 1..][..original.len()].copy_from_slice(original.as_slice());
    seal(key, nonce, &plain, &context(remote, source))
}

/// A Retry packet and its answer are moments apart, so the port is the same (RFC 9000, section
/// 8.1.4). The client's packets go to the packet's source from now on.
fn context(remote: SocketAddr, source: &ConnectionId) -> Vec<u8> {
    let ip = match remote.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    [&[RETRY], &ip.octets()[..], &remote.port().to_be_bytes(), source.as_slice()].concat()
}

fn cipher(key: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("the key has the length of the cipher's"))
}

fn seal(key: &[u8; 32], nonce: [u8; NONCE_LEN], plain: &[u8], context: &[u8]) -> Vec<u8> {
    let mut token = vec![RETRY];
    token.extend_from_slice(&nonce);
    let mut sealed = plain.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    cipher(key).seal_in_place_append_tag(nonce, Aad::from(context), &mut sealed).expect("a token is short");
    token.extend_from_slice(&sealed);
    token
}

/// The contents of an authentic token.
fn unseal(key: &[u8; 32], token: &[u8], context: &[u8]) -> Option<Vec<u8>> {
    let (nonce, sealed) = token.get(1..)?.split_first_chunk::<NONCE_LEN>()?;
    let mut sealed = sealed.to_vec();
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let plain = cipher(key).open_in_place(nonce, Aad::from(context), &mut sealed).ok()?;
    Some(plain.to_vec())
}

/// When an authentic token was issued.
fn issued_at(plain: &[u8]) -> Instant {
    let nanos = plain.first_chunk::<ISSUED_LEN>().expect("every token begins with its time");
    Instant::from_nanos(u64::from_be_bytes(*nanos))
}

#[cfg(test)]
mod tests;
