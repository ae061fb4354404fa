//! [`Shard`]: the assignment of connections to several drivers.

use std::net::{IpAddr, SocketAddr};

use tcp::Tuple;

/// One of several drivers of a stack. Each has the connections whose addresses and ports hash to
/// it. The hash is the same for both directions and on both sides, so that two stacks over equally
/// many links exchange the packets of a connection over one of them. Other packets are passed on to
/// their driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    count: usize,
}

impl Default for Shard {
    fn default() -> Self {
        Self { index: 0, count: 1 }
    }
}

impl Shard {
    /// Creates the shard of driver `index` of `count`.
    ///
    /// # Panics
    /// Panics if there is no such driver.
    pub const fn new(index: usize, count: usize) -> Self {
        assert!(index < count, "there is no such driver");
        Self { index, count }
    }

    /// Returns whether it has the connections with these addresses and ports.
    pub fn owns(&self, tuple: &Tuple) -> bool {
        self.count == 1 || of(tuple, self.count) == self.index
    }
}

/// Returns the index of the driver, of `count`, that has the connections with these addresses and
/// ports.
pub fn of(tuple: &Tuple, count: usize) -> usize {
    // The sum does not change when the ends are exchanged. It is not secret: a peer that loads one
    // driver more than the others could send it more as well.
    let hash = mix(end(tuple.local).wrapping_add(end(tuple.remote)));
    (hash % count.max(1) as u64) as usize
}

fn end(address: SocketAddr) -> u64 {
    let ip = match address.ip() {
        IpAddr::V4(ip) => u64::from(u32::from(ip)),
        IpAddr::V6(ip) => {
            let bits = u128::from(ip);
            mix((bits >> 64) as u64) ^ bits as u64
        }
    };
    mix(mix(ip) ^ u64::from(address.port()))
}

/// A permutation in which each output bit depends on all input bits (Stafford, variant 13 of the
/// finalizer of MurmurHash3).
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_choose_the_same_driver_and_connections_spread_over_all() {
        for local in ["10.0.0.1:80", "[fd66::1]:80"] {
            let mut counts = [0; 4];
            for port in 0..4000_u16 {
                let local: SocketAddr = local.parse().expect("an address");
                let remote = SocketAddr::new(local.ip(), 10_000 + port);
                let index = of(&Tuple { local, remote }, counts.len());
                assert_eq!(index, of(&Tuple { local: remote, remote: local }, counts.len()));
                assert_eq!((0..4).filter(|at| Shard::new(*at, 4).owns(&Tuple { local, remote })).count(), 1);
                counts[index] += 1;
            }
            assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        }
    }
}
