//! Circuits that share an output of a switch with a small buffer: cells in bursts, or evenly spaced
//! at the same mean rate.
//!
//! Both variants send the same packets at the same random times and differ only in the spacing of
//! cells.

use measure::Estimate;
use sim::{Stream, Tally};

use crate::replicate::replicate;
use crate::study::{Effort, Options};

/// Number of circuits. Each has a tenth of nine tenths of the output rate.
const CIRCUITS: usize = 10;

/// Cells of a burst, such as those of a packet of 9180 bytes (48 bytes per cell).
const BURST_CELLS: u64 = 192;

/// Mean time from the start of a burst to the start of the next one, in cell times: a load of 0.9
/// from all circuits.
const PERIOD: u64 = BURST_CELLS * CIRCUITS as u64 * 10 / 9;

/// Queue limit of the output, in cells.
const QUEUE_CELLS: u64 = 256;

/// Results.
#[derive(Clone, Copy, Debug)]
pub(in crate::claims) struct Shared {
    /// Share of the cells that found the queue full.
    pub(in crate::claims) lost: Estimate,
    /// Variation of a circuit's rate from period to period: standard deviation divided by mean.
    pub(in crate::claims) variation: Estimate,
}

/// Simulates the circuits, paced or not.
pub(in crate::claims) fn run(paced: bool, options: &Options) -> Shared {
    let periods = match options.effort {
        Effort::Quick => 200,
        Effort::Full => 500,
    };
    let runs = replicate(options, |seed, run| once(paced, seed, run, periods), |run| vec![run.0]);
    let over =
        |figure: fn(&(f64, f64)) -> f64| Estimate::of(&runs.iter().map(figure).collect::<Vec<_>>(), options.confidence);
    Shared { lost: over(|run| run.0), variation: over(|run| run.1) }
}

fn once(paced: bool, seed: u64, run: u64, periods: u64) -> (f64, f64) {
    let mut arrivals: Vec<_> = (0..CIRCUITS).flat_map(|circuit| cells(paced, seed, run, circuit, periods)).collect();
    arrivals.sort_unstable();
    // Time at which the output will have sent all queued cells, in cell times.
    let mut free_at = 0;
    let mut lost = 0;
    let mut carried = vec![0_u64; periods as usize];
    for (at, circuit) in &arrivals {
        if free_at >= at + QUEUE_CELLS {
            lost += 1;
            continue;
        }
        free_at = free_at.max(*at) + 1;
        if *circuit == 0
            && let Some(count) = carried.get_mut((free_at / PERIOD) as usize)
        {
            *count += 1;
        }
    }
    let mut rates = Tally::default();
    carried.iter().for_each(|count| rates.add(*count as f64));
    (f64::from(lost) / arrivals.len() as f64, rates.variance().sqrt() / rates.mean())
}

/// Returns the arrival times of the cells of a circuit, in cell times.
fn cells(paced: bool, seed: u64, run: u64, circuit: usize, periods: u64) -> Vec<(u64, usize)> {
    let mut stream = Stream::new(seed, run, &format!("circuit {circuit}"));
    // A line sends one cell per cell time; a pacer spaces the cells of a burst over the whole
    // period.
    let spacing = if paced { PERIOD / BURST_CELLS } else { 1 };
    let mut cells = Vec::new();
    let mut free_at = 0;
    for period in 0..periods {
        // A host starts a burst at a random time of its period, after any earlier burst is
        // complete.
        free_at = free_at.max(period * PERIOD + stream.below(PERIOD));
        cells.extend((0..BURST_CELLS).map(|cell| (free_at + cell * spacing, circuit)));
        free_at += BURST_CELLS * spacing;
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pacing_changes_only_the_spacing_of_cells() {
        let of = |paced| cells(paced, 1, 0, 3, 100);
        let least = |cells: &[(u64, usize)]| cells.windows(2).map(|two| two[1].0 - two[0].0).min();
        let (bursts, paced) = (of(false), of(true));
        assert_eq!((bursts.len(), bursts[0]), (paced.len(), paced[0]));
        assert_eq!((least(&bursts), least(&paced)), (Some(1), Some(PERIOD / BURST_CELLS)));
        assert!(bursts.iter().zip(&paced).all(|(burst, paced)| burst.0 <= paced.0), "a pacer only delays cells");
    }

    #[test]
    fn evenly_spaced_cells_need_almost_no_queue() {
        let options =
            Options { seed: 1, replications: 2, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };
        assert_eq!(run(true, &options).lost.mean, 0.0);
        assert!(run(false, &options).lost.mean > 0.001);
    }
}
