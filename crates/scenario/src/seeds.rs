//! The random generators of a run, derived from its seed.

use units::Rng;

/// Returns the random generator of one direction of a link in a run with this seed. Each link has a
/// generator derived from its own name, so other links do not change its effect on its packets.
pub fn link_rng(seed: u64, link: &str, direction: usize) -> Rng {
    let names = ["forward", "back"];
    Rng::from_seed(seed).split(&format!("link {link}")).split(names[direction])
}

/// The random sources of one host of a run.
pub struct HostSeeds {
    /// The secret from which connection IDs are derived.
    pub secret: [u8; 32],
    /// The generator of its deterministic TLS sessions.
    pub sessions: Rng,
}

/// Returns the random sources of a host (0 is the sending host) in a run with this seed.
pub fn host_seeds(seed: u64, host: usize) -> HostSeeds {
    let names = ["host a", "host b"];
    let rng = Rng::from_seed(seed).split(names[host]);
    let mut secret = [0; 32];
    rng.split("secrets").fill(&mut secret);
    HostSeeds { secret, sessions: rng.split("sessions") }
}
