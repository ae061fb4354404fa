//! One nftables table, created and read with the program `nft`. No maintained library with a
//! suitable licence supports its part of netlink, and administrators can read the text of a table.

use core::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Folders in which to look for the program in addition to PATH, which lacks the administrators'
/// folders in shells of some users and services.
const MORE_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Failure of the program `nft`, or refusal by the kernel.
#[derive(Debug)]
pub enum NftError {
    /// The program cannot run.
    Program(io::Error),
    /// The program has failed, with this text.
    Refused(String),
}

/// Checks whether a script would be accepted, without a change.
///
/// # Errors
/// If there is no program, or if the kernel lacks a feature that the script uses.
pub fn check(script: &str) -> Result<(), NftError> {
    run(&["--check", "--file", "-"], script).map(drop)
}

/// Runs a script atomically: completely or not at all.
///
/// # Errors
/// If the script had no effect.
pub fn apply(script: &str) -> Result<(), NftError> {
    run(&["--file", "-"], script).map(drop)
}

/// Returns the text of a table of the family `inet`, without counters; `None` if there is no such
/// table.
///
/// # Errors
/// If the table cannot be read.
pub fn read(table: &str) -> Result<Option<String>, NftError> {
    // List all tables, because the error for a missing table is only a text.
    let tables = run(&["list", "tables", "inet"], "")?;
    if !tables.lines().any(|line| line.trim() == format!("table inet {table}")) {
        return Ok(None);
    }
    match run(&["--stateless", "--numeric", "list", "table", "inet", table], "") {
        Ok(text) => Ok(Some(text)),
        // The table was removed in the meantime.
        Err(NftError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a table of the family `inet`, if there is one.
///
/// # Errors
/// If the table still exists.
pub fn remove(table: &str) -> Result<(), NftError> {
    // The first line makes the second one succeed in any case.
    apply(&format!("table inet {table}\ndelete table inet {table}\n"))
}

fn run(arguments: &[&str], input: &str) -> Result<String, NftError> {
    let mut child = start("nft", arguments).map_err(NftError::Program)?;
    // The program reads all of its input before it writes any output.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(NftError::Program)?;
    if !output.status.success() {
        // The first line has the reason; further lines repeat the script.
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("it has not said why");
        return Err(NftError::Refused(line.trim().to_owned()));
    }
    written.map_err(NftError::Program)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Starts a program from the folders of PATH or of [`MORE_FOLDERS`].
fn start(program: &str, arguments: &[&str]) -> io::Result<Child> {
    let start = |program: &Path| {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn()
    };
    let mut outcome = start(Path::new(program));
    for folder in MORE_FOLDERS {
        if outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            outcome = start(&Path::new(folder).join(program));
        }
    }
    outcome
}

impl fmt::Display for NftError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(error) => write!(f, "cannot run `nft`: {error}"),
            Self::Refused(text) => write!(f, "`nft` failed: {text}"),
        }
    }
}

impl std::error::Error for NftError {}
