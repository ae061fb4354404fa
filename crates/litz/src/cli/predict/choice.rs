//! The placements that are asked for: one by its name, or what the engine would choose.

use std::fmt;
use std::str::FromStr;

use scenario::simulated::{Costs, End, Placement, Task};
use units::Duration;

/// The packet by which the engine judges how dear the cipher is, in bytes.
const JUDGED_BYTES: usize = 1440;

/// A placement that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// What an endpoint under `auto` chooses when it starts.
    Auto,
    /// This one, at both hosts.
    Named(Placement),
}

impl Choice {
    /// What both hosts have, with so many processors each and an endpoint of so many sockets.
    ///
    /// # Errors
    /// If the engine chooses what cannot be simulated, in words.
    pub(super) fn resolve(
        self,
        costs: &Costs,
        processors: [usize; 2],
        sockets: usize,
    ) -> Result<[Placement; 2], String> {
        let cipher = Duration::from_nanos(costs.packet_ns(End::Sending, Task::Stage, JUDGED_BYTES).round() as u64);
        let resolve = |count: usize| match self {
            Self::Named(placement) => Ok(placement),
            Self::Auto => litz::Placement::suited(count, sockets, Some(cipher)).to_string().parse(),
        };
        let [sending, receiving] = processors;
        Ok([resolve(sending)?, resolve(receiving)?])
    }

    /// Connections of a run. A scenario has one; of bulk under `connection(n)` each processor has its own.
    pub(super) fn connections(self, is_bulk: bool) -> usize {
        match self {
            Self::Named(Placement::Connection(count)) if is_bulk => count.max(1),
            _ => 1,
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Named(placement) => placement.fmt(f),
        }
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        match words {
            "auto" => Ok(Self::Auto),
            _ => words.parse().map(Self::Named).map_err(|error: String| format!("{error}; or auto")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(seal_ns: u32) -> Costs {
        let rows = format!("{{\"points\":[{{\"datagram_bytes\":1472,\"ns\":{{\"seal.cipher\":{seal_ns}}}}}]}}");
        let text = format!(
            "{{\"format\":\"litz-profile\",\"version\":1,\"memory\":{{\"sending\":{rows},\"receiving\":{rows}}}}}"
        );
        Costs::from_profile(&text).expect("it is one")
    }

    #[test]
    fn auto_is_what_the_engine_would_choose_with_these_processors_sockets_and_cipher() {
        let auto = |seal_ns, processors, sockets| Choice::Auto.resolve(&costs(seal_ns), processors, sockets);
        assert_eq!(auto(200, [8, 8], 1), Ok([Placement::Thread; 2]));
        assert_eq!(auto(1200, [8, 8], 1), Ok([Placement::Packet(6); 2]));
        assert_eq!(auto(1200, [1, 2], 1), Ok([Placement::Thread, Placement::Packet(2)]));
        assert_eq!(auto(200, [8, 2], 3), Ok([Placement::Path(3), Placement::Path(2)]));
        let named = Choice::Named(Placement::Split);
        assert_eq!(named.resolve(&costs(200), [1, 2], 3), Ok([Placement::Split; 2]));
    }

    #[test]
    fn bulk_has_as_many_connections_as_processors_that_divide_them() {
        let count = |words: &str, is_bulk| words.parse::<Choice>().map(|choice| choice.connections(is_bulk));
        assert_eq!((count("connection(4)", true), count("connection(4)", false)), (Ok(4), Ok(1)));
        assert_eq!((count("auto", true), count("packet(3)", true)), (Ok(1), Ok(1)));
        assert!(count("nowhere", true).expect_err("there is none").contains("auto"));
    }
}
