//! [`Table`]: values by the addresses and ports of connections.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;

use siphasher::sip::SipHasher13;
use tcp::Tuple;

/// A hash table with a secret key: other hosts cannot choose addresses and ports that collide, and
/// so make each lookup search all of them (Crosby and Wallach 2003). It is never iterated over,
/// because the order depends on the secret.
#[derive(Debug)]
pub(crate) struct Table<V> {
    entries: HashMap<Flow, V, Keyed>,
}

impl<V> Table<V> {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { entries: HashMap::with_hasher(Keyed { hasher: SipHasher13::new_with_key(&key) }) }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, tuple: &Tuple) -> Option<&V> {
        self.entries.get(&Flow(*tuple))
    }

    pub(crate) fn get_mut(&mut self, tuple: &Tuple) -> Option<&mut V> {
        self.entries.get_mut(&Flow(*tuple))
    }

    pub(crate) fn contains(&self, tuple: &Tuple) -> bool {
        self.entries.contains_key(&Flow(*tuple))
    }

    pub(crate) fn insert(&mut self, tuple: Tuple, value: V) {
        self.entries.insert(Flow(tuple), value);
    }

    pub(crate) fn remove(&mut self, tuple: &Tuple) -> Option<V> {
        self.entries.remove(&Flow(*tuple))
    }
}

/// A tuple that is hashed as a few words instead of field by field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Flow(Tuple);

impl std::hash::Hash for Flow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Tuple { local, remote } = &self.0;
        let ports = u32::from(local.port()) << 16 | u32::from(remote.port());
        match (local.ip(), remote.ip()) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                state.write_u64(u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits()));
                state.write_u64(ports.into());
            }
            (local, remote) => {
                for word in [bits(local), bits(remote)] {
                    state.write_u64((word >> 64) as u64);
                    state.write_u64(word as u64);
                }
                state.write_u64(ports.into());
            }
        }
    }
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// SipHash-1-3 (Aumasson and Bernstein 2012) with a key.
#[derive(Debug)]
struct Keyed {
    hasher: SipHasher13,
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        self.hasher
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(local: &str, remote: &str) -> Tuple {
        Tuple { local: local.parse().unwrap(), remote: remote.parse().unwrap() }
    }

    fn tuples() -> Vec<Tuple> {
        vec![
            tuple("10.0.0.1:80", "10.0.0.2:1000"),
            tuple("10.0.0.1:1000", "10.0.0.2:80"),
            tuple("10.0.0.2:80", "10.0.0.1:1000"),
            tuple("10.0.0.1:80", "10.0.0.2:1001"),
            tuple("[::1]:80", "[::2]:1000"),
            tuple("[::2]:80", "[::1]:1000"),
            tuple("[::1:0:0:0:1]:80", "[::2]:1000"),
            tuple("[::1]:80", "[::2:0:0:0:2]:1000"),
        ]
    }

    #[test]
    fn every_address_and_port_counts() {
        let mut table = Table::new([7; 16]);
        for (number, tuple) in tuples().into_iter().enumerate() {
            assert!(!table.contains(&tuple), "{tuple}");
            table.insert(tuple, number);
        }
        for (number, tuple) in tuples().iter().enumerate() {
            assert_eq!(table.get(tuple), Some(&number), "{tuple}");
            *table.get_mut(tuple).unwrap() += 100;
            assert_eq!(table.remove(tuple), Some(number + 100));
        }
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn hashes_differ_by_tuple_and_by_key() {
        let hash = |key, tuple| Table::<()>::new(key).entries.hasher().hash_one(Flow(tuple));
        let mut hashes: Vec<u64> =
            tuples().into_iter().flat_map(|tuple| [hash([7; 16], tuple), hash([8; 16], tuple)]).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 2 * tuples().len());
    }
}
