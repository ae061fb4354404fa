//! Closed-loop tests: heterogeneous paths, transfers of any size, failing paths.
//!
//! All cases derive from [`SEED`]; a failure prints the seed and the case. Passing tests print
//! their margins.
#![expect(clippy::print_stdout, reason = "the figures of a passing run are of interest")]

mod sim;

use scheduler::Strategy;
use sim::{DATAGRAM_BYTES, Link, Outcome, Sim, Transfer};
use units::{Duration, Instant, Rate, Rng};

const SEED: u64 = 0x6c69_747a;

fn link(rate: Rate, one_way: Duration, window_percent: u64, is_paced: bool) -> Link {
    let mut link = Link { rate, one_way, window_bytes: 0, is_paced, dies_at: None, told_percent: 100 };
    link.window_bytes = (link.bdp_bytes() * window_percent / 100).max(10 * DATAGRAM_BYTES);
    link
}

fn run(strategy: Strategy, transfer: Transfer, links: &[Link]) -> Outcome {
    Sim::new(strategy.build().as_mut(), transfer, links).run()
}

fn completion(strategy: Strategy, transfer: Transfer, links: &[Link]) -> Duration {
    let outcome = run(strategy, transfer, links);
    let at = outcome.completed_at.unwrap_or_else(|| panic!("{transfer:?} over {links:?} never ends: {outcome:?}"));
    at.since_start()
}

/// Returns a random number, about uniform on a logarithmic scale: a power of two, with uniform
/// values in between.
fn log_uniform(rng: &mut Rng, least: u64, most: u64) -> u64 {
    let doublings = u64::from((most / least).ilog2());
    let low = least << rng.between(0, doublings);
    rng.between(low, (low * 2).min(most))
}

fn random_links(rng: &mut Rng) -> Vec<Link> {
    let count = rng.between(2, 4);
    let random_link = |rng: &mut Rng| {
        let rate = Rate::from_bps(log_uniform(rng, 1_000_000, 1_000_000_000));
        let one_way = Duration::from_micros(log_uniform(rng, 100, 200_000));
        link(rate, one_way, rng.between(150, 200), rng.below(2) == 0)
    };
    (0..count).map(|_| random_link(rng)).collect()
}

fn best_alone(strategy: Strategy, transfer: Transfer, links: &[Link]) -> (Duration, Link) {
    let alone = links.iter().map(|link| (completion(strategy, transfer, &[*link]), *link));
    alone.min_by_key(|(time, _)| *time).expect("there is at least one path")
}

#[test]
fn no_transfer_takes_longer_than_on_the_best_path_alone() {
    let mut rng = Rng::from_seed(SEED).split("sizes");
    let mut worst = 0.0f64;
    for case in 0..400 {
        let links = random_links(&mut rng);
        let transfer = Transfer { bytes: log_uniform(&mut rng, 1, 10_000_000), credit_bytes: None };
        let (alone, best) = best_alone(Strategy::EarliestDelivery, transfer, &links);
        let together = completion(Strategy::EarliestDelivery, transfer, &links);
        let beyond = together.saturating_sub(best.rate.time_for(DATAGRAM_BYTES));
        worst = worst.max(beyond.as_secs_f64() / alone.as_secs_f64());
        let allowed = alone.mul_ratio(103, 100) + best.rate.time_for(DATAGRAM_BYTES);
        assert!(
            together <= allowed,
            "case {case} of seed {SEED:#x}: {together} together, {alone} alone; {transfer:?} over {links:#?}"
        );
    }
    println!("worst ratio to the best path alone: {worst:.4}");
}

#[test]
fn an_ordered_stream_with_small_credit_keeps_the_speed_of_the_best_path() {
    let mut rng = Rng::from_seed(SEED).split("ordered");
    let (mut worst, mut best_gain) = (0.0f64, f64::MAX);
    for case in 0..150 {
        let links = random_links(&mut rng);
        let credit = log_uniform(&mut rng, 100_000, 8_000_000);
        let transfer = Transfer { bytes: log_uniform(&mut rng, 200_000, 10_000_000), credit_bytes: Some(credit) };
        let (alone, best) = best_alone(Strategy::EarliestDelivery, transfer, &links);
        let together = completion(Strategy::EarliestDelivery, transfer, &links);
        let ratio = together.as_secs_f64() / alone.as_secs_f64();
        (worst, best_gain) = (worst.max(ratio), best_gain.min(ratio));
        let allowed = alone.mul_ratio(103, 100) + best.rate.time_for(DATAGRAM_BYTES);
        assert!(
            together <= allowed,
            "case {case} of seed {SEED:#x}: {together} together, {alone} alone; {transfer:?} over {links:#?}"
        );
    }
    println!("ordered, times as ratios to the best path alone: worst {worst:.4}, best {best_gain:.4}");
    // The test is meaningful only if there is a gain in some cases.
    assert!(best_gain < 0.6, "several paths never helped: {best_gain}");
}

/// The scheduler gets 70 to 140 percent of the true rates.
#[test]
fn a_wrong_capacity_costs_less_than_its_error() {
    let mut rng = Rng::from_seed(SEED).split("misjudged");
    let mut worst = 0.0f64;
    for case in 0..300 {
        let mut links = random_links(&mut rng);
        for link in &mut links {
            link.told_percent = rng.between(70, 140);
        }
        let transfer = Transfer { bytes: log_uniform(&mut rng, 1, 10_000_000), credit_bytes: None };
        let (alone, best) = best_alone(Strategy::EarliestDelivery, transfer, &links);
        let together = completion(Strategy::EarliestDelivery, transfer, &links);
        let beyond = together.saturating_sub(best.rate.time_for(DATAGRAM_BYTES));
        worst = worst.max(beyond.as_secs_f64() / alone.as_secs_f64());
        // The bound is empirical: 1.26 was measured over these 300 cases, 15 of them above 1.03.
        // Data that is late on a path slower than stated is resent only once it is overdue.
        assert!(
            beyond <= alone.mul_ratio(13, 10),
            "case {case} of seed {SEED:#x}: {together} together, {alone} alone; {transfer:?} over {links:#?}"
        );
    }
    println!("misjudged, worst ratio to the best path alone: {worst:.4}");
}

#[test]
fn bulk_fills_every_path() {
    let mut rng = Rng::from_seed(SEED).split("bulk");
    let mut least = f64::MAX;
    for case in 0..24 {
        let links: Vec<Link> = (0..rng.between(2, 5))
            .map(|_| {
                let rate = Rate::from_bps(log_uniform(&mut rng, 4_000_000, 100_000_000));
                let one_way = Duration::from_micros(log_uniform(&mut rng, 1_000, 60_000));
                link(rate, one_way, rng.between(150, 200), rng.below(2) == 0)
            })
            .collect();
        let transfer = Transfer { bytes: 40_000_000, credit_bytes: None };
        let outcome = run(Strategy::EarliestDelivery, transfer, &links);
        // From the third to the eighth tenth: after the first round trip and before the tail.
        let steady = outcome.tenths[7] - outcome.tenths[2];
        let got = Rate::from_transfer(transfer.bytes / 2, steady).expect("time passes");
        let sum: u64 = links.iter().map(|link| link.rate.as_bps()).sum();
        let share = got.as_bps() as f64 / sum as f64;
        least = least.min(share);
        assert!(share >= 0.97, "case {case} of seed {SEED:#x}: {got} of {}; {links:#?}", Rate::from_bps(sum));
    }
    println!("least share of the sum of the rates: {least:.4}");
}

#[test]
fn a_small_message_uses_only_the_path_with_the_lowest_delay() {
    let mut rng = Rng::from_seed(SEED).split("message");
    for case in 0..500 {
        let links = random_links(&mut rng);
        let transfer = Transfer { bytes: 200, credit_bytes: None };
        let outcome = run(Strategy::EarliestDelivery, transfer, &links);
        assert_eq!(outcome.sent.iter().sum::<u64>(), 1, "case {case} of seed {SEED:#x}: {links:#?}");
        let (alone, best) = best_alone(Strategy::EarliestDelivery, transfer, &links);
        let took = outcome.completed_at.expect("one datagram arrives").since_start();
        // Half of the measured RTT includes half the transmission time of the full datagram with
        // which it was measured.
        let allowed = alone + best.rate.time_for(DATAGRAM_BYTES) / 2;
        assert!(took <= allowed, "case {case} of seed {SEED:#x}: {took}, best {alone}; {links:#?}");
    }
}

#[test]
fn data_lost_on_a_dead_path_arrives_on_another() {
    let mut rng = Rng::from_seed(SEED).split("death");
    let strategies = ["earliest", "round-robin", "lowest-rtt", "redundant:2"].map(|name| name.parse().expect(name));
    let mut cases_with_copies = 0;
    for case in 0..100 {
        let mut links = random_links(&mut rng);
        let transfer = Transfer { bytes: log_uniform(&mut rng, 1_000, 4_000_000), credit_bytes: None };
        let strategy: Strategy = strategies[case % strategies.len()];
        let working = rng.below(links.len() as u64) as usize;
        let alone = completion(strategy, transfer, &links[working..=working]);
        let healthy = completion(strategy, transfer, &links);
        let dies_at = Duration::from_nanos(rng.below(healthy.as_nanos()));
        for link in links.iter_mut().enumerate().filter(|(index, _)| *index != working).map(|(_, link)| link) {
            link.dies_at = Some(sim::START + dies_at);
        }
        let outcome = run(strategy, transfer, &links);
        let took = outcome.completed_at.map(Instant::since_start);
        // The paths may have to be detected as suspect one after the other, with a full queue
        // included in their RTTs.
        let silence = |link: &Link| link.base_rtt() * 8 + link.rate.time_for(link.window_bytes) * 3;
        let silences = links.iter().fold(Duration::from_millis(10), |sum, link| sum + silence(link));
        let allowed = dies_at + alone * 2 + silences;
        assert!(
            took.is_some_and(|took| took <= allowed),
            "case {case} of seed {SEED:#x}, {strategy}: {took:?}, allowed {allowed}, {alone} alone, dies after \
             {dies_at}; {transfer:?} over {links:#?}"
        );
        cases_with_copies += u32::from(outcome.copies > 0 && !matches!(strategy, Strategy::Redundant { .. }));
    }
    assert!(cases_with_copies >= 30, "only {cases_with_copies} of 75 cases lost data on a dead path");
}

#[test]
fn a_redundant_message_is_not_delayed_by_a_dead_path() {
    let mut fast = link(Rate::from_mbps(100), Duration::from_millis(5), 150, false);
    let slow = link(Rate::from_mbps(10), Duration::from_millis(30), 150, false);
    fast.dies_at = Some(Instant::ZERO);
    let transfer = Transfer { bytes: 2 * DATAGRAM_BYTES, credit_bytes: None };
    let together = completion(Strategy::Redundant { copies: 2 }, transfer, &[fast, slow]);
    assert_eq!(together, completion(Strategy::LowestRtt, transfer, &[slow]));
    assert!(completion(Strategy::EarliestDelivery, transfer, &[fast, slow]) > together);
}
