//! What of a connection over several paths is decided path by path, and what once for all of them.
//!
//! Two decisions can be made either way: where lost data go again, and when and where acknowledgements leave. That makes four
//! policies, named by a letter pair each, retransmissions first: `D` is distributed over the paths, `C` central.
//!
//! | name | retransmissions | acknowledgements |
//! |---|---|---|
//! | `DRDA` | on the path that lost them | of each path by itself, on that path |
//! | `DRCA` | on the path that lost them | of all paths at once, on the best one |
//! | `CRDA` (default) | wherever the scheduler says | of each path by itself, on that path |
//! | `CRCA` | wherever the scheduler says | of all paths at once, on the best one |
//!
//! With one path all of them are the same. Both sides choose on their own: retransmissions are the business of who sends
//! data, acknowledgements that of who receives them. A side that acknowledges centrally also takes its peer for one that
//! does, when it asks how often to acknowledge (draft-ietf-quic-ack-frequency-14) and when it measures round trips.

use std::fmt;
use std::str::FromStr;

/// Where stream data go that were declared lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetransmissionPolicy {
    /// Into one queue for all paths: the scheduler says which of them carries them.
    #[default]
    Shared,
    /// Again on the path that lost them, before anything new. If that path is silent or doubted, given up or refused by the
    /// system, or if its socket stays full, others carry them. What the scheduler does by itself (copies, another chance for
    /// what a slow path has not delivered yet) remains its own, and so do control frames, which belong to no path.
    OwnPath,
}

/// Who decides when an acknowledgement leaves, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckPolicy {
    /// Each path for itself, and on itself: round trips stay those of one path. Only if it is silent the best path carries them.
    #[default]
    PerPath,
    /// One decision for all: packets of all paths count together and share one delay, and what is due of any path leaves in one
    /// packet, on the path that answers soonest. There are fewer acknowledgements and those of slow paths come back earlier,
    /// but round trips are mixed (there on one path, back on another), and a cut of the best path costs all of them.
    Central,
}

/// Both decisions. Reads and prints as `DRDA`, `DRCA`, `CRDA` or `CRCA`; small letters are read, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// Where lost data go again.
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

    /// Fails for any other word.
    fn from_str(input: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(input));
        found.ok_or_else(|| ParsePolicyError { input: input.to_owned() })
    }
}

/// A word that names no policy.
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
    fn a_word_that_names_no_policy_is_answered_with_those_that_do() {
        for word in ["", "DRD", "DRDAA", "DCRA", "central"] {
            let error = word.parse::<Policy>().expect_err(word).to_string();
            assert!(error.contains(&format!("{word:?}")), "{error}");
            assert!(Policy::ALL.iter().all(|policy| error.contains(policy.name())), "{error}");
        }
    }
}
