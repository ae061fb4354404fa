//! Conservation checks: everything that a run created must be accounted for at its end.

use sim::Simulation;

/// Checks the accounting of every component, each of which verifies Little's law when it reports.
///
/// # Panics
/// Panics if a component violates it.
pub(crate) fn check_accounting(simulation: &Simulation) {
    let _reports = simulation.reports();
}

/// Checks that all `created` items of `what` are at one of `places`: delivered, dropped, or in
/// flight.
///
/// # Panics
/// Panics if there are more or fewer. The model then loses or duplicates items, and its results are
/// invalid.
pub(crate) fn assert_conserved(what: &str, created: u64, places: &[(&str, u64)]) {
    let found: u64 = places.iter().map(|(_, count)| count).sum();
    assert!(created == found, "{what} are not conserved: {created} were created, {found} are found: {places:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounted_items_are_conserved() {
        assert_conserved("packets", 10, &[("delivered", 7), ("dropped", 1), ("in flight", 2)]);
    }

    #[test]
    #[should_panic(expected = "packets are not conserved: 10 were created, 9 are found")]
    fn a_loss_is_detected() {
        assert_conserved("packets", 10, &[("delivered", 7), ("in flight", 2)]);
    }

    #[test]
    #[should_panic(expected = "packets are not conserved: 10 were created, 11 are found")]
    fn a_duplicate_is_detected() {
        assert_conserved("packets", 10, &[("delivered", 11)]);
    }
}
