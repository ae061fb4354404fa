//! The highest delivery rate of the current and the previous probing cycle (sections 5.5.3 to
//! 5.5.6).

use units::Rate;

/// A maximum over two probing cycles.
#[derive(Debug, Clone, Default)]
pub(super) struct MaxBandwidth {
    previous: Rate,
    current: Rate,
}

impl MaxBandwidth {
    /// Processes one sample. An application-limited sample counts only if it is higher than the
    /// maximum (section 5.5.4).
    pub(super) fn update(&mut self, rate: Option<Rate>, app_limited: bool) {
        if let Some(rate) = rate
            && (rate >= self.get() || !app_limited)
        {
            self.current = self.current.max(rate);
        }
    }

    /// Begins a new cycle and drops the cycle before the last. A cycle without samples is skipped:
    /// the known maximum is kept.
    pub(super) fn advance(&mut self) {
        if !self.current.is_zero() {
            self.previous = self.current;
            self.current = Rate::ZERO;
        }
    }

    /// Returns the maximum; zero before the first sample.
    pub(super) fn get(&self) -> Rate {
        self.previous.max(self.current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rates: &[(u64, bool)]) -> MaxBandwidth {
        let mut filter = MaxBandwidth::default();
        rates.iter().for_each(|&(megabits, limited)| filter.update(Some(Rate::from_mbps(megabits)), limited));
        filter
    }

    #[test]
    fn a_maximum_expires_with_the_second_cycle_after_it() {
        let mut filter = filter(&[(100, false), (80, false)]);
        filter.advance();
        filter.update(Some(Rate::from_mbps(50)), false);
        assert_eq!(filter.get(), Rate::from_mbps(100));
        filter.advance();
        assert_eq!(filter.get(), Rate::from_mbps(50));
    }

    #[test]
    fn application_limited_samples_only_raise_the_maximum() {
        let mut filter = filter(&[(100, false), (40, true)]);
        filter.advance();
        filter.update(Some(Rate::from_mbps(40)), true);
        filter.advance();
        filter.advance();
        assert_eq!(filter.get(), Rate::from_mbps(100), "cycles without a sample that counts");
        filter.update(Some(Rate::from_mbps(120)), true);
        assert_eq!(filter.get(), Rate::from_mbps(120));
    }
}
