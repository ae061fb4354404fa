//! What the paper does not say, why we chose as we did, and what other choices would change.
//!
//! One list for all studies of these machines: each has its own headline figures, on which the choices are tried that they depend on.

use measure::Estimate;
use sim::hardware::fddi::Arrivals;
use sim::hardware::{Schedule, Transactions};
use units::Duration;

use super::config::{Again, Config, Load, Timer};
use super::paper::Kind;
use super::runs::{Point, point};
use crate::Choice;

/// A figure of a study that shows how much hangs on a choice.
#[derive(Clone)]
pub(super) struct Headline {
    /// With its unit.
    pub(super) name: &'static str,
    pub(super) config: Config,
    pub(super) figure: fn(&Point) -> Estimate,
}

impl Headline {
    /// The throughput of `config`.
    pub(super) const fn throughput(name: &'static str, config: Config) -> Self {
        Self { name, config, figure: |point| point.throughput }
    }

    /// The delay of its segments.
    pub(super) const fn delay(name: &'static str, config: Config) -> Self {
        Self { name, config, figure: |point| point.delay }
    }
}

/// Another value, to which machines it means anything, and the change that makes it.
struct Other {
    value: &'static str,
    applies: fn(&Config) -> bool,
    change: fn(&mut Config),
}

/// A choice, before it is tried otherwise.
struct Given {
    key: &'static str,
    value: &'static str,
    reason: &'static str,
    others: &'static [Other],
}

/// All that `headlines` rest on, each tried on those that it means anything to.
pub(super) fn choices(headlines: &[Headline]) -> Vec<Choice> {
    GIVEN.iter().filter_map(|given| choice(given, headlines)).collect()
}

fn choice(given: &Given, headlines: &[Headline]) -> Option<Choice> {
    let mut choice = Choice::new(given.key, given.value, given.reason);
    let mut means_anything = false;
    for other in given.others {
        for headline in headlines.iter().filter(|headline| (other.applies)(&headline.config)) {
            means_anything = true;
            let (mut config, figure) = (headline.config.clone(), headline.figure);
            (other.change)(&mut config);
            choice = choice.or(other.value, headline.name, move |options| figure(&point(options, &config)));
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

const fn other(value: &'static str, applies: fn(&Config) -> bool, change: fn(&mut Config)) -> Other {
    Other { value, applies, change }
}

const GIVEN: &[Given] = &[
    Given {
        key: "instructions of a packet",
        value: "413 to send, 413 to receive",
        reason: "86 % of 1 MIPS at 300 Mb/s over four processors are 413 instructions a packet",
        others: &[
            other("200", any, |config| set_instructions(config, 200)),
            other("1000", any, |config| set_instructions(config, 1000)),
        ],
    },
    Given {
        key: "data words of a packet",
        value: "360, beside two passes over the payload",
        reason: "fitted on the throughput of the last row of Table 2: 36 kbit in 212 us are 2650 accesses of 80 ns, 2250 of them two passes over 1125 words (checksum and transfer); no data word is in the cache",
        others: &[
            other("100", any, |config| set_data_words(config, 100)),
            other("720", any, |config| set_data_words(config, 720)),
        ],
    },
    Given {
        key: "instructions of the application to make data",
        value: "200 a packet",
        reason: "fitted on the delay of the 2-bus machine under uniform load (Table 3)",
        others: &[
            other("100", any, |config| config.choices.costs.generate.instructions /= 2),
            other("500", any, scale_generate),
        ],
    },
    Given {
        key: "instructions of the application to take data",
        value: "413 a packet, once it is acknowledged",
        reason: "as many as the protocol's; the receiving application has a processor of its own and nobody waits for it",
        others: &[
            other("0", any, |config| config.choices.costs.consume.instructions = 0),
            other("1000", any, |config| config.choices.costs.consume.instructions = 1000),
        ],
    },
    Given {
        key: "words of handing up",
        value: "50 a packet",
        reason: "fitted on the delay of the serial machine: the receiver does slightly more than the sender, so its queue fills the window",
        others: &[
            other("0", any, |config| config.choices.costs.deliver.data_words = 0),
            other("200", any, |config| config.choices.costs.deliver.data_words = 200),
        ],
    },
    Given {
        key: "context switch and interrupt",
        value: "no instructions of their own",
        reason: "they are in the 413; each operation counts as another process",
        others: &[
            other("50 each", any, |config| set_switch(config, 50)),
            other("200 each", any, |config| set_switch(config, 200)),
        ],
    },
    Given {
        key: "set-up of a DMA transfer",
        value: "no time",
        reason: "an interface has its descriptors ready; the paper names none",
        others: &[
            other("2 us", any, |config| config.choices.dma_setup = Duration::from_micros(2)),
            other("20 us", any, |config| config.choices.dma_setup = Duration::from_micros(20)),
        ],
    },
    Given {
        key: "words of a read or write",
        value: "282, a quarter of a packet",
        reason: "fitted on the 7.1 us of the first row of Table 2; near the kilobyte buffers of the systems of the time",
        others: &[
            other("64", any, |config| config.choices.burst_words = 64),
            other("1125, a packet", any, |config| config.choices.burst_words = 1125),
        ],
    },
    Given {
        key: "word",
        value: "32 bits",
        reason: "the processors of the time",
        others: &[
            other("16 bits", any, |config| config.choices.word_bits = 16),
            other("64 bits", any, |config| config.choices.word_bits = 64),
        ],
    },
    Given {
        key: "buses of the 2-bus machine",
        value: "split transactions",
        reason: "the paper names them for the 1-bus machine only; a bus that is held while local memory works at 80 ns loses a tenth and more",
        others: &[
            other("held", two_bus, |config| config.transactions = Transactions::Held),
            other("held, and 64 bits a word", two_bus, |config| {
                (config.transactions, config.choices.word_bits) = (Transactions::Held, 64);
            }),
        ],
    },
    Given {
        key: "bus cycles of a single word, serial machine",
        value: "4: request, grant, address, data",
        reason: "fitted on the throughput of the serial machine, whose memory accesses the paper calls not pipelined",
        others: &[
            other("2", serial, |config| config.choices.single_cycles = 2),
            other("split and pipelined", serial, |config| config.transactions = Transactions::Split),
        ],
    },
    Given {
        key: "acknowledgements",
        value: "come back at once and take no time of the rings",
        reason: "with two packets in a window, 323 Mb/s leave 892 us for a round trip: a frame of 360 us, its way and its work fill them, and another wait for a token does not fit",
        others: &[
            other("wait for tokens, 60 bytes", any, |config| config.choices.acks_on_rings = true),
            other("wait for tokens, 500 bytes", any, |config| {
                (config.choices.acks_on_rings, config.choices.ack_bytes) = (true, 500);
            }),
        ],
    },
    Given {
        key: "frames of the others",
        value: "180 bytes, exponential times between them",
        reason: "fitted on the throughput of the first row of Table 2, as far as Table 3 allows; one aggregate source behaves like a flow",
        others: &[
            other("64 bytes", any, |config| config.choices.background_frame_bytes = 64),
            other("500 bytes", any, |config| config.choices.background_frame_bytes = 500),
            other("4500 bytes", any, |config| config.choices.background_frame_bytes = 4500),
            other("180 bytes, regular", any, |config| config.choices.background_arrivals = Arrivals::Regular),
        ],
    },
    Given {
        key: "frames that an interface holds",
        value: "1; the 600 Mb/s interface 8",
        reason: "fitted on the least number of rings: 5 must not carry 300 Mb/s (the paper's least is 6), so a packet costs a rotation of the token",
        others: &[
            other("2", any, |config| config.choices.interface_frames = 2),
            other("4", parallel, |config| config.choices.interface_frames = 4),
            other("1", serial, |config| config.choices.interface_frames = 1),
        ],
    },
    Given {
        key: "TTRT",
        value: "8 ms",
        reason: "the value that is usually recommended",
        others: &[
            other("0.6 ms", any, |config| config.choices.ttrt = Duration::from_micros(600)),
            other("1 ms", any, |config| config.choices.ttrt = Duration::from_millis(1)),
            other("165 ms", any, |config| config.choices.ttrt = Duration::from_millis(165)),
        ],
    },
    Given {
        key: "stations",
        value: "sender 0, receiver 10, the others 15 of 20",
        reason: "opposite each other",
        others: &[
            other("receiver 1", any, |config| config.choices.receiver_station = 1),
            other("receiver 19", any, |config| config.choices.receiver_station = 19),
            other("the others 5", any, |config| config.choices.background_station = 5),
        ],
    },
    Given {
        key: "segments ahead",
        value: "2, serial 1",
        reason: "fitted on the delays of Table 2: 323 Mb/s times 1092 us are 353 kbit in flight, 65 more than the windows, about two segments; the serial machine has no application scheduler",
        others: &[
            other("1", parallel, |config| config.choices.segments_ahead = 1),
            other("2", serial, |config| config.choices.segments_ahead = 2),
            other("4", any, |config| config.choices.segments_ahead = 4),
        ],
    },
    Given {
        key: "adaptive rule",
        value: "least of packets before it times a packet's time plus the last rotation",
        reason: "both of the paper's inputs, in one unit",
        others: &[
            other("least product of rotation and packets", is_adaptive, |config| {
                config.schedule = Schedule::AdaptiveProduct
            }),
            other("shortest queue", is_adaptive, |config| config.schedule = Schedule::FirstFree),
            other("shortest queue, of equals the one with the shortest last rotation", is_adaptive, |config| {
                config.schedule = Schedule::QueueThenRotation;
            }),
        ],
    },
    Given {
        key: "retransmission timer",
        value: "too long to fire: only errors have packets sent again",
        reason: "the paper says so of the runs for round trips, and nothing of others; with the timer as printed the two rows of Table 3 that miss come out on other rings, and more of the rest does not (last tables of 004-table-3)",
        others: &[
            other("RFC 793's as printed, 2 ms at least, go-back-N", is_nonuniform, |config| {
                config.choices.timer = Some(Timer::of_paper());
            }),
            other("the same, a late packet alone", is_nonuniform, |config| {
                config.choices.timer = Some(Timer { again: Again::Late, ..Timer::of_paper() });
            }),
        ],
    },
    Given {
        key: "steps of the nonuniform load",
        value: "30, 40, 50, 40, 30, 20, 30 %, the other half its mirror image",
        reason: "six variations of 10 % within 10 and 50 that end where they begin; the paper does not name them",
        others: &[
            other("30, 40, 50, 40, 50, 40, 30", is_nonuniform, |config| {
                config.load = Load::Steps(vec![0.3, 0.4, 0.5, 0.4, 0.5, 0.4, 0.3])
            }),
            other("30, 40, 30, 20, 30, 40, 30", is_nonuniform, |config| {
                config.load = Load::Steps(vec![0.3, 0.4, 0.3, 0.2, 0.3, 0.4, 0.3])
            }),
        ],
    },
    Given {
        key: "device of the central scheduler",
        value: "1 us a packet, on its way out and on its way in",
        reason: "custom hardware; 004-central shows where it becomes the limit",
        others: &[
            other("20 us", has_device, |config| config.choices.mux_service = Duration::from_micros(20)),
            other("100 us", has_device, |config| config.choices.mux_service = Duration::from_micros(100)),
        ],
    },
    Given {
        key: "message between processors",
        value: "100 instructions and 32 words on either side",
        reason: "an entry in a shared queue and an interrupt; the paper gives none",
        others: &[
            other("25 instructions", has_centre, |config| config.choices.costs.message.instructions = 25),
            other("400 instructions", has_centre, |config| config.choices.costs.message.instructions = 400),
        ],
    },
    Given {
        key: "small messages",
        value: "500 bytes, on average every 500 us, exponential",
        reason: "Table 4's small packet; 8 Mb/s, a fraction of the load",
        others: &[
            other("64 bytes", has_small, |config| set_small(config, |small| small.bits = 64 * 8)),
            other("4500 bytes", has_small, |config| set_small(config, |small| small.bits = 4500 * 8)),
            other("every 250 us", has_small, |config| {
                set_small(config, |small| small.interval = Duration::from_micros(250))
            }),
            other("every 2 ms", has_small, |config| {
                set_small(config, |small| small.interval = Duration::from_millis(2))
            }),
        ],
    },
    Given {
        key: "length of a run",
        value: "400 ms, after 40 ms that do not count, of the serial machine 200 ms",
        reason: "not given; 004-table-3 holds the warm-ups against MSER-5",
        others: &[
            other("a quarter", any, |config| config.measured = config.measured.mul_ratio(1, 4)),
            other("twice as long, warm-up too", any, |config| {
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

/// In proportion: where processors are slower, the application's instructions are fewer already.
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
