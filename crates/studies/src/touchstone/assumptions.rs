//! What the document does not say of this machine, what the studies take, and what else might be.

use units::{Duration, Rate};

use measure::Estimate;

use super::experiment::{Point, measure};
use super::setup::{Acknowledgements, Assumed, Counted, Judgement, Rest, Setup, Stops};
use crate::Choice;

/// Another value, and the change that makes it.
type Other = (&'static str, fn(&mut Setup));

/// The figure of a study that shows how much hangs on a choice.
pub(super) struct Headline {
    /// With its unit.
    pub(super) name: String,
    pub(super) setup: Setup,
    pub(super) figure: fn(&Point) -> Estimate,
}

/// Something assumed, before it is tried otherwise.
pub(super) struct Given {
    key: &'static str,
    value: String,
    reason: &'static str,
    others: Vec<Other>,
}

fn choice(key: &'static str, value: impl Into<String>, reason: &'static str, others: &[Other]) -> Given {
    Given { key, value: value.into(), reason, others: others.to_vec() }
}

/// All that a study of this machine rests on, tried on its headline figure.
pub(super) fn choices(headline: &Headline) -> Vec<Choice> {
    let tried = |given: Given| {
        let choice = Choice::new(given.key, given.value, given.reason);
        given.others.into_iter().fold(choice, |choice, (value, change)| {
            let (mut setup, figure) = (headline.setup.clone(), headline.figure);
            change(&mut setup);
            choice.or(value, headline.name.as_str(), move |options| figure(&measure(&setup, options)))
        })
    };
    all().into_iter().map(tried).collect()
}

/// All of it: first what was fitted, then what a part of the machine does, then what was taken as it is usual.
fn all() -> Vec<Given> {
    let assumed = Assumed::default();
    let mut choices = fitted(&assumed);
    choices.extend(behaviour());
    choices.extend(usual(&assumed));
    choices.extend(ways(&assumed));
    choices
}

fn fitted(assumed: &Assumed) -> Vec<Given> {
    vec![
        choice(
            "distribution of the load over the generators",
            format!("each offers {} of what the one before offers", assumed.share_ratio),
            "fitted; without background fixed schedulers lose a third at 37 %, so the load must be uneven",
            &[("all alike", |setup| setup.assumed.share_ratio = 1.0), ("0.6", |setup| setup.assumed.share_ratio = 0.6)],
        ),
        choice(
            "mean message of a generator",
            format!("{} bytes, geometric, at exponential intervals", assumed.message_bytes),
            "fitted; fixed schedulers lose as much at 37 % as at 87 %, so single messages must be longer than queues",
            &[
                ("15000 bytes", |setup| setup.assumed.message_bytes = 15_000.0),
                ("60000 bytes", |setup| setup.assumed.message_bytes = 60_000.0),
            ],
        ),
        choice(
            "HIGH",
            format!("{} bytes", assumed.high_bytes),
            "fitted; its proportion to the message matters most",
            &[
                ("20000 bytes", |setup| setup.assumed.high_bytes = 20_000),
                ("60000 bytes", |setup| setup.assumed.high_bytes = 60_000),
            ],
        ),
        choice(
            "LOW",
            format!("{} bytes", assumed.low_bytes),
            "fitted",
            &[
                ("4000 bytes", |setup| setup.assumed.low_bytes = 4_000),
                ("HIGH", |setup| setup.assumed.low_bytes = setup.assumed.high_bytes),
            ],
        ),
        choice(
            "target token rotation time",
            format!("{} above the way round: 0.78 ms on 20 km", assumed.holding),
            "fitted; less than the standard's least of 4 ms. With more, a background of 30 % slows a window by 30 % and no more, and \
             the tables show nearly twice that",
            &[
                ("0.6 ms above", |setup| setup.assumed.holding = Duration::from_micros(600)),
                ("1 ms above", |setup| setup.assumed.holding = Duration::from_millis(1)),
                ("4 ms above", |setup| setup.assumed.holding = Duration::from_millis(4)),
                ("8 ms above", |setup| setup.assumed.holding = Duration::from_millis(8)),
            ],
        ),
    ]
}

fn behaviour() -> Vec<Given> {
    vec![
        choice(
            "whom a full queue stops under the fixed application scheduler",
            "all generators, until that queue falls below LOW",
            "the stop is a broadcast; where each stops its own only, overload of one ring cannot cost what it costs in the tables, \
             more than a sixth",
            &[
                ("its own generator", |setup| setup.assumed.stops = Stops::Own),
                ("its own, and the message goes on", |setup| {
                    (setup.assumed.stops, setup.assumed.rest) = (Stops::Own, Rest::GoesOn);
                }),
            ],
        ),
        choice(
            "rest of a message whose generator is stopped",
            "given up",
            "the generator does not generate while it is stopped; the alternative is that it goes on where it was",
            &[
                ("goes on", |setup| setup.assumed.rest = Rest::GoesOn),
                ("goes on, and its generator alone is stopped", |setup| {
                    (setup.assumed.rest, setup.assumed.stops) = (Rest::GoesOn, Stops::Own);
                }),
            ],
        ),
        choice(
            "how the adaptive network scheduler chooses",
            "to the right neighbour's unit if three frames are at the own one, which is most of a window",
            "chosen by Table 6; this machine's application scheduler passes on by a threshold, too, and the document names no trigger. \
             What it says of its other machine's, queue and last token rotation, moves more than half of all packets and loses where \
             the document gains",
            &[
                ("if two frames are there", |setup| setup.assumed.judgement = Judgement::OwnQueue(2)),
                ("to where (frames + 1) x last rotation is less", |setup| setup.assumed.judgement = Judgement::Product),
                ("to where frames x their time + last rotation is less", |setup| {
                    setup.assumed.judgement = Judgement::Sum
                }),
            ],
        ),
        choice(
            "what it counts as a queue",
            "frames that are at the network unit",
            "it is known there; what others have sent on the way is not",
            &[
                ("packets on their way as well", |setup| setup.assumed.counted = Counted::Coming),
                ("packets on their way as well, by product", |setup| {
                    (setup.assumed.counted, setup.assumed.judgement) = (Counted::Coming, Judgement::Product);
                }),
            ],
        ),
        choice(
            "acknowledgements",
            "cumulative, one for each packet, on the ring of the packet",
            "TCP's: a packet on a slow ring holds up the window of all that went over a fast one",
            &[
                ("each frees its own place", |setup| setup.assumed.acknowledgements = Acknowledgements::Each),
                ("each frees its own place, neighbour by product", |setup| {
                    setup.assumed.acknowledgements = Acknowledgements::Each;
                    setup.assumed.judgement = Judgement::Product;
                }),
            ],
        ),
    ]
}

/// Load and processors.
fn usual(assumed: &Assumed) -> Vec<Given> {
    vec![
        choice(
            "background of an overloaded channel",
            format!("{:.0} % of the ring: it never runs dry", assumed.overload * 100.0),
            "the word; with this target rotation time a ring that is asked for 60 % is as slow, so the level is no free parameter",
            &[
                ("50 %", |setup| setup.assumed.overload = 0.5),
                ("60 %", |setup| setup.assumed.overload = 0.6),
                ("90 %", |setup| setup.assumed.overload = 0.9),
            ],
        ),
        choice(
            "available capacity",
            "420 Mb/s: six rings of 100 less 30 % background",
            "the document's own rule for its other machine, without the token's loss; the adaptive rows imply 415 and 431",
            &[
                ("415 Mb/s", |setup| setup.offered_mbps *= 415.0 / 420.0),
                ("431 Mb/s", |setup| setup.offered_mbps *= 431.0 / 420.0),
            ],
        ),
        choice(
            "packet, segment and frame",
            format!("{} bytes, all the same", assumed.packet_bytes),
            "the largest that fills the windows of 4000, 8000 and 14000 bytes",
            &[
                ("1000 bytes", |setup| setup.assumed.packet_bytes = 1_000),
                ("4000 bytes", |setup| setup.assumed.packet_bytes = 4_000),
            ],
        ),
        choice(
            "processor's work",
            format!("{} for a packet, {} for an acknowledgement", assumed.packet_work, assumed.ack_work),
            "some hundred instructions of a fast processor; the document gives no rate for this machine",
            &[
                ("none", |setup| {
                    (setup.assumed.packet_work, setup.assumed.ack_work) = (Duration::ZERO, Duration::ZERO)
                }),
                ("25 us for a packet", |setup| setup.assumed.packet_work = Duration::from_micros(25)),
            ],
        ),
        choice(
            "speed at which a message comes",
            format!("{} Mb/s", assumed.generator_rate.as_mbps_f64()),
            "what a link of the real machine carries; application processors are not modelled",
            &[
                ("100 Mb/s", |setup| setup.assumed.generator_rate = Rate::from_mbps(100)),
                ("800 Mb/s", |setup| setup.assumed.generator_rate = Rate::from_mbps(800)),
            ],
        ),
    ]
}

/// Links, rings and what goes over them.
fn ways(assumed: &Assumed) -> Vec<Given> {
    vec![
        choice(
            "links between gateways",
            format!("{} Mb/s, {} more for each", assumed.link_rate.as_mbps_f64(), assumed.link_hop),
            "the real machine's; the document used another time and does not give it",
            &[
                ("100 Mb/s", |setup| setup.assumed.link_rate = Rate::from_mbps(100)),
                ("800 Mb/s", |setup| setup.assumed.link_rate = Rate::from_mbps(800)),
            ],
        ),
        choice(
            "background frames",
            format!("{} bytes at exponential intervals, one source a ring", assumed.background_frame_bytes),
            "the longest; the document names one source a ring and no length",
            &[
                ("500 bytes", |setup| setup.assumed.background_frame_bytes = 500),
                ("2000 bytes", |setup| setup.assumed.background_frame_bytes = 2_000),
            ],
        ),
        choice(
            "the peer's station",
            "half way round; the background's is half way back",
            "positions are not given",
            &[
                ("the next one", |setup| setup.assumed.peer_station = 1),
                ("three quarters of the way round", |setup| setup.assumed.peer_station = 15),
            ],
        ),
        choice(
            "stop and start signals",
            "take no time",
            "a broadcast of a byte over links of 200 Mb/s; the document names it and no time",
            &[
                ("10 us", |setup| setup.assumed.signal = Duration::from_micros(10)),
                ("100 us", |setup| setup.assumed.signal = Duration::from_micros(100)),
            ],
        ),
        choice(
            "bit errors",
            "none",
            "one bit in 10^9 hits one packet in 60,000; what is lost then is sent again",
            &[
                ("1e-9 a bit", |setup| setup.assumed.error_rate = 1e-9),
                ("1e-7 a bit", |setup| setup.assumed.error_rate = 1e-7),
            ],
        ),
        choice(
            "bytes of an acknowledgement",
            format!("{}", assumed.ack_bytes),
            "headers of IP and TCP",
            &[("20", |setup| setup.assumed.ack_bytes = 20), ("80", |setup| setup.assumed.ack_bytes = 80)],
        ),
    ]
}
