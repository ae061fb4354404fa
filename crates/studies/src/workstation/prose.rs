//! Numbers in the report's text that belong to no table: `data/004-prose.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

/// All numbers.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prose {
    pub(crate) larger_segments: LargerSegments,
    pub(crate) two_calls: TwoCalls,
    pub(crate) display: Display,
    pub(crate) misprint: Misprint,
}

/// Additional delay of segments of several packets relative to those of one, as a fraction.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LargerSegments {
    pub(crate) more_delay_min: f64,
    pub(crate) more_delay_max: f64,
}

/// Two calls of `send()` on two processors.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TwoCalls {
    pub(crate) sum_us: f64,
    pub(crate) speedup: f64,
}

/// Data rate of a display.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Display {
    pub(crate) width_pixels: f64,
    pub(crate) height_pixels: f64,
    pub(crate) bits_per_pixel: f64,
    pub(crate) frames_per_second: f64,
    pub(crate) rate_mbps: f64,
}

/// Possible readings of a damaged number.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Misprint {
    /// Possible readings, the most likely one first.
    pub(crate) readings_mbps: [f64; 2],
}

impl LargerSegments {
    /// Tolerance at the ends of the printed range, as a fraction of the delay.
    const MARGIN: f64 = 0.02;

    /// Returns whether `more` is within the printed range.
    pub(crate) fn contains(self, more: f64) -> bool {
        (self.more_delay_min - Self::MARGIN..=self.more_delay_max + Self::MARGIN).contains(&more)
    }
}

/// Returns the numbers of the text.
pub(crate) fn prose() -> Prose {
    static PROSE: LazyLock<Prose> = LazyLock::new(|| {
        toml::from_str(include_str!("../../data/004-prose.toml")).expect("the shipped file is well-formed")
    });
    *PROSE
}
