//! Loss in bursts: the chain of Gilbert (1960) and Elliott (1963), stepped once a packet.
//!
//! ```text
//!            good_to_bad
//!          ┌────────────▶
//!     good                bad        lost with probability loss_good in good, loss_bad in bad
//!          ◀────────────┘
//!            bad_to_good
//! ```

use units::{Ratio, Rng};

/// Loss that comes in bursts: each packet moves a two-state chain by one step, and the state says how likely it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstLoss {
    /// Probability a packet of leaving the good state. Above zero.
    pub good_to_bad: Ratio,
    /// Probability a packet of leaving the bad state. Above zero.
    pub bad_to_good: Ratio,
    /// Share of packets lost in the good state; zero is Gilbert's model.
    pub loss_good: Ratio,
    /// Share of packets lost in the bad state. Above zero.
    pub loss_bad: Ratio,
}

impl BurstLoss {
    /// The share of packets that meet the bad state in the long run. For people, plots and checks.
    pub fn share_bad(&self) -> f64 {
        let (enter, leave) = (self.good_to_bad.as_f64(), self.bad_to_good.as_f64());
        enter / (enter + leave)
    }

    /// The share of packets lost in the long run. For people, plots and checks.
    pub fn mean_loss(&self) -> f64 {
        let bad = self.share_bad();
        (1.0 - bad) * self.loss_good.as_f64() + bad * self.loss_bad.as_f64()
    }

    /// How many packets in a row are lost on average, where any are. Infinite if none ever passes. For people, plots and
    /// checks.
    ///
    /// A run begins where a packet passes and the next is lost, so runs are as frequent as that pair, and their mean
    /// length is the share of lost packets over the share of such pairs.
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

/// The chain as it stands. Generators of their own for the steps and for each state's loss, so that a change of one
/// setting shifts no draw of another.
#[derive(Clone, Debug)]
pub(crate) struct Bursts {
    is_bad: bool,
    steps: Rng,
    loss_good: Rng,
    loss_bad: Rng,
}

impl Bursts {
    /// In the good state.
    pub(crate) fn new(rng: &Rng) -> Self {
        Self {
            is_bad: false,
            steps: rng.split("burst steps"),
            loss_good: rng.split("burst loss, good"),
            loss_bad: rng.split("burst loss, bad"),
        }
    }

    /// Back to the good state; the draws go on where they were.
    pub(crate) const fn recover(&mut self) {
        self.is_bad = false;
    }

    /// One packet: whether it is lost.
    pub(crate) const fn step(&mut self, settings: &BurstLoss) -> bool {
        let leaves = self.steps.chance(if self.is_bad { settings.bad_to_good } else { settings.good_to_bad });
        self.is_bad ^= leaves;
        if self.is_bad { self.loss_bad.chance(settings.loss_bad) } else { self.loss_good.chance(settings.loss_good) }
    }
}

#[cfg(test)]
mod tests;
