//! The default links: as fast as this machine can carry with ease.
//!
//! Both processes and the emulator share the processors. Links that need all of them show how fast
//! the machine is, not that several links carry more than one. So the demo measures first: a short
//! transfer over the default links without their long delays.

use units::{Duration, Rate};

use super::failure::Failure;
use super::links::{self, DemoLink};
use super::transfer::{Outcome, Setup};

/// The links need at most one part in this many of the rate that the machine carries.
const RESERVE: u64 = 2;

/// Duration of the file of a measurement.
const MEASURED_SPAN: Duration = Duration::from_millis(800);

/// Largest number of measurements. A slower rate costs more processor time for each byte, so the
/// result of one is checked by the next.
const MEASUREMENTS_MAX: usize = 3;

/// A transfer below this share of the links' rate, in percent, was limited by the machine.
const FULL_PERCENT: u64 = 85;

/// The chosen links.
pub(super) struct ChosenLinks {
    pub(super) links: Vec<DemoLink>,
    /// The rate that this machine carries over such links.
    pub(super) carried: Rate,
}

/// Measures this machine and chooses the default links.
///
/// # Errors
/// [`Failure`] of a transfer.
pub(super) fn choose(setup: &Setup<'_>) -> Result<ChosenLinks, Failure> {
    setup.show.say("  measuring what this machine carries over emulated links");
    let chosen = choose_by(|links| {
        let nearby: Vec<_> = links.iter().map(DemoLink::nearby).collect();
        let bytes = links::sum(&nearby).bytes_in(MEASURED_SPAN);
        let (outcome, _files) = setup.transfer("measuring", &nearby, bytes, None)?;
        Ok(carried(links::sum(&nearby), &outcome, net::processors::count()))
    })?;
    let sum = links::sum(&chosen.links);
    setup.show.say(&format!("  it carries about {}; the links of this demo need {sum} of that\n", chosen.carried));
    Ok(chosen)
}

/// Chooses the links with `measure`, which returns the rate that the machine carries over links like
/// these.
fn choose_by(mut measure: impl FnMut(&[DemoLink]) -> Result<Rate, Failure>) -> Result<ChosenLinks, Failure> {
    let mut links = DemoLink::defaults(Rate::from_bps(u64::MAX));
    let mut carried = Rate::default();
    for _ in 0..MEASUREMENTS_MAX {
        carried = measure(&links)?;
        let sum_max = carried.mul_ratio(1, RESERVE);
        if sum_max >= links::sum(&links) {
            break;
        }
        links = DemoLink::defaults(sum_max);
    }
    Ok(ChosenLinks { links, carried })
}

/// The rate that a machine with this many processors carries, by a transfer over links of the rate
/// `sum`.
fn carried(sum: Rate, outcome: &Outcome, processors: usize) -> Rate {
    let goodput = outcome.goodput();
    if goodput < sum.mul_ratio(FULL_PERCENT, 100) {
        return goodput;
    }
    // The share of the processors' time that the transfer took, of that which others left.
    let all = outcome.span.as_secs_f64() * processors as f64;
    let own = outcome.processor_time.as_secs_f64() / all.max(f64::MIN_POSITIVE);
    let busy = outcome.busy_percent.map_or(own, |percent| percent as f64 / 100.0);
    let free = (1.0 - (busy - own).max(0.0)).max(own);
    let needed = (own / free).clamp(0.001, 1.0);
    Rate::from_bps((goodput.as_bps() as f64 / needed) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A transfer at `mbps` that took `own_ms` of processor time a second, on processors that were
    /// busy for `busy_percent`.
    fn outcome(mbps: u64, own_ms: u64, busy_percent: u64) -> Outcome {
        let span = Duration::from_secs(1);
        Outcome {
            bytes: Rate::from_mbps(mbps).bytes_in(span),
            span,
            processor_time: Duration::from_millis(own_ms),
            busy_percent: Some(busy_percent),
            ..Outcome::default()
        }
    }

    #[test]
    fn the_carried_rate_follows_from_the_processor_time() {
        for (mbps, own_ms, busy_percent, expected_mbps) in [
            (750, 500, 25, 3000),
            // Others take half of the time.
            (750, 500, 75, 1500),
            (750, 2000, 100, 750),
            // Too slow for the links, whatever the reason is.
            (350, 2000, 100, 350),
            (350, 100, 5, 350),
        ] {
            let carried = carried(Rate::from_mbps(750), &outcome(mbps, own_ms, busy_percent), 2);
            assert_eq!(carried.as_bps() / 1_000_000, expected_mbps, "{mbps} Mb/s, {own_ms} ms, {busy_percent} %");
        }
    }

    #[test]
    fn the_links_need_at_most_half_of_what_any_machine_carries() {
        for most_mbps in [16, 30, 35, 60, 100, 350, 700, 1490, 1500, 9000] {
            // A measurement sees at most four times the rate of its links.
            let measure = |links: &[DemoLink]| Ok(Rate::from_mbps(most_mbps).min(links::sum(links).mul_ratio(4, 1)));
            let chosen = choose_by(measure).unwrap();
            let sum = links::sum(&chosen.links);
            assert!(sum.mul_ratio(2, 1) <= chosen.carried.max(Rate::from_mbps(30)), "{most_mbps}: {sum}");
            assert!(sum.as_bps() * 3 >= most_mbps.min(1500) * 1_000_000, "{most_mbps}: {sum} is too little");
        }
    }

    #[test]
    fn a_slower_rate_that_costs_more_is_measured_again() {
        let mut rates = vec![Rate::from_mbps(60), Rate::from_mbps(250), Rate::from_mbps(350)];
        let mut sums = Vec::new();
        let chosen = choose_by(|links| {
            sums.push(links::sum(links));
            Ok(rates.pop().unwrap())
        });
        let sum = links::sum(&chosen.unwrap().links);
        assert_eq!(sums.len(), MEASUREMENTS_MAX);
        assert!(sums.is_sorted_by(|one, other| one > other), "{sums:?}");
        assert_eq!(sum, Rate::from_mbps(30));
    }
}
