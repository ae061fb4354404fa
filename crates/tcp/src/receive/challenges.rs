//! A limit on acknowledgements that answer unacceptable segments (RFC 5961, section 7).

use units::{Duration, Instant};

/// Limit on answers in a period: RFC 5961, section 7, says 10 in 5 seconds.
const ANSWERS_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(5);

/// Remaining answers.
#[derive(Debug, Default)]
pub(crate) struct Challenges {
    left: u32,
    /// End of the period of this limit. The first segment after it begins a new period.
    until: Instant,
}

impl Challenges {
    /// Takes one answer; returns whether there was one left.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        if self.until <= now {
            (self.left, self.until) = (ANSWERS_MAX, now + PERIOD);
        }
        let has_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        has_left
    }
}
