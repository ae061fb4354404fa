//! One run of one side: how many packets in what time.

use litz::transfer::CancelToken;
use litz::{Costs, Endpoint, StageStats};
use units::Duration;

use super::world::Stand;
use super::{Failure, Side, duplex, receive, send};

/// How often somebody looks whether the user has interrupted.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The application's chunk.
pub(crate) const CHUNK_LEN: usize = 64 * 1024;

/// Application bytes in a datagram of `size` bytes, far into a stream: all but the header with two bytes of number, the header of
/// the frame and the tag. A byte or two more or less hardly show, and are the same for all placements.
pub(crate) const fn payload_len(size: usize) -> usize {
    const HEADER_LEN: usize = 1 + quic::LOCAL_ID_LEN + 2;
    const FRAME_HEADER_LEN: usize = 1 + 1 + 8;
    size - HEADER_LEN - FRAME_HEADER_LEN - quic::session::TAG_LEN
}

/// How long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// Before anything counts.
    pub(crate) warm_up: Duration,
    /// What counts.
    pub(crate) time: Duration,
}

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// Full packets of data.
    pub(crate) packets: f64,
    /// The application's bytes.
    pub(crate) bytes: f64,
    /// How long they took.
    pub(crate) time: Duration,
    /// Processor time of the application's thread meanwhile.
    pub(crate) application: Duration,
    /// Of the driver, piece by piece of the time; none without the meter.
    pub(crate) costs: Vec<Costs>,
    /// Of the other processors since the endpoint was made; none if there are none.
    pub(crate) stage: Option<StageStats>,
    /// How long the other processors were busy meanwhile, each; empty if there are none.
    pub(crate) busy: Vec<Duration>,
    /// Packets that the sender took for lost, though nothing is.
    pub(crate) packets_lost: u64,
    /// Each way apart; none if data went one way.
    pub(crate) ways: Option<Ways>,
}

/// What went which way, in bytes of the application.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ways {
    pub(crate) sent_bytes: f64,
    pub(crate) received_bytes: f64,
    /// Full packets of data that were received.
    pub(crate) received_packets: f64,
    /// Processor time of the thread that writes, and of the one that reads.
    pub(crate) writing: Duration,
    pub(crate) reading: Duration,
    /// Time in which the processor that receives was awake; zero if that is the driver's.
    pub(crate) receiver: Duration,
    /// Time in which one way was through and the other was not.
    pub(crate) one_way: Duration,
}

impl Outcome {
    /// Bits of the application in a second.
    pub(crate) fn throughput_bps(&self) -> f64 {
        self.bytes * 8.0 / self.time.as_secs_f64().max(1e-9)
    }
}

/// How long the processors beside the driver's were busy so far.
pub(crate) fn busy(endpoint: &Endpoint) -> Vec<Duration> {
    let workers = endpoint.stage_stats().map(|stats| stats.workers).unwrap_or_default();
    workers.into_iter().map(|worker| worker.busy).collect()
}

/// Adds to `sum` what was spent from one look to another.
pub(crate) fn add_busy(sum: &mut Vec<Duration>, begin: &[Duration], end: &[Duration]) {
    sum.resize(end.len(), Duration::ZERO);
    for (sum, (begin, end)) in sum.iter_mut().zip(begin.iter().zip(end)) {
        *sum += end.saturating_sub(*begin);
    }
}

/// Runs once.
pub(crate) fn run(side: Side, stand: &Stand, span: Span, cancel: &CancelToken) -> Result<Outcome, Failure> {
    match side {
        Side::Send => send::run(stand, span, cancel),
        Side::Receive => receive::run(stand, span, cancel),
        Side::Duplex => duplex::run(stand, span, cancel),
    }
}
