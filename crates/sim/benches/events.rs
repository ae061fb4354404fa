//! Simulation speed in events per second on one core: an M/M/1 queue at load 0.8, where the arrival
//! and the departure of each customer are one event each.
//!
//! `cargo bench -p litz-sim` runs each variant several times and prints the median, with the mean
//! wait next to its formula to show that the model is correct.
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::collections::VecDeque;

use sim::hardware::fddi::{Arrivals, Background, FddiFrame, Ring, RingConfig};
use sim::{Calendar, Facility, Simulation, Stream, Tally};
use units::{Duration, Instant};

/// Customers per run: some tenths of a second.
const CUSTOMERS: u64 = 4_000_000;
const RUNS: usize = 5;
const GAP: Duration = Duration::from_nanos(12_500);
const SERVICE: Duration = Duration::from_nanos(10_000);
/// Load 0.8: the mean wait is rho / (1 - rho) service times.
const WAIT_NS: f64 = 40_000.0;

/// Number of events and the mean wait in nanoseconds.
type Outcome = (u64, f64);

#[derive(Clone, Copy)]
enum Event {
    Arrival,
    Departure,
}

/// As a loop over the calendar, without processes or facilities.
fn as_a_loop() -> Outcome {
    let (mut gaps, mut services) = (Stream::new(1, 0, "gaps"), Stream::new(1, 0, "services"));
    let mut calendar = Calendar::new();
    let mut queue = VecDeque::new();
    let mut is_busy = false;
    let (mut waits, mut events, mut come) = (Tally::default(), 0, 0);
    calendar.schedule(Instant::ZERO + gaps.exponential(GAP), Event::Arrival);
    while let Some((now, event)) = calendar.pop() {
        events += 1;
        match event {
            Event::Arrival => {
                queue.push_back(now);
                come += 1;
                if come < CUSTOMERS {
                    calendar.schedule(now + gaps.exponential(GAP), Event::Arrival);
                }
            }
            Event::Departure => is_busy = false,
        }
        if !is_busy && let Some(arrived) = queue.pop_front() {
            is_busy = true;
            waits.add(now.saturating_since(arrived).as_nanos() as f64);
            calendar.schedule(now + services.exponential(SERVICE), Event::Departure);
        }
    }
    (events, waits.mean())
}

/// As processes: one source and one process per customer, served by a facility with statistics.
fn as_processes() -> Outcome {
    let mut simulation = Simulation::new(1, 0);
    let sim = simulation.sim();
    let server = Facility::new(&sim, "server", 1);
    let queue = server.clone();
    simulation.spawn(async move {
        let (mut gaps, mut services) = (sim.stream("gaps"), sim.stream("services"));
        for _ in 0..CUSTOMERS {
            sim.sleep(gaps.exponential(GAP)).await;
            let (queue, service) = (queue.clone(), services.exponential(SERVICE));
            sim.spawn(async move {
                queue.serve(service).await;
            });
        }
    });
    simulation.run();
    // The first poll of a customer, at its arrival, is not counted: two events per customer, as in
    // the loop.
    (2 * CUSTOMERS, server.report().mean_wait.as_nanos() as f64)
}

/// An FDDI ring as in the papers: 20 stations, 20 km, 30 % background load and one sender that
/// always has a frame of 4500 bytes. Returns the number of frames that arrived in `span`.
fn as_a_ring(span: Duration) -> u64 {
    let mut simulation = Simulation::new(1, 0);
    let sim = simulation.sim();
    let background = Background {
        station: 5,
        share: 0.3,
        frame_bytes: 4_500,
        arrivals: Arrivals::Exponential,
        batch: 1,
        queue_frames: 1_000,
    };
    let config = RingConfig { background: Some(background), ..RingConfig::even(20, 20_000) };
    let ring = Ring::new(&sim, "ring", config).expect("the configuration is valid");
    ring.on_delivery(10, |_: FddiFrame<()>| {});
    for _ in 0..2 {
        let ring = ring.clone();
        simulation.spawn(async move {
            loop {
                ring.send(0, 10, 4_500, ()).await;
            }
        });
    }
    simulation.run_until(Instant::ZERO + span);
    ring.report().served
}

#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a benchmark measures wall time")]
fn timed<T>(run: impl FnOnce() -> T) -> (T, f64) {
    let began = std::time::Instant::now();
    let outcome = run();
    (outcome, began.elapsed().as_secs_f64())
}

fn main() {
    println!("M/M/1, load 0.8, {CUSTOMERS} customers, median of {RUNS} runs on one core");
    for (name, run) in [("a loop over the calendar", as_a_loop as fn() -> Outcome), ("processes", as_processes)] {
        let mut rates: Vec<f64> = Vec::new();
        let mut wait = 0.0;
        for _ in 0..RUNS {
            let ((events, mean_wait), seconds) = timed(run);
            rates.push(events as f64 / seconds);
            wait = mean_wait;
        }
        rates.sort_by(f64::total_cmp);
        let (low, median, high) = (rates[0] / 1e6, rates[RUNS / 2] / 1e6, rates[RUNS - 1] / 1e6);
        println!(
            "{name:26} {median:6.1} million events/s ({low:.1} to {high:.1}), mean wait {:.2} us, formula {:.2} us",
            wait / 1e3,
            WAIT_NS / 1e3
        );
        assert!((wait / WAIT_NS - 1.0).abs() < 0.05, "the mean wait does not match M/M/1");
    }
    let span = Duration::from_secs(200);
    let (frames, seconds) = timed(|| as_a_ring(span));
    println!(
        "a busy FDDI ring           {:6.0} times as fast as the real one, {:.1} million frames/s",
        span.as_secs_f64() / seconds,
        frames as f64 / seconds / 1e6
    );
}
