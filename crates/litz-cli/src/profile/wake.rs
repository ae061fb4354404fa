//! Measures the time to wake a thread: two threads wake each other in turn, on the processors of
//! one end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

use net::MonotonicClock;

use super::cores::stay;
use super::fit::median;

/// Round trips per group, which is measured as a whole. All groups take about ten milliseconds.
const ROUNDS: u32 = 50;
const GROUPS: usize = 30;

/// Nanoseconds from the call that wakes a thread until that thread runs: the median of the groups.
/// On a shared processor this is the call and the context switch, otherwise the call and the
/// inter-processor interrupt.
///
/// # Errors
/// If the threads may not run on these processors.
pub(super) fn measure(cores: &[usize]) -> Result<f64, String> {
    let (turn, over) = (&AtomicBool::new(false), &AtomicBool::new(false));
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            stay(cores)?;
            #[expect(clippy::disallowed_methods, reason = "the other thread needs the handle to wake this one")]
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

const PANICKED: &str = "a measured thread panicked";

/// Wakes `other` and sleeps until it is woken in turn. Returns the nanoseconds of one wakeup, by
/// group.
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
    fn waking_takes_a_plausible_time() {
        let ns = measure(&[]).expect("no pinning");
        assert!((50.0..1e8).contains(&ns), "{ns} ns");
        let core = net::processors::allowed()[0];
        assert!(measure(&[core]).expect("the current processor is allowed") > 50.0);
        assert!(measure(&[1 << 20]).is_err(), "no such processor");
    }
}
