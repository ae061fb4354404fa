//! Orderings and properties, in quick runs.

use units::Duration;

use super::experiment::{POLICIES, TOLERANCE, measure};
use super::model::run;
use super::paper::{Case, Throughputs};
use super::setup::{Acknowledgements, Interconnect, Rule, Setup};
use crate::study::{Effort, Options};

const WARM_UP: Duration = Duration::from_millis(50);
const SPAN: Duration = Duration::from_millis(400);

fn mbps(setup: &Setup) -> f64 {
    run(setup, 1, 0, WARM_UP, SPAN).unwrap().mbps
}

fn setup(percent: f64, case: Case, policy: usize) -> Setup {
    Setup::new(percent, case).with(POLICIES[policy].0, POLICIES[policy].1)
}

#[test]
fn adaptive_application_scheduling_carries_what_fixed_scheduling_loses() {
    let fixed = mbps(&setup(87.0, Case::TwoOverloaded, 0));
    let adaptive = mbps(&setup(87.0, Case::TwoOverloaded, 1));
    assert!(adaptive > fixed * 2.0, "{adaptive} against {fixed} Mb/s");
}

#[test]
fn packets_moved_to_a_slow_ring_block_those_on_a_fast_one() {
    let fixed = mbps(&setup(87.0, Case::OneOverloaded, 1));
    let both = setup(87.0, Case::OneOverloaded, 2);
    let moved = mbps(&both);
    assert!(moved < fixed * 0.95, "{moved} against {fixed} Mb/s");
    let mut free = both;
    free.assumed.acknowledgements = Acknowledgements::Each;
    assert!(mbps(&free) > moved, "each acknowledgement frees its own slot");
}

#[test]
fn throughput_exceeds_neither_the_load_nor_the_rate_of_the_rings() {
    for policy in 0..POLICIES.len() {
        let setup = Setup { offered_mbps: 5_000.0, ..setup(87.0, Case::Quiet, policy) };
        let measured = run(&setup, 1, 0, WARM_UP, SPAN).unwrap();
        assert!(measured.gateway_mbps.iter().sum::<f64>() < 600.0, "{measured:?}");
        assert!((measured.gateway_mbps.iter().sum::<f64>() - measured.mbps).abs() < 1e-6);
    }
    let little = Setup { offered_mbps: 10.0, ..setup(37.0, Case::Quiet, 1) };
    let measured = run(&little, 1, 0, Duration::ZERO, Duration::from_secs(20)).unwrap();
    assert!((measured.mbps / 10.0 - 1.0).abs() < 0.1, "{measured:?}");
}

#[test]
fn window_and_round_trip_limit_the_throughput_of_a_gateway() {
    // One packet in flight: at most one per ring latency plus its own transmission time.
    let mut stop_and_wait = Setup { offered_mbps: 1_000.0, window_bytes: 2_000, ..setup(87.0, Case::Quiet, 1) };
    stop_and_wait.assumed.share_ratio = 1.0;
    let ring = stop_and_wait.ring(0);
    let round = ring.latency() + ring.frame_time(2_000);
    let bound = 16_000.0 / (round.as_secs_f64() * 1e6);
    let measured = run(&stop_and_wait, 1, 0, WARM_UP, SPAN).unwrap();
    for &mbps in &measured.gateway_mbps {
        assert!(mbps <= bound && mbps > bound * 0.4, "{mbps} of {bound} Mb/s");
    }
}

#[test]
fn a_crossbar_reaches_further_than_the_neighbour() {
    let mut array = setup(87.0, Case::TwoOverloaded, 2);
    // A threshold moves the same number of packets anywhere; a comparison finds a better unit among
    // more.
    array.assumed.rule = Rule::Product;
    let crossbar = Setup { interconnect: Interconnect::Crossbar, ..array.clone() };
    let (array, crossbar) = (run(&array, 1, 0, WARM_UP, SPAN).unwrap(), run(&crossbar, 1, 0, WARM_UP, SPAN).unwrap());
    assert!(crossbar.moved > array.moved, "{} against {}", crossbar.moved, array.moved);
}

#[test]
fn the_same_seed_gives_the_same_run_on_any_number_of_threads() {
    let setup = setup(37.0, Case::Uniform, 2);
    let options = |threads| Options {
        seed: 3,
        replications: 3,
        confidence: 0.95,
        precision: None,
        effort: Effort::Quick,
        threads,
    };
    assert_eq!(measure(&setup, &options(1)), measure(&setup, &options(3)));
    assert_ne!(run(&setup, 3, 0, WARM_UP, SPAN).unwrap(), run(&setup, 3, 1, WARM_UP, SPAN).unwrap());
}

#[test]
fn most_cells_are_near_the_report_even_in_short_runs() {
    let (five, six) = (Throughputs::table_5(), Throughputs::table_6());
    let mut near = 0;
    for paper in [&five, &six] {
        for (index, policy) in POLICIES.into_iter().enumerate() {
            for case in Case::ALL {
                let ours = mbps(&setup(paper.offered_percent_of_capacity, case, index));
                let printed = paper.mbps(policy.0, policy.1, case);
                near += usize::from((ours / printed - 1.0).abs() < 2.0 * TOLERANCE);
            }
        }
    }
    assert!(near >= 18, "{near} of 24 within twice the tolerance");
}

#[test]
fn the_offered_load_of_an_overloaded_ring_does_not_matter() {
    let overloaded = |share: f64| {
        let mut setup = setup(87.0, Case::TwoOverloaded, 1);
        setup.assumed.overload = share;
        run(&setup, 1, 0, WARM_UP, Duration::from_secs(1)).unwrap().mbps
    };
    let (much, more) = (overloaded(0.6), overloaded(2.0));
    assert!((more / much - 1.0).abs() < 0.05, "{much} and {more} Mb/s");
}

#[test]
fn every_study_fills_its_tables() {
    let options =
        Options { seed: 1, replications: 1, confidence: 0.95, precision: None, effort: Effort::Quick, threads: 2 };
    for study in super::studies() {
        let outcome = study.run(&options);
        for table in &outcome.tables {
            for row in &table.rows {
                assert_eq!(row.cells.len(), table.columns.len(), "{}: {}", study.id(), row.label);
                assert!(row.cells.iter().all(|cell| cell.ours.is_some_and(|ours| ours.mean.is_finite())));
            }
        }
        assert!(!outcome.checks.is_empty() && !outcome.tables.is_empty(), "{}", study.id());
    }
}

#[test]
fn invalid_machines_are_rejected_by_key() {
    let key = |change: fn(&mut Setup)| {
        let mut setup = setup(37.0, Case::Uniform, 2);
        change(&mut setup);
        run(&setup, 1, 0, WARM_UP, SPAN).unwrap_err().key
    };
    assert_eq!(key(|setup| setup.gateways = 0), "gateways");
    assert_eq!(key(|setup| setup.window_bytes = 1_999), "window_bytes");
    assert_eq!(key(|setup| setup.assumed.packet_bytes = 0), "packet_bytes");
    assert_eq!(key(|setup| setup.assumed.low_bytes = setup.assumed.high_bytes + 1), "low_bytes");
    assert_eq!(key(|setup| setup.assumed.peer_station = 0), "peer_station");
    assert_eq!(key(|setup| setup.assumed.peer_station = 20), "peer_station");
    assert_eq!(key(|setup| setup.offered_mbps = 0.0), "offered_mbps");
    assert_eq!(key(|setup| setup.assumed.share_ratio = f64::NAN), "share_ratio");
    assert_eq!(key(|setup| setup.assumed.message_bytes = 100.0), "message_bytes");
    assert_eq!(key(|setup| setup.assumed.error_rate = 1.0), "error_rate");
    assert_eq!(key(|setup| setup.assumed.holding = Duration::ZERO), "ttrt");
    assert_eq!(key(|setup| setup.uniform = -0.1), "background.share");
    assert_eq!(key(|setup| setup.assumed.link_rate = units::Rate::ZERO), "rate");
}
