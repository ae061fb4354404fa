//! What is kept of each path and of each flow.

use units::{Duration, Rate};

use super::{SETTLED_TICKS, TICK};

#[derive(Debug, Clone)]
pub(super) struct Path {
    pub(super) id: u32,
    /// The capacity, once the controller has found it.
    pub(super) rate: Option<Rate>,
    /// An estimate before that.
    pub(super) at_least: Rate,
    /// Bytes of filling so far, also before the path failed and came back.
    pub(super) filled: u64,
    /// How often it was measured with filling.
    pub(super) fillings: u8,
    /// While it is measured, the last tick of that.
    pub(super) measured_until: Option<u32>,
    /// The controller has found no capacity although the path was measured.
    pub(super) is_given_up: bool,
    /// The smallest round trips of this period and of the one before.
    pub(super) round_trips: [Duration; 2],
    pub(super) packets: (u64, u64),
    /// At the beginning of this period and of the one before.
    pub(super) packets_before: [(u64, u64); 2],
    /// What a flow had when flows did not fill the path, until when that counts, and for how long next time.
    pub(super) limit: Option<(u64, u32)>,
    pub(super) memory: u32,
    /// The last flow came or went.
    pub(super) changed_at: u32,
}

impl Path {
    /// The capacity as far as it is known, after a measurement without a result an estimate.
    pub(super) fn known(&self) -> Option<Rate> {
        self.rate.or(self.is_given_up.then_some(self.at_least))
    }

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
