//! [`Signature`]: the digests of a connection's segments (RFC 2385), where they are verified.

use std::sync::Arc;

use tcp::{Md5Key, Tuple};

use crate::counters::{Count, HostCounters};

/// Verifies the segments of one connection or listening port. Any processor can do it.
#[derive(Debug)]
pub(crate) struct Signature {
    key: Md5Key,
    counters: Arc<HostCounters>,
}

impl Signature {
    pub(crate) fn new(key: &Md5Key, counters: &Arc<HostCounters>) -> Self {
        Self { key: key.clone(), counters: Arc::clone(counters) }
    }

    /// Whether a segment that has arrived has the right digest. Counts it if not.
    pub(crate) fn verifies(&self, tuple: &Tuple, segment: &[u8]) -> bool {
        let is_right = self.key.verifies(tuple, segment);
        if !is_right {
            self.counters.add(Count::WrongDigests);
        }
        is_right
    }
}
