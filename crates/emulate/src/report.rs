//! What happened on an emulated link.

use netem::LinkStats;
use units::{Duration, Instant};

/// Later than this is worth telling: a packet that should have arrived a millisecond ago.
pub const LATE_FROM: Duration = Duration::from_millis(1);

/// What happened on one link, in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkReport {
    /// What the link is called.
    pub name: String,
    /// From left to right, or from the clients to the server.
    pub forward: DirectionReport,
    /// Back.
    pub backward: DirectionReport,
    /// Datagrams of clients that a relay did not take, because it had too many already.
    pub turned_away: u64,
    /// Datagrams of clients that a relay did not take, because the system gave it no socket for them.
    pub unserved: u64,
    /// What the system said then, the first time.
    pub unserved_why: Option<String>,
    /// Clients that a relay has had.
    pub clients: u64,
}

/// What happened on one link, in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionReport {
    /// What the model did.
    pub link: LinkStats,
    /// Packets in the link at this moment.
    pub held: usize,
    /// How late packets came out.
    pub lateness: Lateness,
    /// Packets that had come out of the link and that the system did not take.
    pub refused: u64,
    /// Packets that never reached the link: they made no sense, came from a stranger, or had nowhere to go.
    pub ignored: u64,
}

/// How much later than the model said packets left: the emulator's own error. Those that leave together count once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Times that packets left.
    pub count: u64,
    /// All together. Saturates.
    pub sum: Duration,
    /// The worst.
    pub max: Duration,
    /// Times that it was [`LATE_FROM`] or more.
    pub late: u64,
}

impl Lateness {
    /// Packets that were due at `due` leave at `now`.
    pub(crate) fn note(&mut self, due: Instant, now: Instant) {
        let late = now.saturating_since(due);
        self.count += 1;
        self.sum += late;
        self.max = self.max.max(late);
        self.late += u64::from(late >= LATE_FROM);
    }

    /// On average, rounded down; zero if there was none.
    #[must_use]
    pub fn mean(&self) -> Duration {
        self.sum / self.count.max(1)
    }
}
