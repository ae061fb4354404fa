//! Address validation tokens: a server gives them to clients, and a client that returns one has
//! received packets at its address (RFC 9000, section 8.1).
//!
//! ```text
//! kind (8) | nonce (96) | sealed: issued at (64) | original destination, length and ID (168) | tag (128)
//! ```
//!
//! The kind distinguishes tokens of Retry packets from those of NEW_TOKEN frames (section 8.1.1).
//! Only tokens of Retry packets contain the original destination. The client's address is
//! authenticated with the token and not contained in it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use units::{Duration, Instant};
use wire::quic::{ConnectionId, MAX_CID_LEN};

use crate::session::TAG_LEN;

const RETRY: u8 = 0x3b;
const NEW_TOKEN: u8 = 0xa6;

const ISSUED_LEN: usize = 8;
const ID_FIELD_LEN: usize = 1 + MAX_CID_LEN;
const RETRY_LEN: usize = 1 + NONCE_LEN + ISSUED_LEN + ID_FIELD_LEN + TAG_LEN;

/// The length of a token in a NEW_TOKEN frame, bytes.
pub(crate) const NEW_TOKEN_LEN: usize = 1 + NONCE_LEN + ISSUED_LEN + TAG_LEN;

/// The lifetime of a token from a Retry packet: the client returns it within a round trip or a few
/// repetitions. Short, because anyone who has seen it can send it from the same address (RFC 9000,
/// section 8.1.4).
const RETRY_LIFETIME: Duration = Duration::from_secs(15);

/// The lifetime of a token from a NEW_TOKEN frame.
const NEW_TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Tokens that are remembered as used, so that each is accepted once. Beyond it, the server accepts
/// no token that it has issued before.
const USED_MAX: usize = 1024;

/// What a valid token shows, besides the client's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// The client responds to a Retry packet. Its first packet had this destination.
    Retry { original_destination: ConnectionId },
    /// It had another connection before.
    NewToken,
}

/// Why a token does not validate an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenError {
    /// It claims to be from a Retry packet, and is forged, from another address or too old. The
    /// client accepts no further Retry packet (RFC 9000, section 8.1.2).
    Retry,
    /// Any other: the client is treated as one without a token (section 8.1.3).
    Other,
}

/// The server's tokens.
pub(super) struct Tokens {
    /// The nonces of used tokens from NEW_TOKEN frames.
    used: BTreeSet<[u8; NONCE_LEN]>,
    /// Tokens from NEW_TOKEN frames that were issued then or before are not accepted.
    valid_after: Option<Instant>,
}

impl Tokens {
    pub(super) fn new() -> Self {
        Self { used: BTreeSet::new(), valid_after: None }
    }

    /// What `token` shows of the client at `remote`, whose first packet has this destination.
    pub(super) fn open(
        &mut self,
        key: &[u8; 32],
        now: Instant,
        remote: SocketAddr,
        destination: &ConnectionId,
        token: &[u8],
    ) -> Result<Proof, TokenError> {
        match token.first() {
            Some(&RETRY) if token.len() == RETRY_LEN => {
                let proof = open_retry(key, now, remote, destination, token);
                proof.map(|original_destination| Proof::Retry { original_destination }).ok_or(TokenError::Retry)
            }
            Some(&NEW_TOKEN) if token.len() == NEW_TOKEN_LEN => {
                self.open_new(key, now, remote, token).then_some(Proof::NewToken).ok_or(TokenError::Other)
            }
            _ => Err(TokenError::Other),
        }
    }

    fn open_new(&mut self, key: &[u8; 32], now: Instant, remote: SocketAddr, token: &[u8]) -> bool {
        let Some((nonce, plain)) = open(key, token, &new_token_context(remote.ip())) else { return false };
        let issued_at = issued_at(&plain);
        let is_void = self.valid_after.is_some_and(|after| issued_at <= after);
        if is_void || now.saturating_since(issued_at) > NEW_TOKEN_LIFETIME {
            return false;
        }
        if !self.used.insert(nonce) {
            return false;
        }
        if self.used.len() >= USED_MAX {
            self.used.clear();
            self.valid_after = Some(now);
        }
        true
    }
}

fn open_retry(
    key: &[u8; 32],
    now: Instant,
    remote: SocketAddr,
    destination: &ConnectionId,
    token: &[u8],
) -> Option<ConnectionId> {
    let (_, plain) = open(key, token, &retry_context(remote, destination))?;
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
    seal(key, RETRY, nonce, &plain, &retry_context(remote, source))
}

/// A token for a NEW_TOKEN frame to a client at `remote`. `nonce` must never repeat.
pub(crate) fn new_token(
    key: &[u8; 32],
    nonce: [u8; NONCE_LEN],
    now: Instant,
    remote: SocketAddr,
) -> [u8; NEW_TOKEN_LEN] {
    let sealed = seal(key, NEW_TOKEN, nonce, &now.as_nanos().to_be_bytes(), &new_token_context(remote.ip()));
    sealed.try_into().expect("the length of a token follows from its contents")
}

/// A Retry packet and its answer are moments apart, so the port is the same (RFC 9000, section
/// 8.1.4). The client's packets go to the packet's source from now on.
fn retry_context(remote: SocketAddr, source: &ConnectionId) -> Vec<u8> {
    let mut context = new_token_context(remote.ip());
    context[0] = RETRY;
    context.extend_from_slice(&remote.port().to_be_bytes());
    context.extend_from_slice(source.as_slice());
    context
}

/// The port of a client's next connection is another one.
fn new_token_context(ip: IpAddr) -> Vec<u8> {
    let ip = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut context = vec![NEW_TOKEN];
    context.extend_from_slice(&ip.octets());
    context
}

fn cipher(key: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("the key has the length of the cipher's"))
}

fn seal(key: &[u8; 32], kind: u8, nonce: [u8; NONCE_LEN], plain: &[u8], context: &[u8]) -> Vec<u8> {
    let mut token = vec![kind];
    token.extend_from_slice(&nonce);
    let mut sealed = plain.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    cipher(key).seal_in_place_append_tag(nonce, Aad::from(context), &mut sealed).expect("a token is short");
    token.extend_from_slice(&sealed);
    token
}

/// Nonce and contents of an authentic token.
fn open(key: &[u8; 32], token: &[u8], context: &[u8]) -> Option<([u8; NONCE_LEN], Vec<u8>)> {
    let (nonce, sealed) = token.get(1..)?.split_first_chunk::<NONCE_LEN>()?;
    let mut sealed = sealed.to_vec();
    let plain =
        cipher(key).open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(context), &mut sealed).ok()?.to_vec();
    Some((*nonce, plain))
}

/// When an authentic token was issued.
fn issued_at(plain: &[u8]) -> Instant {
    let nanos = plain.first_chunk::<ISSUED_LEN>().expect("every token begins with its time");
    Instant::from_nanos(u64::from_be_bytes(*nanos))
}

#[cfg(test)]
mod tests;
