//! One table of nftables, made and read by the program `nft`. There is no maintained library that speaks
//! its part of netlink under a licence that fits, and the text of a table can be read by administrators.

use core::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Folders of the program besides those of PATH, which has none for administrators in shells of
/// some users and services.
const MORE_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The program `nft`, or the kernel, has refused something.
#[derive(Debug)]
pub enum NftError {
    /// The program cannot be run.
    Program(io::Error),
    /// It has failed, with this text.
    Refused(String),
}

/// Checks whether a script would be accepted, without a change.
///
/// # Errors
/// If there is no program, or if the kernel lacks what the script uses.
pub fn check(script: &str) -> Result<(), NftError> {
    run(&["--check", "--file", "-"], script).map(drop)
}

/// Runs a script: all of it is done at once, or nothing.
///
/// # Errors
/// If nothing was done.
pub fn apply(script: &str) -> Result<(), NftError> {
    run(&["--file", "-"], script).map(drop)
}

/// The text of a table of the family `inet`, without counts; none if there is no such table.
///
/// # Errors
/// If it cannot be read.
pub fn read(table: &str) -> Result<Option<String>, NftError> {
    // A list of all, because the error for a table that is not there is only text.
    let tables = run(&["list", "tables", "inet"], "")?;
    if !tables.lines().any(|line| line.trim() == format!("table inet {table}")) {
        return Ok(None);
    }
    match run(&["--stateless", "--numeric", "list", "table", "inet", table], "") {
        Ok(text) => Ok(Some(text)),
        // It was removed meanwhile.
        Err(NftError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a table of the family `inet`, if there is one.
///
/// # Errors
/// If it is still there.
pub fn remove(table: &str) -> Result<(), NftError> {
    // The first line makes the second one succeed in any case.
    apply(&format!("table inet {table}\ndelete table inet {table}\n"))
}

fn run(arguments: &[&str], input: &str) -> Result<String, NftError> {
    let mut child = start("nft", arguments).map_err(NftError::Program)?;
    // It reads all of its input before it writes anything.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(NftError::Program)?;
    if !output.status.success() {
        // One line says what; further ones repeat the script.
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("it has not said why");
        return Err(NftError::Refused(line.trim().to_owned()));
    }
    written.map_err(NftError::Program)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Starts a program, of the folders of PATH or of [`MORE_FOLDERS`].
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
