//! A path as its sender sees it: addresses, packet numbers, recovery, size of datagrams.

use std::net::{IpAddr, SocketAddr};

use recovery::{CongestionController, DeliveryRate, Pacer, PtoBackoff, RttEstimator};
use units::{Instant, Rng};
use wire::quic::ConnectionId;

use crate::config::TransportConfig;

/// An unvalidated address gets at most this many times the bytes that came from it (RFC 9000, section 8.1).
const AMPLIFICATION_FACTOR: u64 = 3;

/// Less room than this holds no packet with a long header, so it is none: otherwise a probe timer would fire in vain, again
/// and again.
const AMPLIFICATION_ROOM_MIN: u64 = 64;

/// The two addresses of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Addresses {
    /// The peer's address.
    pub remote: SocketAddr,
    /// Our own address, where the system told it.
    pub local_ip: Option<IpAddr>,
}

/// One path.
#[derive(Debug)]
pub(crate) struct SendPath {
    pub(crate) addresses: Addresses,
    /// The peer's connection ID for this path.
    pub(crate) remote_id: ConnectionId,
    /// The largest UDP payload to send, bytes.
    pub(crate) datagram_size: usize,
    pub(crate) rtt: RttEstimator,
    pub(crate) first_rtt_sample_at: Option<Instant>,
    pub(crate) congestion: Box<dyn CongestionController>,
    pub(crate) delivery: DeliveryRate,
    pub(crate) pacer: Pacer,
    pub(crate) backoff: PtoBackoff,
    /// Bytes in flight, all spaces.
    pub(crate) in_flight: u64,
    /// Sending stopped for lack of data, not for lack of window.
    pub(crate) app_limited: bool,
    /// A new round begins when a packet from this number on is acknowledged.
    pub(crate) round_end: u64,
    /// Held back by the pacer until then.
    pub(crate) release_at: Option<Instant>,
    validated: bool,
    received_bytes: u64,
    sent_bytes: u64,
}

impl SendPath {
    pub(crate) fn new(
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
            addresses,
            remote_id,
            datagram_size: config.datagram_size,
            rtt: RttEstimator::new(config.initial_rtt),
            first_rtt_sample_at: None,
            congestion: config.congestion.build_seeded(segment_size, rng),
            delivery: DeliveryRate::new(),
            pacer,
            backoff: PtoBackoff::new(),
            in_flight: 0,
            app_limited: true,
            round_end: 0,
            release_at: None,
            validated,
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

    pub(crate) fn on_received(&mut self, bytes: u64) {
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

    /// Bytes the congestion window still lets out.
    pub(crate) fn window_room(&self) -> u64 {
        self.congestion.window().saturating_sub(self.in_flight)
    }
}
