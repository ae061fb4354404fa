//! The load of this machine's processors: by all programs, and by the demo.

use rustix::param::clock_ticks_per_second;
use units::Duration;

/// Processor time since boot, in ticks, over all processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticks {
    idle: u64,
    all: u64,
}

impl Ticks {
    /// The current values; none if the system does not provide them.
    pub(super) fn read() -> Option<Self> {
        std::fs::read_to_string("/proc/stat").ok().as_deref().and_then(Self::parse)
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user, nice, system, idle, iowait, irq, softirq, steal. The guest times that follow are
        // included in user and nice.
        let fields: Vec<u64> = line.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
        let &[_, _, _, idle, waiting, ..] = fields.as_slice() else { return None };
        Some(Self {
            idle: idle.saturating_add(waiting),
            all: fields.iter().fold(0, |sum, &ticks| sum.saturating_add(ticks)),
        })
    }

    /// The share of the time since `earlier` in which the processors were busy; none if no time has
    /// passed.
    pub(super) fn busy_percent_since(self, earlier: Self) -> Option<u64> {
        let all = self.all.checked_sub(earlier.all).filter(|&all| all > 0)?;
        let idle = self.idle.saturating_sub(earlier.idle).min(all);
        Some((all - idle) * 100 / all)
    }
}

/// Processor time of this process so far, and of those of its children that have ended; zero if the
/// system does not provide it.
pub(super) fn processor_time() -> Duration {
    let ticks = std::fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(parse_own_ticks).unwrap_or(0);
    Duration::from_micros(ticks.saturating_mul(1_000_000) / clock_ticks_per_second().max(1))
}

fn parse_own_ticks(stat: &str) -> Option<u64> {
    // The name of the program, in parentheses, may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    // utime, stime, cutime and cstime are fields 14 to 17, and 3 is the first one here.
    let ticks = fields.split_whitespace().skip(14 - 3).take(4).map_while(|field| field.parse::<u64>().ok());
    let ticks: Vec<u64> = ticks.collect();
    (ticks.len() == 4).then(|| ticks.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_ended_children_counts() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 100 200 0 0 11 22 33 44 20 0 1 0 5 6 7";
        assert_eq!((parse_own_ticks(stat), parse_own_ticks("7 (x) S 1")), (Some(110), None));
    }

    #[test]
    fn iowait_is_idle_time_and_guest_time_counts_once() {
        let before = Ticks::parse("cpu  100 0 50 800 50 0 0 0 99 0\ncpu0 1 2 3 4\n").unwrap();
        let after = Ticks::parse("cpu  160 0 70 810 60 0 0 0 999 0\n").unwrap();
        assert_eq!(before, Ticks { idle: 850, all: 1000 });
        assert_eq!(after.busy_percent_since(before), Some(80));
        assert_eq!(before.busy_percent_since(before), None);
        assert_eq!((Ticks::parse("intr 5"), Ticks::parse("cpu  1 2 x 4")), (None, None));
    }
}
