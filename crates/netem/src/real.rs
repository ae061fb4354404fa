//! Logarithm and exponential with identical results on every machine.
//!
//! The standard library leaves the last bits of `ln`, `exp` and `powf` to the system, so a seed
//! could give different runs on different machines. These functions use only operations that IEEE
//! 754 defines exactly, with a relative error below 1e-14.

use core::f64::consts::{LN_2, SQRT_2};

use units::Rng;

const MANTISSA_BITS: u32 = 52;
const EXPONENT_BIAS: i64 = 1023;

/// Returns the natural logarithm of `x`, which must be a normal number above zero.
pub(crate) fn ln(x: f64) -> f64 {
    debug_assert!(x.is_normal() && x > 0.0, "ln is defined for positive normal numbers, not {x}");
    let bits = x.to_bits();
    let mut exponent = (bits >> MANTISSA_BITS) as i64 - EXPONENT_BIAS;
    let mantissa_mask = (1 << MANTISSA_BITS) - 1;
    let mut mantissa = f64::from_bits((bits & mantissa_mask) | ((EXPONENT_BIAS as u64) << MANTISSA_BITS));
    if mantissa > SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 atanh((m - 1) / (m + 1)). The argument is below 0.172, so eleven terms are
    // sufficient for the last bit.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = (0..11).rev().fold(0.0, |sum, term| sum * square + 1.0 / f64::from(2 * term + 1));
    2.0 * s * series + exponent as f64 * LN_2
}

/// Returns e to the power of `y`; infinite above 709 and zero below -708.
pub(crate) fn exp(y: f64) -> f64 {
    if y > 709.0 {
        return f64::INFINITY;
    }
    if y < -708.0 {
        return 0.0;
    }
    let exponent = (y / LN_2).round();
    // The rest is at most 0.347, so fourteen terms are sufficient for the last bit.
    let rest = y - exponent * LN_2;
    let series = (1..=14).rev().fold(1.0, |sum, term| 1.0 + rest / f64::from(term) * sum);
    series * f64::from_bits(((exponent as i64 + EXPONENT_BIAS) as u64) << MANTISSA_BITS)
}

/// Returns a number in `(0, 1]`, in steps of 2^-53. It is never zero, so its logarithm is finite.
pub(crate) const fn unit_draw(rng: &mut Rng) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// Returns a draw from the standard normal distribution, by the polar method (Marsaglia and Bray,
/// 1964).
///
/// Each iteration succeeds with probability pi/4. The second number of a pair is discarded, so that
/// a draw leaves no state.
pub(crate) fn normal_draw(rng: &mut Rng) -> f64 {
    loop {
        let u = 2.0 * unit_draw(rng) - 1.0;
        let v = 2.0 * unit_draw(rng) - 1.0;
        let square = u * u + v * v;
        // A square near zero would not be a normal number. The probability of such a pair is
        // negligible, about 2^-100.
        if square < 1.0 && square > 1e-30 {
            return u * (-2.0 * ln(square) / square).sqrt();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use units::Rng;

    use super::*;

    proptest! {
        #[test]
        fn ln_and_exp_agree_with_the_standard_library(x in 1e-300..1e300_f64, small in 0.5..2.0_f64, y in -700.0..700.0_f64) {
            prop_assert!((ln(x) - x.ln()).abs() <= 1e-13 * x.ln().abs().max(1e-2), "ln {x}: {} {}", ln(x), x.ln());
            prop_assert!((ln(small) - small.ln()).abs() <= 1e-15 + 1e-14 * small.ln().abs(), "ln {small}");
            prop_assert!((exp(y) / y.exp() - 1.0).abs() < 1e-12, "exp {y}: {} {}", exp(y), y.exp());
        }
    }

    #[test]
    fn exp_saturates_at_its_limits() {
        assert_eq!((ln(1.0), exp(0.0)), (0.0, 1.0));
        assert_eq!((exp(1000.0), exp(-1000.0)), (f64::INFINITY, 0.0));
        let mut rng = Rng::from_seed(1);
        assert!((0..10_000).map(|_| unit_draw(&mut rng)).all(|u| u > 0.0 && u <= 1.0));
    }

    #[test]
    fn normal_draws_have_the_moments_of_a_normal() {
        let mut rng = Rng::from_seed(2);
        let count = 200_000;
        let draws: Vec<f64> = (0..count).map(|_| normal_draw(&mut rng)).collect();
        let moment = |power: i32| draws.iter().map(|draw| draw.powi(power)).sum::<f64>() / f64::from(count);
        // Five standard errors: sqrt(1/n), sqrt(2/n), sqrt(15/n), sqrt(96/n).
        assert!(moment(1).abs() < 0.012 && (moment(2) - 1.0).abs() < 0.016, "{} {}", moment(1), moment(2));
        assert!(moment(3).abs() < 0.044 && (moment(4) - 3.0).abs() < 0.11, "{} {}", moment(3), moment(4));
    }
}
