//! Validation errors of link settings.

use core::fmt;
use std::error::Error;

use crate::jitter::PARETO_SHAPE_HUNDREDTHS_MAX;

/// An invalid [`LinkConfig`](crate::LinkConfig). The message names the field and the permitted
/// values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The rate is zero, so the first packet would never leave. To take a link down, set its loss
    /// to one or its state.
    ZeroRate,
    /// Both a rate and a trace are set.
    RateAndTrace,
    /// A jitter distribution has no width, or its shape is out of range.
    Jitter,
    /// The burst-loss chain would never change its state, or lose nothing.
    BurstLoss,
    /// Packets are to be reordered by a delay of zero, which has no effect.
    ZeroReorderDelay,
    /// The queue is limited in time, but there is no rate to convert the limit to bytes.
    QueueDelayWithoutRate,
    /// CoDel's target is zero or exceeds its interval.
    CoDel,
    /// The settings are invalid after a change of the schedule.
    Scheduled {
        /// Index of the change, from zero.
        index: usize,
        /// The error after it.
        error: Box<Self>,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroRate => {
                "the rate of a link must exceed zero: to take the link down, set its loss to 1 or its state"
            }
            Self::RateAndTrace => "rate and trace: only one of them may be set",
            Self::Jitter => {
                return write!(
                    f,
                    "jitter: max, deviation, scale and cap must exceed zero, and the shape must be from 1 to \
                     {PARETO_SHAPE_HUNDREDTHS_MAX} hundredths"
                );
            }
            Self::BurstLoss => "burst_loss: good_to_bad, bad_to_good and loss_bad must exceed zero",
            Self::ZeroReorderDelay => {
                "reorder_by must exceed zero if reorder does: it is the additional delay of reordered packets"
            }
            Self::QueueDelayWithoutRate => {
                "queue_delay needs a rate or a trace: without one, limit the queue with queue_bytes"
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
