//! The outage in the middle of a transfer: when it begins and how long it lasts.

use units::{Duration, Instant};

/// The link is cut when this share of the file has been received.
const CUT_AT_PERCENT: u64 = 40;

/// The next change of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkChange {
    Cut,
    Restore,
}

/// One outage of one link.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    /// Index of the link.
    pub(super) link: usize,
    span: Duration,
    from: Option<Instant>,
    to: Option<Instant>,
    /// Share of the file that had been received when the outage began.
    pub(super) percent: u64,
}

impl Cut {
    /// An outage of `link`, for `span`.
    pub(super) const fn new(link: usize, span: Duration) -> Self {
        Self { link, span, from: None, to: None, percent: 0 }
    }

    /// The change that is due at `now`, when `percent` of the file has been received. There is no
    /// outage after the whole file has been received.
    pub(super) fn poll(&mut self, now: Instant, percent: u64) -> Option<LinkChange> {
        match (self.from, self.to) {
            (None, _) if (CUT_AT_PERCENT..100).contains(&percent) => {
                (self.from, self.percent) = (Some(now), percent);
                Some(LinkChange::Cut)
            }
            (Some(from), None) if now >= from + self.span => {
                self.to = Some(now);
                Some(LinkChange::Restore)
            }
            _ => None,
        }
    }

    /// When the next change is due regardless of the progress.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.from.filter(|_| self.to.is_none()).map(|from| from + self.span)
    }

    /// When the outage began, if it did.
    pub(super) const fn began(&self) -> Option<Instant> {
        self.from
    }

    /// Whether the outage is over.
    pub(super) const fn is_restored(&self) -> bool {
        self.to.is_some()
    }

    /// How long the link was cut between `start` and `end`.
    pub(super) fn down_between(&self, start: Instant, end: Instant) -> Duration {
        let Some(from) = self.from else { return Duration::ZERO };
        self.to.unwrap_or(end).min(end).saturating_since(from.max(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_millis(1000);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn an_outage_begins_once_and_ends_after_its_span() {
        let mut cut = Cut::new(0, SPAN);
        assert_eq!((cut.poll(at(0), 39), cut.poll_timeout()), (None, None));
        assert_eq!(cut.poll(at(100), 43), Some(LinkChange::Cut));
        assert_eq!((cut.percent, cut.began(), cut.poll_timeout()), (43, Some(at(100)), Some(at(1100))));
        assert_eq!(cut.poll(at(1099), 60), None);
        assert_eq!(cut.poll(at(1105), 100), Some(LinkChange::Restore));
        assert!(cut.is_restored());
        assert_eq!((cut.poll(at(9000), 70), cut.poll_timeout()), (None, None));
    }

    #[test]
    fn down_time_is_limited_to_the_transfer() {
        let mut cut = Cut::new(0, SPAN);
        assert_eq!(cut.down_between(at(0), at(500)), Duration::ZERO, "before it began");
        cut.poll(at(200), 50);
        assert_eq!(cut.down_between(at(0), at(500)), Duration::from_millis(300), "the transfer ended meanwhile");
        cut.poll(at(1200), 60);
        assert_eq!(cut.down_between(at(0), at(5000)), SPAN);
        assert_eq!(cut.down_between(at(0), at(700)), Duration::from_millis(500));
        assert_eq!(cut.down_between(at(2000), at(3000)), Duration::ZERO);
    }

    #[test]
    fn a_complete_file_prevents_the_outage() {
        let mut cut = Cut::new(0, SPAN);
        assert_eq!(cut.poll(at(100), 100), None);
        assert_eq!(cut.began(), None);
    }
}
