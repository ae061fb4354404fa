//! Values nobody may guess: connection IDs, reset tokens.
//!
//! The key is an argument, from the operating system in earnest and from the seed in tests; the rest is a keyed function
//! of a counter, so that the same key gives the same values.

use std::fmt;

use aws_lc_rs::hmac;
use wire::quic::ConnectionId;

use crate::control::ids::LOCAL_ID_LEN;

/// Derives unguessable values from a key.
#[derive(Clone)]
pub struct SecretSource {
    /// As bytes: a prepared key takes more than a kilobyte, and each connection has a source.
    key: [u8; 32],
    counter: u64,
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretSource")
    }
}

impl SecretSource {
    /// A source whose values nobody without `key` can tell.
    pub fn new(key: &[u8; 32]) -> Self {
        Self { key: *key, counter: 0 }
    }

    fn derive(&self, label: &[u8], input: &[u8]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.key));
        context.update(label);
        context.update(input);
        context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    fn next(&mut self, label: &[u8]) -> [u8; 32] {
        self.counter += 1;
        self.derive(label, &self.counter.to_be_bytes())
    }

    /// A source of its own for one connection.
    pub(crate) fn split(&mut self) -> Self {
        Self::new(&self.next(b"connection"))
    }

    /// A connection ID of ours.
    pub(crate) fn connection_id(&mut self) -> ConnectionId {
        ConnectionId::new(&self.next(b"id")[..LOCAL_ID_LEN]).expect("eight bytes are a connection ID")
    }

    /// The token that proves we have forgotten the connection with this ID (RFC 9000, section 10.3.2).
    pub(crate) fn reset_token(&self, id: &ConnectionId) -> [u8; 16] {
        *self.derive(b"reset", id.as_slice()).first_chunk().expect("16 of 32 bytes")
    }

    /// A seed for public randomness.
    pub(crate) fn seed(&mut self) -> u64 {
        u64::from_le_bytes(*self.next(b"seed").first_chunk().expect("8 of 32 bytes"))
    }
}
