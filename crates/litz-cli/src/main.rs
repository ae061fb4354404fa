//! The `litz` command.
//!
//! | module | contents |
//! |---|---|
//! | `cli` | arguments, output and exit status: one module per subcommand |
//! | `profile` | `litz profile`: the cost of a packet on this machine, by stage |
//! | `speedup` | `litz bench speedup`: the speedup by more processors |
//! | `provenance` | the program and the machine in every result |
#![cfg_attr(not(test), forbid(unsafe_code))]
// A test of the sandbox makes system calls for which there is no safe interface.
#![cfg_attr(test, deny(unsafe_code))]

mod cli;
mod profile;
mod provenance;
mod speedup;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
