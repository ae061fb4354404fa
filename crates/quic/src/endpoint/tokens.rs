//! The tokens of Retry packets: a client that returns one has received the packet at its address (RFC
//! 9000, section 8.1.2).
//!
//! ```text
//! kind (8) | nonce (96) | sealed: issued at (64) | original destination, length and ID (168) | tag (128)
//! ```
//!
//! The kind distinguishes these tokens from any others that a client may present (section 8.1.1).
//! The client's address is authenticated with the token and not contained in it.

use std::net::SocketAddr;

use units::{Duration, Instant};
use wire::quic::{ConnectionId, MAX_CID_LEN};

use crate::address_tokens::sealed::{OVERHEAD_LEN, TokenNonce, ip_bytes, seal, unseal};

const RETRY: u8 = 0x3b;

const ISSUED_LEN: usize = 8;
const ID_FIELD_LEN: usize = 1 + MAX_CID_LEN;
const RETRY_LEN: usize = OVERHEAD_LEN + ISSUED_LEN + ID_FIELD_LEN;

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
    /// Any other: it is of an earlier connection (`address_tokens`), or the client is treated as one
    /// without a token (section 8.1.3).
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
    let (_, plain) = unseal(key, token, &context(remote, destination))?;
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
    nonce: TokenNonce,
    now: Instant,
    remote: SocketAddr,
    original: &ConnectionId,
    source: &ConnectionId,
) -> Vec<u8> {
    let mut plain = [0; ISSUED_LEN + ID_FIELD_LEN];
    plain[..ISSUED_LEN].copy_from_slice(&now.as_nanos().to_be_bytes());
    plain[ISSUED_LEN] = original.len() as u8;
    plain[ISSUED_LEN + 1..][..original.len()].copy_from_slice(original.as_slice());
    seal(RETRY, key, nonce, &plain, &context(remote, source))
}

/// A Retry packet and its answer are moments apart, so the port is the same (RFC 9000, section
/// 8.1.4). The client's packets go to the packet's source from now on.
fn context(remote: SocketAddr, source: &ConnectionId) -> Vec<u8> {
    [&[RETRY], &ip_bytes(remote.ip())[..], &remote.port().to_be_bytes(), source.as_slice()].concat()
}

/// When an authentic token was issued.
fn issued_at(plain: &[u8]) -> Instant {
    let nanos = plain.first_chunk::<ISSUED_LEN>().expect("every token begins with its time");
    Instant::from_nanos(u64::from_be_bytes(*nanos))
}

#[cfg(test)]
mod tests;
