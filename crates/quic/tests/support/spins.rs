//! Notices a timer that fires again and again, so that a test fails instead of running forever.

use units::Instant;

/// Steps without progress of time after which a connection spins.
pub const SPIN_MAX: u32 = 10_000;

/// Steps since time went on.
#[derive(Default)]
pub struct Spins(u32);

impl Spins {
    /// The next step is at `next`. True if time has stood still for too many steps.
    pub fn are_too_many(&mut self, now: Instant, next: Instant) -> bool {
        self.0 = if next > now { 0 } else { self.0 + 1 };
        self.0 >= SPIN_MAX
    }

    /// The same for a test that asks for no report of its own.
    ///
    /// # Panics
    /// If time has stood still for too many steps.
    #[track_caller]
    pub fn check(&mut self, now: Instant, next: Instant) {
        assert!(!self.are_too_many(now, next), "a timer fires again and again at {now:?}, and is due at {next:?}");
    }
}
