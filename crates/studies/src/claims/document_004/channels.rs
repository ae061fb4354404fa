//! Coding across channels.

use crate::claims::models::coding::Channels;
use crate::claims::{Context, Decider, Decision, exact};

pub(super) const DECIDERS: [(&str, Decider); 1] = [("004-28", coding_avoids_retransmissions)];

/// Channels of the document's workstation, and packets of parity in a group that make up for one of them.
const CHANNELS: u32 = 6;
const PARITY: u32 = 1;

/// Bits of a packet.
const PACKET_BITS: f64 = 36_000.0;

/// What a ring carries beside 30 % of other traffic, in bits a microsecond.
const CHANNEL_BITS_PER_US: f64 = 70.0;

/// There and back over a ring: 5.085 us a km.
const ROUND_TRIP_US_PER_KM: f64 = 2.0 * 5.085;

/// A bit error rate far worse than the document's 1e-9, so that errors are frequent enough to be counted.
const BIT_ERRORS: f64 = 1e-6;

fn coding_avoids_retransmissions(context: &Context) -> Decision {
    let at = |kilometres: f64, parity, dead| {
        let in_flight = kilometres * ROUND_TRIP_US_PER_KM * CHANNEL_BITS_PER_US / PACKET_BITS;
        let packet_error = 1.0 - (1.0 - BIT_ERRORS).powf(PACKET_BITS);
        let channels = Channels { count: CHANNELS, parity, packet_error, in_flight: in_flight.ceil() as u32, dead };
        channels.retransmissions(&context.options)
    };
    let (short, long) = (at(20.0, 0, 0), at(2000.0, 0, 0));
    let (coded, dead) = (at(2000.0, PARITY, 0), at(2000.0, PARITY, PARITY));
    let overhead = f64::from(PARITY) / f64::from(CHANNELS - PARITY);
    let survives = Channels { count: CHANNELS, parity: PARITY, packet_error: 0.0, in_flight: 1, dead: PARITY };
    let rebuilt = survives.retransmissions(&context.options).mean == 0.0;
    // "Most" of them.
    let avoids = coded.mean < 0.5 * long.mean;
    Decision::of(
        rebuilt && avoids && long.mean > short.mean,
        "with a packet of parity for five of data a dead channel costs nothing, and bad packets cost most where much is under \
         way: on a long network the code avoids most of what go-back-N repeats. On 20 km so little is under way that the parity \
         itself costs more than the errors would; with a channel dead, its parity is used up, and each bad packet costs a group",
        "the code does not avoid most of what go-back-N repeats",
    )
    .with("repeated a packet of data by go-back-N over 20 km at 1e-6 errors a bit", "", None, short)
    .with("over 2000 km", "", None, long)
    .with("with the code over 2000 km", "", None, coded)
    .with("with the code and a channel dead", "", None, dead)
    .with("parity a packet of data", "", None, exact(overhead))
}
