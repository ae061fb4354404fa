//! Proves knowledge of a ticket's secret without sending it.
//!
//! The proof is HMAC-SHA256 under the secret over the TLS exporter of this connection (RFC 8446,
//! section 7.5), both keys and the prover's role. So it is invalid on another connection, for
//! another host, or when reflected to its prover.

use std::fmt;

use aws_lc_rs::hmac;

use super::ticket::Secret;
use quic_endpoint::identity::{Fingerprint, PublicKey};

/// Label of the TLS exporter that proofs are bound to; its context is empty, its length 32 bytes.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-litz-ticket-proof";

/// The two ends of one connection, as both of them see it.
#[derive(Clone)]
pub struct ProofContext {
    exporter: [u8; 32],
    sender: PublicKey,
    receiver: Fingerprint,
}

/// Role of the end that proves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Role {
    /// The end that sends the files; it speaks first.
    Sender = 1,
    /// The end that issued the ticket.
    Receiver = 2,
}

/// A proof as it is sent.
#[derive(Clone)]
pub struct Proof([u8; 32]);

impl ProofContext {
    /// Creates the context of a connection: `exporter(label, context)` yields 32 bytes of its TLS
    /// exporter, `sender` is the sending end's key and `receiver` the receiving end's fingerprint,
    /// both as authenticated by the handshake.
    pub fn new(exporter: impl FnOnce(&[u8], &[u8]) -> [u8; 32], sender: PublicKey, receiver: Fingerprint) -> Self {
        Self { exporter: exporter(EXPORTER_LABEL, b""), sender, receiver }
    }

    /// Returns the sending end's key.
    pub fn sender(&self) -> PublicKey {
        self.sender
    }

    /// Returns the receiving end's fingerprint.
    pub fn receiver(&self) -> Fingerprint {
        self.receiver
    }

    /// Returns the proof of `secret` in `role`.
    pub fn prove(&self, secret: &Secret, role: Role) -> Proof {
        let tag = hmac::sign(&Self::key(secret), &self.message(role));
        let mut bytes = [0; 32];
        bytes.copy_from_slice(tag.as_ref());
        Proof(bytes)
    }

    /// Returns whether `proof` was made from `secret` in `role` for this connection. Takes the same
    /// time for any wrong proof.
    #[must_use]
    pub fn verify(&self, secret: &Secret, role: Role, proof: &Proof) -> bool {
        hmac::verify(&Self::key(secret), &self.message(role), &proof.0).is_ok()
    }

    fn key(secret: &Secret) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())
    }

    /// Returns the authenticated message. Every part has a fixed length, so no two contexts share a
    /// message.
    fn message(&self, role: Role) -> [u8; 97] {
        let mut message = [0; 97];
        message[..32].copy_from_slice(&self.exporter);
        message[32..64].copy_from_slice(self.sender.as_bytes());
        message[64..96].copy_from_slice(self.receiver.as_bytes());
        message[96] = role as u8;
        message
    }
}

impl Proof {
    /// Creates a proof as received.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes to send.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for ProofContext {
    /// Omits the exporter, which is a secret of the connection.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProofContext")
            .field("sender", &self.sender)
            .field("receiver", &self.receiver)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(exporter: u8, sender: u8, receiver: u8) -> ProofContext {
        ProofContext::new(
            |label, context| {
                assert_eq!((label, context), (EXPORTER_LABEL, b"".as_slice()));
                [exporter; 32]
            },
            PublicKey::from_bytes([sender; 32]),
            Fingerprint::from_bytes([receiver; 32]),
        )
    }

    #[test]
    fn a_proof_holds_for_its_connection_keys_secret_and_role_only() {
        let secret = Secret::from_bytes([7; 16]);
        let proof = context(1, 2, 3).prove(&secret, Role::Sender);
        assert!(context(1, 2, 3).verify(&secret, Role::Sender, &proof));
        assert!(!context(9, 2, 3).verify(&secret, Role::Sender, &proof), "another connection");
        assert!(!context(1, 9, 3).verify(&secret, Role::Sender, &proof), "another sender");
        assert!(!context(1, 2, 9).verify(&secret, Role::Sender, &proof), "another receiver");
        assert!(!context(1, 2, 3).verify(&secret, Role::Receiver, &proof), "sent back");
        assert!(!context(1, 2, 3).verify(&Secret::from_bytes([8; 16]), Role::Sender, &proof), "another secret");
        let mut bent = *proof.as_bytes();
        bent[31] ^= 1;
        assert!(!context(1, 2, 3).verify(&secret, Role::Sender, &Proof::from_bytes(bent)));
    }

    #[test]
    fn the_proof_equals_that_of_another_implementation() {
        // HMAC-SHA256(key 07 x 16, 01 x 32 | 02 x 32 | 03 x 32 | 01), computed with another HMAC.
        let proof = context(1, 2, 3).prove(&Secret::from_bytes([7; 16]), Role::Sender);
        let hex: String = proof.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "03906a1294c090b517f9bfe8bca8784732b146b92cdbeb180569f82ca16dbc1f");
    }
}
