//! Why settings describe no link.

use core::fmt;
use std::error::Error;

use crate::jitter::PARETO_SHAPE_HUNDREDTHS_MAX;

/// Why a [`LinkConfig`](crate::LinkConfig) describes no link. Its words name the field and say what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The rate is zero, so the first packet would stay on the line for ever. To cut a link, set its loss to one or its
    /// state.
    ZeroRate,
    /// A line has a rate or a trace, not both.
    RateAndTrace,
    /// A distribution of delays has no width.
    Jitter,
    /// The chain of burst loss would stay in one state for ever, or lose nothing.
    BurstLoss,
    /// Packets shall be reordered by no time at all, so the fault would never show.
    ReorderedByNothing,
    /// A queue is bounded in time, but no rate says how much that is.
    QueueDelayWithoutRate,
    /// CoDel's target is zero or exceeds its interval.
    CoDel,
    /// The settings that the schedule has reached describe no link.
    Scheduled {
        /// Which change of the schedule, from zero.
        index: usize,
        /// What is wrong after it.
        error: Box<Self>,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroRate => "the rate of a link must exceed zero: to cut the link, set its loss to 1 or its state",
            Self::RateAndTrace => "rate and trace: only one of them may be set, because each says how fast the line is",
            Self::Jitter => {
                return write!(
                    f,
                    "jitter: max, deviation, scale and cap must exceed zero, and the shape must be from 1 to \
                     {PARETO_SHAPE_HUNDREDTHS_MAX} hundredths"
                );
            }
            Self::BurstLoss => {
                "burst_loss: good_to_bad, bad_to_good and loss_bad must exceed zero, or there would be no bursts"
            }
            Self::ReorderedByNothing => {
                "reorder_by must exceed zero: some packets shall be reordered, so set how much later they arrive"
            }
            Self::QueueDelayWithoutRate => {
                "queue_delay needs a rate or a trace: without one, bound the queue by queue_bytes"
            }
            Self::CoDel => "discipline: the target of CoDel must exceed zero and be at most its interval",
            Self::Scheduled { index, error } => return write!(f, "change {index} of the schedule: {error}"),
        })
    }
}

impl Error for ConfigError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Scheduled { error, .. } => Some(&**error),
            _ => None,
        }
    }
}
