//! `litz run`: its arguments, and its status.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use forward::policy::TargetRule;

use super::client;
use super::options::ServerOptions;
use super::program::{LITZ_FAILED, Program};
use super::setup::raise_descriptor_limit;
use crate::cli::{exit, out};

/// The end of the help text.
pub(crate) const HELP: &str = "\
On the far host:
  litz forward serve --target 10.0.0.0/8:80,443,5432

It prints a ticket. On this host:
  litz run TICKET -- curl http://10.1.2.3/
  litz run --ticket-file FILE -- psql -h 10.1.2.4

A connection that the far host does not allow is made without Litz, unless --strict is given.

Exit status: that of the program, 128 and the number of the signal that killed it, or
  125  an error of litz: bad ticket, no connection
  126  the program cannot be executed
  127  the program is not there
  130  interrupted before the program was started";

/// How the command is called.
pub(crate) const USAGE: &str = "litz run [OPTIONS] [TICKET] -- PROGRAM [ARGUMENTS]...";

#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    server: ServerOptions,

    /// Connect directly to this target; may be repeated
    ///
    /// RULE is as for `litz forward serve --target`: HOST:PORTS, with an address, a network such as
    /// 10.0.0.0/8, or `*`. This host's own addresses 127.0.0.0/8 and ::1 are always without Litz.
    #[arg(long, value_name = "RULE", help_heading = "Forwards")]
    direct: Vec<TargetRule>,

    /// Let connections fail that the far host does not allow, instead of making them directly
    #[arg(long, help_heading = "Forwards")]
    strict: bool,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(crate) fn run(options: &RunOptions) -> ExitCode {
    raise_descriptor_limit();
    let json = options.server.transport.json;
    let run = || {
        let program = Program::new(&options.program, &options.direct, options.strict, json)?;
        client::run_program(&options.server, &program)
    };
    match run() {
        Ok(status) => ExitCode::from(status),
        Err(message) => {
            out::redirect();
            exit::fail(json, LITZ_FAILED, &message)
        }
    }
}
