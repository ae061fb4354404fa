//! Parameters that the report does not give: values, reasons and the effect of alternatives.
//!
//! All studies of these machines share the list. Each has its own main figures, on which the
//! choices that affect them are evaluated.

use measure::Estimate;
use sim::hardware::fddi::Arrivals;
use sim::hardware::{Schedule, Transactions};
use units::Duration;

use super::config::{Config, Load, Retransmit, Timer};
use super::paper::Kind;
use super::runs::{Point, point};
use crate::choices::Choice;

/// A figure of a study that shows its sensitivity to a choice.
#[derive(Clone)]
pub(super) struct MainFigure {
    /// The name with its unit.
    pub(super) name: &'static str,
    pub(super) config: Config,
    pub(super) figure: fn(&Point) -> Estimate,
}

impl MainFigure {
    /// Returns the throughput of `config`.
    pub(super) const fn throughput(name: &'static str, config: Config) -> Self {
        Self { name, config, figure: |point| point.throughput }
    }

    /// Returns the delay of the segments of `config`.
    pub(super) const fn delay(name: &'static str, config: Config) -> Self {
        Self { name, config, figure: |point| point.delay }
    }
}

/// An alternative value, the machines that it affects, and the change that applies it.
struct Alternative {
    value: &'static str,
    applies: fn(&Config) -> bool,
    change: fn(&mut Config),
}

/// A choice before its alternatives are evaluated.
struct Parameter {
    key: &'static str,
    value: &'static str,
    reason: &'static str,
    alternatives: &'static [Alternative],
}

/// Returns the assumptions of `main_figures`. Each is evaluated on those that it affects.
pub(super) fn choices(main_figures: &[MainFigure]) -> Vec<Choice> {
    PARAMETERS.iter().filter_map(|parameter| choice(parameter, main_figures)).collect()
}

fn choice(parameter: &Parameter, main_figures: &[MainFigure]) -> Option<Choice> {
    let mut choice = Choice::new(parameter.key, parameter.value, parameter.reason);
    let mut means_anything = false;
    for alternative in parameter.alternatives {
        for main_figure in main_figures.iter().filter(|main_figure| (alternative.applies)(&main_figure.config)) {
            means_anything = true;
            let (mut config, figure) = (main_figure.config.clone(), main_figure.figure);
            (alternative.change)(&mut config);
            choice = choice.or(alternative.value, main_figure.name, move |options| figure(&point(options, &config)));
        }
    }
    means_anything.then_some(choice)
}

const fn any(_: &Config) -> bool {
    true
}

fn two_bus(config: &Config) -> bool {
    config.kind == Kind::TwoBus
}

fn serial(config: &Config) -> bool {
    config.kind == Kind::Serial
}

fn parallel(config: &Config) -> bool {
    config.kind != Kind::Serial
}

fn has_device(config: &Config) -> bool {
    config.kind != Kind::TwoBus
}

const fn is_nonuniform(config: &Config) -> bool {
    matches!(config.load, Load::Steps(_))
}

fn is_adaptive(config: &Config) -> bool {
    config.schedule == Schedule::Adaptive
}

const fn has_centre(config: &Config) -> bool {
    config.scheme.central_sender || config.scheme.central_receiver
}

const fn has_small(config: &Config) -> bool {
    config.small.is_some()
}

const fn alternative(value: &'static str, applies: fn(&Config) -> bool, change: fn(&mut Config)) -> Alternative {
    Alternative { value, applies, change }
}

const PARAMETERS: &[Parameter] = &[
    Parameter {
        key: "instructions per packet",
        value: "413 to send, 413 to receive",
        reason: "86 % of 1 MIPS at 300 Mb/s over four processors are 413 instructions per packet",
        alternatives: &[
            alternative("200", any, |config| set_instructions(config, 200)),
            alternative("1000", any, |config| set_instructions(config, 1000)),
        ],
    },
    Parameter {
        key: "data words per packet",
        value: "360, in addition to two passes over the payload",
        reason: "fitted to the throughput of the last row of Table 2: 36 kbit in 212 us are 2650 accesses of 80 ns, \
                 2250 of them two passes over 1125 words (checksum and transfer); no data word is in the cache",
        alternatives: &[
            alternative("100", any, |config| set_data_words(config, 100)),
            alternative("720", any, |config| set_data_words(config, 720)),
        ],
    },
    Parameter {
        key: "instructions of the application to generate data",
        value: "200 per packet",
        reason: "fitted to the delay of the 2-bus machine under uniform load (Table 3)",
        alternatives: &[
            alternative("100", any, |config| config.choices.costs.generate.instructions /= 2),
            alternative("500", any, scale_generate),
        ],
    },
    Parameter {
        key: "instructions of the application to consume data",
        value: "413 per packet, after its acknowledgement",
        reason: "equal to the protocol's; the receiving application has its own processor and delays nothing",
        alternatives: &[
            alternative("0", any, |config| config.choices.costs.consume.instructions = 0),
            alternative("1000", any, |config| config.choices.costs.consume.instructions = 1000),
        ],
    },
    Parameter {
        key: "data words of delivery to the application",
        value: "50 per packet",
        reason: "fitted to the delay of the serial machine: the receiver does slightly more work than the sender, so \
                 its queue fills the window",
        alternatives: &[
            alternative("0", any, |config| config.choices.costs.deliver.data_words = 0),
            alternative("200", any, |config| config.choices.costs.deliver.data_words = 200),
        ],
    },
    Parameter {
        key: "context switch and interrupt",
        value: "no additional instructions",
        reason: "they are included in the 413; each operation counts as another process",
        alternatives: &[
            alternative("50 each", any, |config| set_switch(config, 50)),
            alternative("200 each", any, |config| set_switch(config, 200)),
        ],
    },
    Parameter {
        key: "set-up of a DMA transfer",
        value: "no time",
        reason: "an interface prepares its descriptors in advance; the report gives no time",
        alternatives: &[
            alternative("2 us", any, |config| config.choices.dma_setup = Duration::from_micros(2)),
            alternative("20 us", any, |config| config.choices.dma_setup = Duration::from_micros(20)),
        ],
    },
    Parameter {
        key: "words per read or write",
        value: "282, a quarter of a packet",
        reason: "fitted to the 7.1 us of the first row of Table 2; close to the kilobyte buffers of contemporary \
                 systems",
        alternatives: &[
            alternative("64", any, |config| config.choices.burst_words = 64),
            alternative("1125, a packet", any, |config| config.choices.burst_words = 1125),
        ],
    },
    Parameter {
        key: "word",
        value: "32 bits",
        reason: "contemporary processors",
        alternatives: &[
            alternative("16 bits", any, |config| config.choices.word_bits = 16),
            alternative("64 bits", any, |config| config.choices.word_bits = 64),
        ],
    },
    Parameter {
        key: "buses of the 2-bus machine",
        value: "split transactions",
        reason: "the report mentions them for the 1-bus machine only; a bus that is held while local memory works at \
                 80 ns loses a tenth or more",
        alternatives: &[
            alternative("held", two_bus, |config| config.transactions = Transactions::Held),
            alternative("held, and 64-bit words", two_bus, |config| {
                (config.transactions, config.choices.word_bits) = (Transactions::Held, 64);
            }),
        ],
    },
    Parameter {
        key: "bus cycles of a single word, serial machine",
        value: "4: request, grant, address, data",
        reason: "fitted to the throughput of the serial machine, whose memory accesses are not pipelined according \
                 to the report",
        alternatives: &[
            alternative("2", serial, |config| config.choices.single_cycles = 2),
            alternative("split and pipelined", serial, |config| config.transactions = Transactions::Split),
        ],
    },
    Parameter {
        key: "acknowledgements",
        value: "return at once and use no ring capacity",
        reason: "with two packets in a window, 323 Mb/s leave 892 us for a round trip: the frame of 360 us, its \
                 propagation and its processing use them up, and a second wait for a token does not fit",
        alternatives: &[
            alternative("wait for tokens, 60 bytes", any, |config| config.choices.acks_on_rings = true),
            alternative("wait for tokens, 500 bytes", any, |config| {
                (config.choices.acks_on_rings, config.choices.ack_bytes) = (true, 500);
            }),
        ],
    },
    Parameter {
        key: "background frames",
        value: "180 bytes at exponential intervals",
        reason: "fitted to the throughput of the first row of Table 2, as far as Table 3 allows; one aggregate \
                 source behaves like a flow",
        alternatives: &[
            alternative("64 bytes", any, |config| config.choices.background_frame_bytes = 64),
            alternative("500 bytes", any, |config| config.choices.background_frame_bytes = 500),
            alternative("4500 bytes", any, |config| config.choices.background_frame_bytes = 4500),
            alternative("180 bytes, regular", any, |config| config.choices.background_arrivals = Arrivals::Regular),
        ],
    },
    Parameter {
        key: "frames held by an interface",
        value: "1; the 600 Mb/s interface 8",
        reason: "fitted to the smallest number of rings: 5 must not carry 300 Mb/s (the report's minimum is 6), so a \
                 packet costs a token rotation",
        alternatives: &[
            alternative("2", any, |config| config.choices.interface_frames = 2),
            alternative("4", parallel, |config| config.choices.interface_frames = 4),
            alternative("1", serial, |config| config.choices.interface_frames = 1),
        ],
    },
    Parameter {
        key: "TTRT",
        value: "8 ms",
        reason: "the usually recommended value",
        alternatives: &[
            alternative("0.6 ms", any, |config| config.choices.ttrt = Duration::from_micros(600)),
            alternative("1 ms", any, |config| config.choices.ttrt = Duration::from_millis(1)),
            alternative("165 ms", any, |config| config.choices.ttrt = Duration::from_millis(165)),
        ],
    },
    Parameter {
        key: "stations",
        value: "sender 0, receiver 10, background 15 of 20",
        reason: "sender and receiver at opposite positions",
        alternatives: &[
            alternative("receiver 1", any, |config| config.choices.receiver_station = 1),
            alternative("receiver 19", any, |config| config.choices.receiver_station = 19),
            alternative("background 5", any, |config| config.choices.background_station = 5),
        ],
    },
    Parameter {
        key: "segments generated ahead",
        value: "2, serial 1",
        reason: "fitted to the delays of Table 2: 323 Mb/s times 1092 us are 353 kbit in flight, 65 more than the \
                 windows, about two segments; the serial machine has no application scheduler",
        alternatives: &[
            alternative("1", parallel, |config| config.choices.segments_ahead = 1),
            alternative("2", serial, |config| config.choices.segments_ahead = 2),
            alternative("4", any, |config| config.choices.segments_ahead = 4),
        ],
    },
    Parameter {
        key: "adaptive rule",
        value: "smallest queue length times packet time plus last rotation",
        reason: "both inputs of the report, in one unit",
        alternatives: &[
            alternative("smallest product of rotation and packets", is_adaptive, |config| {
                config.schedule = Schedule::AdaptiveProduct
            }),
            alternative("shortest queue", is_adaptive, |config| config.schedule = Schedule::FirstFree),
            alternative("shortest queue; among equals, the shortest last rotation", is_adaptive, |config| {
                config.schedule = Schedule::QueueThenRotation;
            }),
        ],
    },
    Parameter {
        key: "retransmission timer",
        value: "too long to fire: only errors cause retransmissions",
        reason: "the report says so for the runs of round trips, and nothing about the alternatives; with the \
                 printed timer the two rows of Table 3 that miss agree on other rings, but more of the other rows do \
                 not (last tables of 004-table-3)",
        alternatives: &[
            alternative("RFC 793 as printed, 2 ms minimum, go-back-N", is_nonuniform, |config| {
                config.choices.timer = Some(Timer::of_paper());
            }),
            alternative("the same, only the late packet", is_nonuniform, |config| {
                config.choices.timer = Some(Timer { retransmit: Retransmit::OnlyLate, ..Timer::of_paper() });
            }),
        ],
    },
    Parameter {
        key: "steps of the nonuniform load",
        value: "30, 40, 50, 40, 30, 20, 30 %, mirrored on the other half",
        reason: "six variations of 10 % between 10 and 50 that return to the start; the report does not list them",
        alternatives: &[
            alternative("30, 40, 50, 40, 50, 40, 30", is_nonuniform, |config| {
                config.load = Load::Steps(vec![0.3, 0.4, 0.5, 0.4, 0.5, 0.4, 0.3])
            }),
            alternative("30, 40, 30, 20, 30, 40, 30", is_nonuniform, |config| {
                config.load = Load::Steps(vec![0.3, 0.4, 0.3, 0.2, 0.3, 0.4, 0.3])
            }),
        ],
    },
    Parameter {
        key: "central scheduler device",
        value: "1 us per packet, outgoing and incoming",
        reason: "custom hardware; 004-central shows where it becomes the limit",
        alternatives: &[
            alternative("20 us", has_device, |config| config.choices.mux_service = Duration::from_micros(20)),
            alternative("100 us", has_device, |config| config.choices.mux_service = Duration::from_micros(100)),
        ],
    },
    Parameter {
        key: "message between processors",
        value: "100 instructions and 32 words on either side",
        reason: "an entry in a shared queue and an interrupt; the report gives no cost",
        alternatives: &[
            alternative("25 instructions", has_centre, |config| config.choices.costs.message.instructions = 25),
            alternative("400 instructions", has_centre, |config| config.choices.costs.message.instructions = 400),
        ],
    },
    Parameter {
        key: "small messages",
        value: "500 bytes, on average every 500 us, exponential",
        reason: "the small packet of Table 4; 8 Mb/s, a fraction of the load",
        alternatives: &[
            alternative("64 bytes", has_small, |config| set_small(config, |small| small.bits = 64 * 8)),
            alternative("4500 bytes", has_small, |config| set_small(config, |small| small.bits = 4500 * 8)),
            alternative("every 250 us", has_small, |config| {
                set_small(config, |small| small.interval = Duration::from_micros(250))
            }),
            alternative("every 2 ms", has_small, |config| {
                set_small(config, |small| small.interval = Duration::from_millis(2))
            }),
        ],
    },
    Parameter {
        key: "length of a run",
        value: "400 ms after a warm-up of 40 ms, or 200 ms for the serial machine",
        reason: "not given; 004-table-3 checks the warm-ups with MSER-5",
        alternatives: &[
            alternative("a quarter", any, |config| config.measured = config.measured.mul_ratio(1, 4)),
            alternative("twice as long, including the warm-up", any, |config| {
                (config.warm_up, config.measured) = (config.warm_up * 2, config.measured * 2);
            }),
        ],
    },
];

fn set_instructions(config: &mut Config, instructions: u64) {
    let costs = &mut config.choices.costs;
    (costs.send.instructions, costs.receive.instructions) = (instructions, instructions);
}

fn set_data_words(config: &mut Config, words: u64) {
    let costs = &mut config.choices.costs;
    (costs.send.data_words, costs.receive.data_words) = (words, words);
}

/// Scales the costs of generation in proportion, because slower processors already have fewer
/// application instructions.
const fn scale_generate(config: &mut Config) {
    let generate = &mut config.choices.costs.generate;
    generate.instructions = generate.instructions * 5 / 2;
}

const fn set_switch(config: &mut Config, instructions: u64) {
    config.choices.switch_instructions = instructions;
}

fn set_small(config: &mut Config, change: fn(&mut super::config::Small)) {
    if let Some(small) = &mut config.small {
        change(small);
    }
}
