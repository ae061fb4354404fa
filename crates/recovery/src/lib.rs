//! RTT, loss detection, congestion control and pacing, for any transport.
//!
//! Nothing here knows QUIC or TCP: packets are a number and a send time, acknowledgements are byte counts, and every
//! decision takes `now` as an argument. Each path owns one of each of these parts; none allocates per packet, reads a
//! clock or decides by a float.
//!
//! | part | question it answers | source |
//! |---|---|---|
//! | [`rtt`] | how long is a round trip? | RFC 9002, section 5 |
//! | [`loss`] | which outstanding packets are lost, or when will they be? | RFC 9002, section 6.1 |
//! | [`pto`] | when to probe because nothing comes back? | RFC 9002, section 6.2 |
//! | [`persistent`] | was that an outage rather than a full queue? | RFC 9002, section 7.6 |
//! | [`delivery_rate`] | how fast does the path deliver? | draft-ietf-ccwg-bbr-06, section 4.1 |
//! | [`congestion`] | how much may be in flight? | RFC 9002, section 7; RFC 9438; RFC 9406; draft-ietf-ccwg-bbr-06 |
//! | [`pacer`] | how much may leave now, and when may more? | RFC 9002, section 7.7 |
//! | [`allowance`] | how much of a class of traffic may leave now, and when may more? | XTP's rate and burst |
//!
//! For one acknowledgement a sent log asks them in this order: [`RttEstimator::update`], [`LossDetector::verdict`] for
//! each packet below the largest acknowledged one, [`CongestionController::on_loss`], then
//! [`CongestionController::on_ack`], [`PtoBackoff::reset`]; and before sending, [`Pacer::budget`] with
//! [`CongestionController::pacing_rate`]. For controllers that model the path, [`DeliveryRate`] hears of every packet sent,
//! acknowledged and lost, and gives [`AckEvent::rate`] and what [`CongestionController::on_row_lost`] takes.
#![forbid(unsafe_code)]

pub mod allowance;
mod bucket;
pub mod congestion;
mod cube_root;
pub mod delivery_rate;
pub mod loss;
pub mod pacer;
pub mod persistent;
pub mod pto;
pub mod rtt;

pub use allowance::Allowance;
pub use congestion::{
    AckEvent, Algorithm, CongestionController, CongestionSnapshot, LossEvent, SpuriousLossEvent, initial_window,
    minimum_window,
};
pub use delivery_rate::{DeliveryRate, LossSample, RateSample, SendStamp};
pub use loss::{LossDetector, PACKET_THRESHOLD, Verdict};
pub use pacer::{Pacer, RateCap};
pub use persistent::PersistentCongestion;
pub use pto::PtoBackoff;
pub use rtt::{GRANULARITY, INITIAL_RTT, RttEstimator};
