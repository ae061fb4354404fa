//! The guard of the harness itself. Not in the harness, which other test programs include, too: one of
//! them counts the memory of its whole process.

use units::Instant;

use crate::support::spins::{SPIN_MAX, Spins};

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
