//! The provenance in every result: the program and, for measurements, the machine.

use measure::Program;
use serde::Serialize;

/// This program.
pub(crate) const PROGRAM: Program =
    Program { litz_version: env!("CARGO_PKG_VERSION"), litz_commit: env!("LITZ_COMMIT") };

/// The commit of a build outside the repository.
pub(crate) const UNKNOWN_COMMIT: &str = "unknown";

/// For `litz --version`.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("LITZ_COMMIT"), ")");

/// The machine of a measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    os: &'static str,
    arch: &'static str,
    /// The processor's name according to the system, if it provides one.
    pub(crate) processor: Option<String>,
    /// Number of usable processors.
    pub(crate) processors: usize,
    /// False for a debug build, whose figures are not comparable.
    pub(crate) optimised: bool,
}

impl Machine {
    /// This machine, with this number of usable processors.
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

/// The system's name of the first processor.
fn processor() -> Option<String> {
    // Without this file the name is unknown.
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}
