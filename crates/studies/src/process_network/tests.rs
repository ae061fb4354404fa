//! Properties of the process network, in quick runs.

use super::paper::{Figures, Table1};
use super::run::{counted, run};
use super::setup::{Placement, Setup, Traffic};
use crate::study::{Effort, Options, Study};

const OPTIONS: Options =
    Options { seed: 1, replications: 2, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };

#[test]
fn the_slowest_processor_is_the_limit_and_never_idle() {
    let table = Table1::load();
    for setup in [Setup::scenario_1(&table), Setup::scenario_2(&table), Setup::t9000(&table, &Figures::load())] {
        let measured = run(&setup, &OPTIONS);
        assert!(measured.busiest() > 0.95, "{measured:?}");
        assert_eq!(measured.dropped, 0);
    }
}

#[test]
fn throughput_falls_with_pokes_and_respects_the_work_per_segment() {
    let table = Table1::load();
    let mut last = f64::INFINITY;
    for pokes in [2, 3, 4, 6] {
        let setup = Setup { pokes, ..Setup::scenario_2(&table) };
        let rate = run(&setup, &OPTIONS).segments_per_second;
        let costs = setup.costs;
        let bound = 1e6 / (costs.tcp_recv_us + costs.user_task_us + f64::from(pokes) * costs.poke_us);
        // One more segment may arrive at the ends of the measured time.
        assert!(rate < last && rate < bound + 1.0, "{pokes} pokes: {rate}, bound {bound}");
        last = rate;
    }
}

#[test]
fn separating_sides_pays_with_data_in_both_directions_only() {
    let table = Table1::load();
    let rate = |placement, traffic| {
        run(&Setup { placement, traffic, ..Setup::scenario_2(&table) }, &OPTIONS).segments_per_second
    };
    assert!(rate(Placement::Two, Traffic::BothWays) > 1.4 * rate(Placement::One, Traffic::BothWays));
    assert!(rate(Placement::Two, Traffic::OneWay) < rate(Placement::One, Traffic::OneWay));
}

#[test]
fn a_window_of_one_segment_waits_for_each_acknowledgement() {
    let table = Table1::load();
    let wide = Setup::scenario_2(&table);
    let narrow = Setup { window: 1, acknowledge_every: 1, ..wide };
    let (wide, narrow) = (run(&wide, &OPTIONS), run(&narrow, &OPTIONS));
    assert!(narrow.segments_per_second * 2.0 < wide.segments_per_second, "{narrow:?}");
    let delivered = (narrow.segments_per_second * counted(&OPTIONS).as_secs_f64()).round() as u64;
    assert!(narrow.acknowledgements.by_receipt.abs_diff(delivered) <= 1, "{narrow:?}");
}

#[test]
fn every_check_holds_in_a_quick_run() {
    for study in super::studies() {
        let outcome = study.run(&OPTIONS);
        for check in &outcome.checks {
            assert!(check.holds, "{}: {} ({})", study.id(), check.statement, check.detail);
        }
        assert!(!outcome.checks.is_empty() && !outcome.tables.is_empty(), "{}", study.id());
    }
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let study = super::shared_state::SharedState;
    assert_eq!(study.run(&OPTIONS), study.run(&OPTIONS));
    assert_ne!(study.run(&OPTIONS).tables, study.run(&Options { seed: 2, ..OPTIONS }).tables);
}
