//! The studies in quick runs.

use super::config::{Config, Failure, Timer};
use super::paper::Kind;
use super::{coding, interpretations, minimum, rtt, run, runs, schedulers, schemes, table_1, table_2, table_4};
use crate::study::{Effort, Options, Study};

fn options(threads: usize) -> Options {
    Options { seed: 1, replications: 2, confidence: 0.9, precision: None, effort: Effort::Quick, threads }
}

/// Checks that all checks of `study` hold, except those whose statement contains one of `but`.
fn assert_holds(study: &dyn Study, but: &[&str]) {
    let outcome = study.run(&options(2));
    assert!(!outcome.checks.is_empty(), "{} checks nothing", study.id());
    for check in outcome.checks {
        let is_excepted = but.iter().any(|part| check.statement.contains(part));
        assert!(check.holds || is_excepted, "{}: {}: {}", study.id(), check.statement, check.detail);
    }
}

#[test]
fn slower_memory_is_worse_as_in_table_2() {
    assert_holds(&table_1::Table1, &[]);
    assert_holds(&table_2::MemorySpeed, &[]);
}

#[test]
fn the_serial_part_bounds_the_speedup_of_send_as_in_table_4() {
    // Two ratios of the report's times exceed what speeds can explain; the study names them.
    assert_holds(&table_4::SendCall, &["without waiting"]);
}

#[test]
fn six_rings_are_the_minimum_and_failures_degrade_gracefully() {
    assert_holds(&minimum::Minimum, &["3 processors"]);
    assert_holds(&minimum::Failures, &[]);
}

#[test]
fn a_slow_central_device_is_a_ceiling_and_old_information_is_worse_than_none() {
    assert_holds(&schedulers::Central, &[]);
    assert_holds(&schedulers::Stale, &[]);
}

#[test]
fn distributed_schemes_need_no_messages_and_small_messages_gain_by_a_dedicated_processor() {
    assert_holds(&schemes::Schemes, &["resequencing"]);
    assert_holds(&schemes::Classes, &[]);
}

#[test]
fn coding_corrects_losses_unless_there_are_too_many() {
    assert_holds(&coding::Coding, &["1e-6"]);
}

#[test]
fn nonuniform_load_spreads_round_trips() {
    assert_holds(&rtt::RoundTrips, &["serial", "filters"]);
}

#[test]
fn quick_runs_have_the_requested_number_of_replications() {
    for replications in [1, 3] {
        let point = runs::point(&Options { replications, ..options(2) }, &Config::new(Kind::OneBus));
        assert_eq!(point.runs.len(), replications as usize);
    }
}

#[test]
fn delay_depends_on_the_segments_generated_ahead() {
    let mut config = Config::new(Kind::OneBus);
    let in_flight_kbit = |config: &Config| {
        let point = runs::point(&options(2), config);
        point.throughput.mean * point.delay.mean / 1e3
    };
    let taken = in_flight_kbit(&config);
    config.choices.segments_ahead += 2;
    let more = in_flight_kbit(&config) - taken;
    assert!((0.8..1.2).contains(&(more / (2.0 * config.segment_bits as f64 / 1e3))), "{more} kbit more than {taken}");
}

#[test]
fn an_outcome_does_not_depend_on_the_number_of_threads() {
    assert_eq!(table_2::MemorySpeed.run(&options(1)), table_2::MemorySpeed.run(&options(3)));
}

#[test]
fn packets_are_conserved_at_a_thousand_times_the_error_rate() {
    let mut config = Config::new(Kind::OneBus);
    config.error_rate = 1e-6;
    config.measured = units::Duration::from_millis(200);
    let run = run::run(&config, 1, 0).unwrap();
    assert!(run.resent > 10, "{}", run.resent);
    // Each acknowledged packet has one round trip.
    let packets: usize = run.round_trips_us.iter().map(Vec::len).sum();
    let bits = packets as f64 * config.packet_bits as f64;
    assert!((run.throughput_mbps - bits / config.measured.as_secs_f64() / 1e6).abs() < 1e-6);
    // Go-back-N reduces the throughput, but not to zero.
    assert!((100.0..309.0).contains(&run.throughput_mbps), "{}", run.throughput_mbps);
}

#[test]
fn segments_of_a_failed_processor_are_sent_by_others() {
    let mut config = Config::new(Kind::TwoBus);
    config.failure = Failure { processors: 3, interfaces: 0 };
    config.measured = units::Duration::from_millis(100);
    let run = run::run(&config, 1, 0).unwrap();
    let of: Vec<usize> = run.round_trips_us.iter().map(Vec::len).collect();
    assert!(of[3] > 200 && of[..3].iter().all(|&count| count == 0), "{of:?}");
}

#[test]
fn the_source_generates_no_further_ahead_after_failures() {
    let mut config = Config::new(Kind::OneBus);
    config.failure = Failure { processors: 3, interfaces: 0 };
    config.measured = units::Duration::from_millis(400);
    let run = run::run(&config, 1, 0).unwrap();
    // Little's law: the remaining processors have a window, plus the segments that the application
    // may generate ahead.
    let in_system = run.throughput_mbps * run.delay_us / config.segment_bits as f64;
    let allowed = config.window_packets() as f64 + config.choices.segments_ahead as f64;
    assert!((0.8 * allowed..1.2 * allowed).contains(&in_system), "{in_system} segments, {allowed} allowed");
}

#[test]
fn machines_have_no_timer_and_one_that_never_fires_has_no_effect() {
    for kind in [Kind::TwoBus, Kind::OneBus, Kind::Serial] {
        let mut config = Config::new(kind).nonuniform().adaptive();
        assert_eq!((config.choices.timer, config.choices.confirms), (None, false));
        // Only without a timer are retransmissions after errors delivered twice.
        config.error_rate = 0.0;
        config.measured = units::Duration::from_millis(50);
        let without = run::run(&config, 1, 0).unwrap();
        config.choices.timer = Some(Timer { minimum: units::Duration::from_secs(10), ..Timer::of_paper() });
        let with = run::run(&config, 1, 0).unwrap();
        assert_eq!((with.resent, with.throughput_mbps, with.delay_us), (0, without.throughput_mbps, without.delay_us));
        assert_eq!((with.round_trips_us, with.delays_us), (without.round_trips_us, without.delays_us));
    }
}

#[test]
fn timers_reduce_throughput_of_the_one_bus_machine_under_nonuniform_load_only() {
    let run = |mut config: Config, is_timed: bool| {
        interpretations::timers_run(&mut config);
        config.measured = units::Duration::from_millis(100);
        if !is_timed {
            config.choices.timer = None;
        }
        run::run(&config, 1, 0).unwrap()
    };
    let one_bus = || Config::new(Kind::OneBus).nonuniform();
    let (timed, untimed) = (run(one_bus(), true), run(one_bus(), false));
    assert!(timed.throughput_mbps < 0.85 * untimed.throughput_mbps);
    assert!(timed.resent > 100 && untimed.resent < 10, "{} and {}", timed.resent, untimed.resent);
    let serial = || Config::new(Kind::Serial).nonuniform();
    assert!(run(serial(), true).throughput_mbps > 0.99 * run(serial(), false).throughput_mbps);
}
