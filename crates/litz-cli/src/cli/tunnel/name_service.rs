//! Names looked up through the tunnel: systemd-resolved is told, where it runs, and otherwise
//! `/etc/resolv.conf` is written, and restored.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use tunnel::upkeep::Presence;

/// The file that the C library and others read.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// There while systemd-resolved runs.
const RESOLVED: &str = "/run/systemd/resolve/io.systemd.Resolve";

/// Name servers that a resolver asks, at most (`MAXNS` of resolv.conf).
const SERVERS_MAX: usize = 3;

/// What was changed.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub(super) enum NameService {
    /// systemd-resolved was told. It forgets with the device.
    Resolved,
    /// The file was replaced.
    File {
        /// What is in it now. If it is something else by then, another program has changed it since.
        ours: String,
        /// What was in it; none if there was no file.
        before: Option<String>,
    },
}

/// A systemd-resolved that runs. Another one does not know what this one was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Resolver {
    /// The number of its socket's file, and when that was made, in seconds and nanoseconds.
    file: (u64, i64, i64),
}

impl Resolver {
    /// The one that runs; none if there is none.
    pub(super) fn of_this_host() -> Option<Self> {
        let metadata = fs::metadata(RESOLVED).ok()?;
        Some(Self { file: (metadata.ino(), metadata.ctime(), metadata.ctime_nsec()) })
    }
}

impl NameService {
    /// Whether the change is in force; `told` is the resolver that was told.
    pub(super) fn presence(&self, told: Option<&Resolver>) -> Presence {
        let is_there = match self {
            Self::Resolved => match Resolver::of_this_host() {
                None => return Presence::Impossible,
                now => now.as_ref() == told,
            },
            Self::File { ours, .. } => fs::read_to_string(RESOLV_CONF).is_ok_and(|text| text == *ours),
        };
        if is_there { Presence::Present } else { Presence::Missing }
    }

    /// Refuses to begin where the change could not be made, as far as that is seen before.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn check() -> Result<(), String> {
        if Path::new(RESOLVED).exists() {
            return Ok(());
        }
        match fs::OpenOptions::new().append(true).open(RESOLV_CONF) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_link(RESOLV_CONF) {
                Ok(target) if !is_in_a_folder(&target) => Err(format!(
                    "{RESOLV_CONF} is a link to {}, whose folder does not exist: remove the link, or leave --dns out",
                    target.display()
                )),
                _ => Ok(()),
            },
            Err(error) => Err(format!("cannot write {RESOLV_CONF}, which --dns needs: {error}")),
        }
    }

    /// The change that is to be made, so that names are looked up at `servers`. `kept` is one that was made
    /// before and is still in force.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn plan(device: &str, servers: &[IpAddr], kept: Option<&Self>) -> Result<Self, String> {
        if Path::new(RESOLVED).exists() {
            return Ok(Self::Resolved);
        }
        let lines: String = servers.iter().take(SERVERS_MAX).map(|server| format!("nameserver {server}\n")).collect();
        let before = match fs::read_to_string(RESOLV_CONF) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(format!("cannot read {RESOLV_CONF}: {error}")),
        };
        let before = match kept {
            Some(Self::File { ours, before: first }) if before.as_ref() == Some(ours) => first.clone(),
            _ => before,
        };
        Ok(Self::File { ours: format!("# Of the tunnel {device}, until it ends.\n{lines}"), before })
    }

    /// Makes the change.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn make(&self, device: &str, servers: &[IpAddr]) -> Result<(), String> {
        match self {
            Self::Resolved => {
                let servers: Vec<String> = servers.iter().take(SERVERS_MAX).map(ToString::to_string).collect();
                let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
                resolvectl(&[&["dns", device], &servers[..]].concat())?;
                // All names, before the servers of other links.
                resolvectl(&["domain", device, "~."])
            }
            // In place: in a container or a network namespace the file is mounted.
            Self::File { ours, .. } => {
                fs::write(RESOLV_CONF, ours).map_err(|error| format!("cannot write {RESOLV_CONF}: {error}"))
            }
        }
    }

    /// Undoes it, unless another program has changed the file since.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn undo(&self) -> Result<(), String> {
        let Self::File { ours, before } = self else { return Ok(()) };
        let text = match fs::read(RESOLV_CONF) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(format!("cannot read {RESOLV_CONF}: {error}")),
        };
        if text == ours.as_bytes() {
            let undone =
                before.as_ref().map_or_else(|| remove(Path::new(RESOLV_CONF)), |text| fs::write(RESOLV_CONF, text));
            undone.map_err(|error| format!("cannot restore {RESOLV_CONF}: {error}"))?;
        }
        Ok(())
    }
}

/// Removes what was written at `path`: the file, and not a link that leads to it, which was there before.
fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path.canonicalize()?)
}

/// Whether the target of a link of `/etc` could be made.
fn is_in_a_folder(target: &Path) -> bool {
    Path::new(RESOLV_CONF).with_file_name(target).parent().is_some_and(Path::is_dir)
}

fn resolvectl(arguments: &[&str]) -> Result<(), String> {
    let shown = || format!("resolvectl {}", arguments.join(" "));
    let output = Command::new("resolvectl").args(arguments).output();
    let output = output.map_err(|error| format!("cannot run `{}`: {error}", shown()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`{}` failed: {}", shown(), String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_without_a_target_is_one_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (link, target) = (folder.path().join("resolv.conf"), folder.path().join("run"));
        std::os::unix::fs::symlink("run", &link).expect("a link");
        fs::write(&link, "nameserver 192.0.2.1\n").expect("it makes the target");
        remove(&link).expect("it is there");
        assert!(!target.exists() && fs::read_link(&link).is_ok_and(|to| to == Path::new("run")));
    }
}
