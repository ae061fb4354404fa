//! Tests of the number of runs, on any number of threads, and of warm-up removal.

use units::Instant;

use super::*;
use crate::facility::Facility;
use crate::stream::Stream;

/// Simulates a short queue; returns its mean sojourn time in nanoseconds and its number of events.
fn queue(seed: u64, run: u64) -> (f64, u64) {
    let mut simulation = Simulation::new(seed, run);
    let sim = simulation.sim();
    let server = Facility::new(&sim, "desk", 1);
    let customers = server.clone();
    simulation.spawn(async move {
        let (mut gaps, mut work) = (sim.stream("gaps"), sim.stream("work"));
        loop {
            sim.sleep(gaps.exponential(Duration::from_nanos(2_000))).await;
            let (server, service) = (customers.clone(), work.exponential(Duration::from_nanos(1_000)));
            sim.spawn(async move {
                server.serve(service).await;
            });
        }
    });
    simulation.run_measured(Duration::from_micros(20), Duration::from_micros(200));
    (server.report().mean_sojourn.as_nanos() as f64, simulation.events())
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
fn a_panic_in_a_run_propagates() {
    for threads in [1, 3] {
        let plan = Replications { threads, ..Replications::new(1, 8) };
        let outcome = std::panic::catch_unwind(|| plan.run(|_, run| assert_ne!(run, 5)));
        assert!(outcome.is_err());
    }
}

#[test]
fn a_measurement_begins_at_the_end_of_the_warm_up() {
    let mut simulation = Simulation::new(1, 0);
    let server = Facility::new(&simulation.sim(), "desk", 1);
    let customer = server.clone();
    simulation.spawn(async move {
        customer.serve(Duration::from_nanos(150)).await;
    });
    simulation.run_measured(Duration::from_nanos(100), Duration::from_nanos(100));
    assert_eq!(simulation.sim().now(), Instant::from_nanos(200));
    assert!((server.report().utilisation - 0.5).abs() < 1e-12);
}

/// Returns autocorrelated values: each is 0.9 times the previous one plus noise of variance 1.
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
fn batches_must_be_longer_than_the_autocorrelation() {
    let values = remembering(40_000, 0.0);
    let short = batch_means(&values, 20_000, 0.95).unwrap();
    let long = batch_means(&values, 20, 0.95).unwrap();
    assert!(short.correlation > 0.7 && long.correlation.abs() < 0.5, "{short:?} {long:?}");
    // The true half-width: the autocorrelations sum to a factor of 10, so 1.96 * 10 / sqrt(40000) =
    // 0.098.
    let half = |of: BatchMeans| of.estimate.plus_minus.unwrap();
    assert!((0.06..0.16).contains(&half(long)), "{long:?}");
    assert!(half(short) < 0.04, "the interval is too narrow: {short:?}");
    assert!(long.estimate.range().0 < 0.0 && 0.0 < long.estimate.range().1);
    assert_eq!(
        (batch_means(&values[..3], 4, 0.95), batch_means(&values, 1, 0.95), batch_means(&[], 0, 0.95)),
        (None, None, None)
    );
}

#[test]
fn the_end_of_the_warm_up_is_detected() {
    // Decays from 200 with a half-life of 6.6 values and is below the noise after some 40.
    let cut = mser5(&remembering(2_000, 200.0)).unwrap();
    assert!((25..=100).contains(&cut), "{cut}");
    // Without a warm-up, little is cut.
    assert!(mser5(&remembering(2_000, 0.0)).unwrap() < 400);
    // A run that consists of warm-up only gives no result.
    let climbing: Vec<f64> = (0..1_000).map(f64::from).collect();
    assert_eq!(mser5(&climbing), None);
}
