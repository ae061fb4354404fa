//! The report's numbers, `data/004-workstation.toml`, and our costs, `data/004-costs.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

/// The data files of the machines.
pub(super) const DATA: &[&str] = &["004-workstation.toml", "004-costs.toml"];
/// The same with the numbers in the text.
pub(super) const DATA_WITH_PROSE: &[&str] = &["004-workstation.toml", "004-costs.toml", "004-prose.toml"];

/// All numbers about the workstation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paper {
    pub(super) machines: Machines,
    pub(super) common: Common,
    pub(super) table_2: Vec<Table2>,
    pub(super) table_3: Vec<Table3>,
    pub(super) utilisation: Vec<Utilisation>,
    pub(super) table_4: Vec<Table4>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Machines {
    pub(super) two_bus: MachineFacts,
    pub(super) one_bus: MachineFacts,
    pub(super) serial: MachineFacts,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MachineFacts {
    pub(super) protocol_processors: usize,
    pub(super) interfaces: usize,
    pub(super) mips: f64,
    pub(super) abus_mbps: u64,
    pub(super) nbus_mbps: Option<u64>,
    pub(super) memory_ns: u64,
    pub(super) ring_mbps: u64,
    pub(super) segment_kbit: u64,
    pub(super) window_kbit: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Common {
    pub(super) packet_kbit: u64,
    pub(super) error_rate: f64,
    pub(super) stations: usize,
    pub(super) ring_m: u64,
    pub(super) uniform: f64,
    pub(super) steps: Vec<f64>,
    pub(super) one_bus_nonuniform_window_kbit: u64,
    pub(super) goal_mbps: f64,
    pub(super) alpha: f64,
    pub(super) beta: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table2 {
    pub(super) memory_ns: u64,
    pub(super) access_us: f64,
    pub(super) throughput_mbps: f64,
    pub(super) delay_us: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table3 {
    pub(super) uniform: bool,
    pub(super) machine: Kind,
    pub(super) adaptive: bool,
    pub(super) throughput_mbps: f64,
    pub(super) delay_us: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Utilisation {
    pub(super) mips: f64,
    pub(super) percent: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table4 {
    pub(super) packet_bytes: u64,
    pub(super) memory_ns: u64,
    pub(super) mips: f64,
    pub(super) software_checksum: bool,
    pub(super) parallel_us: f64,
    pub(super) serial_us: f64,
    pub(super) speedup: f64,
}

/// One of the three machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Two buses, local memories, a network scheduler in every protocol processor.
    TwoBus,
    /// One bus, one memory, the network scheduler in a separate device.
    OneBus,
    /// One bus, one memory, one fast protocol processor, one fast interface.
    Serial,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::TwoBus => "2-bus",
            Self::OneBus => "1-bus",
            Self::Serial => "serial",
        }
    }
}

/// Cost of an operation per packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cost {
    /// Instructions.
    pub(crate) instructions: u64,
    /// Data words, each an access that misses the cache.
    pub(crate) data_words: u64,
    /// Number of passes over the payload.
    pub(crate) passes: u64,
}

/// Costs of the protocol's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Costs {
    /// The application generates the data of a packet.
    pub(crate) generate: Cost,
    /// A protocol processor sends a packet and later receives its acknowledgement.
    pub(crate) send: Cost,
    /// A protocol processor receives a packet and generates its acknowledgement.
    pub(crate) receive: Cost,
    /// A protocol processor delivers a packet to the application after sending its acknowledgement.
    pub(crate) deliver: Cost,
    /// The application consumes the data of a packet.
    pub(crate) consume: Cost,
    /// A message between processors: the cost on either side.
    pub(crate) message: Cost,
}

/// Returns the report's numbers.
pub(super) fn paper() -> &'static Paper {
    static PAPER: LazyLock<Paper> = LazyLock::new(|| {
        toml::from_str(include_str!("../../data/004-workstation.toml")).expect("the shipped file is well-formed")
    });
    &PAPER
}

/// Returns the window of the 2-bus machine, in kbit.
pub(crate) fn two_bus_window_kbit() -> u64 {
    paper().machines.two_bus.window_kbit
}

/// Returns our cost table.
pub(super) fn costs() -> Costs {
    static COSTS: LazyLock<Costs> = LazyLock::new(|| {
        toml::from_str(include_str!("../../data/004-costs.toml")).expect("the shipped file is well-formed")
    });
    *COSTS
}
