//! [`Signature`]: verification of the digests of a connection's segments (RFC 2385).

use tcp::{Md5Key, Tuple};

/// Verifies the segments of one connection or listening port. Any processor can use it.
#[derive(Debug)]
pub(crate) struct Signature {
    key: Md5Key,
}

impl Signature {
    pub(crate) fn new(key: &Md5Key) -> Self {
        Self { key: key.clone() }
    }

    /// Returns whether a received segment has the correct digest.
    pub(crate) fn verifies(&self, tuple: &Tuple, segment: &[u8]) -> bool {
        self.key.verifies(tuple, segment)
    }
}
