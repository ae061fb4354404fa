//! A map from stream identifiers, fast because the keys need no strong hash.
//!
//! Identifiers count up and the peer can open only as many as we allow, so an attacker cannot
//! choose colliding ones freely. The map is never iterated: the order of a hash map must not show
//! on the wire.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use wire::quic::StreamId;

/// Streams by identifier.
pub(crate) type StreamMap<T> = HashMap<StreamId, T, BuildHasherDefault<IdHasher>>;

/// Fibonacci hashing of one `u64`.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        // The map takes its bucket from the low bits, which a multiplication leaves weak.
        self.0.rotate_left(32)
    }
}
