//! Path MTU discovery (RFC 8899; RFC 9000, section 14.3): finds the largest datagram that a path
//! carries.
//!
//! A probe is a packet of the size in question with a PING frame and padding. If it is acknowledged,
//! the path uses that size. Its loss is no sign of congestion (RFC 9000, section 14.4).

use recovery::MtuSearch;
use wire::quic::MIN_INITIAL_SIZE;

/// Sizes that networks are built for, bytes of UDP payload, ascending: Ethernet under IPv6 and under
/// IPv4, and jumbo frames under both. Few paths have a size in between.
const COMMON: [usize; 4] = [1452, 1472, 8952, 8972];

/// A search from `base`, which the path is assumed to carry, to `max`; none if no size is to be
/// found. One whose base is its maximum finds that again after the path fell back.
pub(crate) fn search(base: usize, max: usize) -> Option<Box<MtuSearch>> {
    (max > MIN_INITIAL_SIZE).then(|| Box::new(MtuSearch::new(base, max, &COMMON)))
}
