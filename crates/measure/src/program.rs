//! Which program made a result: every file of results says so.

use serde::Serialize;

/// Characters of a commit that tell it from all others to people.
const COMMIT_CHARACTERS: usize = 12;

/// A build of Litz. What it makes of the same seed and options is the same, to the byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Its version.
    pub litz_version: &'static str,
    /// The commit that it was built from, in full, with `-dirty` behind if its sources differed from that; `unknown` if it was built
    /// outside its repository.
    pub litz_commit: &'static str,
}

impl Program {
    /// For people.
    pub fn words(&self) -> String {
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
    fn people_see_the_beginning_of_a_commit_and_whether_it_was_changed() {
        let words = |litz_commit| Program { litz_version: "1.2.3", litz_commit }.words();
        assert_eq!(words("0123456789abcdef0123456789abcdef01234567"), "litz 1.2.3 (commit 0123456789ab)");
        assert_eq!(words("0123456789abcdef0123456789abcdef01234567-dirty"), "litz 1.2.3 (commit 0123456789ab-dirty)");
        assert_eq!(words("unknown"), "litz 1.2.3 (commit unknown)");
    }
}
