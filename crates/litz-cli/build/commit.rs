//! Determines the commit of a checkout, and whether the program's sources differ from it. A
//! separate file, so that `tests/provenance.rs` can test it on checkouts of all kinds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name if the commit is not known: no repository, or no git.
pub(crate) const UNKNOWN: &str = "unknown";

/// Appended to the commit if the sources differ from it.
const DIRTY: &str = "-dirty";

/// Variables that make git use another repository than the checkout's, for example in a hook.
const MISLEADING: [&str; 6] =
    ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"];

/// The result for a checkout.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The full commit hash, with [`DIRTY`] appended if the sources differ; or [`UNKNOWN`].
    pub(crate) name: String,
    /// Existing files and folders whose change may change the name.
    pub(crate) watched: Vec<PathBuf>,
}

/// Asks git about the workspace at `root`. An enclosing repository, into which the workspace was
/// only unpacked, does not count.
pub(crate) fn find(root: &Path) -> Found {
    let unknown = || Found { name: UNKNOWN.to_owned(), watched: Vec::new() };
    let top = git(root, &["rev-parse", "--show-toplevel"]).map(PathBuf::from);
    let is_ours = top.and_then(|top| fs::canonicalize(top).ok()) == fs::canonicalize(root).ok();
    if !is_ours {
        return unknown();
    }
    let Some(commit) = git(root, &["rev-parse", "--verify", "HEAD"]) else { return unknown() };
    let sources = sources(root);
    // Cargo watches the sources of dependencies anyway, so watching them here causes no additional
    // builds.
    let watched = sources.iter().map(|source| root.join(source)).chain(refs(root)).filter(|path| path.exists());
    let watched = watched.collect();
    let is_dirty = is_dirty(root, &sources);
    // If git cannot tell whether the checkout is clean, it counts as dirty.
    let suffix = if is_dirty.unwrap_or(true) { DIRTY } else { "" };
    Found { name: format!("{commit}{suffix}"), watched }
}

/// The program's sources, relative to `root`. Tests, benchmarks and documents are not part of the
/// program.
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

/// Whether any of `sources` differs from the commit or is not in it.
fn is_dirty(root: &Path, sources: &[PathBuf]) -> Option<bool> {
    // Without optional locks, so that a build does not disturb a concurrent commit.
    let mut command = command(root);
    command.args(["--no-optional-locks", "status", "--porcelain", "--untracked-files=normal", "--"]).args(sources);
    answer(command).map(|changes| !changes.is_empty())
}

/// The files that determine HEAD. Git is asked for them, because a linked work tree has its own
/// HEAD while the branch is in the shared repository. The log of HEAD is included because a branch
/// whose commit is packed has no file of its own.
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

/// The standard output without the final newline; `None` if the command cannot be started or fails.
fn answer(mut command: Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}
