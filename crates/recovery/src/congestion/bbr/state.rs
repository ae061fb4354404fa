//! States with their rate and window gains (section 5.6.1).

/// The state of the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BbrState {
    /// Doubles the rate each round until the path is full (section 5.3.1).
    Startup,
    /// Drains the queue that Startup built (section 5.3.2).
    Drain,
    /// Sends slower than the path delivers, to drain the queue and leave headroom for other flows
    /// (section 5.3.3.1).
    Down,
    /// Sends as fast as the path delivers (section 5.3.3.2).
    Cruise,
    /// Refills the path for one round before a probe (section 5.3.3.3).
    Refill,
    /// Sends faster, to probe for more bandwidth (section 5.3.3.4).
    Up,
    /// Drains the path to measure its minimum round trip (section 5.3.4).
    ProbeRtt,
}

impl BbrState {
    /// Returns the pacing gain in percent of the bandwidth. 277 (4 ln 2) is the lowest gain that
    /// doubles the rate each round. 50 drains within one round the queue of a window of two
    /// bandwidth-delay products. 90 is the highest gain with which flows converge while others
    /// probe with 125 (sections 2.5 and 5.3.3.1).
    pub(super) const fn pacing_percent(self) -> u64 {
        match self {
            Self::Startup => 277,
            Self::Drain => 50,
            Self::Down => 90,
            Self::Cruise | Self::Refill | Self::ProbeRtt => 100,
            Self::Up => 125,
        }
    }

    /// Returns the window gain in percent of the bandwidth-delay product.
    pub(super) const fn window_percent(self) -> u64 {
        match self {
            Self::Startup | Self::Drain | Self::Down | Self::Cruise | Self::Refill => 200,
            Self::Up => 225,
            Self::ProbeRtt => 50,
        }
    }

    /// Implements `IsInAProbeBWState` (section 5.3.3.9).
    pub(super) const fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// Implements `IsProbingBW` (section 5.3.3.9): a loss may be caused by the flow's own
    /// acceleration, so it does not lower the short-term bounds.
    pub(super) const fn is_accelerating(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Drain => "drain",
            Self::Down => "probe_bw_down",
            Self::Cruise => "probe_bw_cruise",
            Self::Refill => "probe_bw_refill",
            Self::Up => "probe_bw_up",
            Self::ProbeRtt => "probe_rtt",
        }
    }
}
