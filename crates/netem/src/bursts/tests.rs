use proptest::prelude::*;
use units::Rng;

use super::*;

/// Returns the share of lost packets and the mean burst length over `count` packets.
fn measure(settings: &BurstLoss, seed: u64, count: u32) -> (f64, f64) {
    let mut bursts = Bursts::new(&Rng::from_seed(seed));
    let (mut lost, mut runs, mut before) = (0, 0, false);
    for _ in 0..count {
        let now = bursts.step(settings);
        lost += u32::from(now);
        runs += u32::from(now && !before);
        before = now;
    }
    (f64::from(lost) / f64::from(count), f64::from(lost) / f64::from(runs.max(1)))
}

#[test]
fn the_closed_forms_match_known_special_cases() {
    // Gilbert's simplest case: all packets are lost in the bad state and none in the good state, so
    // a burst is a stay in the bad state.
    let settings = BurstLoss {
        good_to_bad: Ratio::new(1, 100),
        bad_to_good: Ratio::new(1, 4),
        loss_good: Ratio::ZERO,
        loss_bad: Ratio::ONE,
    };
    assert!((settings.mean_loss() - 0.01 / 0.26).abs() < 1e-12);
    assert!((settings.mean_burst_packets() - 4.0).abs() < 1e-12);
    // Equal states: independent loss, whose mean burst length is 1 / (1 - p).
    let alike = BurstLoss { loss_good: Ratio::new(1, 5), loss_bad: Ratio::new(1, 5), ..settings };
    assert!((alike.mean_loss() - 0.2).abs() < 1e-12);
    assert!((alike.mean_burst_packets() - 1.25).abs() < 1e-12);
    let always = BurstLoss { loss_good: Ratio::ONE, loss_bad: Ratio::ONE, ..settings };
    assert_eq!(always.mean_burst_packets(), f64::INFINITY);
}

#[test]
fn measured_losses_match_the_closed_forms() {
    let grid = [(20, 5, 0, 100), (50, 10, 1, 60), (200, 3, 0, 50), (10, 2, 5, 90)];
    for (good_packets, bad_packets, loss_good, loss_bad) in grid {
        let settings = BurstLoss {
            good_to_bad: Ratio::new(1, good_packets),
            bad_to_good: Ratio::new(1, bad_packets),
            loss_good: Ratio::new(loss_good, 100),
            loss_bad: Ratio::new(loss_bad, 100),
        };
        let (loss, burst) = measure(&settings, 8, 1_000_000);
        // At least 4,900 stays in the bad state, each of a geometric length: a standard error below
        // 2 %.
        assert!((loss / settings.mean_loss() - 1.0).abs() < 0.04, "{loss} for {}: {settings:?}", settings.mean_loss());
        let expected = settings.mean_burst_packets();
        assert!((burst / expected - 1.0).abs() < 0.04, "{burst} for {expected}: {settings:?}");
    }
}

#[test]
fn more_loss_in_one_state_does_not_shift_draws_of_the_other() {
    let settings = BurstLoss {
        good_to_bad: Ratio::new(1, 10),
        bad_to_good: Ratio::new(1, 5),
        loss_good: Ratio::ZERO,
        loss_bad: Ratio::new(1, 2),
    };
    let noisy = BurstLoss { loss_good: Ratio::new(1, 3), ..settings };
    let (mut quiet_chain, mut noisy_chain) = (Bursts::new(&Rng::from_seed(1)), Bursts::new(&Rng::from_seed(1)));
    let mut lost_in_good = 0;
    for _ in 0..10_000 {
        let (quiet, noise) = (quiet_chain.step(&settings), noisy_chain.step(&noisy));
        assert_eq!(quiet_chain.is_bad, noisy_chain.is_bad);
        assert!(!quiet_chain.is_bad || quiet == noise);
        lost_in_good += u32::from(noise && !quiet);
    }
    assert!(lost_in_good > 2000, "{lost_in_good}");
}

proptest! {
    #[test]
    fn the_closed_forms_stay_in_range(ratios in prop::array::uniform4(1..999_999_u64)) {
        let [good_to_bad, bad_to_good, loss_good, loss_bad] = ratios.map(Ratio::from_millionths);
        let settings = BurstLoss { good_to_bad, bad_to_good, loss_good, loss_bad };
        let (low, high) = (loss_good.as_f64().min(loss_bad.as_f64()), loss_good.as_f64().max(loss_bad.as_f64()));
        prop_assert!((low - 1e-12..=high + 1e-12).contains(&settings.mean_loss()));
        prop_assert!(settings.mean_burst_packets() >= 1.0 - 1e-9);
    }
}
