//! Numbers in the paper's text that belong to no table: `data/004-prose.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

/// All of them.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prose {
    pub(crate) larger_segments: LargerSegments,
    pub(crate) two_calls: TwoCalls,
    pub(crate) display: Display,
    pub(crate) misprint: Misprint,
}

/// How much longer segments of several packets take than those of one, as a share.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LargerSegments {
    pub(crate) more_delay_min: f64,
    pub(crate) more_delay_max: f64,
}

/// Two calls of send() on two processors.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TwoCalls {
    pub(crate) sum_us: f64,
    pub(crate) speedup: f64,
}

/// What a display takes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Display {
    pub(crate) width_pixels: f64,
    pub(crate) height_pixels: f64,
    pub(crate) bits_per_pixel: f64,
    pub(crate) frames_per_second: f64,
    pub(crate) rate_mbps: f64,
}

/// How a damaged number may be read.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Misprint {
    /// The likelier one first.
    pub(crate) readings_mbps: [f64; 2],
}

impl LargerSegments {
    /// How far from the printed range still counts as in it, as a share of the delay.
    const MARGIN: f64 = 0.02;

    /// Whether so much more delay is what is printed.
    pub(crate) fn contains(self, more: f64) -> bool {
        (self.more_delay_min - Self::MARGIN..=self.more_delay_max + Self::MARGIN).contains(&more)
    }
}

/// The numbers of the text.
pub(crate) fn prose() -> Prose {
    static PROSE: LazyLock<Prose> =
        LazyLock::new(|| toml::from_str(include_str!("../../data/004-prose.toml")).expect("the project's own file"));
    *PROSE
}
