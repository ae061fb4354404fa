//! What the choice of paths is told, and what it tells.

use std::fmt;

use units::{Duration, Rate};

/// A path that works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathView {
    /// Its number.
    pub id: u32,
    /// The smoothed round trip.
    pub round_trip: Duration,
    /// The capacity, once the controller has found it.
    pub rate: Option<Rate>,
    /// An estimate before that: a window per round trip.
    pub at_least: Rate,
    /// Packets sent and lost so far.
    pub packets: (u64, u64),
}

/// Why no flow with much to send takes a path, although there are such flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeftOut {
    /// There are fewer such flows than paths, and packets of one flow would wait this long for those on this path.
    FewFlows(Duration),
    /// A flow would have much less than on another path.
    Slower,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewFlows(wait) => write!(
                f,
                "few flows have much to send, each keeps to another path, and packets of a flow on both would wait {} ms",
                wait.as_millis()
            ),
            Self::Slower => f.write_str("a flow has more on another path"),
        }
    }
}

/// What [`PathChoice`](super::PathChoice) says of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathUse {
    /// The path.
    pub id: u32,
    /// Flows with much to send that keep to it.
    pub flows: u32,
    /// Why it has none.
    pub left_out: Option<LeftOut>,
}

/// A flow takes another path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) flow: u16,
    /// None for all paths. The same as before if only the rest changes.
    pub(crate) from: Option<u32>,
    pub(crate) to: Option<u32>,
    /// Whether the flow is in order there from the beginning, as one that has paused.
    pub(crate) is_settled: bool,
}
