//! The numbers of Nahum et al. 1996, and the costs of our own stack.

use serde::Deserialize;

/// The paper's measurements.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Throughput {
    pub(super) packet_bytes: u64,
    pub(super) processors_max: usize,
    pub(super) stack: Vec<Stack>,
}

/// A protocol stack, from the top.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Stack {
    pub(super) name: String,
    /// Throughput on one processor.
    pub(super) throughput_mbps: f64,
    /// Whether a cipher runs above TCP, before the lock for outgoing packets, and a digest below
    /// it, after the lock.
    #[serde(default)]
    pub(super) above_tcp: bool,
    #[serde(default)]
    pub(super) below_tcp: bool,
    /// Speedup with all processors, if printed.
    pub(super) speedup: Option<f64>,
    /// Interpretation of the text: minimum and maximum.
    pub(super) accepted: Option<[f64; 2]>,
}

impl Stack {
    /// Returns its layers from the top, without the network card, such as `des/tcp/md5/ip`.
    pub(super) fn layers(&self) -> String {
        let all = self.name.to_lowercase().replace(", ", "/");
        all.strip_suffix("/fddi").map_or_else(|| all.clone(), str::to_owned)
    }
}

/// The paper's numbers for one stack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrintedStack {
    /// Throughput on one processor.
    pub throughput_mbps: f64,
    /// Speedup with all processors, as interpreted from the text: minimum and maximum. `None` if no
    /// number can be read.
    pub speedup: Option<[f64; 2]>,
    /// The number of processors of its machine.
    pub processors: usize,
}

/// Returns the numbers of Nahum et al. 1996 for a stack, whose layers are written from the top
/// without the network card, such as `des/tcp/md5/ip`. Returns `None` if the paper does not have
/// it.
pub fn printed_stack(layers: &str) -> Option<PrintedStack> {
    let paper = Throughput::load();
    paper.stack.iter().find(|stack| stack.layers() == layers).map(|stack| PrintedStack {
        throughput_mbps: stack.throughput_mbps,
        speedup: stack.accepted.or(stack.speedup.map(|printed| [printed, printed])),
        processors: paper.processors_max,
    })
}

/// One side of one of our connections.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct OurSide {
    pub(super) result: String,
    pub(super) cipher: String,
    pub(super) side: String,
    pub(super) datagram_bytes: u64,
    pub(super) payload_bytes: u64,
    pub(super) serial_ns: f64,
    pub(super) parallel_ns: f64,
    pub(super) application_ns: f64,
    pub(super) speedup_2: f64,
    pub(super) speedup_2_plus_minus: f64,
}

#[derive(Deserialize)]
struct OurCosts {
    side: Vec<OurSide>,
}

impl Throughput {
    pub(super) fn load() -> Self {
        toml::from_str(include_str!("../../data/000-throughput.toml")).expect(
            "the shipped data are \
            well-formed",
        )
    }

    /// Returns the time per packet of this stack on one processor, in microseconds.
    pub(super) fn packet_us(&self, stack: &Stack) -> f64 {
        self.packet_bytes as f64 * 8.0 / stack.throughput_mbps
    }

    /// Returns the stack without security, the first one.
    pub(super) fn bare(&self) -> &Stack {
        &self.stack[0]
    }

    /// Returns the stack with only a digest.
    pub(super) fn digest(&self) -> &Stack {
        self.stack.iter().find(|stack| stack.below_tcp && !stack.above_tcp).expect("the paper has one")
    }
}

/// Returns the measured costs of our own stack, for comparison with [`Throughput`].
pub(super) fn our_sides() -> Vec<OurSide> {
    let costs: OurCosts = toml::from_str(include_str!("../../data/000-our-costs.toml")).expect(
        "the shipped data are \
            well-formed",
    );
    costs.side
}
