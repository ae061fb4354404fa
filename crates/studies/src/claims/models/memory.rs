//! A memory between a line and a processor: words come in at the line's rate, and each is taken out again.

use sim::{Facility, Sim, Simulation};
use units::{Duration, Instant};

/// Between two words of a line, in nanoseconds.
const WORD_NS: u64 = 1000;

/// Words of each line.
const WORDS: u64 = 2000;

/// Accesses to a word: in and out.
const ACCESSES: u64 = 2;

/// Words that may wait at the end: those that came at the same time.
const WAITING_MAX: u64 = 8;

/// How many accesses a memory must serve in the time of a word of a line, at least, so that it keeps up with `lines` lines at once. To a
/// hundredth.
pub(in crate::claims) fn rate_needed(lines: u64) -> f64 {
    let (mut low, mut high) = (0.0, 10.0);
    while high - low > 0.005 {
        let middle = f64::midpoint(low, high);
        if keeps_up(lines, middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

fn keeps_up(lines: u64, rate: f64) -> bool {
    let mut simulation = Simulation::new(1, 0);
    let sim = simulation.sim();
    let memory = Facility::new(&sim, "memory", 1);
    let access = Duration::from_nanos((WORD_NS as f64 / rate) as u64);
    for _ in 0..lines {
        simulation.spawn(line(sim.clone(), memory.clone(), access));
    }
    simulation.run_until(Instant::from_nanos(WORDS * WORD_NS));
    memory.present() <= WAITING_MAX
}

async fn line(sim: Sim, memory: Facility, access: Duration) {
    for _ in 0..WORDS {
        for _ in 0..ACCESSES {
            let memory = memory.clone();
            sim.spawn(async move {
                memory.serve(access).await;
            });
        }
        sim.sleep(Duration::from_nanos(WORD_NS)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_must_serve_each_word_of_each_line_twice() {
        assert!((rate_needed(1) - 2.0).abs() < 0.02, "{}", rate_needed(1));
        assert!((rate_needed(3) - 6.0).abs() < 0.06, "{}", rate_needed(3));
    }
}
