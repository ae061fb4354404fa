//! The rings between the machines, with their background load.

use sim::Sim;
use sim::hardware::ConfigError;
use sim::hardware::fddi::{Background, Ring, RingConfig};
use units::Rate;

use super::config::{Config, Load};
use super::packet::Packet;

/// Queue limit of a station on a ring. Windows set a much lower limit.
pub(super) const RING_FRAMES: usize = 4096;
/// Queue limit of the background on a ring; further frames are dropped. A tenth of a second of a
/// full ring of small frames.
const BACKGROUND_FRAMES: u64 = 10_000;

/// Returns the ring of interface `index`.
pub(super) fn ring(sim: &Sim, config: &Config, stations: usize, index: usize) -> Result<Ring<Packet>, ConfigError> {
    ring_of(sim, config, stations, index)
}

/// Returns the same ring for other packets.
pub(super) fn ring_of<T: 'static>(
    sim: &Sim,
    config: &Config,
    stations: usize,
    index: usize,
) -> Result<Ring<T>, ConfigError> {
    let choices = &config.choices;
    let share = match &config.load {
        Load::Uniform(share) => *share,
        // The configuration was validated: the first entry exists.
        Load::Steps(steps) => steps[0],
    };
    let background = Background {
        station: choices.background_station,
        share,
        frame_bytes: choices.background_frame_bytes,
        arrivals: choices.background_arrivals,
        batch: 1,
        queue_frames: BACKGROUND_FRAMES,
    };
    let ring = RingConfig {
        rate: Rate::from_mbps(config.ring_mbps),
        ttrt: choices.ttrt,
        queue_frames: RING_FRAMES,
        background: Some(background),
        ..RingConfig::even(stations, config.ring_m)
    };
    Ring::new(sim, &format!("ring {index}"), ring)
}
