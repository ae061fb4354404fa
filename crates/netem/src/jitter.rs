//! Jitter: a part of the delay that differs from packet to packet.

use units::{Duration, Rng};

use crate::real;

/// How the delay varies from packet to packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter {
    /// What is drawn for each packet.
    pub spread: Spread,
    /// Whether a packet may overtake an earlier one that drew more. If not, it arrives together with that one: order is
    /// kept, neighbours share delays, and the mean delay exceeds that of the distribution where packets are closer than
    /// the jitter is wide.
    pub reorders: bool,
}

/// A distribution of delays beside [`LinkConfig::delay`](crate::LinkConfig::delay).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Adds from zero to `max`, each value alike.
    Uniform {
        /// The most that is added. Above zero.
        max: Duration,
    },
    /// Adds or takes off, by a normal distribution around `delay`. What would bring the whole delay below zero is drawn
    /// again, so the distribution is truncated there, without a heap at zero.
    Normal {
        /// The standard deviation before truncation. Above zero.
        deviation: Duration,
    },
    /// Adds from zero to `cap` with a heavy tail: more than `x` with probability `(1 + x / scale) ^ -shape` (the Pareto
    /// distribution shifted to begin at zero, also called Lomax). What exceeds `cap` becomes `cap`.
    Pareto {
        /// Where the tail begins: half of all draws are below `scale * (2 ^ (1 / shape) - 1)`. Above zero.
        scale: Duration,
        /// The shape in hundredths: 150 is 1.5. The smaller, the heavier the tail; up to 100 only the cap keeps the mean
        /// finite. From 1 to 10,000.
        shape_hundredths: u32,
        /// The most that is added. Above zero.
        cap: Duration,
    },
}

/// The largest [`Spread::Pareto`] shape, in hundredths: beyond it there is no tail to speak of.
pub const PARETO_SHAPE_HUNDREDTHS_MAX: u32 = 10_000;

impl Jitter {
    /// A delay around `delay`.
    pub(crate) fn draw(&self, delay: Duration, rng: &mut Rng) -> Duration {
        match self.spread {
            Spread::Uniform { max } => delay + Duration::from_nanos(rng.between(0, max.as_nanos())),
            Spread::Normal { deviation } => truncated_normal(delay, deviation, rng),
            Spread::Pareto { scale, shape_hundredths, cap } => {
                let shape = f64::from(shape_hundredths) / 100.0;
                let growth = real::exp(-real::ln(real::unit_draw(rng)) / shape) - 1.0;
                delay + from_nanos_f64(scale.as_nanos() as f64 * growth).min(cap)
            }
        }
    }

    /// No draw around `delay` is shorter.
    pub(crate) const fn shortest(&self, delay: Duration) -> Duration {
        match self.spread {
            Spread::Uniform { .. } | Spread::Pareto { .. } => delay,
            Spread::Normal { .. } => Duration::ZERO,
        }
    }

    pub(crate) const fn is_valid(&self) -> bool {
        match self.spread {
            Spread::Uniform { max } => !max.is_zero(),
            Spread::Normal { deviation } => !deviation.is_zero(),
            Spread::Pareto { scale, shape_hundredths, cap } => {
                let in_range = shape_hundredths >= 1 && shape_hundredths <= PARETO_SHAPE_HUNDREDTHS_MAX;
                in_range && !scale.is_zero() && !cap.is_zero()
            }
        }
    }
}

/// Ends soon: `delay` is never negative, so at least half of all draws are taken.
fn truncated_normal(delay: Duration, deviation: Duration, rng: &mut Rng) -> Duration {
    loop {
        let total = delay.as_nanos() as f64 + deviation.as_nanos() as f64 * real::normal_draw(rng);
        if total >= 0.0 {
            return from_nanos_f64(total);
        }
    }
}

/// Rounded down; saturates. Exact up to 104 days, which 53 bits hold.
const fn from_nanos_f64(nanos: f64) -> Duration {
    Duration::from_nanos(nanos as u64)
}

#[cfg(test)]
mod tests;
