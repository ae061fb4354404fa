//! The exact integer cube root. CUBIC uses it once per congestion event.

/// Returns the largest `root` with `root^3 <= value`. At most `floor(cbrt(2^128 - 1))`, 43 bits.
///
/// Determines one bit per step, from the highest. With the result `r` so far and the bit `b` to
/// test, `(r + b)^3` exceeds `r^3` by `b * (3r^2 + 3rb + b^2)`. With `value - r^3` as the
/// remainder, one comparison decides the bit. 43 steps with two products each take about 100 ns,
/// which is affordable per congestion event, and no initial estimate is needed.
pub(crate) const fn cube_root(value: u128) -> u64 {
    let mut root: u128 = 0;
    let mut remainder = value;
    let mut bit = 43;
    while bit > 0 {
        bit -= 1;
        let b = 1_u128 << bit;
        // Below 3 * 2^86 + 3 * 2^86 + 2^84 < 2^89 for every bit, so the sum does not overflow.
        let factor = 3 * root * (root + b) + b * b;
        // The shift of the product may overflow, so the comparison shifts the remainder instead.
        if factor <= remainder >> bit {
            remainder -= factor << bit;
            root |= b;
        }
    }
    root as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_values_match_a_linear_search() {
        let mut root = 0_u64;
        for value in 0..200_000_u64 {
            while (root + 1).pow(3) <= value {
                root += 1;
            }
            assert_eq!(cube_root(u128::from(value)), root, "of {value}");
        }
    }

    #[test]
    fn the_root_changes_exactly_at_cubes() {
        // The largest root: its cube fits, the next one does not.
        let largest = cube_root(u128::MAX);
        assert!(u128::from(largest).checked_pow(3).is_some() && u128::from(largest + 1).checked_pow(3).is_none());
        for root in (1..=largest).rev().step_by((largest / 5000) as usize) {
            let cube = u128::from(root).pow(3);
            assert_eq!((cube_root(cube - 1), cube_root(cube)), (root - 1, root));
        }
    }

    /// Computes the root slowly, as a reference implementation.
    fn by_bisection(value: u128) -> u64 {
        let (mut low, mut high) = (0_u64, 1 << 43);
        while high - low > 1 {
            let middle = low.midpoint(high);
            match u128::from(middle).checked_pow(3) {
                Some(cube) if cube <= value => low = middle,
                _ => high = middle,
            }
        }
        low
    }

    proptest! {
        #[test]
        fn every_value_agrees_with_bisection(value: u128, shift in 0_u32..128) {
            let value = value >> shift;
            prop_assert_eq!(cube_root(value), by_bisection(value));
        }
    }
}
