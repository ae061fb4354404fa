//! The measurements to make.

use litz::Placement;
use litz::tcp::Stack;
use scripted_peer::Cipher;
use units::Duration;

use super::run::payload_len;

/// The measured side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Send,
    Receive,
    /// Both sides at once.
    Duplex,
}

impl Side {
    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Duplex => "duplex",
        }
    }
}

/// The work that the processors share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The batches of one path.
    Packet,
    /// The paths.
    Path,
    /// The two halves of the connection.
    Split,
    /// The two halves of the connection, and on each side TCP and IP apart.
    Pipeline,
}

impl Kind {
    /// The placement with this number of processors.
    pub(crate) const fn placement(self, processors: usize) -> Placement {
        match self {
            Self::Packet => Placement::Packet(processors),
            Self::Path => Placement::Path(processors),
            Self::Split if processors > 1 => Placement::Split,
            Self::Pipeline if processors > 1 => Placement::Pipeline,
            Self::Split | Self::Pipeline => Placement::Thread,
        }
    }

    /// The speedup that the papers report for both directions at once: document 002, with one
    /// receiving and one transmitting processor.
    pub(crate) const fn gain_printed(self) -> Option<f64> {
        match self {
            Self::Split => Some(1.7),
            Self::Packet | Self::Path | Self::Pipeline => None,
        }
    }

    /// Whether each half of the connection is on processors of its own.
    pub(super) const fn has_halves(self) -> bool {
        matches!(self, Self::Split | Self::Pipeline)
    }
}

/// The processors of the application's threads. On another processor than the driver's, waiting for
/// the application costs wakeups; on the same one, both share the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppCore {
    /// On the driver's processor.
    First,
    /// On the last of the processors in use.
    Last,
    /// The writing thread on the first, the reading thread on the last: each with its half of the
    /// connection.
    Separate,
    /// On any processor that the system chooses.
    Free,
}

impl AppCore {
    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Last => "last",
            Self::Separate => "apart",
            Self::Free => "free",
        }
    }
}

/// A stack of TCP/IP to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MeasuredStack {
    pub(crate) stack: Stack,
    /// Bytes of the application in a packet.
    pub(crate) payload: usize,
}

/// The measurements to make.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) sides: Vec<Side>,
    /// The stack of TCP/IP to measure; none for QUIC.
    pub(crate) stack: Option<MeasuredStack>,
    pub(crate) kind: Kind,
    /// Number of paths of the connection; one unless paths are what is shared.
    pub(crate) paths: u16,
    /// Numbers of processors in ascending order, including one.
    pub(crate) processors: Vec<usize>,
    /// Other placements on one processor, for comparison.
    pub(crate) beside: Vec<Placement>,
    /// The usable processors by their system numbers: at least as many as the largest of
    /// `processors`.
    pub(crate) cores: Vec<usize>,
    pub(crate) app_core: AppCore,
    pub(crate) cipher: Cipher,
    /// In bytes of UDP payload.
    pub(crate) datagram_size: usize,
    pub(crate) runs: usize,
    pub(crate) warm_up: Duration,
    pub(crate) time: Duration,
    /// Confidence level of the intervals, between 0 and 1.
    pub(crate) confidence: f64,
}

impl Settings {
    /// Bytes of the application in a full packet.
    pub(crate) fn payload_len(&self) -> usize {
        self.stack.map_or_else(|| payload_len(self.datagram_size), |measured| measured.payload)
    }

    /// Whether a cipher works above the serial step, in jobs of their own.
    pub(super) fn has_jobs(&self) -> bool {
        self.stack.is_some_and(|measured| measured.stack.cipher.is_some())
    }

    /// The placements that each run measures, without the metered run.
    pub(crate) fn placements(&self) -> Vec<Placement> {
        let packets = self.processors.iter().map(|count| self.kind.placement(*count));
        self.beside.iter().copied().chain(packets).collect()
    }

    /// The largest number of processors, if greater than one.
    pub(super) fn most_processors(&self) -> Option<usize> {
        self.processors.iter().copied().max().filter(|most| *most > 1)
    }

    /// Number of processors that a placement has here: a pipeline may share two.
    pub(super) fn processors_of(&self, placement: Placement) -> usize {
        let threads = placement.thread_count().max(1);
        if placement == Placement::Pipeline { self.most_processors().unwrap_or(threads) } else { threads }
    }

    /// The processors of a placement's threads. The threads of a pipeline send (TCP, IP), then receive
    /// (TCP, IP): with two processors, each side has one.
    pub(super) fn cores_of(&self, placement: Placement) -> Vec<usize> {
        let (threads, processors) = (placement.thread_count().max(1), self.processors_of(placement));
        let each = threads.div_ceil(processors);
        (0..threads).filter_map(|thread| self.cores.get(thread / each).copied()).collect()
    }

    /// Number of runs of all kinds, for a progress bar.
    pub(crate) fn steps(&self) -> usize {
        let metered = 1 + usize::from(self.most_processors().is_some());
        self.sides.len() * self.runs * (self.placements().len() + metered)
    }

    /// The duration of all runs, without preparations.
    pub(crate) fn duration(&self) -> Duration {
        (self.warm_up + self.time) * self.steps() as u64
    }
}
