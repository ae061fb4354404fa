//! Deciding how many runs are enough, on any number of threads.

use units::Instant;

use super::*;
use crate::{Facility, Stream};

/// A little queue: its mean sojourn in nanoseconds, and the events it took.
fn queue(seed: u64, run: u64) -> (f64, u64) {
    let mut simulation = Simulation::new(seed, run);
    let sim = simulation.sim();
    let desk = Facility::new(&sim, "desk", 1);
    let customers = desk.clone();
    simulation.spawn(async move {
        let (mut gaps, mut work) = (sim.stream("gaps"), sim.stream("work"));
        loop {
            sim.sleep(gaps.exponential(Duration::from_nanos(2_000))).await;
            let (desk, service) = (customers.clone(), work.exponential(Duration::from_nanos(1_000)));
            sim.spawn(async move {
                desk.serve(service).await;
            });
        }
    });
    simulation.run_measured(Duration::from_micros(20), Duration::from_micros(200));
    (desk.report().mean_sojourn.as_nanos() as f64, simulation.events())
}

#[test]
fn results_are_the_same_on_any_number_of_threads() {
    let plan = Replications { threads: 1, ..Replications::new(5, 12) };
    let alone = plan.run(queue);
    assert_eq!(alone.len(), 12);
    assert_ne!(alone[0], alone[1], "runs are independent");
    let precise = plan.clone().until(0.1, 200);
    let decided = precise.estimate(queue, |run| vec![run.0]);
    assert!(decided.is_precise && (13..200).contains(&decided.runs.len()), "{} runs", decided.runs.len());
    for threads in [2, 3, 7, 64] {
        assert_eq!(Replications { threads, ..plan.clone() }.run(queue), alone);
        assert_eq!(Replications { threads, ..precise.clone() }.estimate(queue, |run| vec![run.0]), decided);
    }
}

#[test]
fn runs_are_added_until_every_figure_is_precise_and_the_bound_holds() {
    let noise = |seed, run| Stream::new(seed, run, "noise").unit();
    let plan = Replications::new(3, 5).until(0.05, 10_000);
    let one = plan.estimate(noise, |&value| vec![10.0 + value]);
    assert_eq!((one.runs.len(), one.is_precise), (5, true));
    let both = plan.estimate(noise, |&value| vec![10.0 + value, value]);
    assert!(both.is_precise && both.runs.len() > 100, "{} runs", both.runs.len());
    assert!(both.estimates[1].plus_minus.unwrap() <= 0.05 * both.estimates[1].mean);
    assert!((both.estimates[1].mean - 0.5).abs() < 0.05, "{:?}", both.estimates);
    let bounded = Replications::new(3, 5).until(1e-6, 17).estimate(noise, |&value| vec![value]);
    assert_eq!((bounded.runs.len(), bounded.is_precise), (17, false));
}

#[test]
fn a_panic_of_a_run_is_not_swallowed() {
    for threads in [1, 3] {
        let plan = Replications { threads, ..Replications::new(1, 8) };
        let outcome = std::panic::catch_unwind(|| plan.run(|_, run| assert_ne!(run, 5)));
        assert!(outcome.is_err());
    }
}

#[test]
fn a_measurement_begins_when_the_warm_up_is_over() {
    let mut simulation = Simulation::new(1, 0);
    let desk = Facility::new(&simulation.sim(), "desk", 1);
    let customer = desk.clone();
    simulation.spawn(async move {
        customer.serve(Duration::from_nanos(150)).await;
    });
    simulation.run_measured(Duration::from_nanos(100), Duration::from_nanos(100));
    assert_eq!(simulation.sim().now(), Instant::from_nanos(200));
    assert!((desk.report().utilisation - 0.5).abs() < 1e-12);
}

/// Values that remember: each is 0.9 times the last one and something new of variance 1.
fn remembering(count: usize, start: f64) -> Vec<f64> {
    let mut stream = Stream::new(11, 0, "values");
    let mut value = start;
    (0..count)
        .map(|_| {
            // Uniform in +-sqrt(3): variance 1.
            value = 0.9 * value + (2.0 * stream.unit() - 1.0) * 3.0_f64.sqrt();
            value
        })
        .collect()
}

#[test]
fn batches_must_be_longer_than_what_the_values_remember() {
    let values = remembering(40_000, 0.0);
    let short = batch_means(&values, 20_000, 0.95).unwrap();
    let long = batch_means(&values, 20, 0.95).unwrap();
    assert!(short.correlation > 0.7 && long.correlation.abs() < 0.5, "{short:?} {long:?}");
    // The true one: the sum of a value's consequences is 10, so 1.96 * 10 / sqrt(40000) = 0.098.
    let half = |of: BatchMeans| of.estimate.plus_minus.unwrap();
    assert!((0.06..0.16).contains(&half(long)), "{long:?}");
    assert!(half(short) < 0.04, "too sure of itself: {short:?}");
    assert!(long.estimate.range().0 < 0.0 && 0.0 < long.estimate.range().1);
    assert_eq!(
        (batch_means(&values[..3], 4, 0.95), batch_means(&values, 1, 0.95), batch_means(&[], 0, 0.95)),
        (None, None, None)
    );
}

#[test]
fn a_warm_up_is_found_where_it_ends() {
    // From 200 down to nothing with a half-life of 6.6 values: lost in the noise after some 40.
    let cut = mser5(&remembering(2_000, 200.0)).unwrap();
    assert!((25..=100).contains(&cut), "{cut}");
    // Without one, little is cut.
    assert!(mser5(&remembering(2_000, 0.0)).unwrap() < 400);
    // A run that is all warm-up tells nothing.
    let climbing: Vec<f64> = (0..1_000).map(f64::from).collect();
    assert_eq!(mser5(&climbing), None);
}
