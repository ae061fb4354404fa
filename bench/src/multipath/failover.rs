//! A link that fails silently and recovers.

use std::time::Duration;

use serde::Serialize;

use super::case::{CUT_AT_S, FAILOVER_TIME_S, RESTORE_AT_S};
use super::side::until_ns;
use super::world::World;
use crate::contender::Failure;
use crate::meter::monotonic_ns;

/// The link that is cut: the best one.
pub const LINK: usize = 0;
/// The interval at which the links' counters are read.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);
/// A link carries its share again from the first interval of this length on in which it does.
const INTERVAL_NS: u64 = 250_000_000;
/// The share of its former rate from which on a link counts as recovered.
const SHARE: f64 = 0.8;
/// Seconds before the cut over which the former rate is measured.
const BEFORE_S: f64 = 2.0;

/// The faults of the link, and what the links carried meanwhile.
#[derive(Clone, Debug, Serialize)]
pub struct Faults {
    pub cut_ns: u64,
    pub restored_ns: u64,
    pub samples: Vec<Sample>,
}

/// Bytes that each link has carried by then.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    pub at_ns: u64,
    pub bytes: Vec<u64>,
}

/// Cuts the link and restores it at their times, counted from `begun_ns`; returns shortly before
/// sending ends.
pub fn inflict(world: &World, begun_ns: u64) -> Result<Faults, Failure> {
    let mut faults = Faults { cut_ns: 0, restored_ns: 0, samples: Vec::new() };
    let at = |seconds| until_ns(begun_ns, seconds);
    loop {
        let now_ns = monotonic_ns();
        if now_ns >= at(FAILOVER_TIME_S) {
            return Ok(faults);
        }
        if faults.cut_ns == 0 && now_ns >= at(CUT_AT_S) {
            world.cut(LINK)?;
            faults.cut_ns = monotonic_ns();
        }
        if faults.restored_ns == 0 && now_ns >= at(RESTORE_AT_S) {
            world.restore(LINK)?;
            faults.restored_ns = monotonic_ns();
        }
        let bytes = world.carried()?.iter().map(|carried| carried.bytes).collect();
        faults.samples.push(Sample { at_ns: monotonic_ns(), bytes });
        std::thread::sleep(SAMPLE_EVERY);
    }
}

impl Faults {
    /// The time from the link's recovery until it carries its share; `None` if it never does.
    pub fn until_share_ns(&self) -> Option<u64> {
        let before_ns = self.cut_ns.saturating_sub((BEFORE_S * 1e9) as u64);
        let usual = self.carried(before_ns, self.cut_ns)? / (self.cut_ns - before_ns) as f64;
        let later = self.samples.iter().filter(|sample| sample.at_ns >= self.restored_ns);
        let starts = later.map(|sample| sample.at_ns);
        let mut good = starts.filter(|&start| {
            let carried = self.carried(start, start + INTERVAL_NS);
            carried.is_some_and(|bytes| bytes / INTERVAL_NS as f64 >= SHARE * usual)
        });
        good.next().map(|start| start - self.restored_ns)
    }

    /// Bytes that the link carried between two times, interpolated linearly between samples; `None`
    /// beyond the last one.
    fn carried(&self, from_ns: u64, until_ns: u64) -> Option<f64> {
        Some(self.total(until_ns)? - self.total(from_ns)?)
    }

    fn total(&self, at_ns: u64) -> Option<f64> {
        let next = self.samples.partition_point(|sample| sample.at_ns < at_ns);
        let (before, after) = (self.samples.get(next.checked_sub(1)?)?, self.samples.get(next)?);
        let share = (at_ns - before.at_ns) as f64 / (after.at_ns - before.at_ns) as f64;
        let (low, high) = (*before.bytes.get(LINK)? as f64, *after.bytes.get(LINK)? as f64);
        Some(low + share * (high - low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link that carries 100 bytes each 20 ms, nothing from 4 s to 8.5 s, and a share of it from
    /// then on.
    fn faults(share: f64) -> Faults {
        let mut bytes = 0.0;
        let samples = (1..600_u64)
            .map(|index| {
                let at_ns = index * 20_000_000;
                let factor = if at_ns <= 4_000_000_000 {
                    1.0
                } else if at_ns <= 8_500_000_000 {
                    0.0
                } else {
                    share
                };
                bytes += 100.0 * factor;
                Sample { at_ns, bytes: vec![bytes as u64] }
            })
            .collect();
        Faults { cut_ns: 4_000_000_000, restored_ns: 8_000_000_000, samples }
    }

    #[test]
    fn a_link_carries_its_share_from_the_first_good_stretch_on() {
        let until_ns = faults(1.0).until_share_ns().expect("it does");
        // Four fifths of an interval that begins 50 ms early are good already.
        assert!((440_000_000..=500_000_000).contains(&until_ns), "{until_ns}");
        assert_eq!(faults(0.7).until_share_ns(), None);
    }
}
