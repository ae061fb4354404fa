//! What every result says of where it comes from: the program, and for what was measured the machine.

use measure::Program;
use serde::Serialize;

/// This program.
pub(crate) const PROGRAM: Program =
    Program { litz_version: env!("CARGO_PKG_VERSION"), litz_commit: env!("LITZ_COMMIT") };

/// For `litz --version`.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("LITZ_COMMIT"), ")");

/// Where something was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    os: &'static str,
    arch: &'static str,
    /// As the system calls it, where it does.
    pub(crate) processor: Option<String>,
    /// Processors that may be used.
    pub(crate) processors: usize,
    /// False: built for debugging, so that the figures are those of another program.
    pub(crate) optimised: bool,
}

impl Machine {
    /// This one, of whose processors so many may be used.
    pub(crate) fn here(processors: usize) -> Self {
        Self {
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            processor: processor(),
            processors,
            optimised: !cfg!(debug_assertions),
        }
    }
}

/// What the system calls its first processor.
fn processor() -> Option<String> {
    // No such file, no name.
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}
