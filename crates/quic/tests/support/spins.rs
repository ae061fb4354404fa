//! Notices a timer that fires again and again, so that a test fails instead of running forever.

use units::Instant;

/// Steps without progress of time after which a connection spins.
const SPIN_MAX: u32 = 10_000;

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

#[test]
#[should_panic(expected = "a timer fires again and again")]
fn a_timer_that_never_moves_on_is_noticed() {
    let (mut spins, now) = (Spins::default(), Instant::from_nanos(5));
    (0..=SPIN_MAX).for_each(|_| spins.check(now, now));
}

#[test]
fn a_timer_that_moves_on_may_fire_as_often_as_it_likes() {
    let mut spins = Spins::default();
    for at in 0..u64::from(SPIN_MAX) * 2 {
        spins.check(Instant::from_nanos(at / 2), Instant::from_nanos(at.div_ceil(2)));
    }
}
