//! The result of one run of one side, the number of packets and the time, and what all runs share.

use litz::{Costs, WorkerPoolStats};
use units::Duration;

/// How often to check for an interrupt.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Size of the application's chunks.
pub(crate) const CHUNK_LEN: usize = 64 * 1024;

/// Application bytes in a datagram of `size` bytes, late in a stream: all but the packet header
/// with two bytes of number, the frame header and the tag. An error of a byte or two is negligible
/// and the same for all placements.
pub(crate) const fn payload_len(size: usize) -> usize {
    const HEADER_LEN: usize = 1 + quic::LOCAL_ID_LEN + 2;
    const FRAME_HEADER_LEN: usize = 1 + 1 + 8;
    size - HEADER_LEN - FRAME_HEADER_LEN - quic::session::TAG_LEN
}

/// The duration of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// Time before the measurement.
    pub(crate) warm_up: Duration,
    /// Time of the measurement.
    pub(crate) time: Duration,
}

/// The result of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// Number of full data packets.
    pub(crate) packets: f64,
    /// Application bytes.
    pub(crate) bytes: f64,
    /// Time taken.
    pub(crate) time: Duration,
    /// CPU time of the application's thread.
    pub(crate) application: Duration,
    /// CPU time of all threads of the process, the scripted peer's work included; zero if it was not
    /// measured.
    pub(crate) process: Duration,
    /// Metered costs of the driver, by interval; none without the meter.
    pub(crate) costs: Vec<Costs>,
    /// Counters of the other processors since the endpoint was created; none if there are none.
    pub(crate) stage: Option<WorkerPoolStats>,
    /// Busy time of each of the other processors; empty if there are none.
    pub(crate) busy: Vec<Duration>,
    /// Packets that the sender declared lost, although none is.
    pub(crate) packets_lost: u64,
    /// The directions separately; none if there was data in one direction only.
    pub(crate) directions: Option<Directions>,
}

/// The directions of a run, in application bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Directions {
    pub(crate) sent_bytes: f64,
    pub(crate) received_bytes: f64,
    /// Number of full data packets received.
    pub(crate) received_packets: f64,
    /// CPU time of the writing and of the reading thread.
    pub(crate) writing: Duration,
    pub(crate) reading: Duration,
    /// Active time of the receiving processor; zero if that is the driver's.
    pub(crate) receiver: Duration,
    /// Time in which only one direction was active.
    pub(crate) one_way: Duration,
}

impl Directions {
    /// Adds another round.
    pub(super) fn add(&mut self, other: &Self) {
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.received_packets += other.received_packets;
        self.writing += other.writing;
        self.reading += other.reading;
        self.receiver += other.receiver;
        self.one_way += other.one_way;
    }
}

impl Outcome {
    /// Throughput of the application, in bits per second.
    pub(crate) fn throughput_bps(&self) -> f64 {
        self.bytes * 8.0 / self.time.as_secs_f64().max(1e-9)
    }
}

/// Busy time so far of the processors other than the driver's.
pub(crate) fn busy(stats: Option<WorkerPoolStats>) -> Vec<Duration> {
    let workers = stats.map(|stats| stats.workers).unwrap_or_default();
    workers.into_iter().map(|worker| worker.busy).collect()
}

/// Adds the busy time between two samples to `sum`.
pub(crate) fn add_busy(sum: &mut Vec<Duration>, begin: &[Duration], end: &[Duration]) {
    sum.resize(end.len(), Duration::ZERO);
    for (sum, (begin, end)) in sum.iter_mut().zip(begin.iter().zip(end)) {
        *sum += end.saturating_sub(*begin);
    }
}
