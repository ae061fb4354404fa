//! The messages about refused visitors: their reasons, and a limit, since any host can cause them.

use litz::identity::PublicKey;
use transfer::Refusal;
use units::{Duration, Instant};

/// Messages about refused visitors that are printed in one [`INTERVAL`]; the others are counted. A
/// user who tries a wrong ticket a few times sees each refusal.
pub(crate) const PRINTED_MAX: u64 = 5;

/// The number of the others is printed once in this time.
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);

/// Decides which refusals are printed, and when the others are counted.
#[derive(Default)]
pub(crate) struct RefusalLimit {
    /// The current interval. None if there was no refusal since the last one.
    interval: Option<Interval>,
}

struct Interval {
    until: Instant,
    refusals: u64,
}

impl RefusalLimit {
    /// A visitor was refused. Returns whether to print the message.
    #[must_use]
    pub(crate) fn on_refusal(&mut self, now: Instant) -> bool {
        let interval = self.interval.get_or_insert(Interval { until: now + INTERVAL, refusals: 0 });
        interval.refusals = interval.refusals.saturating_add(1);
        interval.refusals <= PRINTED_MAX
    }

    /// The number of refusals in the last interval that were not printed. Once for each interval,
    /// at its end, if there were any.
    #[must_use]
    pub(crate) fn poll_count(&mut self, now: Instant) -> Option<u64> {
        if self.interval.as_ref().is_some_and(|interval| now >= interval.until) { self.take_count() } else { None }
    }

    /// Ends the interval now; as [`poll_count`](Self::poll_count).
    #[must_use]
    pub(crate) fn take_count(&mut self) -> Option<u64> {
        let refusals = self.interval.take()?.refusals;
        refusals.checked_sub(PRINTED_MAX).filter(|count| *count > 0)
    }
}

/// The message about a refused sender for the receiver's user. The sentences of [`Refusal`] tell the
/// sender what to do.
pub(crate) fn message(refusal: Refusal, key: &PublicKey) -> String {
    let reason = match refusal {
        Refusal::UnknownOrWrongProof => "it has no ticket of this receiver",
        Refusal::Expired => "its ticket has expired",
        Refusal::BoundToAnotherKey => "its ticket is bound to another sender",
        Refusal::Completed => "its ticket was used for a complete transfer",
        Refusal::KeyNotAllowed => return format!("refused, its key is not on the list; a line to admit it: {key}"),
        Refusal::Unavailable => "the state of this receiver cannot be read or written",
        Refusal::Running => {
            return "refused a second `litz send` with the ticket: a transfer with it is running".to_owned();
        }
        // `Refusal` is non-exhaustive.
        _ => "it may not send",
    };
    format!("refused {}: {reason}", key.fingerprint())
}

/// Why a ticket does not serve another sender than the one with this fingerprint.
pub(crate) fn bound_to(fingerprint: &str) -> String {
    format!(
        "the ticket is bound to {fingerprint} (the sender that used it first); `litz recv --new-ticket` gives out \
         another one, for another sender"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_refusals_are_printed_and_the_others_counted() {
        let mut limit = RefusalLimit::default();
        assert_eq!(limit.poll_count(at(0)), None);
        let printed = (0..1000).filter(|_| limit.on_refusal(at(10))).count();
        assert_eq!(printed as u64, PRINTED_MAX);
        assert_eq!(limit.poll_count(at(69)), None, "the interval begins with the first refusal");
        assert_eq!(limit.poll_count(at(70)), Some(1000 - PRINTED_MAX));
        assert_eq!(limit.poll_count(at(1000)), None, "once");
        assert!(limit.on_refusal(at(1000)), "a new interval");
    }

    #[test]
    fn a_few_refusals_need_no_count() {
        let mut limit = RefusalLimit::default();
        for _ in 0..PRINTED_MAX {
            assert!(limit.on_refusal(at(0)));
        }
        assert_eq!(limit.poll_count(at(60)), None);
        assert_eq!(limit.take_count(), None);
    }

    #[test]
    fn the_end_of_the_receiver_ends_the_interval() {
        let mut limit = RefusalLimit::default();
        assert_eq!((0..=PRINTED_MAX).filter(|_| !limit.on_refusal(at(0))).count(), 1);
        assert_eq!(limit.take_count(), Some(1));
        assert_eq!(limit.poll_count(at(60)), None);
    }
}
