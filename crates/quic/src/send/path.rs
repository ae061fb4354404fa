//! A path as its sender sees it: addresses, packet numbers, recovery, size of datagrams.

use std::net::{IpAddr, SocketAddr};

use recovery::{CongestionController, DeliveryRate, Pacer, PtoBackoff, RttEstimator};
use units::{Duration, Instant, Rate, Rng};
use wire::quic::{ConnectionId, PathId, StreamId};

use super::planner::SKIP_INTERVAL;
use super::reordering::Reordering;
use super::short_queue::ShortQueue;
use super::validation::Validation;
use crate::config::TransportConfig;
use crate::queue::Queue;
use crate::stats::PathState;

/// An unvalidated address gets at most this many times the bytes that came from it (RFC 9000, section 8.1).
const AMPLIFICATION_FACTOR: u64 = 3;

/// Less room than this holds no packet with a long header, so it is none: otherwise a probe timer would fire in vain, again
/// and again.
pub(crate) const AMPLIFICATION_ROOM_MIN: u64 = 64;

/// The two ends of a path: together with the socket's port they are its 4-tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Addresses {
    /// The peer's address.
    pub remote: SocketAddr,
    /// Our own address, where the system told it.
    pub local_ip: Option<IpAddr>,
    /// The driver's name for the socket.
    pub socket: u16,
}

impl Addresses {
    /// Between `remote` and the driver's first socket.
    pub const fn of(remote: SocketAddr) -> Self {
        Self { remote, local_ip: None, socket: 0 }
    }

    /// Whether packets of both travel between the same two ends. The system does not always tell our own address.
    pub(crate) fn is_same_route(&self, other: &Self) -> bool {
        let local_differs = self.local_ip.zip(other.local_ip).is_some_and(|(ours, theirs)| ours != theirs);
        self.remote == other.remote && self.socket == other.socket && !local_differs
    }
}

/// Stream bytes that were sent before and are to be sent on a certain path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repeat {
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
    /// The peer's connection ID for this path.
    pub(crate) remote_id: ConnectionId,
    /// The largest UDP payload to send, bytes.
    pub(crate) datagram_size: usize,
    /// Since it last failed to answer, a datagram that not every path carries has arrived.
    pub(crate) carries_large: bool,
    pub(crate) rtt: RttEstimator,
    pub(crate) first_rtt_sample_at: Option<Instant>,
    pub(crate) congestion: Box<dyn CongestionController>,
    pub(crate) delivery: DeliveryRate,
    pub(crate) pacer: Pacer,
    pub(crate) backoff: PtoBackoff,
    pub(crate) reordering: Reordering,
    /// Bytes in flight, all spaces.
    pub(crate) in_flight: u64,
    /// The window of what is in the background, while there is such a stream.
    pub(crate) short_queue: Option<Box<ShortQueue>>,
    /// Sending stopped for lack of data, not for lack of window.
    pub(crate) app_limited: bool,
    /// A new round begins when a packet from this number on is acknowledged.
    pub(crate) round_end: u64,
    /// Held back by the pacer until then.
    pub(crate) release_at: Option<Instant>,
    /// When an ack-eliciting packet was last sent or acknowledged: where timers count from that no packet in flight has.
    pub(crate) probe_anchor: Instant,
    /// When something was last newly acknowledged.
    pub(crate) acked_at: Instant,
    /// It is late to answer while others do: others carry what it was given, and it gets nothing new.
    pub(crate) is_doubted: bool,
    /// How often it was, and answered after all, since it was last silent.
    pub(crate) doubted_in_vain: u8,
    /// The system refused to send on it: it is let be until then.
    pub(crate) refused_until: Option<Instant>,
    /// Since when its socket has had no room, as far as anybody looked.
    pub(crate) full_since: Option<Instant>,
    /// Acknowledgement-only packets since one that the peer answers.
    pub(crate) silent_count: u32,
    /// The next number to leave out.
    pub(crate) next_skip: u64,
    /// The first number of the present key phase.
    pub(crate) phase_from: u64,
    /// Which side asked that it be used only if no other path can be, and the number of our last word about it.
    pub(crate) is_backup: bool,
    pub(crate) is_peers_backup: bool,
    pub(crate) status_sequence: u64,
    /// Challenges asked and to be answered; what a path that does not answer is asked.
    pub(crate) validation: Validation,
    /// Data that the scheduler wants sent here as well.
    pub(crate) copies: Queue<Repeat>,
    /// Data that were lost here and are to be sent here again ([`RetransmissionPolicy::OwnPath`](crate::RetransmissionPolicy)).
    pub(crate) resends: Queue<Repeat>,
    /// On which path the peer's last acknowledgement of this one's packets came that measured a round trip.
    pub(crate) acked_via: PathId,
    /// When a datagram last came from it.
    pub(crate) heard_at: Instant,
    pub(crate) counts: PathCounts,
    validated: bool,
    /// Where it was before it moved, until the new address has answered: that one had proved itself.
    pub(crate) former: Option<Box<Addresses>>,
    received_bytes: u64,
    sent_bytes: u64,
}

/// What a path has carried, for people.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PathCounts {
    pub(crate) packets_sent: u64,
    pub(crate) packets_acked: u64,
    pub(crate) packets_lost: u64,
    pub(crate) bytes_acked: u64,
    /// Stream bytes.
    pub(crate) bytes_resent: u64,
    pub(crate) suspected: u32,
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
        Self {
            id,
            state: PathState::Active,
            addresses,
            remote_id,
            datagram_size: config.datagram_size,
            carries_large: false,
            rtt: RttEstimator::new(config.initial_rtt),
            first_rtt_sample_at: None,
            congestion: config.congestion.build_seeded(segment_size, rng),
            delivery: DeliveryRate::new(),
            pacer,
            backoff: PtoBackoff::new(),
            reordering: Reordering::default(),
            in_flight: 0,
            short_queue: None,
            app_limited: true,
            round_end: 0,
            release_at: None,
            probe_anchor: Instant::ZERO,
            is_doubted: false,
            doubted_in_vain: 0,
            acked_at: Instant::ZERO,
            refused_until: None,
            full_since: None,
            silent_count: 0,
            next_skip: SKIP_INTERVAL,
            phase_from: 0,
            is_backup: false,
            is_peers_backup: false,
            status_sequence: 0,
            validation: Validation::default(),
            copies: Queue::new(),
            resends: Queue::new(),
            acked_via: id,
            heard_at: Instant::ZERO,
            counts: PathCounts::default(),
            validated,
            former: None,
            received_bytes: 0,
            sent_bytes: 0,
        }
    }

    /// Changes the size of datagrams, for everybody who counts in them.
    pub(crate) fn set_datagram_size(&mut self, bytes: usize) {
        self.datagram_size = bytes;
        self.congestion.set_segment_size(bytes as u64);
        self.pacer.set_segment_size(bytes as u64);
    }

    /// Bytes that may be sent to an address that has not proved itself; no limit once it has.
    pub(crate) fn amplification_room(&self) -> u64 {
        if self.validated {
            return u64::MAX;
        }
        let room = self.received_bytes.saturating_mul(AMPLIFICATION_FACTOR).saturating_sub(self.sent_bytes);
        if room < AMPLIFICATION_ROOM_MIN { 0 } else { room }
    }

    pub(crate) fn set_validated(&mut self) {
        self.validated = true;
    }

    /// Its address is another now, which has sent so many bytes and proved nothing.
    pub(crate) fn set_unvalidated(&mut self, bytes: u64) {
        (self.validated, self.received_bytes, self.sent_bytes) = (false, bytes, 0);
    }

    pub(crate) fn on_received(&mut self, now: Instant, bytes: u64) {
        self.heard_at = now;
        self.received_bytes = self.received_bytes.saturating_add(bytes);
    }

    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.sent_bytes += bytes;
    }

    /// Whether sending stopped for lack of data, which says nothing about the rate of the path if the window has room.
    pub(crate) fn set_app_limited(&mut self, limited: bool) {
        self.app_limited = limited;
        if limited && self.window_room() >= self.datagram_size as u64 {
            self.delivery.on_app_limited(self.in_flight);
        }
    }

    /// Somebody looked whether its socket has room.
    pub(crate) fn note_room(&mut self, now: Instant, has_room: bool) {
        self.full_since = if has_room { None } else { self.full_since.or(Some(now)) };
    }

    /// When a socket without room will have been so for longer than a driver takes to empty it.
    pub(crate) fn stuck_at(&self) -> Option<Instant> {
        self.full_since.map(|since| since + self.rtt.pto_base())
    }

    /// About when the peer said what was last heard on it.
    pub(crate) fn spoken_at(&self) -> Instant {
        Instant::from_nanos(self.acked_at.as_nanos().saturating_sub(self.rtt.smoothed().as_nanos() / 2))
    }

    /// Data may be sent on it.
    pub(crate) fn is_active(&self) -> bool {
        self.state == PathState::Active
    }

    /// Packets may be sent on it, if only to find out whether they arrive.
    pub(crate) fn is_open(&self) -> bool {
        self.state != PathState::Abandoned
    }

    /// Bytes from the peer's address, datagrams included that did not open, and bytes sent to it.
    pub(crate) fn volume(&self) -> (u64, u64) {
        (self.received_bytes, self.sent_bytes)
    }

    /// What the path can carry, as far as it was learnt: what the controller has measured, or what the window lets through in a
    /// round trip.
    pub(crate) fn capacity(&self) -> Rate {
        if let Some(rate) = self.congestion.bandwidth() {
            return rate;
        }
        let round_trip = self.rtt.smoothed().max(Duration::from_micros(1));
        Rate::from_transfer(self.congestion.window(), round_trip).unwrap_or_default()
    }

    /// Bytes of streams in the background that may leave now, as far as the queue is concerned that they make.
    pub(crate) fn background_room(&mut self) -> u64 {
        let (in_flight, datagram_bytes) = (self.in_flight, self.datagram_size as u64);
        let new = || Box::new(ShortQueue::new(in_flight, datagram_bytes));
        self.short_queue.get_or_insert_with(new).room(in_flight)
    }

    /// The window in use, bytes: acknowledgements have to come several times in each.
    pub(crate) fn window_in_use(&self) -> u64 {
        let window = self.congestion.window();
        // What is not in the background may have more in flight.
        self.short_queue.as_ref().map_or(window, |queue| queue.window().max(self.in_flight).min(window))
    }

    /// Bytes the congestion window still lets out.
    pub(crate) fn window_room(&self) -> u64 {
        self.congestion.window().saturating_sub(self.in_flight)
    }
}
