//! Whether key updates cause dips in the bytes received per 10 ms.
//!
//! The rate varies from bin to bin anyway, and the lowest of several bins is low by selection. So
//! like is compared with like: the lowest bin around an update with the lowest bins of windows of
//! the same width that contain no update.

use super::run::Run;
use super::statistics::{Spread, percentile};
use crate::meter::Bins;

/// The distance from an update within which bins are examined, in both directions.
const REACH_NS: u64 = 50_000_000;

/// The dips around the updates of one run.
#[derive(Clone, Copy, Debug)]
pub struct Dips {
    pub updates: usize,
    /// The median of the lows around updates, as a share of the 5th percentile of the lows
    /// elsewhere. Below 1, an update is worse than all but the worst moments without one.
    pub lows_ratio: f64,
    /// The lowest bin around any update, as a share of the 5th percentile of all bins elsewhere.
    pub lowest_ratio: f64,
}

/// From a run of the key-update test.
pub fn of(run: &Run) -> Option<Dips> {
    look(run.server.bins.as_ref()?, run.client.key_updates_ns.as_deref()?)
}

fn look(bins: &Bins, updates_ns: &[u64]) -> Option<Dips> {
    let whole: Vec<(u64, f64)> = bins.whole().map(|(index, bytes)| (bins.start_ns(index), bytes as f64)).collect();
    let (&(first_ns, _), &(last_ns, _)) = (whole.first()?, whole.last()?);
    let within = |update: &&u64| (first_ns + REACH_NS..last_ns.saturating_sub(REACH_NS)).contains(*update);
    let updates: Vec<u64> = updates_ns.iter().filter(within).copied().collect();
    let is_near = |start_ns: u64| updates.iter().any(|update| start_ns.abs_diff(*update) <= REACH_NS);
    let low = |from_ns: u64, to_ns: u64| {
        let of = whole.iter().filter(|(start_ns, _)| (from_ns..=to_ns).contains(start_ns));
        Spread::of(of.map(|(_, bytes)| *bytes)).map(|spread| spread.min)
    };
    let near: Vec<f64> = updates.iter().filter_map(|update| low(update - REACH_NS, update + REACH_NS)).collect();
    // Windows elsewhere touch neither each other nor an update.
    let mut elsewhere = Vec::new();
    let mut from_ns = first_ns;
    while from_ns + 2 * REACH_NS <= last_ns {
        let to_ns = from_ns + 2 * REACH_NS;
        if !updates.iter().any(|update| (from_ns..=to_ns + REACH_NS).contains(&(update + REACH_NS / 2))) {
            elsewhere.extend(low(from_ns, to_ns));
        }
        from_ns = to_ns + 1;
    }
    let others: Vec<f64> = whole.iter().filter(|(start, _)| !is_near(*start)).map(|(_, bytes)| *bytes).collect();
    let near = Spread::of(near)?;
    Some(Dips {
        updates: updates_ns.len(),
        // At least a byte: on a busy machine, even the lows elsewhere may be empty.
        lows_ratio: near.median / percentile(elsewhere, 0.05)?.max(1.0),
        lowest_ratio: near.min / percentile(others, 0.05)?.max(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::BIN_NS;

    /// Five seconds of a rate that ripples; `dip` is the share that arrives during 20 ms after each
    /// update.
    fn series(dip: f64) -> (Bins, Vec<u64>) {
        let updates: Vec<u64> = [1, 2, 3].map(|second| second * 1_000_000_000 + 3_000_000).to_vec();
        let mut bins = Bins::new();
        for bin in 0..500_u64 {
            let now_ns = bin * BIN_NS;
            let hit = updates.iter().any(|update| (*update..update + 20_000_000).contains(&(now_ns + BIN_NS)));
            let ripple = 1000.0 + (bin * 37 % 100) as f64;
            bins.add(now_ns, (ripple * if hit { dip } else { 1.0 }) as usize);
        }
        (bins, updates)
    }

    #[test]
    fn a_ripple_is_no_dip_and_a_halved_rate_is() {
        let (bins, updates) = series(1.0);
        let none = look(&bins, &updates).expect("three updates");
        assert_eq!(none.updates, 3);
        assert!(none.lows_ratio >= 0.99, "{none:?}");
        let (bins, updates) = series(0.5);
        let some = look(&bins, &updates).expect("three updates");
        assert!(some.lows_ratio < 0.6 && some.lowest_ratio < 0.6, "{some:?}");
    }
}
