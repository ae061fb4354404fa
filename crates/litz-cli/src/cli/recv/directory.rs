//! The directory that files are received into.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use crate::cli::args::RecvOptions;
use crate::cli::serving::authorisation::check_lifetime;

/// Checks what can be checked before anything is opened; returns the directory.
pub(crate) fn check(options: &RecvOptions) -> Result<PathBuf, String> {
    let directory = if options.output.is_some() { check_output(options)? } else { check_directory(options)? };
    check_lifetime(options.expires, "sender")?;
    options.listening.check()?;
    Ok(directory)
}

/// Checks standard output; returns what stands for it in the list of tickets.
fn check_output(options: &RecvOptions) -> Result<PathBuf, String> {
    if std::io::stdout().is_terminal() && !options.force {
        return Err("standard output is a terminal, which received data may garble: redirect it or pipe it into a \
                    program, or use --force"
            .to_owned());
    }
    Ok(PathBuf::from("-"))
}

fn check_directory(options: &RecvOptions) -> Result<PathBuf, String> {
    let shown = options.directory.display();
    let resolved = std::fs::canonicalize(&options.directory);
    // The far end of ssh makes the directory, but not for a dry run.
    if options.update.dry_run
        && options.invitation.is_some()
        && matches!(&resolved, Err(error) if error.kind() == std::io::ErrorKind::NotFound)
    {
        return Ok(options.directory.clone());
    }
    let directory = resolved.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            format!("cannot receive into {shown}: there is no such directory; make it first, as with `mkdir {shown}`")
        }
        _ => format!("cannot receive into {shown}: {error}"),
    })?;
    match directory.metadata() {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(format!("cannot receive into {shown}: it is not a directory")),
        // A relative name may lead to where the full one does not.
        Err(error) => {
            return Err(format!(
                "cannot receive into {shown}: its full name is {}, and this user cannot get there ({error}); change \
                 the permissions of the folders above it",
                directory.display()
            ));
        }
    }
    if !options.update.dry_run {
        check_writable(&directory).map_err(|error| format!("cannot receive into {shown}: {error}"))?;
    }
    Ok(directory)
}

/// Creates a file in `directory` and removes it, so that a directory in which that fails is reported
/// before anyone gets the ticket. A file and not `access`, which knows nothing of quotas and of some
/// file systems.
fn check_writable(directory: &Path) -> std::io::Result<()> {
    // No sender can send a file of this name.
    let probe = directory.join(format!(".litz-writable-{}.litz-part", std::process::id()));
    match std::fs::OpenOptions::new().write(true).create_new(true).open(&probe) {
        // A receiver with the same process number was killed here: removing its file shows the same.
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => std::fs::remove_file(&probe),
    }
}

/// The file mode creation mask of this process. Only /proc shows it without changing it.
pub(super) fn current_umask() -> u32 {
    const USUAL: u32 = 0o022;
    let status = std::fs::read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|umask| u32::from_str_radix(umask.trim(), 8).ok()).unwrap_or(USUAL)
}
