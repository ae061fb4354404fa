//! Latency by ping-pong and throughput by streams, as defined in the paper.

use std::cell::Cell;
use std::rc::Rc;

use sim::Simulation;

use super::pipeline::{Setup, check_conservation, system};
use crate::conserved::check_accounting;
use crate::study::{Effort, Options};

/// Messages before the measurement: queues and the user's burst are then in steady state.
const WARM_UP_MESSAGES: usize = 40;

/// Returns the number of measured messages; `printed` is the paper's.
pub(super) const fn repetitions(printed: usize, options: &Options) -> usize {
    match options.effort {
        Effort::Quick => 40,
        Effort::Full => printed,
    }
}

/// Returns half of the mean round trip of a message of `bytes` and its echo, in microseconds. In a
/// group, the last host answers.
pub(super) fn latency_us(setup: &Setup, bytes: u64, repetitions: usize, options: &Options) -> f64 {
    let mut simulation = Simulation::new(options.seed, 0);
    let sim = simulation.sim();
    let nodes = system(&sim, setup).unwrap_or_else(|error| panic!("invalid setup of a study: {error}"));
    let last = Rc::clone(&nodes[nodes.len() - 1]);
    simulation.spawn(async move {
        loop {
            let bytes = last.received.take().await;
            last.send(bytes).await;
        }
    });
    let total_ns = Rc::new(Cell::new(0));
    let (first, total, clock) = (Rc::clone(&nodes[0]), Rc::clone(&total_ns), sim.clone());
    simulation.spawn(async move {
        let begin = clock.now();
        for _ in 0..repetitions {
            first.send(bytes).await;
            first.received.take().await;
        }
        total.set(clock.now().saturating_since(begin).as_nanos());
        clock.stop();
    });
    simulation.run();
    check_accounting(&simulation);
    check_conservation(&nodes);
    total_ns.get() as f64 / 2000.0 / repetitions as f64
}

/// Returns the throughput in bits per microsecond of a sender of messages of `bytes`, from the
/// first SEND after the warm-up to the last.
pub(super) fn throughput_mbps(setup: &Setup, bytes: u64, repetitions: usize, options: &Options) -> f64 {
    throughput_after(WARM_UP_MESSAGES, setup, bytes, repetitions, options)
}

/// Returns the throughputs after the warm-up, and after one twice as long.
pub(super) fn throughputs_after_warm_ups(setup: &Setup, bytes: u64, repetitions: usize, options: &Options) -> [f64; 2] {
    [1, 2].map(|times| throughput_after(WARM_UP_MESSAGES * times, setup, bytes, repetitions, options))
}

fn throughput_after(messages: usize, setup: &Setup, bytes: u64, repetitions: usize, options: &Options) -> f64 {
    let mut simulation = Simulation::new(options.seed, 0);
    let sim = simulation.sim();
    let nodes = system(&sim, setup).unwrap_or_else(|error| panic!("invalid setup of a study: {error}"));
    for node in &nodes[1..] {
        let node = Rc::clone(node);
        simulation.spawn(async move {
            loop {
                node.received.take().await;
            }
        });
    }
    let span_ns = Rc::new(Cell::new(0));
    let (first, span, clock) = (Rc::clone(&nodes[0]), Rc::clone(&span_ns), sim.clone());
    simulation.spawn(async move {
        for _ in 0..messages {
            first.send(bytes).await;
        }
        let begin = clock.now();
        for _ in 0..repetitions {
            first.send(bytes).await;
        }
        span.set(clock.now().saturating_since(begin).as_nanos());
        clock.stop();
    });
    simulation.run();
    check_accounting(&simulation);
    check_conservation(&nodes);
    (bytes * repetitions as u64) as f64 * 8000.0 / span_ns.get() as f64
}

/// Least-squares line through points, and the largest relative deviation of a point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    pub(super) a: f64,
    pub(super) b: f64,
    pub(super) worst_share: f64,
}

impl Fit {
    /// Fits the line through points (x, y).
    pub(super) fn through(points: &[(f64, f64)]) -> Self {
        let count = points.len() as f64;
        let (mean_x, mean_y) = (
            points.iter().map(|point| point.0).sum::<f64>() / count,
            points.iter().map(|point| point.1).sum::<f64>() / count,
        );
        let covariance: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        let variance: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let a = covariance / variance;
        let b = mean_y - a * mean_x;
        let share = |&(x, y): &(f64, f64)| ((a * x + b - y) / y).abs();
        Self { a, b, worst_share: points.iter().map(share).fold(0.0, f64::max) }
    }
}
