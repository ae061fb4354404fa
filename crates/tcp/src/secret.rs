//! [`HostSecret`]: numbers that other hosts cannot guess, different for each connection.

use std::net::IpAddr;

use units::{Duration, Instant, Seq32};

use crate::tuple::Tuple;

/// Period of the clock of initial sequence numbers (RFC 9293, section 3.4.1).
const ISN_TICK: Duration = Duration::from_micros(4);

/// Lowest and highest port for outgoing connections (RFC 6335, section 6).
const EPHEMERAL: (u16, u16) = (49_152, 65_535);

/// A random key of this host.
#[derive(Clone)]
pub struct HostSecret {
    key: [u8; 32],
}

impl std::fmt::Debug for HostSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostSecret")
    }
}

impl HostSecret {
    /// Creates a secret; `key` must be random.
    pub const fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// Returns the initial sequence number of a connection that begins now (RFC 6528, section 3):
    /// numbers for the same addresses and ports increase, those for others reveal nothing.
    pub fn initial_sequence(&self, now: Instant, tuple: &Tuple) -> Seq32 {
        let ticks = (now.as_nanos() / ISN_TICK.as_nanos()) as u32;
        Seq32::new(ticks.wrapping_add(self.hash(b"isn", tuple, true)))
    }

    /// Returns the offset of the timestamps of a connection (RFC 7323, section 7.1).
    pub fn timestamp_offset(&self, tuple: &Tuple) -> u32 {
        self.hash(b"timestamp", tuple, true)
    }

    /// Returns ports for a connection to `tuple.remote`, in the order to try them (RFC 6056,
    /// section 3.3.3); `counter` increases by one for each connection.
    pub fn ports(&self, tuple: &Tuple, counter: u32) -> impl Iterator<Item = u16> {
        let (low, high) = EPHEMERAL;
        let count = u32::from(high - low) + 1;
        let first = self.hash(b"port", tuple, false).wrapping_add(counter);
        (0..count).map(move |step| low + (first.wrapping_add(step) % count) as u16)
    }

    /// Returns a key for the hashes of tables, so that other hosts cannot choose colliding
    /// addresses and ports.
    pub fn table_key(&self) -> [u8; 16] {
        let hash = blake3::keyed_hash(&self.key, b"table");
        *hash.as_bytes().first_chunk().expect("a hash has 32 bytes")
    }

    /// Returns bytes unique to a connection, for the keys of a cipher above TCP.
    pub fn salt(&self, now: Instant, tuple: &Tuple) -> [u8; 32] {
        let mut hasher = self.hasher(b"salt", tuple, true);
        hasher.update(&now.as_nanos().to_be_bytes());
        *hasher.finalize().as_bytes()
    }

    /// Returns the code that proves that a SYN cookie was made by this host (RFC 4987, section
    /// 3.6).
    pub(crate) fn cookie_code(&self, tuple: &Tuple, peer_initial: Seq32, period: u64, content: u8) -> u32 {
        let mut hasher = self.hasher(b"cookie", tuple, true);
        hasher.update(&peer_initial.get().to_be_bytes());
        hasher.update(&period.to_be_bytes());
        hasher.update(&[content]);
        first_word(&hasher)
    }

    fn hash(&self, purpose: &[u8], tuple: &Tuple, with_local_port: bool) -> u32 {
        first_word(&self.hasher(purpose, tuple, with_local_port))
    }

    fn hasher(&self, purpose: &[u8], tuple: &Tuple, with_local_port: bool) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(purpose);
        for ip in [tuple.local.ip(), tuple.remote.ip()] {
            match ip {
                IpAddr::V4(ip) => hasher.update(&ip.octets()),
                IpAddr::V6(ip) => hasher.update(&ip.octets()),
            };
        }
        hasher.update(&tuple.remote.port().to_be_bytes());
        if with_local_port {
            hasher.update(&tuple.local.port().to_be_bytes());
        }
        hasher
    }
}

fn first_word(hasher: &blake3::Hasher) -> u32 {
    u32::from_le_bytes(*hasher.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> Tuple {
        Tuple { local: ([10, 0, 0, 1], port).into(), remote: ([10, 0, 0, 2], 80).into() }
    }

    #[test]
    fn the_numbers_of_a_connection_grow_and_those_of_another_one_are_unrelated() {
        let secret = HostSecret::new([7; 32]);
        let first = secret.initial_sequence(Instant::ZERO, &tuple(1));
        let later = secret.initial_sequence(Instant::ZERO + Duration::from_millis(4), &tuple(1));
        assert_eq!(later, first + 1000);
        let other = secret.initial_sequence(Instant::ZERO, &tuple(2));
        assert!(other.distance_from(first).unsigned_abs() > 1_000_000);
        assert_ne!(HostSecret::new([8; 32]).initial_sequence(Instant::ZERO, &tuple(1)), first);
        assert_ne!(secret.timestamp_offset(&tuple(1)), secret.timestamp_offset(&tuple(2)));
    }

    #[test]
    fn each_port_is_tried_once_beginning_elsewhere_for_each_peer() {
        let secret = HostSecret::new([7; 32]);
        let mut ports: Vec<u16> = secret.ports(&tuple(0), 0).collect();
        assert_eq!(secret.ports(&tuple(0), 1).next(), Some(ports[1]));
        let other = Tuple { remote: ([10, 0, 0, 3], 80).into(), ..tuple(0) };
        assert_ne!(secret.ports(&other, 0).next(), Some(ports[0]));
        ports.sort_unstable();
        assert!(ports.iter().copied().eq(EPHEMERAL.0..=EPHEMERAL.1));
    }
}
