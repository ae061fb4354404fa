//! The states and what each does to rate and window (section 5.6.1).

/// Where the flow is in its cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Doubles the rate each round until the path is full (section 5.3.1).
    Startup,
    /// Empties the queue that Startup made (section 5.3.2).
    Drain,
    /// Leaves room: for the queue, and for others (section 5.3.3.1).
    Down,
    /// Sends as fast as the path delivers (section 5.3.3.2).
    Cruise,
    /// Fills the path again for one round before a probe (section 5.3.3.3).
    Refill,
    /// Sends faster, to see whether the path has become faster (section 5.3.3.4).
    Up,
    /// Empties the path to see its bare round trip (section 5.3.4).
    ProbeRtt,
}

impl State {
    /// Pacing rate to bandwidth, in percent. 277 is the least that doubles the rate each round, 4 ln 2; 50 drains in one
    /// round what a window of two bandwidth-delay products queued; 90 is the most that lets flows converge when others
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

    /// Window to bandwidth-delay product, in percent.
    pub(super) const fn window_percent(self) -> u64 {
        match self {
            Self::Startup | Self::Drain | Self::Down | Self::Cruise | Self::Refill => 200,
            Self::Up => 225,
            Self::ProbeRtt => 50,
        }
    }

    /// `IsInAProbeBWState` (section 5.3.3.9).
    pub(super) const fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// `IsProbingBW` (section 5.3.3.9): a loss may be the flow's own doing, so it is no reason to slow down below what the
    /// long-term model says.
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
