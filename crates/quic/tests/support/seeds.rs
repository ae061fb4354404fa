//! Pieces of tests that choose what happens by a seed.

use units::Rng;

/// The seed and its configuration, printed only if the test fails.
pub struct FailureContext(pub String);

impl Drop for FailureContext {
    #[expect(clippy::print_stdout, reason = "the test harness shows it with the failure")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.0);
        }
    }
}

/// A number whose magnitude is uniform, so that small and large ones are both common.
pub fn magnitude(rng: &mut Rng, most: u64) -> u64 {
    let bits = rng.between(0, 64 - u64::from(most.leading_zeros()));
    rng.below(1 << bits.min(62)).clamp(1, most)
}

/// A number from the environment.
pub fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |value| value.parse().expect("a number"))
}
