//! The `litz` command. Each subcommand is a file of its own below `cli`.
#![forbid(unsafe_code)]

mod cli;
mod profile;
mod provenance;
mod speedup;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
