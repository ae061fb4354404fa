//! Properties of the three-level pipeline, in quick runs.

use super::costs::{Costs, Split};
use super::levels::setup;
use super::measure::{Fit, latency_us, throughput_mbps};
use super::paper::Paper;
use super::pipeline::{Level, Setup};
use crate::study::{Effort, Options};

const OPTIONS: Options =
    Options { seed: 1, replications: 2, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };

#[test]
fn a_fit_through_points_of_a_line_is_that_line() {
    let fit = Fit::through(&[(1.0, 5.0), (2.0, 7.0), (4.0, 11.0)]);
    assert!((fit.a - 2.0).abs() < 1e-12 && (fit.b - 3.0).abs() < 1e-12 && fit.worst_share < 1e-12);
}

#[test]
fn solved_costs_are_positive() {
    let paper = Paper::load();
    for costs in Costs::solve(&paper, &Split::even(&paper)) {
        let all = [
            costs.card_us,
            costs.card_byte_us,
            costs.xtp_work_us,
            costs.xtp_byte_us,
            costs.xtp_wait_us,
            costs.host_us,
            costs.host_byte_us,
            costs.group_wait_us,
        ];
        assert!(all.iter().all(|&cost| cost > 0.0), "{costs:?}");
    }
}

#[test]
fn latency_grows_by_level_and_throughput_falls() {
    let paper = Paper::load();
    let split = Split::even(&paper);
    let levels = [Level::Mac, Level::Transport, Level::User].map(|level| setup(&paper, &split, level));
    let latencies = levels.map(|setup| latency_us(&setup, 1000, 10, &OPTIONS));
    let rates = levels.map(|setup| throughput_mbps(&setup, 4000, 60, &OPTIONS));
    assert!(latencies[0] < latencies[1] && latencies[1] < latencies[2], "{latencies:?}");
    assert!(rates[0] > rates[1] && rates[1] > rates[2], "{rates:?}");
}

#[test]
fn the_long_term_rate_respects_the_users_limit() {
    let paper = Paper::load();
    let limited = setup(&paper, &Split::even(&paper), Level::User);
    for bytes in [500, 4475, 10_000, 50_000] {
        let rate = throughput_mbps(&limited, bytes, 100, &OPTIONS);
        assert!(rate < 12.1, "{bytes} bytes: {rate}");
    }
    let free = throughput_mbps(&Setup { limit: None, ..limited }, 50_000, 100, &OPTIONS);
    assert!(free > 14.0, "{free}");
}

#[test]
fn every_check_holds_in_a_quick_run() {
    for study in super::studies() {
        for check in &study.run(&OPTIONS).checks {
            assert!(check.holds, "{}: {} ({})", study.id(), check.statement, check.detail);
        }
    }
}
