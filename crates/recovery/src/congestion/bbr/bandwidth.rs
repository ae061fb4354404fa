//! The highest delivery rate of this probing cycle and the last one (sections 5.5.3 to 5.5.6).

use units::Rate;

/// A maximum over two slots of time. A slot is a probing cycle.
#[derive(Debug, Clone, Default)]
pub(super) struct MaxBandwidth {
    previous: Rate,
    current: Rate,
}

impl MaxBandwidth {
    /// Takes one sample. One that the application held down counts only if it is higher all the same (section 5.5.4).
    pub(super) fn update(&mut self, rate: Option<Rate>, app_limited: bool) {
        if let Some(rate) = rate
            && (rate >= self.get() || !app_limited)
        {
            self.current = self.current.max(rate);
        }
    }

    /// Begins a new slot and forgets the slot before the last. A slot without any sample does not count: what was known
    /// stays known.
    pub(super) fn advance(&mut self) {
        if !self.current.is_zero() {
            self.previous = self.current;
            self.current = Rate::ZERO;
        }
    }

    /// The maximum; zero before the first sample.
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
    fn a_maximum_is_forgotten_with_the_second_cycle_after_it() {
        let mut filter = filter(&[(100, false), (80, false)]);
        filter.advance();
        filter.update(Some(Rate::from_mbps(50)), false);
        assert_eq!(filter.get(), Rate::from_mbps(100));
        filter.advance();
        assert_eq!(filter.get(), Rate::from_mbps(50));
    }

    #[test]
    fn samples_held_down_by_the_application_only_raise_it() {
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
