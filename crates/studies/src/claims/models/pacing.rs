//! Circuits that share an output of a switch with a small buffer: cells in bursts, or evenly spaced at the same rate.
//!
//! Both send the same packets at the same random times, and differ in one thing: how close to each other cells may leave.

use measure::Estimate;
use sim::{Stream, Tally};

use crate::replicate::replicate;
use crate::study::{Effort, Options};

/// Circuits, each with a tenth of nine tenths of the output's rate.
const CIRCUITS: usize = 10;

/// Cells of a burst, such as a packet of 9180 bytes makes (48 bytes a cell).
const BURST_CELLS: u64 = 192;

/// From the beginning of a burst to that of the next one, in cell times on average: a load of 0.9 from all circuits.
const PERIOD: u64 = BURST_CELLS * CIRCUITS as u64 * 10 / 9;

/// Cells that wait at the output, at most.
const QUEUE_CELLS: u64 = 256;

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::claims) struct Shared {
    /// Cells that found the queue full, as a share of all.
    pub(in crate::claims) lost: Estimate,
    /// How much the rate of a circuit varies from period to period: standard deviation by mean.
    pub(in crate::claims) variation: Estimate,
}

/// Runs the circuits, paced or not.
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
    // When the output will have sent all that waits, in cell times.
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

/// When the cells of a circuit arrive, in cell times.
fn cells(paced: bool, seed: u64, run: u64, circuit: usize, periods: u64) -> Vec<(u64, usize)> {
    let mut stream = Stream::new(seed, run, &format!("circuit {circuit}"));
    // A line sends a cell in a cell time; a pacer leaves a period's cells just room in a period.
    let spacing = if paced { PERIOD / BURST_CELLS } else { 1 };
    let mut cells = Vec::new();
    let mut free_at = 0;
    for period in 0..periods {
        // A host sends when it has something: anywhere in its period. What it still has to send goes first.
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
    fn paced_or_not_a_circuit_has_the_same_cells_at_another_distance() {
        let of = |paced| cells(paced, 1, 0, 3, 100);
        let least = |cells: &[(u64, usize)]| cells.windows(2).map(|two| two[1].0 - two[0].0).min();
        let (bursts, paced) = (of(false), of(true));
        assert_eq!((bursts.len(), bursts[0]), (paced.len(), paced[0]));
        assert_eq!((least(&bursts), least(&paced)), (Some(1), Some(PERIOD / BURST_CELLS)));
        assert!(bursts.iter().zip(&paced).all(|(burst, paced)| burst.0 <= paced.0), "a pacer only holds back");
    }

    #[test]
    fn cells_that_are_evenly_spaced_need_no_queue_to_speak_of() {
        let options =
            Options { seed: 1, replications: 2, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };
        assert_eq!(run(true, &options).lost.mean, 0.0);
        assert!(run(false, &options).lost.mean > 0.001);
    }
}
