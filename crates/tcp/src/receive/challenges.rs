//! Limits the acknowledgements that answer unacceptable segments (RFC 5961, section 7).

use units::{Duration, Instant};

/// RFC 5961, section 7, says 10 in 5 seconds.
const ANSWERS_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(5);

/// The answers that may still be given.
#[derive(Debug, Default)]
pub(crate) struct Challenges {
    left: u32,
    /// The end of the period in which so many are left. The first segment begins a new one.
    until: Instant,
}

impl Challenges {
    /// Whether one more is given.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        if self.until <= now {
            (self.left, self.until) = (ANSWERS_MAX, now + PERIOD);
        }
        let has_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        has_left
    }
}
