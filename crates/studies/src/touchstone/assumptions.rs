//! Parameters of this machine that the report does not give: the values used and alternatives.

use units::{Duration, Rate};

use measure::Estimate;

use super::experiment::{Point, measure};
use super::setup::{Acknowledgements, Assumed, Counted, Rest, Rule, Setup, Stops};
use crate::choices::Choice;

/// An alternative value, and the change that applies it.
type Alternative = (&'static str, fn(&mut Setup));

/// The figure of a study that shows its sensitivity to a choice.
pub(super) struct MainFigure {
    /// The name with its unit.
    pub(super) name: String,
    pub(super) setup: Setup,
    pub(super) figure: fn(&Point) -> Estimate,
}

/// An assumption before its alternatives are evaluated.
pub(super) struct Parameter {
    key: &'static str,
    value: String,
    reason: &'static str,
    alternatives: Vec<Alternative>,
}

fn choice(
    key: &'static str,
    value: impl Into<String>,
    reason: &'static str,
    alternatives: &[Alternative],
) -> Parameter {
    Parameter { key, value: value.into(), reason, alternatives: alternatives.to_vec() }
}

/// Returns all assumptions of a study of this machine, evaluated on its main figure.
pub(super) fn choices(main_figure: &MainFigure) -> Vec<Choice> {
    let tried = |parameter: Parameter| {
        let choice = Choice::new(parameter.key, parameter.value, parameter.reason);
        parameter.alternatives.into_iter().fold(choice, |choice, (value, change)| {
            let (mut setup, figure) = (main_figure.setup.clone(), main_figure.figure);
            change(&mut setup);
            choice.or(value, main_figure.name.as_str(), move |options| figure(&measure(&setup, options)))
        })
    };
    all().into_iter().map(tried).collect()
}

/// Returns all assumptions: fitted ones, then the behaviour of parts of the machine, then customary
/// values.
fn all() -> Vec<Parameter> {
    let assumed = Assumed::default();
    let mut choices = fitted(&assumed);
    choices.extend(behaviour());
    choices.extend(customary(&assumed));
    choices.extend(network(&assumed));
    choices
}

fn fitted(assumed: &Assumed) -> Vec<Parameter> {
    vec![
        choice(
            "distribution of the load over the generators",
            format!("each offers {} times the load of the previous one", assumed.share_ratio),
            "fitted; without background, fixed schedulers lose a third at 37 %, so the load must be uneven",
            &[("all equal", |setup| setup.assumed.share_ratio = 1.0), ("0.6", |setup| setup.assumed.share_ratio = 0.6)],
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
            "fitted; its ratio to the message length matters most",
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
            format!("{} above the ring latency: 0.78 ms on 20 km", assumed.holding),
            "fitted; below the standard's minimum of 4 ms. With larger values, a background of 30 % slows a window \
             by only 30 %, and the tables show nearly twice that",
            &[
                ("0.6 ms above", |setup| setup.assumed.holding = Duration::from_micros(600)),
                ("1 ms above", |setup| setup.assumed.holding = Duration::from_millis(1)),
                ("4 ms above", |setup| setup.assumed.holding = Duration::from_millis(4)),
                ("8 ms above", |setup| setup.assumed.holding = Duration::from_millis(8)),
            ],
        ),
    ]
}

fn behaviour() -> Vec<Parameter> {
    vec![
        choice(
            "generators stopped by a full queue under the fixed application scheduler",
            "all generators, until that queue falls below LOW",
            "the stop is a broadcast; if each queue stopped only its own generator, overload of one ring could not \
             have the effect shown in the tables, more than a sixth",
            &[
                ("only its own generator", |setup| setup.assumed.stops = Stops::Own),
                ("only its own, and the message continues", |setup| {
                    (setup.assumed.stops, setup.assumed.rest) = (Stops::Own, Rest::Continues);
                }),
            ],
        ),
        choice(
            "rest of a message whose generator is stopped",
            "discarded",
            "the generator does not generate while it is stopped; alternatively it continues where it was",
            &[
                ("continues", |setup| setup.assumed.rest = Rest::Continues),
                ("continues, and only its generator is stopped", |setup| {
                    (setup.assumed.rest, setup.assumed.stops) = (Rest::Continues, Stops::Own);
                }),
            ],
        ),
        choice(
            "rule of the adaptive network scheduler",
            "to the right neighbour's unit if its own unit has three frames, which is most of a window",
            "fitted to Table 6; this machine's application scheduler also uses a threshold, and the report names no \
             trigger. The rule of its other machine, queue and last token rotation, moves more than half of all \
             packets and loses where the report gains",
            &[
                ("if there are two frames", |setup| setup.assumed.rule = Rule::OwnQueue(2)),
                ("to the unit with the smaller (frames + 1) x last rotation", |setup| {
                    setup.assumed.rule = Rule::Product
                }),
                ("to the unit with the smaller frames x their time + last rotation", |setup| {
                    setup.assumed.rule = Rule::Sum
                }),
            ],
        ),
        choice(
            "queue length used by the rule",
            "frames at the network unit",
            "it is known locally; packets in transit from other gateways are not",
            &[
                ("including packets in transit", |setup| setup.assumed.counted = Counted::WithTransit),
                ("including packets in transit, by product", |setup| {
                    (setup.assumed.counted, setup.assumed.rule) = (Counted::WithTransit, Rule::Product);
                }),
            ],
        ),
        choice(
            "acknowledgements",
            "cumulative, one per packet, on the ring of the packet",
            "as in TCP: a packet on a slow ring blocks the window for all packets on a fast one",
            &[
                ("each frees its own window slot", |setup| setup.assumed.acknowledgements = Acknowledgements::Each),
                ("each frees its own window slot, neighbour by product", |setup| {
                    setup.assumed.acknowledgements = Acknowledgements::Each;
                    setup.assumed.rule = Rule::Product;
                }),
            ],
        ),
    ]
}

/// Returns the parameters of load and processors.
fn customary(assumed: &Assumed) -> Vec<Parameter> {
    vec![
        choice(
            "background of an overloaded channel",
            format!("{:.0} % of the ring, so its queue is never empty", assumed.overload * 100.0),
            "the report says overloaded; with this target rotation time a ring with a load of 60 % is as slow, so \
             the level is not a free parameter",
            &[
                ("50 %", |setup| setup.assumed.overload = 0.5),
                ("60 %", |setup| setup.assumed.overload = 0.6),
                ("90 %", |setup| setup.assumed.overload = 0.9),
            ],
        ),
        choice(
            "available capacity",
            "420 Mb/s: six rings of 100 Mb/s minus 30 % background",
            "the report's rule for its other machine, without the loss for the token; the adaptive rows imply 415 \
             and 431",
            &[
                ("415 Mb/s", |setup| setup.offered_mbps *= 415.0 / 420.0),
                ("431 Mb/s", |setup| setup.offered_mbps *= 431.0 / 420.0),
            ],
        ),
        choice(
            "packet, segment and frame",
            format!("{} bytes each", assumed.packet_bytes),
            "the largest size that divides the windows of 4000, 8000 and 14000 bytes",
            &[
                ("1000 bytes", |setup| setup.assumed.packet_bytes = 1_000),
                ("4000 bytes", |setup| setup.assumed.packet_bytes = 4_000),
            ],
        ),
        choice(
            "processor work",
            format!("{} per packet, {} per acknowledgement", assumed.packet_work, assumed.ack_work),
            "some hundred instructions of a fast processor; the report gives no speed for this machine",
            &[
                ("none", |setup| {
                    (setup.assumed.packet_work, setup.assumed.ack_work) = (Duration::ZERO, Duration::ZERO)
                }),
                ("25 us per packet", |setup| setup.assumed.packet_work = Duration::from_micros(25)),
            ],
        ),
        choice(
            "rate at which a message is generated",
            format!("{} Mb/s", assumed.generator_rate.as_mbps_f64()),
            "the link rate of the real machine; application processors are not modelled",
            &[
                ("100 Mb/s", |setup| setup.assumed.generator_rate = Rate::from_mbps(100)),
                ("800 Mb/s", |setup| setup.assumed.generator_rate = Rate::from_mbps(800)),
            ],
        ),
    ]
}

/// Returns the parameters of links, rings and their traffic.
fn network(assumed: &Assumed) -> Vec<Parameter> {
    vec![
        choice(
            "links between gateways",
            format!("{} Mb/s, plus {} per hop", assumed.link_rate.as_mbps_f64(), assumed.link_hop),
            "those of the real machine; the report used another time and does not give it",
            &[
                ("100 Mb/s", |setup| setup.assumed.link_rate = Rate::from_mbps(100)),
                ("800 Mb/s", |setup| setup.assumed.link_rate = Rate::from_mbps(800)),
            ],
        ),
        choice(
            "background frames",
            format!("{} bytes at exponential intervals, one source per ring", assumed.background_frame_bytes),
            "the maximum; the report mentions one source per ring and no length",
            &[
                ("500 bytes", |setup| setup.assumed.background_frame_bytes = 500),
                ("2000 bytes", |setup| setup.assumed.background_frame_bytes = 2_000),
            ],
        ),
        choice(
            "the peer's station",
            "at half of the ring; the background's is half way back",
            "positions are not given",
            &[
                ("the next one", |setup| setup.assumed.peer_station = 1),
                ("at three quarters of the ring", |setup| setup.assumed.peer_station = 15),
            ],
        ),
        choice(
            "stop and start signals",
            "take no time",
            "a broadcast of a byte over links of 200 Mb/s; the report gives no time",
            &[
                ("10 us", |setup| setup.assumed.signal = Duration::from_micros(10)),
                ("100 us", |setup| setup.assumed.signal = Duration::from_micros(100)),
            ],
        ),
        choice(
            "bit errors",
            "none",
            "one bit error in 10^9 affects one packet in 60,000, which is retransmitted",
            &[
                ("1e-9 per bit", |setup| setup.assumed.error_rate = 1e-9),
                ("1e-7 per bit", |setup| setup.assumed.error_rate = 1e-7),
            ],
        ),
        choice(
            "bytes of an acknowledgement",
            format!("{}", assumed.ack_bytes),
            "IP and TCP headers",
            &[("20", |setup| setup.assumed.ack_bytes = 20), ("80", |setup| setup.assumed.ack_bytes = 80)],
        ),
    ]
}
