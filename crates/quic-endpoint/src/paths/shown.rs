//! State of a path as shown to users.
//!
//! [`PathState`] is the sender's state of a path. It differs from what users need in two cases: the
//! last active path of a connection stays active although nothing can be sent on it, because no
//! other one works, and a silent path that carries data again becomes active only after it has
//! answered a challenge.

use quic::PathState;
use units::Duration;

/// Time without a packet after which a path that expects packets is silent.
pub const SILENCE_MIN: Duration = Duration::from_secs(3);

/// Snapshot of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The connection's state of the path.
    pub state: PathState,
    /// Whether packets can be sent from its device and its address.
    pub is_link_usable: bool,
    /// Whether, since the last snapshot, a packet arrived on it, or data sent on it was
    /// acknowledged.
    pub is_carrying: bool,
    /// Whether packets sent on it wait for an acknowledgement.
    pub expects_packets: bool,
    /// Time since the last packet arrived on it.
    pub quiet_for: Duration,
}

/// The state of a path, for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShownState {
    /// It is probed and has not answered yet.
    Validating,
    /// It works.
    Active,
    /// It does not answer.
    Silent,
    /// Its device or its address cannot be used now.
    Down,
    /// It is closed.
    Abandoned,
}

impl ShownState {
    /// Returns the state that follows from the observation.
    #[must_use]
    pub fn of(path: &Observation) -> Self {
        match path.state {
            PathState::Abandoned => Self::Abandoned,
            _ if !path.is_link_usable => Self::Down,
            PathState::Validating => Self::Validating,
            _ if path.is_carrying => Self::Active,
            PathState::Active if path.expects_packets && path.quiet_for >= SILENCE_MIN => Self::Silent,
            PathState::Active => Self::Active,
            // Includes states added later.
            _ => Self::Silent,
        }
    }

    /// Returns the name in texts and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::Active => "active",
            Self::Silent => "silent",
            Self::Down => "down",
            Self::Abandoned => "abandoned",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn arb_observation() -> impl Strategy<Value = Observation> {
        let states = [PathState::Validating, PathState::Active, PathState::Silent, PathState::Abandoned];
        (prop::sample::select(states.to_vec()), any::<[bool; 3]>(), 0_u64..10).prop_map(
            |(state, [is_link_usable, is_carrying, expects_packets], quiet)| Observation {
                state,
                is_link_usable,
                is_carrying,
                expects_packets,
                quiet_for: Duration::from_secs(quiet),
            },
        )
    }

    proptest! {
        #[test]
        fn no_state_contradicts_what_is_seen(path in arb_observation()) {
            let shown = ShownState::of(&path);
            if shown == ShownState::Active {
                prop_assert!(path.is_link_usable, "a device that is down carries nothing");
                prop_assert!(
                    path.is_carrying || !path.expects_packets || path.quiet_for < SILENCE_MIN,
                    "nothing has arrived for long"
                );
            }
            if shown == ShownState::Silent {
                prop_assert!(!path.is_carrying, "packets arrive");
            }
            prop_assert_eq!(shown == ShownState::Abandoned, path.state == PathState::Abandoned);
            prop_assert_eq!(
                shown == ShownState::Validating,
                path.state == PathState::Validating && path.is_link_usable,
                "an address that was not validated carries no data"
            );
        }
    }
}
