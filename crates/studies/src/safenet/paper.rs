//! The numbers of the SAFENET evaluation.

use serde::Deserialize;

/// All numbers.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Paper {
    pub(super) burst_bytes: u64,
    pub(super) rate_bytes_per_second: u64,
    pub(super) messages: usize,
    pub(super) frames: usize,
    pub(super) frame_bytes: u64,
    pub(super) mac: Line,
    pub(super) transport: Line,
    pub(super) user: Line,
    pub(super) multicast: Group,
}

/// Latency y = a x + b, and the asymptote of the throughput.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Line {
    pub(super) a_us_per_byte: f64,
    pub(super) b_us: f64,
    pub(super) asymptote_mbps: f64,
}

/// The same for a group.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Group {
    pub(super) a_us_per_byte: f64,
    pub(super) b_us: f64,
    pub(super) asymptote_mbps: f64,
    /// Number of receivers in the throughput measurement.
    pub(super) receivers: usize,
}

impl Group {
    pub(super) const fn line(&self) -> Line {
        let Self { a_us_per_byte, b_us, asymptote_mbps, .. } = *self;
        Line { a_us_per_byte, b_us, asymptote_mbps }
    }
}

impl Paper {
    pub(super) fn load() -> Self {
        toml::from_str(include_str!("../../data/003-levels.toml")).expect("the shipped data are well-formed")
    }
}
