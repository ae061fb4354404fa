//! Which commit a checkout is at, and whether what the program is made of differs from it.
//!
//! A file of its own so that `tests/provenance.rs` can try it on checkouts of all kinds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is said where nobody knows: no repository, no git.
pub(crate) const UNKNOWN: &str = "unknown";

/// Put behind a commit if the sources differ from it.
const DIRTY: &str = "-dirty";

/// Where git would look instead of in the checkout, for example when a hook builds.
const MISLEADING: [&str; 6] =
    ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"];

/// What was found out about a checkout.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The commit, all of it, with [`DIRTY`] behind if so; or [`UNKNOWN`].
    pub(crate) name: String,
    /// Files and folders, all of which exist: if one changes, the name may.
    pub(crate) watched: Vec<PathBuf>,
}

/// Asks git about the workspace at `root`. A repository around it, into which it was only unpacked, does not count.
pub(crate) fn find(root: &Path) -> Found {
    let unknown = || Found { name: UNKNOWN.to_owned(), watched: Vec::new() };
    let top = git(root, &["rev-parse", "--show-toplevel"]).map(PathBuf::from);
    let is_ours = top.and_then(|top| fs::canonicalize(top).ok()) == fs::canonicalize(root).ok();
    if !is_ours {
        return unknown();
    }
    let Some(commit) = git(root, &["rev-parse", "--verify", "HEAD"]) else { return unknown() };
    let sources = sources(root);
    // Cargo looks at the sources of this package's dependencies anyway, so to watch them builds nothing more often.
    let watched = sources.iter().map(|source| root.join(source)).chain(refs(root)).filter(|path| path.exists());
    let watched = watched.collect();
    let is_dirty = is_dirty(root, &sources);
    // If git cannot say whether it is clean, it is not known to be.
    let suffix = if is_dirty.unwrap_or(true) { DIRTY } else { "" };
    Found { name: format!("{commit}{suffix}"), watched }
}

/// What the program is made of, below `root`. Tests, benchmarks and documents are no part of it.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut sources: Vec<PathBuf> = ["Cargo.toml", "Cargo.lock"].map(PathBuf::from).into();
    let Ok(packages) = fs::read_dir(root.join("crates")) else { return sources };
    let mut packages: Vec<_> = packages.flatten().map(|entry| Path::new("crates").join(entry.file_name())).collect();
    packages.sort();
    for package in packages {
        let parts = ["Cargo.toml", "build.rs", "build", "src", "data"].map(|part| package.join(part));
        sources.extend(parts.into_iter().filter(|part| root.join(part).exists()));
    }
    sources
}

/// Whether anything of `sources` differs from the commit, or is not in it.
fn is_dirty(root: &Path, sources: &[PathBuf]) -> Option<bool> {
    // Without optional locks: a build must not get into the way of a commit that is being made.
    let mut command = command(root);
    command.args(["--no-optional-locks", "status", "--porcelain", "--untracked-files=normal", "--"]).args(sources);
    answer(command).map(|changes| !changes.is_empty())
}

/// What says where HEAD is. In a work tree of its own, HEAD lies there and the branch in the repository that they share, so git is
/// asked. The log of HEAD is among them because a branch whose commit is packed has no file that would change.
fn refs(root: &Path) -> Vec<PathBuf> {
    let branch = git(root, &["symbolic-ref", "-q", "HEAD"]);
    let names = ["HEAD", "logs/HEAD", "packed-refs"].map(str::to_owned).into_iter().chain(branch);
    names.filter_map(|name| git(root, &["rev-parse", "--git-path", &name])).map(|path| root.join(path)).collect()
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = command(root);
    command.args(arguments);
    answer(command)
}

fn command(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(root);
    for name in MISLEADING {
        command.env_remove(name);
    }
    command
}

/// What it says on standard output, without the end of the line; `None` if it cannot be started or fails.
fn answer(mut command: Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}
