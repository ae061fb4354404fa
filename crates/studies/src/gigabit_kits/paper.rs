//! The printed rates of the Gigabit Kits report 2000, and its setup.

use serde::Deserialize;

/// Rates below this are slow, in Mb/s: the report prints no rates between 2.7 and 155.
pub(crate) const SLOW_MBPS: f64 = 20.0;

/// Action of the program on each packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    /// Request and response.
    Rw,
    /// One direction.
    R,
}

impl Action {
    pub(crate) const ALL: [Self; 2] = [Self::Rw, Self::R];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rw => "rw",
            Self::R => "r",
        }
    }
}

/// The printed list that contains a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum List {
    Fastest,
    Slowest,
}

/// A printed rate.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rate {
    pub(crate) action: Action,
    pub(crate) list: List,
    pub(crate) socket_buffer_bytes: usize,
    pub(crate) packet_bytes: usize,
    pub(crate) rate_mbps: f64,
}

impl Rate {
    pub(crate) const fn is_slow(&self) -> bool {
        matches!(self.list, List::Slowest)
    }

    pub(crate) fn label(&self) -> String {
        format!("{}, buffer {}, packet {}", self.action.name(), self.socket_buffer_bytes, self.packet_bytes)
    }
}

/// The printed rates.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Printed {
    pub(crate) grid_bytes: Vec<usize>,
    pub(crate) rate: Vec<Rate>,
}

impl Printed {
    pub(crate) fn load() -> Self {
        toml::from_str(include_str!("../../data/001-rates.toml")).expect("the shipped data are well-formed")
    }

    /// Returns the rows that were measured: the slowest table of `r` is a copy of that of `rw`
    /// (claim 001-04).
    pub(crate) fn measured(&self) -> impl Iterator<Item = &Rate> {
        self.rate.iter().filter(|rate| !(rate.is_slow() && rate.action == Action::R))
    }

    /// Returns all pairs of buffer and packet.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        self.grid_bytes.iter().flat_map(|buffer| self.grid_bytes.iter().map(move |packet| (*buffer, *packet)))
    }
}

/// The setup of the experiment.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Setup {
    pub(crate) packets_per_pair: u32,
    pub(crate) link_gbps: f64,
    #[expect(dead_code, reason = "a fact about the hosts: their costs are fitted")]
    clock_mhz: u32,
    pub(crate) mtu_bytes: usize,
    pub(crate) card_mbytes_per_second: f64,
    pub(crate) ack_period_ms: u64,
}

impl Setup {
    pub(crate) fn load() -> Self {
        toml::from_str(include_str!("../../data/001-setup.toml")).expect("the shipped data are well-formed")
    }
}
