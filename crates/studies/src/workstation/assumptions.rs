//! What the paper does not say, why we chose as we did, and what other choices would change.

use sim::hardware::fddi::Arrivals;
use sim::hardware::{Schedule, Transactions};
use units::Duration;

use super::config::{Config, Load};
use super::paper::Kind;
use super::runs::throughput_with;
use crate::outcome::Sensitivity;
use crate::{Assumption, Effort, Options};

/// A change of a machine.
type Change = fn(&mut Config);
/// Another value, and on which figure it is shown.
type Other = (&'static str, Kind, Change);

/// A choice, before it is tried otherwise.
struct Choice {
    key: &'static str,
    value: &'static str,
    reason: &'static str,
    others: &'static [Other],
}

/// All choices that the model rests on. At quick effort, without what they change.
pub(super) fn all(options: &Options) -> Vec<Assumption> {
    // One run each: these are to show how much hangs on a choice, not a figure to three digits.
    let options = Options { replications: 1, ..*options };
    CHOICES
        .iter()
        .map(|choice| Assumption {
            key: choice.key.to_owned(),
            value: choice.value.to_owned(),
            reason: choice.reason.to_owned(),
            sensitivity: match options.effort {
                Effort::Quick => Vec::new(),
                Effort::Full => choice.others.iter().map(|other| sensitivity(&options, other)).collect(),
            },
        })
        .collect()
}

fn sensitivity(options: &Options, &(value, kind, change): &Other) -> Sensitivity {
    let mut config = Config::new(kind);
    change(&mut config);
    let load = if matches!(config.load, Load::Uniform(_)) { "uniform" } else { "nonuniform" };
    throughput_with(options, &config, value, &format!("{}, {load}", kind.name()))
}

const CHOICES: &[Choice] = &[
    Choice {
        key: "instructions of a packet",
        value: "413 to send, 413 to receive",
        reason: "86 % of 1 MIPS at 300 Mb/s over four processors are 413 instructions a packet",
        others: &[
            ("200", Kind::OneBus, |config| set_instructions(config, 200)),
            ("1000", Kind::OneBus, |config| set_instructions(config, 1000)),
        ],
    },
    Choice {
        key: "data words of a packet",
        value: "360, beside two passes over the payload",
        reason: "fitted on the throughput of the last row of Table 2: 36 kbit in 212 us are 2650 accesses of 80 ns, 2250 of them two passes over \
                 1125 words (checksum and transfer); no data word is in the cache",
        others: &[
            ("100, 80 ns", Kind::OneBus, |config| set_data_words(config, 100)),
            ("720, 80 ns", Kind::OneBus, |config| set_data_words(config, 720)),
        ],
    },
    Choice {
        key: "instructions of the application",
        value: "200 a packet",
        reason: "fitted on the delay of the 2-bus machine under uniform load (Table 3)",
        others: &[
            ("100", Kind::TwoBus, |config| config.choices.costs.generate.instructions = 100),
            ("500", Kind::TwoBus, |config| config.choices.costs.generate.instructions = 500),
        ],
    },
    Choice {
        key: "words of a read or write",
        value: "282, a quarter of a packet",
        reason: "fitted on the 7.1 us of the first row of Table 2; near the kilobyte buffers of the systems of the time",
        others: &[
            ("64", Kind::OneBus, |config| config.choices.burst_words = 64),
            ("1125, a packet", Kind::OneBus, |config| config.choices.burst_words = 1125),
        ],
    },
    Choice {
        key: "word",
        value: "32 bits",
        reason: "the processors of the time",
        others: &[
            ("16 bits", Kind::OneBus, |config| config.choices.word_bits = 16),
            ("64 bits", Kind::OneBus, |config| config.choices.word_bits = 64),
        ],
    },
    Choice {
        key: "buses of the 2-bus machine",
        value: "split transactions",
        reason: "the paper names them for the 1-bus machine only; a bus that is held while local memory works at 80 ns loses a tenth and more",
        others: &[
            ("held", Kind::TwoBus, |config| config.transactions = Transactions::Held),
            ("held, and 64 bits a word", Kind::TwoBus, |config| {
                (config.transactions, config.choices.word_bits) = (Transactions::Held, 64);
            }),
        ],
    },
    Choice {
        key: "bus cycles of a single word, serial machine",
        value: "4: request, grant, address, data",
        reason: "fitted on the throughput of the serial machine, whose memory accesses the paper calls not pipelined",
        others: &[
            ("2", Kind::Serial, |config| config.choices.single_cycles = 2),
            ("split and pipelined", Kind::Serial, |config| config.transactions = Transactions::Split),
        ],
    },
    Choice {
        key: "acknowledgements",
        value: "come back at once and take no time of the rings",
        reason: "with two packets in a window, 323 Mb/s leave 892 us for a round trip: a frame of 360 us, its way and its work fill them, and \
                 another wait for a token does not fit",
        others: &[
            ("wait for tokens, 60 bytes", Kind::OneBus, |config| config.choices.acks_on_rings = true),
            ("the same, 2-bus", Kind::TwoBus, |config| config.choices.acks_on_rings = true),
        ],
    },
    Choice {
        key: "frames of the others",
        value: "180 bytes, exponential times between them",
        reason: "fitted on the throughput of the first row of Table 2, as far as Table 3 allows; one aggregate source behaves like a flow",
        others: &[
            ("64 bytes", Kind::OneBus, |config| config.choices.background_frame_bytes = 64),
            ("500 bytes", Kind::OneBus, |config| config.choices.background_frame_bytes = 500),
            ("4500 bytes", Kind::OneBus, |config| config.choices.background_frame_bytes = 4500),
            ("180 bytes, regular", Kind::OneBus, |config| config.choices.background_arrivals = Arrivals::Regular),
        ],
    },
    Choice {
        key: "frames that an interface holds",
        value: "1; the 600 Mb/s interface 8",
        reason: "5 rings must not carry 300 Mb/s (the paper's least is 6), so a packet costs a rotation of the token",
        others: &[
            ("2, 1-bus", Kind::OneBus, |config| config.choices.interface_frames = 2),
            ("2, 2-bus", Kind::TwoBus, |config| config.choices.interface_frames = 2),
            ("1, serial", Kind::Serial, |config| config.choices.interface_frames = 1),
        ],
    },
    Choice {
        key: "TTRT",
        value: "8 ms",
        reason: "the value that is usually recommended",
        others: &[
            ("1 ms", Kind::TwoBus, |config| config.choices.ttrt = Duration::from_millis(1)),
            ("4 ms", Kind::TwoBus, |config| config.choices.ttrt = Duration::from_millis(4)),
            ("165 ms", Kind::TwoBus, |config| config.choices.ttrt = Duration::from_millis(165)),
        ],
    },
    Choice {
        key: "stations",
        value: "sender 0, receiver 10, the others 15 of 20",
        reason: "opposite each other",
        others: &[
            ("receiver 1", Kind::OneBus, |config| config.choices.receiver_station = 1),
            ("receiver 19", Kind::OneBus, |config| config.choices.receiver_station = 19),
        ],
    },
    Choice {
        key: "segments ahead",
        value: "2, serial 1",
        reason: "in flight are 65 kbit more than the windows, about two segments; the serial machine has no application scheduler",
        others: &[
            ("1", Kind::OneBus, |config| config.choices.segments_ahead = 1),
            ("4", Kind::OneBus, |config| config.choices.segments_ahead = 4),
        ],
    },
    Choice {
        key: "adaptive rule",
        value: "least of packets before it times a packet's time plus the last rotation",
        reason: "both of the paper's inputs, in one unit",
        others: &[
            ("least product of rotation and packets", Kind::TwoBus, |config| {
                *config = config.clone().nonuniform();
                config.schedule = Schedule::AdaptiveProduct;
            }),
            ("shortest queue", Kind::TwoBus, |config| {
                *config = config.clone().nonuniform();
                config.schedule = Schedule::FirstFree;
            }),
        ],
    },
    Choice {
        key: "steps of the nonuniform load",
        value: "30, 40, 50, 40, 30, 20, 30 %, the other half its mirror image",
        reason: "six variations of 10 % within 10 and 50 that end where they begin; the paper does not name them",
        others: &[
            ("30, 40, 50, 40, 50, 40, 30, RR", Kind::TwoBus, |config| {
                config.load = Load::Steps(vec![0.3, 0.4, 0.5, 0.4, 0.5, 0.4, 0.3]);
            }),
            ("30, 40, 30, 20, 30, 40, 30, RR", Kind::TwoBus, |config| {
                config.load = Load::Steps(vec![0.3, 0.4, 0.3, 0.2, 0.3, 0.4, 0.3]);
            }),
        ],
    },
    Choice {
        key: "device of the central scheduler",
        value: "1 us a packet",
        reason: "custom hardware; 004-central shows where it becomes the limit",
        others: &[
            ("20 us", Kind::OneBus, |config| config.choices.mux_service = Duration::from_micros(20)),
            ("100 us", Kind::OneBus, |config| config.choices.mux_service = Duration::from_micros(100)),
        ],
    },
    Choice {
        key: "words of handing up",
        value: "50 a packet",
        reason: "fitted on the delay of the serial machine: the receiver does slightly more than the sender, so its queue fills the window",
        others: &[
            ("0", Kind::Serial, |config| config.choices.costs.deliver.data_words = 0),
            ("200", Kind::Serial, |config| config.choices.costs.deliver.data_words = 200),
        ],
    },
];

fn set_instructions(config: &mut Config, instructions: u64) {
    let costs = &mut config.choices.costs;
    (costs.send.instructions, costs.receive.instructions) = (instructions, instructions);
}

/// Shown where the memory is the limit.
fn set_data_words(config: &mut Config, words: u64) {
    config.memory_ns = 80;
    let costs = &mut config.choices.costs;
    (costs.send.data_words, costs.receive.data_words) = (words, words);
}
