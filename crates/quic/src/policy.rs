//! Policies: which decisions are made for each path, and which once for all paths.
//!
//! Two decisions can be made either way: where lost data is sent again, and when and where
//! acknowledgements leave. That makes four policies, named by a letter pair each, retransmissions
//! first: `D` is distributed over the paths, `C` central.
//!
//! | name | retransmissions | acknowledgements |
//! |---|---|---|
//! | `DRDA` | on the path that lost them | of each path by itself, on that path |
//! | `DRCA` | on the path that lost them | of all paths at once, on the best one |
//! | `CRDA` (default) | on the path that the scheduler chooses | of each path by itself, on that path |
//! | `CRCA` | on the path that the scheduler chooses | of all paths at once, on the best one |
//!
//! Packets of a path whose address is being validated are acknowledged on that path under each of
//! them. With one path all are the same. Each side chooses for itself: the sender of data decides on
//! retransmissions, its receiver on acknowledgements. A side that acknowledges centrally assumes that
//! its peer does so, too, when it requests an acknowledgement frequency
//! (draft-ietf-quic-ack-frequency-14) and when it measures round trips.

use std::fmt;
use std::str::FromStr;

/// Where lost stream data is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetransmissionPolicy {
    /// On any path: lost data of all paths is in one queue, and the scheduler chooses.
    #[default]
    Shared,
    /// On the path that lost it, before new data. If that path is silent, suspect, abandoned or
    /// refused by the system, or if its socket stays full, other paths carry it. The policy applies
    /// neither to copies and reinjections of the scheduler nor to control frames, which belong to
    /// no path.
    OwnPath,
}

/// When and where acknowledgements leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckPolicy {
    /// Decided for each path, and sent on it: round trips stay those of one path. The best path
    /// carries those of a silent path.
    #[default]
    PerPath,
    /// Decided once for all paths: their packets count together and share one delay, and all
    /// acknowledgements that are due leave in one packet, on the path with the shortest round trip.
    /// There are fewer acknowledgements, and those of slow paths arrive earlier. But a round trip
    /// uses two paths, and a failure of the best path affects the acknowledgements of all.
    Central,
}

/// Both decisions. Reads and prints as `DRDA`, `DRCA`, `CRDA` or `CRCA`; small letters are read,
/// too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// Where lost data is sent again.
    pub retransmission: RetransmissionPolicy,
    /// When and where acknowledgements leave.
    pub acknowledgement: AckPolicy,
}

impl Policy {
    /// Distributed retransmissions, distributed acknowledgements.
    pub const DRDA: Self = Self { retransmission: RetransmissionPolicy::OwnPath, acknowledgement: AckPolicy::PerPath };
    /// Distributed retransmissions, central acknowledgements.
    pub const DRCA: Self = Self { retransmission: RetransmissionPolicy::OwnPath, acknowledgement: AckPolicy::Central };
    /// Central retransmissions, distributed acknowledgements: the default.
    pub const CRDA: Self = Self { retransmission: RetransmissionPolicy::Shared, acknowledgement: AckPolicy::PerPath };
    /// Central retransmissions, central acknowledgements.
    pub const CRCA: Self = Self { retransmission: RetransmissionPolicy::Shared, acknowledgement: AckPolicy::Central };

    /// All of them.
    pub const ALL: [Self; 4] = [Self::DRDA, Self::DRCA, Self::CRDA, Self::CRCA];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match (self.retransmission, self.acknowledgement) {
            (RetransmissionPolicy::OwnPath, AckPolicy::PerPath) => "DRDA",
            (RetransmissionPolicy::OwnPath, AckPolicy::Central) => "DRCA",
            (RetransmissionPolicy::Shared, AckPolicy::PerPath) => "CRDA",
            (RetransmissionPolicy::Shared, AckPolicy::Central) => "CRCA",
        }
    }

    pub(crate) fn resends_on_own_path(self) -> bool {
        self.retransmission == RetransmissionPolicy::OwnPath
    }

    pub(crate) fn acknowledges_centrally(self) -> bool {
        self.acknowledgement == AckPolicy::Central
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = ParsePolicyError;

    /// Fails for any other name.
    fn from_str(input: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(input));
        found.ok_or_else(|| ParsePolicyError { input: input.to_owned() })
    }
}

/// An unknown name of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsePolicyError {
    input: String,
}

impl fmt::Display for ParsePolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no policy {:?}; there are DRDA, DRCA, CRDA and CRCA", self.input)
    }
}

impl std::error::Error for ParsePolicyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_reads_as_it_prints_and_central_retransmissions_are_the_default() {
        for policy in Policy::ALL {
            let name = policy.to_string();
            assert_eq!((name.parse(), name.to_lowercase().parse()), (Ok(policy), Ok(policy)));
            assert_eq!(name.starts_with("DR"), policy.resends_on_own_path());
            assert_eq!(name.ends_with("CA"), policy.acknowledges_centrally());
        }
        assert_eq!(Policy::default(), Policy::CRDA);
    }

    #[test]
    fn an_unknown_policy_is_refused_with_a_list_of_policies() {
        for word in ["", "DRD", "DRDAA", "DCRA", "central"] {
            let error = word.parse::<Policy>().expect_err(word).to_string();
            assert!(error.contains(&format!("{word:?}")), "{error}");
            assert!(Policy::ALL.iter().all(|policy| error.contains(policy.name())), "{error}");
        }
    }
}
