//! Jitter: the part of the delay that differs from packet to packet.

use units::{Duration, Rng};

use crate::real;

/// Variation of the delay between packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter {
    /// The distribution from which a delay is drawn for each packet.
    pub distribution: Distribution,
    /// Whether a packet may overtake an earlier one with a larger delay. If not, it arrives
    /// together with that one: order is kept, consecutive packets share delays, and the mean delay
    /// exceeds that of the distribution where packets are closer together than the width of the
    /// jitter.
    pub reorders: bool,
}

/// A distribution of delays, relative to [`LinkConfig::delay`](crate::LinkConfig::delay).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Adds a uniformly distributed delay from zero to `max`.
    Uniform {
        /// The largest addition. Above zero.
        max: Duration,
    },
    /// Adds or subtracts a normally distributed delay around `delay`. A draw that would make the
    /// total negative is repeated, so the distribution is truncated at zero without an accumulation
    /// there.
    Normal {
        /// The standard deviation before truncation. Above zero.
        deviation: Duration,
    },
    /// Adds a heavy-tailed delay from zero to `cap`: more than `x` with probability `(1 + x /
    /// scale) ^ -shape` (the Pareto distribution shifted to begin at zero, also called Lomax).
    /// Values above `cap` become `cap`.
    Pareto {
        /// The scale: half of all draws are below `scale * (2 ^ (1 / shape) - 1)`. Above zero.
        scale: Duration,
        /// The shape in hundredths: 150 is 1.5. A smaller shape gives a heavier tail; up to 100
        /// only the cap keeps the mean finite. From 1 to 10,000.
        shape_hundredths: u32,
        /// The largest addition. Above zero.
        cap: Duration,
    },
}

/// The largest shape of [`Distribution::Pareto`], in hundredths: above it the tail is negligible.
pub const PARETO_SHAPE_HUNDREDTHS_MAX: u32 = 10_000;

impl Jitter {
    /// Draws a delay around `delay`.
    pub(crate) fn draw(&self, delay: Duration, rng: &mut Rng) -> Duration {
        match self.distribution {
            Distribution::Uniform { max } => delay + Duration::from_nanos(rng.between(0, max.as_nanos())),
            Distribution::Normal { deviation } => truncated_normal(delay, deviation, rng),
            Distribution::Pareto { scale, shape_hundredths, cap } => {
                let shape = f64::from(shape_hundredths) / 100.0;
                let growth = real::exp(-real::ln(real::unit_draw(rng)) / shape) - 1.0;
                delay + from_nanos_f64(scale.as_nanos() as f64 * growth).min(cap)
            }
        }
    }

    /// Returns a lower bound of all draws around `delay`.
    pub(crate) const fn shortest(&self, delay: Duration) -> Duration {
        match self.distribution {
            Distribution::Uniform { .. } | Distribution::Pareto { .. } => delay,
            Distribution::Normal { .. } => Duration::ZERO,
        }
    }

    pub(crate) const fn is_valid(&self) -> bool {
        match self.distribution {
            Distribution::Uniform { max } => !max.is_zero(),
            Distribution::Normal { deviation } => !deviation.is_zero(),
            Distribution::Pareto { scale, shape_hundredths, cap } => {
                let in_range = shape_hundredths >= 1 && shape_hundredths <= PARETO_SHAPE_HUNDREDTHS_MAX;
                in_range && !scale.is_zero() && !cap.is_zero()
            }
        }
    }
}

/// Draws until the sum is not negative. Terminates quickly: `delay` is never negative, so at least
/// half of all draws are accepted.
fn truncated_normal(delay: Duration, deviation: Duration, rng: &mut Rng) -> Duration {
    loop {
        let total = delay.as_nanos() as f64 + deviation.as_nanos() as f64 * real::normal_draw(rng);
        if total >= 0.0 {
            return from_nanos_f64(total);
        }
    }
}

/// Converts to a duration, rounded down; saturates. The result is exact up to 104 days, which 53
/// bits hold.
const fn from_nanos_f64(nanos: f64) -> Duration {
    Duration::from_nanos(nanos as u64)
}

#[cfg(test)]
mod tests;
