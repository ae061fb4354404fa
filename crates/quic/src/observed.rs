//! What an observed replay reads from the send half.

use units::{Duration, Rate};
use wire::quic::{PathId, Space};

use crate::stats::PathStats;

/// Consecutive packets that were declared lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostPackets {
    /// Their path.
    pub path: PathId,
    /// Their packet number space.
    pub space: Space,
    /// The first number.
    pub first: u64,
    /// How many they are.
    pub count: u32,
    /// Bytes of each of them.
    pub size_bytes: u16,
    /// Why.
    pub trigger: LossTrigger,
}

/// The losses between two steps of an observed replay. Boxed, so that a connection that nobody
/// observes has one word for it.
#[derive(Debug, Default)]
pub(crate) struct ObservedLosses(pub(crate) Vec<LostPackets>);

/// Why packets were declared lost (RFC 9002, section 6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossTrigger {
    /// Later packets were acknowledged.
    PacketThreshold,
    /// They were sent long before a packet that was acknowledged.
    TimeThreshold,
}

/// The recovery state of a path beyond its [`PathStats`].
#[derive(Debug, Clone)]
pub struct PathMetrics {
    /// What every program sees.
    pub stats: PathStats,
    /// The latest sample of the round-trip time.
    pub round_trip_latest: Duration,
    /// Its mean deviation (RFC 9002, section 5.3).
    pub round_trip_variation: Duration,
    /// There was a sample.
    pub has_round_trip: bool,
    /// The rate at which packets are spaced.
    pub pacing_rate: Rate,
    /// Probe timeouts in a row.
    pub probe_timeouts: u32,
    /// Acknowledgements are overdue while other paths receive some.
    pub is_suspect: bool,
}
