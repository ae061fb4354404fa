//! How tokens are sealed: their contents are secret, and cannot be changed (RFC 9000, section 8.1.4).
//!
//! ```text
//! kind (8) | nonce (96) | sealed: issued at (64) | contents | tag (128)
//! ```

use std::net::IpAddr;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::session::TAG_LEN;

/// What a nonce is: it must never repeat under one key.
pub(crate) type TokenNonce = [u8; NONCE_LEN];

/// The bytes of a token beside its contents.
pub(crate) const OVERHEAD_LEN: usize = 1 + NONCE_LEN + TAG_LEN;

/// The bytes of an IP address in a token. IPv4 addresses are mapped.
pub(crate) const IP_LEN: usize = 16;

/// An address as a token contains it.
pub(crate) fn ip_bytes(ip: IpAddr) -> [u8; IP_LEN] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn cipher(key: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("the key has the length of the cipher's"))
}

/// A token of this kind with the contents `plain`, which is valid only together with `context`.
pub(crate) fn seal(kind: u8, key: &[u8; 32], nonce: TokenNonce, plain: &[u8], context: &[u8]) -> Vec<u8> {
    let mut token = vec![kind];
    token.extend_from_slice(&nonce);
    let mut sealed = plain.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    cipher(key).seal_in_place_append_tag(nonce, Aad::from(context), &mut sealed).expect("a token is short");
    token.extend_from_slice(&sealed);
    token
}

/// The nonce and the contents of an authentic token.
pub(crate) fn unseal(key: &[u8; 32], token: &[u8], context: &[u8]) -> Option<(TokenNonce, Vec<u8>)> {
    let (nonce, sealed) = token.get(1..)?.split_first_chunk::<NONCE_LEN>()?;
    let mut sealed = sealed.to_vec();
    let plain =
        cipher(key).open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(context), &mut sealed).ok()?.to_vec();
    Some((*nonce, plain))
}
