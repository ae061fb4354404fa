//! The send half's view of a path: addresses, packet numbers, recovery, datagram size.

use bytes::Bytes;
use recovery::{CongestionController, DeliveryRate, MtuSearch, Pacer, PtoBackoff, RttEstimator};
use units::{Duration, Instant, Rate, Rng};
use wire::quic::{ConnectionId, PathId, StreamId};

use super::ecn::PathEcn;
use super::mtu;
use super::reordering::Reordering;
use super::scavenger::ScavengerWindow;
use super::validation::Validation;
use super::waiting_datagrams::WaitingDatagrams;
use crate::addresses::Addresses;
use crate::config::TransportConfig;
use crate::queue::Queue;
use crate::stats::PathState;

/// The mean number of packets between two skipped numbers.
pub(crate) const SKIP_INTERVAL: u64 = 1 << 12;

/// At most this many times the bytes received from an unvalidated address may be sent to it (RFC
/// 9000, section 8.1).
pub(crate) const AMPLIFICATION_FACTOR: u64 = 3;

/// A remainder of the anti-amplification limit below this many bytes counts as zero, since no
/// packet with a long header fits. Otherwise a probe timer would fire again and again without
/// effect.
pub(crate) const AMPLIFICATION_BUDGET_MIN: u64 = 64;

/// A round trip that was measured so long ago may be another one now: the route or the queue of then may be
/// gone.
const ROUND_TRIP_OLD: Duration = Duration::from_secs(1);

/// Stream bytes that were sent before and are to be sent on a given path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentRange {
    pub(crate) id: StreamId,
    pub(crate) range: std::ops::Range<u64>,
    pub(crate) fin: bool,
}

/// One path.
#[derive(Debug)]
pub(crate) struct SendPath {
    pub(crate) id: PathId,
    pub(crate) state: PathState,
    pub(crate) addresses: Addresses,
    /// Where the path led before the server's preferred address: packets that were under way arrive
    /// from there.
    pub(crate) left: Option<Box<Addresses>>,
    /// The peer's connection ID for this path.
    pub(crate) remote_id: ConnectionId,
    /// The largest UDP payload to send, bytes.
    pub(crate) datagram_size: usize,
    /// The search for a larger size, if there is one.
    pub(crate) mtu: Option<Box<MtuSearch>>,
    /// A datagram above the minimum size has arrived since the path last failed to respond.
    pub(crate) carries_large: bool,
    /// How often in a row datagrams above the minimum size were lost and none was acknowledged.
    pub(crate) large_losses: u8,
    pub(crate) rtt: RttEstimator,
    pub(crate) first_rtt_sample_at: Option<Instant>,
    pub(crate) congestion: Box<dyn CongestionController>,
    pub(crate) delivery: DeliveryRate,
    pub(crate) pacer: Pacer,
    pub(crate) backoff: PtoBackoff,
    pub(crate) reordering: Reordering,
    /// Bytes in flight, all spaces.
    pub(crate) in_flight: u64,
    /// The window of background streams, while there are any.
    pub(crate) scavenger: Option<Box<ScavengerWindow>>,
    /// Limited by the application: sending stopped for lack of data, not of window.
    pub(crate) app_limited: bool,
    /// A new round begins when a packet with this number or a higher one is acknowledged.
    pub(crate) round_end: u64,
    /// Blocked by the pacer until then.
    pub(crate) release_at: Option<Instant>,
    /// When an ack-eliciting packet was last sent or acknowledged. Timers that belong to no packet
    /// in flight start here.
    pub(crate) probe_anchor: Instant,
    /// When something was last newly acknowledged.
    pub(crate) acked_at: Instant,
    /// Acknowledgements are overdue although other paths receive them: its in-flight data is
    /// reinjected on other paths, and it gets no new data.
    pub(crate) is_suspect: bool,
    /// How often the path recovered from being suspect since it was last silent.
    pub(crate) false_suspicions: u8,
    /// The system refused to send on it; nothing is sent before this time.
    pub(crate) refused_until: Option<Instant>,
    /// Since when its socket has been full, as of the last check.
    pub(crate) full_since: Option<Instant>,
    /// A PING is due, to measure the round trip, unless another ack-eliciting packet leaves first.
    pub(crate) is_ping_due: bool,
    /// Packets with nothing but acknowledgements since the last ack-eliciting one.
    pub(crate) ack_only_count: u32,
    /// The next packet number to skip.
    pub(crate) next_skip: u64,
    /// The first packet number of the current key phase.
    pub(crate) phase_from: u64,
    /// Which side marked the path as backup, and the sequence number of our latest status frame.
    pub(crate) is_backup: bool,
    pub(crate) is_peers_backup: bool,
    pub(crate) status_sequence: u64,
    /// Challenges to send, their outstanding responses, and responses due to the peer.
    pub(crate) validation: Validation,
    /// Data to be sent here as a copy, as the scheduler requested.
    pub(crate) copies: Queue<SentRange>,
    /// Datagrams that are to be sent here, and before others.
    pub(crate) datagrams: Queue<Bytes>,
    /// Datagrams that are pinned to the path. Each waits its turn.
    pub(crate) pinned: WaitingDatagrams,
    /// Data lost here that are to be retransmitted here
    /// ([`RetransmissionPolicy::OwnPath`](crate::RetransmissionPolicy)).
    pub(crate) resends: Queue<SentRange>,
    /// The path on which the acknowledgement that gave the last RTT sample arrived.
    pub(crate) acked_via: PathId,
    /// When a datagram last arrived on the path.
    pub(crate) received_at: Instant,
    pub(crate) counts: PathCounts,
    pub(crate) ecn: PathEcn,
    validated: bool,
    /// The former address while the new one is not yet validated.
    pub(crate) former: Option<Box<Former>>,
    received_bytes: u64,
    sent_bytes: u64,
}

/// The validated address that a path has left for one that is not.
#[derive(Debug)]
pub(crate) struct Former {
    pub(crate) addresses: Addresses,
    /// When the validation of the new address fails.
    pub(crate) return_at: Instant,
}

/// Counters of a path, for statistics.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PathCounts {
    pub(crate) packets_sent: u64,
    pub(crate) packets_acked: u64,
    pub(crate) packets_lost: u64,
    pub(crate) bytes_acked: u64,
    /// Stream bytes.
    pub(crate) bytes_resent: u64,
    pub(crate) silences: u32,
    pub(crate) suspicions: u32,
    /// Suspicions that a response ended.
    pub(crate) false_suspicions: u32,
}

impl SendPath {
    pub(crate) fn new(
        id: PathId,
        addresses: Addresses,
        remote_id: ConnectionId,
        config: &TransportConfig,
        validated: bool,
        rng: &Rng,
    ) -> Self {
        let segment_size = config.datagram_size as u64;
        let mut pacer = Pacer::new(config.rate_cap);
        pacer.set_segment_size(segment_size);
        let congestion = config.congestion.build_seeded(segment_size, rng);
        let ecn = PathEcn::new(config.ecn, congestion.is_scalable());
        pacer.set_fine(congestion.is_scalable());
        Self {
            id,
            state: PathState::Active,
            addresses,
            remote_id,
            datagram_size: config.datagram_size,
            mtu: mtu::search(config.datagram_size, config.datagram_size_max),
            carries_large: false,
            large_losses: 0,
            rtt: RttEstimator::new(config.initial_rtt),
            first_rtt_sample_at: None,
            congestion,
            delivery: DeliveryRate::new(),
            pacer,
            backoff: PtoBackoff::new(),
            reordering: Reordering::default(),
            in_flight: 0,
            scavenger: None,
            app_limited: true,
            round_end: 0,
            release_at: None,
            probe_anchor: Instant::ZERO,
            is_suspect: false,
            false_suspicions: 0,
            acked_at: Instant::ZERO,
            left: None,
            refused_until: None,
            full_since: None,
            is_ping_due: false,
            ack_only_count: 0,
            next_skip: SKIP_INTERVAL,
            phase_from: 0,
            is_backup: false,
            is_peers_backup: false,
            status_sequence: 0,
            validation: Validation::default(),
            copies: Queue::new(),
            datagrams: Queue::new(),
            pinned: WaitingDatagrams::new(),
            resends: Queue::new(),
            acked_via: id,
            received_at: Instant::ZERO,
            counts: PathCounts::default(),
            ecn,
            validated,
            former: None,
            received_bytes: 0,
            sent_bytes: 0,
        }
    }

    /// Changes the datagram size, here and in everything that counts in datagrams.
    pub(crate) fn set_datagram_size(&mut self, bytes: usize) {
        self.datagram_size = bytes;
        self.congestion.set_segment_size(bytes as u64);
        self.pacer.set_segment_size(bytes as u64);
    }

    /// Bytes that may be sent to an unvalidated address now; `u64::MAX` once it is validated.
    pub(crate) fn amplification_budget(&self) -> u64 {
        if self.validated {
            return u64::MAX;
        }
        let budget = self.received_bytes.saturating_mul(AMPLIFICATION_FACTOR).saturating_sub(self.sent_bytes);
        if budget < AMPLIFICATION_BUDGET_MIN { 0 } else { budget }
    }

    pub(crate) fn set_validated(&mut self) {
        self.validated = true;
    }

    /// The path has a new, unvalidated address, which has sent `received` bytes so far and got
    /// `sent`.
    pub(crate) fn set_unvalidated(&mut self, received: u64, sent: u64) {
        (self.validated, self.received_bytes, self.sent_bytes) = (false, received, sent);
    }

    pub(crate) fn on_received(&mut self, now: Instant, bytes: u64) {
        self.received_at = now;
        self.received_bytes = self.received_bytes.saturating_add(bytes);
    }

    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.sent_bytes += bytes;
    }

    /// Records whether sending stopped for lack of data. If so and the window has space, the
    /// delivery rate says nothing about the path.
    pub(crate) fn set_app_limited(&mut self, limited: bool) {
        self.app_limited = limited;
        if limited && self.available_window() >= self.datagram_size as u64 {
            self.delivery.on_app_limited(self.in_flight);
        }
    }

    /// Records whether the path's socket has space.
    pub(crate) fn note_writable(&mut self, now: Instant, is_writable: bool) {
        self.full_since = if is_writable { None } else { self.full_since.or(Some(now)) };
    }

    /// When a full socket will have been full for longer than a driver takes to drain it.
    pub(crate) fn socket_stuck_at(&self) -> Option<Instant> {
        self.full_since.map(|since| since + self.rtt.pto_base())
    }

    /// About when the peer sent the last response on the path, an acknowledgement or a
    /// PATH_RESPONSE: half a round trip before it arrived. Other datagrams do not count.
    pub(crate) fn last_sent_at(&self) -> Instant {
        Instant::from_nanos(self.acked_at.as_nanos().saturating_sub(self.rtt.smoothed().as_nanos() / 2))
    }

    /// Whether nothing was acknowledged for so long before `at` that the round trip may be another one. A
    /// busy path with a longer round trip does not count.
    pub(crate) fn is_round_trip_old(&self, at: Instant) -> bool {
        at.saturating_since(self.acked_at) >= ROUND_TRIP_OLD.max(self.rtt.smoothed())
    }

    /// Asks for a PING if the path could carry data, carries none, and its round trip is an old one.
    pub(crate) fn measure_if_idle(&mut self, now: Instant) {
        let is_unused = self.is_active() && self.in_flight == 0 && !self.is_backup && !self.is_peers_backup;
        self.is_ping_due |= is_unused && self.is_round_trip_old(now);
    }

    /// Data may be sent on the path.
    pub(crate) fn is_active(&self) -> bool {
        self.state == PathState::Active
    }

    /// Packets may be sent on the path, if only challenges.
    pub(crate) fn is_open(&self) -> bool {
        self.state != PathState::Abandoned
    }

    /// Bytes received from the peer's address, undecryptable datagrams included, and bytes sent to
    /// it.
    pub(crate) fn volume(&self) -> (u64, u64) {
        (self.received_bytes, self.sent_bytes)
    }

    /// The capacity of the path as far as it is known: the controller's estimate, or one window per
    /// round trip.
    pub(crate) fn capacity(&self) -> Rate {
        if let Some(rate) = self.congestion.bandwidth() {
            return rate;
        }
        let round_trip = self.rtt.smoothed().max(Duration::from_micros(1));
        Rate::from_transfer(self.congestion.window(), round_trip).unwrap_or_default()
    }

    /// Bytes of background streams that the scavenger window allows now.
    pub(crate) fn background_budget(&mut self) -> u64 {
        let (in_flight, datagram_bytes) = (self.in_flight, self.datagram_size as u64);
        let new = || Box::new(ScavengerWindow::new(in_flight, datagram_bytes));
        self.scavenger.get_or_insert_with(new).available(in_flight)
    }

    /// The window in use, bytes. Several acknowledgements are needed in each.
    pub(crate) fn window_in_use(&self) -> u64 {
        let window = self.congestion.window();
        // Foreground data may have more in flight.
        self.scavenger.as_ref().map_or(window, |scavenger| scavenger.window().max(self.in_flight).min(window))
    }

    /// Bytes that the congestion window still allows.
    pub(crate) fn available_window(&self) -> u64 {
        self.congestion.window().saturating_sub(self.in_flight)
    }
}
