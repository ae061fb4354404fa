//! Rights that a server gives up before it takes a packet: a fault in it must not become a fault of
//! the host. Landlock limits the files that it can open ([`places`]), and seccomp the system calls
//! ([`calls`]). Both are lists of what is allowed: what a later kernel adds is refused.
//!
//! Both apply to the thread that asks for them and to the threads that it starts afterwards, so the
//! server enters the sandbox before it starts any.

mod calls;
mod key_list;
mod places;
#[cfg(test)]
mod tests;

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::cli::host;
use crate::cli::transport_options::TransportOptions;

/// Whether the server gives up rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxMode {
    /// As far as the kernel allows it
    Auto,
    /// All of it, or the command does not start
    Require,
    /// The command keeps all rights of its user
    Off,
}

/// The parts of the sandbox that are in force, as the event `listening` names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sandbox(pub(crate) Vec<&'static str>);

/// What a server may still do after its start.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    /// Directories that it changes.
    pub(crate) writable: Vec<PathBuf>,
    /// Files and directories that it reads.
    pub(crate) readable: Vec<PathBuf>,
    /// Directories in which it makes files that it does not read.
    pub(crate) recorded: Vec<PathBuf>,
    /// Directories in which it makes UNIX sockets.
    pub(crate) sockets: Vec<PathBuf>,
    /// Whether it connects and listens by TCP.
    pub(crate) tcp: bool,
    /// Whether it looks up names of hosts.
    pub(crate) names: bool,
}

impl Rights {
    /// What every server uses: its state, what these options name, and the list of keys.
    ///
    /// # Errors
    /// If there is no directory for state.
    pub(crate) fn of_server(options: &TransportOptions, allow: Option<&Path>) -> Result<Self, String> {
        let mut writable = vec![host::state_directory(options.state_dir.as_deref())?];
        // Created here, so that no right in the directory above is needed.
        for (what, folder) in [("journals", &options.journal), ("qlog files", &options.qlog)] {
            let Some(folder) = folder else { continue };
            let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            created.map_err(|error| format!("cannot write {what} into {}: {error}", folder.display()))?;
            writable.push(folder.clone());
        }
        if let Some(log) = std::env::var_os("SSLKEYLOGFILE").filter(|log| !log.is_empty()).map(PathBuf::from) {
            let created = OpenOptions::new().append(true).create(true).mode(0o600).open(&log);
            created.map_err(|error| format!("cannot write the keys to SSLKEYLOGFILE, {}: {error}", log.display()))?;
            writable.push(log);
        }
        // A trace is a file for each connection.
        let recorded = options.trace_scheduler.iter().map(|file| folder_of(file)).collect();
        let readable = allow.map(key_list::places).unwrap_or_default();
        Ok(Self { writable, readable, recorded, ..Self::default() })
    }
}

/// The folder of a file that is written, or replaced by its editor, under its own name.
pub(crate) fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Enters the sandbox.
///
/// # Errors
/// A message for the user, if the mode demands a sandbox that the kernel does not have, or if a place
/// cannot be opened.
pub(crate) fn enter(mode: SandboxMode, rights: &Rights) -> Result<Sandbox, String> {
    let mut sandbox = Sandbox::default();
    if mode == SandboxMode::Off {
        return Ok(sandbox);
    }
    let files = places::restrict(rights).map_err(|error| format!("cannot limit this command to its files: {error}"))?;
    let calls = calls::restrict();
    for (name, restricted) in
        [("landlock", files.then_some(()).ok_or("this kernel has no Landlock".to_owned())), ("seccomp", calls)]
    {
        match restricted {
            Ok(()) => sandbox.0.push(name),
            Err(error) if mode == SandboxMode::Require => {
                return Err(format!("cannot enter the sandbox: {error}; use --sandbox auto to start without it"));
            }
            Err(error) => tracing::info!(%error, "the server runs without {name}"),
        }
    }
    Ok(sandbox)
}

/// A file of name lookups that is there and that this thread may not read: Landlock knows the file that was
/// there when the sandbox began, and not one that has replaced it.
fn unreadable_name_file() -> Option<&'static str> {
    let is_refused = |file: &&&str| {
        std::fs::File::open(file).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    };
    places::NAMES.iter().find(is_refused).copied()
}

/// The advice for a name that cannot be looked up, as it is appended to the message.
pub(crate) fn lookup_advice() -> Option<String> {
    let file = unreadable_name_file()?;
    Some(format!("; {file} was replaced, and the server's sandbox does not let it read the new one: start it again"))
}
