//! Inputs of a controller: acknowledgements, losses, and packets that were declared lost but
//! arrived.

use units::{Duration, Instant};

use crate::delivery_rate::RateSample;

/// The packets newly acknowledged by one acknowledgement.
#[derive(Debug, Clone, Copy)]
pub struct AckEvent {
    /// Arrival time of the acknowledgement.
    pub now: Instant,
    /// Newly acknowledged bytes that counted as in flight.
    pub bytes: u64,
    /// Send time of the newest of the newly acknowledged packets.
    pub newest_sent_at: Instant,
    /// Bytes in flight after this acknowledgement.
    pub in_flight: u64,
    /// Whether the window was not fully used when these packets were sent: the application, the
    /// peer's flow control or the anti-amplification limit limited sending. Waiting for the pacer
    /// does not count (RFC 9002, section 7.8).
    pub app_limited: bool,
    /// Whether this is the first acknowledgement of a packet sent after the end of the last round
    /// was acknowledged, so that it begins a new round. A round is one window's worth of packets
    /// (RFC 9406, section 4.2, `windowEnd`).
    pub round_ended: bool,
    /// The round-trip sample of this acknowledgement, or the previous sample if it gave none.
    pub latest_rtt: Duration,
    /// The delivery-rate sample from [`crate::DeliveryRate::take_sample`], taken after the losses
    /// of this acknowledgement. Loss-based controllers ignore it; BBR requires it.
    pub rate: Option<RateSample>,
}

/// Packets found lost by one acknowledgement or by the loss timer, or marked by the network.
#[derive(Debug, Clone, Copy)]
pub struct LossEvent {
    /// Time of the detection.
    pub now: Instant,
    /// Send time of the newest lost packet; for a mark, of the newest acknowledged packet (RFC
    /// 9002, section 7.1 and appendix B.7).
    pub newest_lost_sent_at: Instant,
    /// Bytes lost. Zero for a mark.
    pub bytes: u64,
    /// Bytes in flight after the lost bytes were removed.
    pub in_flight: u64,
    /// Whether persistent congestion was established: see [`crate::PersistentCongestion`].
    pub persistent: bool,
    /// Whether the network marked packets (ECN-CE) instead of dropping them.
    pub ecn: bool,
}

/// Packets declared lost that were acknowledged later.
#[derive(Debug, Clone, Copy)]
pub struct SpuriousLossEvent {
    /// Arrival time of the acknowledgement.
    pub now: Instant,
    /// Send time of the newest of these packets.
    pub newest_sent_at: Instant,
    /// Their bytes, as counted in [`LossEvent::bytes`].
    pub bytes: u64,
}
