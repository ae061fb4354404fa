//! What it takes to wake a thread: two of them wake each other in turn, on the processors that one end has.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

use net::MonotonicClock;

use super::cores::stay;
use super::fit::median;

/// There and back, in a group that is timed as one, and groups: some ten milliseconds.
const ROUNDS: u32 = 50;
const GROUPS: usize = 30;

/// Nanoseconds from the call that wakes a thread until that thread runs; the median of the groups. Where both threads have one processor,
/// it is the call and the change of threads, and otherwise the call and the way to the other processor.
///
/// # Errors
/// If the threads may not run on these processors.
pub(super) fn measure(cores: &[usize]) -> Result<f64, String> {
    let (turn, over) = (&AtomicBool::new(false), &AtomicBool::new(false));
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            stay(cores)?;
            #[expect(clippy::disallowed_methods, reason = "to be woken, it must be known to the other")]
            let first = thread::current();
            let second = scope.spawn(move || answer(&first, turn, over));
            let times_ns = ask(second.thread(), turn);
            over.store(true, Ordering::Release);
            second.thread().unpark();
            second.join().map_err(|_| PANICKED)?;
            Ok(median(&times_ns))
        });
        first.join().unwrap_or_else(|_| Err(PANICKED.to_owned()))
    })
}

const PANICKED: &str = "a thread that was to be woken panicked";

/// Wakes `other` and sleeps until it has been so kind as to do the same: nanoseconds of one way, group by group.
fn ask(other: &Thread, turn: &AtomicBool) -> Vec<f64> {
    let clock = MonotonicClock::start();
    let group = |_| {
        let from = clock.now();
        for _ in 0..ROUNDS {
            turn.store(true, Ordering::Release);
            other.unpark();
            while turn.load(Ordering::Acquire) {
                thread::park();
            }
        }
        clock.now().saturating_since(from).as_nanos() as f64 / f64::from(2 * ROUNDS)
    };
    (0..GROUPS).map(group).collect()
}

fn answer(other: &Thread, turn: &AtomicBool, over: &AtomicBool) {
    while !over.load(Ordering::Acquire) {
        if turn.load(Ordering::Acquire) {
            turn.store(false, Ordering::Release);
            other.unpark();
        } else {
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waking_takes_some_time_and_not_for_ever() {
        let ns = measure(&[]).expect("nothing is asked of the system");
        assert!((50.0..1e8).contains(&ns), "{ns} ns");
        let core = net::processors::allowed()[0];
        assert!(measure(&[core]).expect("it may run where it runs") > 50.0);
        assert!(measure(&[1 << 20]).is_err(), "there is no such processor");
    }
}
