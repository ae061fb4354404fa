use proptest::prelude::*;
use units::Rng;

use super::*;

const DRAWS: u32 = 100_000;

fn in_order(distribution: Distribution) -> Jitter {
    Jitter { distribution, reorders: false }
}

/// Sorted delays in milliseconds.
fn draws(distribution: Distribution, delay: Duration) -> Vec<f64> {
    let mut rng = Rng::from_seed(77);
    let jitter = in_order(distribution);
    let mut draws: Vec<f64> = (0..DRAWS).map(|_| jitter.draw(delay, &mut rng).as_secs_f64() * 1e3).collect();
    draws.sort_by(f64::total_cmp);
    draws
}

fn mean(draws: &[f64]) -> f64 {
    draws.iter().sum::<f64>() / draws.len() as f64
}

fn deviation(draws: &[f64]) -> f64 {
    let mean = mean(draws);
    (draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / draws.len() as f64).sqrt()
}

/// Returns the largest distance between the empirical and the expected distribution function. By
/// Kolmogorov's law it exceeds 1.95 / sqrt(draws), here 0.0062, for one in a thousand seeds; the
/// seed is fixed.
fn distance(draws: &[f64], expected: impl Fn(f64) -> f64) -> f64 {
    let share = |index: usize| index as f64 / draws.len() as f64;
    let gaps = draws.iter().enumerate().map(|(index, &draw)| (share(index + 1) - expected(draw)).abs());
    gaps.fold(0.0, f64::max)
}

#[test]
fn uniform_jitter_is_uniform() {
    let draws = draws(Distribution::Uniform { max: Duration::from_millis(8) }, Duration::from_millis(20));
    assert!(draws[0] >= 20.0 && draws[draws.len() - 1] <= 28.0);
    let gap = distance(&draws, |ms| (ms - 20.0) / 8.0);
    assert!(gap < 0.0062, "{gap}");
}

#[test]
fn normal_jitter_is_centred_on_the_delay() {
    let draws = draws(Distribution::Normal { deviation: Duration::from_millis(4) }, Duration::from_millis(40));
    // Five standard errors of 4 / sqrt(100,000) and 4 / sqrt(200,000).
    assert!((mean(&draws) - 40.0).abs() < 0.064, "{}", mean(&draws));
    assert!((deviation(&draws) - 4.0).abs() < 0.045, "{}", deviation(&draws));
    // Half a deviation to each side covers 38.292 % of a normal distribution; three standard
    // errors.
    let inside = draws.iter().filter(|&&ms| (38.0..42.0).contains(&ms)).count() as f64 / f64::from(DRAWS);
    assert!((inside - 0.38292).abs() < 0.0047, "{inside}");
}

#[test]
fn normal_jitter_is_truncated_at_zero() {
    let draws = draws(Distribution::Normal { deviation: Duration::from_millis(4) }, Duration::ZERO);
    // The rest is half a normal distribution: its mean is sqrt(2 / pi) deviations.
    let expected = 4.0 * (2.0 / core::f64::consts::PI).sqrt();
    assert!((mean(&draws) - expected).abs() < 0.04, "{} for {expected}", mean(&draws));
    let at_zero = draws.iter().filter(|&&ms| ms < 0.001).count();
    assert!(at_zero < 60, "{at_zero} draws below a microsecond, 20 are due");
}

#[test]
fn pareto_jitter_has_a_heavy_tail_up_to_the_cap() {
    let distribution = Distribution::Pareto {
        scale: Duration::from_millis(2),
        shape_hundredths: 150,
        cap: Duration::from_millis(500),
    };
    let draws = draws(distribution, Duration::from_millis(10));
    let gap = distance(&draws, |ms| if ms < 510.0 { 1.0 - (1.0 + (ms - 10.0) / 2.0).powf(-1.5) } else { 1.0 });
    assert!(gap < 0.0062, "{gap}");
    assert_eq!(draws[draws.len() - 1], 510.0, "the cap is reached");
    let capped = draws.iter().filter(|&&ms| ms == 510.0).count();
    // 251 ^ -1.5 of them: 25.1 in 100,000.
    assert!((10..45).contains(&capped), "{capped}");
    let half = draws[draws.len() / 2] - 10.0;
    assert!((half - 2.0 * (2_f64.powf(1.0 / 1.5) - 1.0)).abs() < 0.03, "{half}");
}

#[test]
fn a_seed_gives_the_same_delays_on_every_machine() {
    let mut rng = Rng::from_seed(5);
    let delay = Duration::from_millis(10);
    let normal = in_order(Distribution::Normal { deviation: Duration::from_millis(1) });
    let pareto = in_order(Distribution::Pareto {
        scale: Duration::from_millis(1),
        shape_hundredths: 120,
        cap: Duration::from_secs(1),
    });
    let drawn = [normal, pareto, normal, pareto].map(|jitter| jitter.draw(delay, &mut rng).as_nanos());
    // Verified with a program in another language with its own logarithm.
    assert_eq!(drawn, [8_472_304, 15_930_756, 9_300_437, 10_341_007]);
}

proptest! {
    #[test]
    fn draws_stay_within_their_bounds(
        seed: u64,
        delay in 0..u64::MAX,
        width in 1..u64::MAX,
        shape_hundredths in 1..=PARETO_SHAPE_HUNDREDTHS_MAX,
    ) {
        let mut rng = Rng::from_seed(seed);
        let (delay, width) = (Duration::from_nanos(delay), Duration::from_nanos(width));
        for distribution in [
            Distribution::Uniform { max: width },
            Distribution::Normal { deviation: width },
            Distribution::Pareto { scale: width, shape_hundredths, cap: width },
        ] {
            let jitter = in_order(distribution);
            prop_assert!(jitter.is_valid());
            let drawn = jitter.draw(delay, &mut rng);
            prop_assert!(drawn >= jitter.shortest(delay), "{distribution:?}");
            prop_assert!(matches!(distribution, Distribution::Normal { .. }) || drawn <= delay + width, "{distribution:?}");
        }
    }
}
