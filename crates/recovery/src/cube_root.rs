//! The integer cube root, exact. CUBIC needs it once per congestion event.

/// The largest `root` with `root^3 <= value`. At most `floor(cbrt(2^128 - 1))`, 43 bits.
///
/// One bit of the result at a time, from the top. With `r` found so far and `b` the bit to try, `(r + b)^3` exceeds
/// `r^3` by `b * (3r^2 + 3rb + b^2)`; keeping `value - r^3` as the remainder, one comparison decides the bit. 43 steps
/// of two products: some 100 ns, which a congestion event can afford, and no first guess that could be wrong.
pub(crate) const fn cube_root(value: u128) -> u64 {
    let mut root: u128 = 0;
    let mut remainder = value;
    let mut bit = 43;
    while bit > 0 {
        bit -= 1;
        let b = 1_u128 << bit;
        // Below 3 * 2^86 + 3 * 2^86 + 2^84 < 2^89 whatever the bit, so the sum itself is safe.
        let factor = 3 * root * (root + b) + b * b;
        // The shift is safe only where the product fits: compare against the shifted remainder instead.
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
    fn small_values_agree_with_counting() {
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
        // The largest root: its cube still fits, the next one does not.
        let largest = cube_root(u128::MAX);
        assert!(u128::from(largest).checked_pow(3).is_some() && u128::from(largest + 1).checked_pow(3).is_none());
        for root in (1..=largest).rev().step_by((largest / 5000) as usize) {
            let cube = u128::from(root).pow(3);
            assert_eq!((cube_root(cube - 1), cube_root(cube)), (root - 1, root));
        }
    }

    /// The slow, obvious oracle.
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
