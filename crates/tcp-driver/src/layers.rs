//! [`Layers`]: the security layers of a stack, and the creation of its packets.

use std::sync::Arc;

use layers::record::PLAINTEXT_MAX;
use layers::{CipherLayer, DigestKey, DigestLayer, SharedSecret, Stack, digest};
use tcp::{HeaderBelow, Plan, SuperPacket};
use wire::ip::Protocol;

/// The security layers of a stack. Both ends must use the same.
#[derive(Debug, Clone)]
pub struct Layers {
    stack: Stack,
    secret: SharedSecret,
    digest: Option<Digest>,
    /// Bytes of the application in a record.
    record_len: usize,
    cuts: bool,
}

#[derive(Debug, Clone)]
struct Digest(DigestKey);

impl HeaderBelow for Digest {
    fn protocol(&self) -> Protocol {
        Protocol::AH
    }

    fn header_len(&self) -> usize {
        digest::HEADER_LEN
    }

    fn fill(&self, packet: &mut [u8], ip_len: usize) {
        self.0.fill(packet, ip_len);
    }
}

impl Layers {
    /// Creates the layers of `stack`, with keys from `secret`.
    pub fn new(stack: Stack, secret: SharedSecret) -> Self {
        let digest = stack.digest.map(|layer| Digest(secret.digest_key(layer)));
        Self { stack, secret, digest, record_len: PLAINTEXT_MAX, cuts: stack.digest.is_some() }
    }

    /// Sets the number of application bytes in a record of the cipher, if that many are available.
    /// Default: 16 KiB, the maximum.
    ///
    /// # Panics
    /// Panics if it is not from 64 bytes to 16 KiB.
    #[must_use]
    pub fn with_record_len(mut self, len: usize) -> Self {
        assert!((64..=PLAINTEXT_MAX).contains(&len), "records have from 64 bytes to 16 KiB");
        self.record_len = len;
        self
    }

    /// Makes the stack segment packets and complete their checksums itself, even without a digest
    /// and if the device could do it.
    #[must_use]
    pub fn with_single_packets(mut self) -> Self {
        self.cuts = true;
        self
    }

    /// Returns the stack.
    pub const fn stack(&self) -> Stack {
        self.stack
    }

    /// Returns the secret shared by both ends.
    pub const fn secret(&self) -> &SharedSecret {
        &self.secret
    }

    /// Returns the number of application bytes in a record.
    pub const fn record_len(&self) -> usize {
        self.record_len
    }

    /// Returns the key of the digest between TCP and IP.
    pub fn digest(&self) -> Option<&DigestKey> {
        self.digest.as_ref().map(|digest| &digest.0)
    }

    /// Returns the work of opening a packet: see [`digest_work`].
    pub(crate) fn open_work(&self, len_bytes: usize) -> usize {
        self.stack.digest.map_or(1, digest_work) * len_bytes
    }

    /// Returns the header between TCP and IP.
    pub fn below(&self) -> Option<&dyn HeaderBelow> {
        self.digest.as_ref().map(|digest| digest as &dyn HeaderBelow)
    }

    /// Returns the length in bytes of the header between TCP and IP in each packet.
    pub fn below_len(&self) -> usize {
        self.digest.as_ref().map_or(0, HeaderBelow::header_len)
    }
}

/// Returns the number of bytes that AES-128-GCM encrypts, with processor instructions for it, in
/// the time in which this cipher encrypts one.
pub(crate) const fn cipher_work(layer: CipherLayer) -> usize {
    match layer {
        CipherLayer::Aes128Gcm => 1,
        CipherLayer::ChaCha20Poly1305 => 2,
        CipherLayer::Des => 80,
        CipherLayer::TripleDes => 240,
    }
}

/// Returns the number of bytes that AES-128-GCM encrypts in the time in which this digest covers
/// one.
const fn digest_work(layer: DigestLayer) -> usize {
    match layer {
        DigestLayer::Blake3 => 2,
        DigestLayer::Md5 => 6,
    }
}

/// Writes the packets of a plan, or refers to their data.
pub(crate) fn seal(plan: &Plan, layers: Option<&Arc<Layers>>, out: &mut SuperPacket) {
    match layers {
        Some(layers) if layers.cuts => {
            plan.seal_packets(layers.below(), out);
        }
        _ => plan.seal_shared(out),
    }
}
