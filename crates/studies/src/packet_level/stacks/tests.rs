//! The runs are deterministic, and a wrong cost is found.

use super::costs::{Assumed, Parts, transfer};
use super::transfer::Side;
use super::{Curve, check_of_model, check_of_rates};
use crate::packet_level::paper::Throughput;
use crate::study::{Effort, Options};

const OPTIONS: Options =
    Options { seed: 1, replications: 2, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };

/// Parts close to the fitted ones.
const PARTS: Parts = Parts { bare_us: 211.0, digest_us: 1568.0, cipher_us: 5295.0 };

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_another() {
    let (paper, assumed) = (Throughput::load(), Assumed::default());
    let des = &paper.stack[2];
    for side in [Side::Sends, Side::Receives] {
        let costs = PARTS.costs(&paper, &assumed);
        let transfer = transfer(&paper, des, side, 5, costs, &assumed, Effort::Quick);
        let first = transfer.run(1, 0);
        assert!((4.0..5.01).contains(&(first.mbps / des.throughput_mbps)), "{first:?}");
        assert_eq!(transfer.run(1, 0), first);
        assert_ne!(transfer.run(2, 0).mbps, first.mbps);
    }
}

#[test]
fn a_wrong_cost_fails_the_checks() {
    let (paper, assumed) = (Throughput::load(), Assumed::default());
    let digest = paper.digest();
    let right = Parts::fit(&paper, [digest], &assumed)[0];
    let curve = |parts| [Curve::of(&paper, digest, Side::Sends, parts, &assumed, &OPTIONS)];
    let fitted = curve(right);
    let (rates, model) = (check_of_rates(&fitted), check_of_model(fitted.iter()));
    assert!(rates.holds && model.holds, "{} {}", rates.detail, model.detail);
    // A slower digest gives another rate, and a better speedup.
    let slow_digest = curve(Parts { digest_us: right.digest_us * 1.1, ..right });
    assert!(!check_of_rates(&slow_digest).holds && !check_of_model(slow_digest.iter()).holds);
    // A longer serial step, compensated by a faster digest, gives the same rate and a worse
    // speedup.
    let serial_us = right.bare_us * 0.2;
    let slow_serial =
        curve(Parts { bare_us: right.bare_us + serial_us, digest_us: right.digest_us - serial_us, ..right });
    assert!(!check_of_model(slow_serial.iter()).holds);
}

#[test]
fn the_fit_meets_the_printed_rate_whatever_an_acknowledgement_costs() {
    let paper = Throughput::load();
    for empty_share in [0.0, 0.25, 1.0] {
        let assumed = Assumed { empty_share, ..Assumed::default() };
        let costs = Parts::fit(&paper, [paper.bare()], &assumed)[0].costs(&paper, &assumed);
        let found = transfer(&paper, paper.bare(), Side::Sends, 1, costs, &assumed, Effort::Full).run(1, 0);
        let off = found.mbps / paper.bare().throughput_mbps - 1.0;
        assert!(off.abs() < 0.002, "{empty_share}: {off}");
    }
}
