//! The earliest of several deadlines. A driver asks for it after every call, so it must be cheap.

use units::Instant;

/// The earliest deadline noted so far, if any.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Earliest(Option<Instant>);

impl Earliest {
    /// Notes another.
    #[inline]
    pub(crate) fn note(&mut self, at: Option<Instant>) {
        if let Some(at) = at
            && self.0.is_none_or(|earliest| at < earliest)
        {
            self.0 = Some(at);
        }
    }

    /// The earliest of them.
    #[inline]
    pub(crate) fn get(self) -> Option<Instant> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_time_is_kept_in_any_order() {
        let of = |deadlines: &[Option<u64>]| {
            let mut earliest = Earliest::default();
            deadlines.iter().for_each(|at| earliest.note(at.map(Instant::from_nanos)));
            earliest.get().map(Instant::as_nanos)
        };
        assert_eq!((of(&[]), of(&[None, None])), (None, None));
        assert_eq!(of(&[None, Some(7), None, Some(5), Some(6)]), Some(5));
        assert_eq!(of(&[Some(5), Some(0), None]), Some(0));
    }
}
