//! The report's numbers for this machine, read from `data/`.

use serde::Deserialize;

use super::setup::{Application, Network};

/// A table of throughputs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Throughputs {
    /// Offered load as a share of the available capacity.
    pub(super) offered_percent_of_capacity: f64,
    row: Vec<ThroughputRow>,
}

/// Throughput of a pair of schedulers, in Mb/s.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ThroughputRow {
    application: Application,
    network: Network,
    no_background: f64,
    uniform_30: f64,
    one_channel_overloaded: f64,
    two_channels_overloaded: f64,
    #[serde(default)]
    #[expect(dead_code, reason = "documentation in the file")]
    note: String,
}

/// Background load of the rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Case {
    #[serde(rename = "no_background")]
    Quiet,
    #[serde(rename = "uniform_30")]
    Uniform,
    #[serde(rename = "one_channel_overloaded")]
    OneOverloaded,
    #[serde(rename = "two_channels_overloaded")]
    TwoOverloaded,
}

/// The inputs of Tables 7 and 8.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Inputs {
    pub(super) table_7: Table7,
    pub(super) table_8: Table8,
}

/// Network length.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table7 {
    #[serde(rename = "subject")]
    _subject: String,
    pub(super) offered_percent_of_capacity: f64,
    pub(super) window_bytes: u64,
    pub(super) network_km: Vec<u64>,
    pub(super) cases: Vec<Case>,
}

/// Window.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table8 {
    #[serde(rename = "subject")]
    _subject: String,
    pub(super) offered_percent_of_capacity: f64,
    pub(super) network_km: u64,
    pub(super) window_bytes: Vec<u64>,
    pub(super) cases: Vec<Case>,
}

/// The parameters of the machine that are given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Machine {
    pub(super) gateways: usize,
    pub(super) array_wraps: bool,
    pub(super) window_bytes: u64,
    pub(super) network_km: u64,
    pub(super) background_percent: f64,
    pub(super) ring: RingFacts,
    capacity: Capacity,
    pub(super) delta: Delta,
}

/// The rings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RingFacts {
    pub(super) nodes: usize,
    pub(super) speed_mbps: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Capacity {
    ring_mbps: f64,
    background_percent: f64,
}

/// The real machine of that name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Delta {
    pub(super) link_mbytes_per_s: u64,
    pub(super) hop_ns: u64,
}

impl Case {
    /// All cases, in the order of the tables' columns.
    pub(super) const ALL: [Self; 4] = [Self::Quiet, Self::Uniform, Self::OneOverloaded, Self::TwoOverloaded];

    /// Returns the case as a heading.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Quiet => "no background",
            Self::Uniform => "uniform 30 %",
            Self::OneOverloaded => "one channel overloaded",
            Self::TwoOverloaded => "two channels overloaded",
        }
    }
}

impl Throughputs {
    /// Returns Table 5: low load.
    pub(super) fn table_5() -> Self {
        parse(include_str!("../../data/004-table-5.toml"))
    }

    /// Returns Table 6: high load.
    pub(super) fn table_6() -> Self {
        parse(include_str!("../../data/004-table-6.toml"))
    }

    /// Returns the table's value for these schedulers in this case, in Mb/s.
    pub(super) fn mbps(&self, application: Application, network: Network, case: Case) -> f64 {
        let row = self.row.iter().find(|row| row.application == application && row.network == network);
        let row = row.expect("the table has a row for each pair of schedulers");
        match case {
            Case::Quiet => row.no_background,
            Case::Uniform => row.uniform_30,
            Case::OneOverloaded => row.one_channel_overloaded,
            Case::TwoOverloaded => row.two_channels_overloaded,
        }
    }
}

impl Inputs {
    pub(super) fn load() -> Self {
        parse(include_str!("../../data/004-tables-7-8-inputs.toml"))
    }
}

impl Machine {
    pub(super) fn load() -> Self {
        parse(include_str!("../../data/004-touchstone.toml"))
    }

    /// Returns the "available capacity": the capacity of the rings minus their background, in Mb/s.
    pub(super) fn capacity_mbps(&self) -> f64 {
        self.gateways as f64 * self.capacity.ring_mbps * (1.0 - self.capacity.background_percent / 100.0)
    }
}

fn parse<T: for<'de> Deserialize<'de>>(text: &str) -> T {
    toml::from_str(text).expect("a test parses the files of data/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_contain_the_reports_numbers() {
        let (five, six, inputs, machine) =
            (Throughputs::table_5(), Throughputs::table_6(), Inputs::load(), Machine::load());
        assert_eq!((five.offered_percent_of_capacity, six.offered_percent_of_capacity), (37.0, 87.0));
        assert_eq!(five.mbps(Application::Fixed, Network::Fixed, Case::TwoOverloaded), 73.15);
        assert_eq!(six.mbps(Application::Adaptive, Network::Adaptive, Case::OneOverloaded), 224.03);
        assert_eq!(inputs.table_7.network_km, [5, 20, 100]);
        assert_eq!(inputs.table_8.cases, Case::ALL);
        assert!((machine.capacity_mbps() - 420.0).abs() < 1e-9);
    }
}
