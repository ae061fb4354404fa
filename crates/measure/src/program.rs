//! The build that produced a result, as recorded in every results file.

use serde::Serialize;

/// Length of an abbreviated commit ID.
const COMMIT_CHARACTERS: usize = 12;

/// A build of Litz. Equal builds produce identical results from the same seed and options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// The version.
    pub litz_version: &'static str,
    /// The full commit ID of the sources, with the suffix `-dirty` if they were modified; `unknown`
    /// for a build outside the repository.
    pub litz_commit: &'static str,
}

impl Program {
    /// Returns a short description for people, with an abbreviated commit ID.
    pub fn summary(&self) -> String {
        let (commit, dirty) = match self.litz_commit.split_once('-') {
            Some((commit, _)) => (commit, "-dirty"),
            None => (self.litz_commit, ""),
        };
        let commit = commit.get(..COMMIT_CHARACTERS).unwrap_or(commit);
        format!("litz {} (commit {commit}{dirty})", self.litz_version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_abbreviates_the_commit_and_shows_dirty() {
        let summary = |litz_commit| Program { litz_version: "1.2.3", litz_commit }.summary();
        assert_eq!(summary("0123456789abcdef0123456789abcdef01234567"), "litz 1.2.3 (commit 0123456789ab)");
        assert_eq!(summary("0123456789abcdef0123456789abcdef01234567-dirty"), "litz 1.2.3 (commit 0123456789ab-dirty)");
        assert_eq!(summary("unknown"), "litz 1.2.3 (commit unknown)");
    }
}
