//! What is kept of each path and of each flow.

use units::{Duration, Rate};

use super::{SETTLED_TICKS, TICK};

#[derive(Debug, Clone)]
pub(super) struct Path {
    pub(super) id: u32,
    /// None until it has been measured.
    pub(super) rate: Option<Rate>,
    pub(super) at_least: Rate,
    /// The smallest round trips of this period and of the one before.
    pub(super) round_trips: [Duration; 2],
    pub(super) packets: (u64, u64),
    /// At the beginning of this period and of the one before.
    pub(super) packets_before: [(u64, u64); 2],
    /// What a flow had when flows did not fill the path, until when that counts, and for how long next time.
    pub(super) limit: Option<(u64, u32)>,
    pub(super) memory: u32,
    /// While it is measured.
    pub(super) measurement: Option<Measurement>,
    /// The last flow came or went.
    pub(super) changed_at: u32,
}

/// The measurement of a path whose capacity is not known, by a flow or by filling.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measurement {
    /// The last tick.
    pub(super) until: u32,
    /// Bytes of filling so far.
    pub(super) filled: u64,
}

impl Path {
    pub(super) fn round_trip(&self) -> Duration {
        self.round_trips[0].min(self.round_trips[1])
    }

    /// Ticks after a change until what flows get says something.
    pub(super) fn settles(&self) -> u32 {
        SETTLED_TICKS + self.ticks_of(8)
    }

    /// So many round trips in ticks.
    pub(super) fn ticks_of(&self, round_trips: u64) -> u32 {
        (self.round_trip().as_millis() * round_trips / TICK.as_millis()) as u32
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flow {
    /// None for all paths, or any that works.
    pub(super) path: Option<u32>,
    /// Bytes of large packets, an eighth less each tick: those of 0.8 s.
    pub(super) bytes: u32,
    pub(super) is_bulk: bool,
    pub(super) moved_at: u32,
    /// It has taken a path since the last pause.
    pub(super) is_used: bool,
    pub(super) idle: u8,
    pub(super) is_moving: bool,
}

impl Flow {
    /// After the decay of a tick, seven ticks' worth is left of a constant rate.
    pub(super) const fn bps(&self) -> u64 {
        self.bytes as u64 * 80 / 7
    }
}
