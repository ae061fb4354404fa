//! RTT estimation, loss detection, congestion control and pacing for any transport.
//!
//! This crate is independent of QUIC and TCP: a packet is a number and a send time, an
//! acknowledgement is a count of bytes, and every decision takes `now` as an argument. Each path
//! owns one instance of each part. No part allocates per packet, reads a clock or bases a decision
//! on a float.
//!
//! | module | purpose | source |
//! |---|---|---|
//! | [`rtt`] | round-trip estimation | RFC 9002, section 5 |
//! | [`loss`] | detection of lost packets, and the loss timer | RFC 9002, section 6.1 |
//! | [`pto`] | probe timeout | RFC 9002, section 6.2 |
//! | [`persistent`] | persistent congestion | RFC 9002, section 7.6 |
//! | [`delivery_rate`] | delivery rate of the path | draft-ietf-ccwg-bbr-06, section 4.1 |
//! | [`congestion`] | limit of the data in flight | RFC 9002, section 7; RFC 9438; RFC 9406; draft-ietf-ccwg-bbr-06 |
//! | [`pacer`] | send times of packets | RFC 9002, section 7.7 |
//! | [`mtu_search`] | the largest packet that the path carries | RFC 4821; RFC 8899 |
//! | [`rate_limiter`] | send times of bytes of a traffic class | rate and burst of XTP |
//!
//! For one acknowledgement a sender calls, in this order: [`RttEstimator::update`];
//! [`LossDetector::verdict`] for each packet below the largest acknowledged one;
//! [`CongestionController::on_loss`]; [`CongestionController::on_ack`]; [`PtoBackoff::reset`].
//! Before sending it calls [`Pacer::budget`] with [`CongestionController::pacing_rate`]. For
//! controllers that model the path, [`DeliveryRate`] is notified of every packet sent, acknowledged
//! and lost; it provides [`AckEvent::rate`] and the argument of
//! [`CongestionController::on_run_lost`].
//!
//! This example computes the window and the pacing budget of a new path:
//!
//! ```
//! use recovery::{Algorithm, Pacer, RttEstimator};
//! use units::Instant;
//!
//! let (rtt, mut pacer) = (RttEstimator::default(), Pacer::new(None));
//! let controller = Algorithm::Cubic.build(1200);
//! assert_eq!(controller.window(), 12_000);
//! let may_send = pacer.budget(Instant::ZERO, controller.pacing_rate(&rtt));
//! assert!(may_send >= 12_000);
//! ```
#![forbid(unsafe_code)]

mod bucket;
pub mod congestion;
mod cube_root;
pub mod delivery_rate;
pub mod loss;
pub mod mtu_search;
pub mod pacer;
pub mod persistent;
pub mod pto;
pub mod rate_limiter;
pub mod rtt;

pub use congestion::{
    AckEvent, Algorithm, CongestionController, CongestionSnapshot, LossEvent, SpuriousLossEvent, Unlimited,
    initial_window, minimum_window,
};
pub use delivery_rate::{DeliveryRate, LossSample, RateSample, SendStamp};
pub use loss::{LossDetector, PACKET_THRESHOLD, Verdict};
pub use mtu_search::MtuSearch;
pub use pacer::{Pacer, RateCap};
pub use persistent::PersistentCongestion;
pub use pto::PtoBackoff;
pub use rate_limiter::RateLimiter;
pub use rtt::{GRANULARITY, INITIAL_RTT, RttEstimator};
