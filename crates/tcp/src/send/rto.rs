//! The retransmission timeout without backoff, by either formula.

use recovery::RttEstimator;
use units::Duration;

use crate::config::RtoFormula;

/// Timeout before the first round-trip measurement (RFC 1122, section 4.2.3.1), for the older
/// formula.
const UNMEASURED: Duration = Duration::from_secs(3);

/// The formula and its measurements.
#[derive(Debug)]
pub(super) struct Rto {
    formula: RtoFormula,
    /// SRTT of RFC 793; the other formula has an [`RttEstimator`].
    smoothed: Option<Duration>,
}

impl Rto {
    pub(super) const fn new(formula: RtoFormula) -> Self {
        Self { formula, smoothed: None }
    }

    /// Records a round-trip measurement.
    pub(super) fn on_sample(&mut self, sample: Duration) {
        if let RtoFormula::Rfc793 { alpha_percent, .. } = self.formula {
            let alpha = u64::from(alpha_percent.min(100));
            let smoothed = |old: Duration| old.mul_ratio(alpha, 100) + sample.mul_ratio(100 - alpha, 100);
            self.smoothed = Some(self.smoothed.map_or(sample, smoothed));
        }
    }

    /// Returns the timeout, without a lower limit.
    pub(super) fn timeout(&self, rtt: &RttEstimator) -> Duration {
        match self.formula {
            RtoFormula::Rfc6298 => rtt.pto_base(),
            RtoFormula::Rfc793 { beta_percent, .. } => {
                self.smoothed.map_or(UNMEASURED, |smoothed| smoothed.mul_ratio(beta_percent.into(), 100))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_793_weighs_with_alpha_and_multiplies_with_beta() {
        let (ms, rtt) = (Duration::from_millis, RttEstimator::default());
        let mut rto = Rto::new(RtoFormula::Rfc793 { alpha_percent: 80, beta_percent: 150 });
        assert_eq!(rto.timeout(&rtt), UNMEASURED);
        rto.on_sample(ms(1000));
        assert_eq!(rto.timeout(&rtt), ms(1500));
        rto.on_sample(ms(2000));
        assert_eq!(rto.timeout(&rtt), ms(1800), "0.8 * 1000 + 0.2 * 2000 = 1200");
    }
}
