//! Loss in bursts: the two-state Markov chain of Gilbert (1960) and Elliott (1963), advanced once
//! per packet.
//!
//! ```text
//!            good_to_bad
//!          ┌────────────▶
//!     good                bad        lost with probability loss_good in good, loss_bad in bad
//!          ◀────────────┘
//!            bad_to_good
//! ```

use units::{Ratio, Rng};

/// Loss in bursts: each packet advances a two-state chain by one step, and the state determines the
/// loss probability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstLoss {
    /// Probability per packet of leaving the good state. Above zero.
    pub good_to_bad: Ratio,
    /// Probability per packet of leaving the bad state. Above zero.
    pub bad_to_good: Ratio,
    /// Loss probability in the good state; zero gives Gilbert's model.
    pub loss_good: Ratio,
    /// Loss probability in the bad state. Above zero.
    pub loss_bad: Ratio,
}

impl BurstLoss {
    /// Returns the long-run share of packets in the bad state, for display and checks.
    pub fn share_bad(&self) -> f64 {
        let (enter, leave) = (self.good_to_bad.as_f64(), self.bad_to_good.as_f64());
        enter / (enter + leave)
    }

    /// Returns the long-run share of lost packets, for display and checks.
    pub fn mean_loss(&self) -> f64 {
        let bad = self.share_bad();
        (1.0 - bad) * self.loss_good.as_f64() + bad * self.loss_bad.as_f64()
    }

    /// Returns the mean number of consecutive lost packets in a burst, for display and checks.
    /// Infinite if every packet is lost.
    ///
    /// A burst begins where a delivered packet is followed by a lost one, so bursts are as frequent
    /// as such pairs. The mean burst length is the share of lost packets divided by the share of
    /// such pairs.
    pub fn mean_burst_packets(&self) -> f64 {
        let (enter, leave) = (self.good_to_bad.as_f64(), self.bad_to_good.as_f64());
        let (lost_good, lost_bad) = (self.loss_good.as_f64(), self.loss_bad.as_f64());
        let bad = self.share_bad();
        let begins_after_good = (1.0 - bad) * (1.0 - lost_good) * ((1.0 - enter) * lost_good + enter * lost_bad);
        let begins_after_bad = bad * (1.0 - lost_bad) * (leave * lost_good + (1.0 - leave) * lost_bad);
        self.mean_loss() / (begins_after_good + begins_after_bad)
    }

    pub(crate) const fn is_valid(&self) -> bool {
        !self.good_to_bad.is_zero() && !self.bad_to_good.is_zero() && !self.loss_bad.is_zero()
    }
}

/// The state of the chain. The transitions and the loss in each state use separate generators, so
/// that a change of one setting does not shift the draws of another.
#[derive(Clone, Debug)]
pub(crate) struct Bursts {
    is_bad: bool,
    steps: Rng,
    loss_good: Rng,
    loss_bad: Rng,
}

impl Bursts {
    /// Creates the chain in the good state.
    pub(crate) fn new(rng: &Rng) -> Self {
        Self {
            is_bad: false,
            steps: rng.split("burst steps"),
            loss_good: rng.split("burst loss, good"),
            loss_bad: rng.split("burst loss, bad"),
        }
    }

    /// Returns to the good state; the generators keep their positions.
    pub(crate) const fn recover(&mut self) {
        self.is_bad = false;
    }

    /// Processes one packet and returns whether it is lost.
    pub(crate) const fn step(&mut self, settings: &BurstLoss) -> bool {
        let leaves = self.steps.chance(if self.is_bad { settings.bad_to_good } else { settings.good_to_bad });
        self.is_bad ^= leaves;
        if self.is_bad { self.loss_bad.chance(settings.loss_bad) } else { self.loss_good.chance(settings.loss_good) }
    }
}

#[cfg(test)]
mod tests;
