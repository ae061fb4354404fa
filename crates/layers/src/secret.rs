//! [`SharedSecret`]: the secret of both hosts, and the keys derived from it.

use std::fmt;

use crate::cipher::RecordKey;
use crate::digest::DigestKey;
use crate::stack::{CipherLayer, DigestLayer};

/// The length of a [salt](Salt).
pub const SALT_LEN: usize = 32;

/// A random value that begins each direction of a connection with a cipher. It must differ from
/// connection to connection; it need not be secret.
pub type Salt = [u8; SALT_LEN];

/// A secret shared by two hosts.
#[derive(Clone)]
pub struct SharedSecret([u8; 32]);

/// One direction of a connection: its keys differ from those of any other direction.
#[derive(Debug, Clone, Copy)]
pub struct Direction {
    /// The sender's salt.
    pub salt: Salt,
    /// The initial sequence number of the sender.
    pub sender_initial: u32,
    /// The initial sequence number of the receiver, which a recorded stream of another connection
    /// lacks.
    pub receiver_initial: u32,
}

impl SharedSecret {
    /// Creates a secret; `secret` must be random and known to both hosts only.
    pub const fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// Returns the key of the digest between TCP and IP.
    pub fn digest_key(&self, layer: DigestLayer) -> DigestKey {
        let context = match layer {
            DigestLayer::Md5 => "litz 2026 layers: md5 below tcp",
            DigestLayer::Blake3 => "litz 2026 layers: blake3 below tcp",
        };
        DigestKey::new(layer, &blake3::derive_key(context, &self.0))
    }

    /// Returns the key of the cipher above TCP, for one direction of a connection.
    pub fn record_key(&self, layer: CipherLayer, direction: &Direction) -> RecordKey {
        let context = match layer {
            CipherLayer::Des => "litz 2026 layers: des above tcp",
            CipherLayer::TripleDes => "litz 2026 layers: 3des above tcp",
            CipherLayer::Aes128Gcm => "litz 2026 layers: aes128 above tcp",
            CipherLayer::ChaCha20Poly1305 => "litz 2026 layers: chacha20 above tcp",
        };
        let mut hasher = blake3::Hasher::new_derive_key(context);
        hasher.update(&self.0);
        hasher.update(&direction.salt);
        hasher.update(&direction.sender_initial.to_be_bytes());
        hasher.update(&direction.receiver_initial.to_be_bytes());
        RecordKey::new(layer, hasher.finalize_xof())
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSecret")
    }
}
