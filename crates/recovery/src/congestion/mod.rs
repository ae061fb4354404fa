//! Congestion control: how much data may be in flight (RFC 9002, section 7).
//!
//! A controller is notified of sent, acknowledged and lost bytes, and returns a window in bytes. It
//! is independent of packets and connections. `window` holds the state shared by loss-based
//! controllers. [`new_reno`] is the controller of RFC 9002 and serves as the baseline. [`cubic`]
//! with [`hystart`] is the default. [`bbr`] models the path and does not treat every loss as
//! congestion. [`prague`] answers the frequent marks of L4S networks.

mod algorithm;
pub mod bbr;
mod controller;
pub mod cubic;
mod event;
pub mod hystart;
pub mod new_reno;
pub mod prague;
#[cfg(test)]
mod tests;
mod unlimited;
mod window;

use units::Rng;

pub use algorithm::{Algorithm, ParseAlgorithmError};
pub use bbr::Bbr;
pub use controller::{CongestionController, CongestionSnapshot};
pub use cubic::Cubic;
pub use event::{AckEvent, LossEvent, SpuriousLossEvent};
pub use new_reno::NewReno;
pub use prague::Prague;
pub use unlimited::Unlimited;
pub use window::{WINDOW_MAX, initial_window, minimum_window};

impl Algorithm {
    /// Calls [`Self::build_seeded`] with a fixed seed, for a single flow or an algorithm without
    /// randomness. Flows that share a path should use different seeds.
    pub fn build(self, segment_size: u64) -> Box<dyn CongestionController> {
        self.build_seeded(segment_size, &Rng::from_seed(0))
    }

    /// Returns a controller with the initial window for packets of at most `segment_size` bytes.
    /// Only BBR uses randomness: a generator split from `rng`, for the times of its probes.
    pub fn build_seeded(self, segment_size: u64, rng: &Rng) -> Box<dyn CongestionController> {
        match self {
            Self::NewReno => Box::new(NewReno::new(segment_size)),
            Self::Cubic => Box::new(Cubic::new(segment_size)),
            Self::Prague => Box::new(Prague::new(segment_size)),
            Self::Bbr => Box::new(Bbr::new(segment_size, rng.split("bbr"))),
        }
    }
}
