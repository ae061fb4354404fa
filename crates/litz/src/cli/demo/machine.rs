//! How busy this machine's processors are, with the demo and with everything else.

/// Processor time since the machine was started, in ticks, over all processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticks {
    idle: u64,
    all: u64,
}

impl Ticks {
    /// As of now; none where the system does not tell.
    pub(super) fn read() -> Option<Self> {
        std::fs::read_to_string("/proc/stat").ok().as_deref().and_then(Self::parse)
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // User, nice, system, idle, waiting for disks, interrupts, soft interrupts, stolen; what follows is in the first two.
        let fields: Vec<u64> = line.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
        let &[_, _, _, idle, waiting, ..] = fields.as_slice() else { return None };
        Some(Self {
            idle: idle.saturating_add(waiting),
            all: fields.iter().fold(0, |sum, &ticks| sum.saturating_add(ticks)),
        })
    }

    /// The share of the time since `earlier` in which the processors had something to do; none for no time.
    pub(super) fn busy_percent_since(self, earlier: Self) -> Option<u64> {
        let all = self.all.checked_sub(earlier.all).filter(|&all| all > 0)?;
        let idle = self.idle.saturating_sub(earlier.idle).min(all);
        Some((all - idle) * 100 / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_disk_is_not_busy_and_guests_count_once() {
        let before = Ticks::parse("cpu  100 0 50 800 50 0 0 0 99 0\ncpu0 1 2 3 4\n").unwrap();
        let after = Ticks::parse("cpu  160 0 70 810 60 0 0 0 999 0\n").unwrap();
        assert_eq!(before, Ticks { idle: 850, all: 1000 });
        assert_eq!(after.busy_percent_since(before), Some(80));
        assert_eq!(before.busy_percent_since(before), None);
        assert_eq!((Ticks::parse("intr 5"), Ticks::parse("cpu  1 2 x 4")), (None, None));
    }
}
