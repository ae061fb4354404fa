//! The send half: the bytes in flight, their limit, and retransmissions.
//!
//! It knows only positions and lengths. The bytes are references that a plan takes along.
//!
//! | module | content |
//! |---|---|
//! | `acknowledge` | acknowledgements: deliveries and losses |
//! | [`next`] | choice of the next data |
//! | `suspicion` | timeouts that may be due to a delay |
//! | `timers`, `timeouts` | retransmission timeout, tail loss probe, reordering, zero window |
//! | [`ack_info`], `lost` | values passed between modules |
//! | [`log`] | runs of sent positions |
//! | `rack` | loss detection by time |
//! | `path_mtu`, `path_probes` | the largest packet that the path carries |
//! | `prr` | sending while the window shrinks |
//! | `rto` | the retransmission timeout |
//! | `window` | the window that the peer grants |
//! | [`buffer`] | written data |

pub(crate) mod ack_info;
mod acknowledge;
mod buffer;
mod log;
mod lost;
pub(crate) mod next;
mod path_mtu;
mod path_probes;
mod prr;
mod rack;
mod rto;
mod suspicion;
mod timeouts;
mod timers;
mod window;

use bytes::Bytes;
use recovery::{CongestionController, DeliveryRate, Pacer, RttEstimator, Unlimited};
use units::{Duration, Ecn, Seq32};

use self::buffer::SendBuffer;
use self::log::SentLog;
use self::path_mtu::PathMtu;
use self::prr::Prr;
use self::rack::Rack;
use self::rto::Rto;
use self::suspicion::Suspicion;
use self::timers::Timers;
use self::window::PeerWindow;
use crate::accurate_ecn::Marks;
use crate::budget::BufferSize;
use crate::config::{LossRecovery, Nagle, TcpConfig};
use crate::position::SequenceSpace;

/// Assumed round trip before the first measurement: it gives the first retransmission timeout of
/// one second (RFC 6298, section 2.1).
const INITIAL_RTT: Duration = Duration::from_nanos(333_333_334);

/// First retransmission timeout for data after a retransmitted SYN without a round-trip measurement
/// (RFC 6298, section 5.7).
const RTO_AFTER_SYN: Duration = Duration::from_secs(3);

/// Timer resolution of the driver that runs connections.
const GRANULARITY: Duration = Duration::from_millis(1);

/// The send half of a connection.
#[derive(Debug)]
pub(crate) struct SendHalf {
    space: SequenceSpace,
    buffer: SendBuffer,
    /// Size of the buffer.
    size: BufferSize,
    log: SentLog,
    /// First unacknowledged position.
    una: u64,
    /// Next position to send for the first time.
    nxt: u64,
    /// Whether the application has finished: a FIN follows the last byte.
    is_finished: bool,
    window: PeerWindow,
    /// Data bytes in a full segment.
    segment: u64,
    /// Data bytes in a segment that both sides accept.
    segment_max: u16,
    /// Header bytes in a packet with data; zero if the path is not probed.
    path_headers: u16,
    /// State of path probing; `None` until the path fails to carry a full segment.
    path_mtu: Option<Box<PathMtu>>,
    congestion: Box<dyn CongestionController>,
    rtt: RttEstimator,
    delivery: DeliveryRate,
    pacer: Pacer,
    rack: Rack,
    /// End of the recovery: the acknowledgement of everything sent before it began.
    recovery_point: Option<u64>,
    /// Present reduction of the window.
    reduction: Option<Box<Prr>>,
    /// End of the controller's round: the acknowledgement of this position.
    round_end: u64,
    timers: Timers,
    /// Number of the next plan.
    transmission: u64,
    /// Acknowledgements without news from a peer without SACK.
    duplicate_acks: u32,
    /// Bytes that have left the network according to these, but still count as in flight.
    left_bytes: u64,
    /// Whether these began the recovery (RFC 6582), instead of a timeout.
    is_fast_recovery: bool,
    /// Whether the first lost segment leaves next, regardless of the window.
    is_resend_due: bool,
    /// A timeout that may be due to a delay.
    suspicion: Option<Box<Suspicion>>,
    has_sack: bool,
    has_timestamps: bool,
    /// Number of timeouts of the SYN.
    syn_timeouts: u32,
    /// First window, if smaller than the controller's; otherwise the largest number. It grows by
    /// the bytes delivered until it reaches the controller's.
    first_window: u64,
    nagle: Nagle,
    recovery: LossRecovery,
    /// Position after the last segment that was not full.
    small_end: u64,
    rto: Rto,
    rto_min: Duration,
    ecn: EcnState,
    stats: SendStats,
}

/// Explicit congestion notification of this direction (RFC 3168, section 6.1).
#[derive(Debug, Default)]
struct EcnState {
    is_on: bool,
    /// Counters of marks, if they are counted (RFC 9768).
    accurate: Option<Box<Marks>>,
    /// Whether the next new data report the reduced window to the peer.
    is_cwr_due: bool,
    /// Marks for data below this position were reacted to.
    answered_until: u64,
}

/// Counters of the send half.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendStats {
    /// Bytes of data sent for the first time.
    pub bytes_sent: u64,
    /// Bytes of data resent.
    pub bytes_resent: u64,
    /// Bytes acknowledged.
    pub bytes_acked: u64,
    /// Bytes declared lost.
    pub bytes_lost: u64,
    /// Bytes declared lost that had arrived.
    pub bytes_lost_spuriously: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Reductions of the window because of congestion marks.
    pub marks: u64,
    /// Number of packets that arrived marked at the peer, if it counts them (RFC 9768).
    pub packets_marked: u64,
}

impl SendHalf {
    /// Creates a half that begins by sending a SYN.
    pub(crate) fn new(config: &TcpConfig, initial: Seq32, segment: u64) -> Self {
        let congestion = config.congestion.map_or_else(|| Box::new(Unlimited) as _, |it| it.build(segment));
        let mut pacer = Pacer::new(None);
        pacer.set_segment_size(segment);
        Self {
            space: SequenceSpace::new(initial),
            buffer: SendBuffer::new(),
            size: BufferSize::new(config.buffers_initial, config.send_buffer, &config.budget),
            log: SentLog::default(),
            una: 0,
            nxt: 0,
            is_finished: false,
            window: PeerWindow::new(),
            segment,
            segment_max: 0,
            path_headers: 0,
            path_mtu: None,
            congestion,
            rtt: RttEstimator::with_granularity(INITIAL_RTT, GRANULARITY),
            delivery: DeliveryRate::new(),
            pacer,
            rack: Rack::new(),
            recovery_point: None,
            reduction: None,
            round_end: 0,
            timers: Timers::default(),
            transmission: 0,
            duplicate_acks: 0,
            left_bytes: 0,
            is_fast_recovery: false,
            is_resend_due: false,
            suspicion: None,
            has_sack: false,
            has_timestamps: false,
            syn_timeouts: 0,
            first_window: u64::MAX,
            nagle: config.nagle,
            recovery: config.recovery,
            small_end: 0,
            rto: Rto::new(config.rto_formula),
            rto_min: config.rto_min,
            ecn: EcnState::default(),
            stats: SendStats::default(),
        }
    }

    /// Applies the negotiated values: data bytes in a full segment, SACK, timestamps, and ECN.
    pub(crate) fn negotiated(&mut self, segment: u64, has_sack: bool, has_timestamps: bool, has_ecn: bool) {
        self.set_segment(segment);
        self.segment_max = segment.min(u16::MAX.into()) as u16;
        (self.has_timestamps, self.ecn.is_on, self.ecn.accurate) = (has_timestamps, has_ecn, None);
        self.has_sack = has_sack && self.recovery == LossRecovery::Selective;
    }

    /// Starts counting marks. `is_mute`: segments still carry no codepoint.
    pub(crate) fn set_accurate_ecn(&mut self, is_mute: bool) {
        self.ecn.accurate = Some(Box::new(Marks::new(is_mute)));
    }

    /// Processes the peer's report of how our SYN arrived, if `has_code`.
    pub(crate) fn on_accurate_handshake(&mut self, ace: u8, has_code: bool) {
        if let Some(marks) = self.ecn.accurate.as_mut().filter(|_| has_code || ace == 0) {
            marks.on_handshake(ace);
        }
    }

    /// Returns the codepoint of new data. ECT(1) promises a reaction in proportion to the marks,
    /// which requires their number (RFC 9331, section 4.1).
    fn codepoint(&self) -> Option<Ecn> {
        match &self.ecn.accurate {
            _ if !self.ecn.is_on => None,
            Some(marks) if !marks.may_mark() => None,
            Some(_) if self.congestion.is_scalable() => Some(Ecn::Ect1),
            _ => Some(Ecn::Ect0),
        }
    }

    /// Enables the detection of packets too large for the path without reports. `headers` is the
    /// number of header bytes in a packet.
    pub(crate) const fn probe_path(&mut self, headers: u16) {
        self.path_headers = headers;
    }

    /// Changes the data bytes in a full segment, because the path carries less.
    pub(crate) fn set_segment(&mut self, segment: u64) {
        self.segment = segment;
        self.congestion.set_segment_size(segment);
        self.pacer.set_segment_size(segment);
    }

    pub(crate) const fn segment(&self) -> u64 {
        self.segment
    }

    pub(crate) fn set_nagle(&mut self, nagle: Nagle) {
        self.nagle = nagle;
    }

    pub(crate) const fn una(&self) -> u64 {
        self.una
    }

    pub(crate) fn nxt_on_wire(&self) -> Seq32 {
        self.space.wire(self.nxt)
    }

    pub(crate) const fn space(&self) -> SequenceSpace {
        self.space
    }

    /// Returns whether everything written is acknowledged.
    pub(crate) fn is_idle(&self) -> bool {
        self.log.is_empty() && self.nxt >= self.buffer.end()
    }

    /// Returns the number of bytes written and not acknowledged.
    pub(crate) const fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Returns the number of bytes that [`write`](Self::write) may accept now.
    pub(crate) const fn space_left(&self) -> usize {
        (self.size.bytes() as usize).saturating_sub(self.buffer.len())
    }

    pub(crate) const fn buffer_size(&self) -> u64 {
        self.size.bytes()
    }

    /// Sizes the buffer for the bytes in flight, and as many again to send as soon as those are
    /// acknowledged. An idle connection needs none of it.
    fn tune_buffer(&mut self) {
        if self.is_idle() {
            self.size.shrink();
        } else {
            self.size.grow_to(self.congestion.window().saturating_mul(2));
        }
    }

    /// Returns the number of bytes written and not sent.
    pub(crate) const fn unsent(&self) -> u64 {
        self.buffer.end().saturating_sub(self.nxt)
    }

    pub(crate) fn write(&mut self, bytes: Bytes) {
        debug_assert!(!self.is_finished, "nothing follows the end");
        self.buffer.push(bytes);
    }

    /// Marks the end of the data.
    pub(crate) fn finish(&mut self) {
        self.is_finished = true;
    }

    pub(crate) const fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Returns whether the SYN was sent.
    pub(crate) const fn is_syn_sent(&self) -> bool {
        self.nxt > 0
    }

    /// Returns whether the peer has acknowledged the SYN.
    pub(crate) const fn is_syn_acked(&self) -> bool {
        self.una > 0
    }

    /// Returns whether the FIN was sent.
    pub(crate) const fn is_fin_sent(&self) -> bool {
        self.is_finished && self.nxt > self.buffer.end()
    }

    /// Returns whether the peer has acknowledged the FIN, and with it everything.
    pub(crate) const fn is_fin_acked(&self) -> bool {
        self.is_finished && self.una > self.buffer.end()
    }

    /// Returns the number of consecutive timeouts without an acknowledgement of new data.
    pub(crate) const fn timeouts(&self) -> u32 {
        self.timers.unanswered
    }

    pub(crate) fn stats(&self) -> SendStats {
        self.stats
    }

    pub(crate) const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    pub(crate) fn congestion_window(&self) -> u64 {
        self.congestion.window()
    }

    pub(crate) const fn in_flight(&self) -> u64 {
        self.log.in_flight()
    }

    /// Returns the number of bytes that the congestion window permits now.
    fn window_left(&self) -> u64 {
        match &self.reduction {
            Some(reduction) => reduction.allowance(),
            None => self.congestion.window().min(self.first_window).saturating_sub(self.flight()),
        }
    }

    /// Returns the number of bytes in flight, less those that have left the network according to a
    /// peer that does not say which.
    const fn flight(&self) -> u64 {
        self.log.in_flight().saturating_sub(self.left_bytes)
    }

    pub(crate) const fn has_seen_reordering(&self) -> bool {
        self.rack.has_seen_reordering()
    }

    pub(crate) fn run_count(&self) -> usize {
        self.log.runs().len()
    }

    const fn is_recovering(&self) -> bool {
        self.recovery_point.is_some()
    }

    /// Returns the retransmission timeout without backoff (RFC 6298, section 2).
    fn rto(&self) -> Duration {
        let is_unmeasured = self.syn_timeouts > 0 && self.is_syn_acked() && !self.rtt.has_sample();
        let least = if is_unmeasured { RTO_AFTER_SYN } else { self.rto_min };
        self.rto.timeout(&self.rtt).max(least)
    }
}
