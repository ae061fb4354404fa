//! `litz run`: its arguments, and its status.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use forward::policy::TargetRule;
use forward::spec::Dynamic;

use super::daemon::place;
use super::names::NamesFrom;
use super::options::ServerOptions;
use super::program::{LITZ_FAILED, Program};
use super::setup::raise_descriptor_limit;
use super::{client, daemon};
use crate::cli::{exit, out, ticket};

/// The end of the help text.
pub(crate) const HELP: &str = "\
On the far host:
  litz forward serve --target 10.0.0.0/8:80,443,5432

It prints a ticket. On this host:
  litz run TICKET -- curl http://10.1.2.3/
  litz run --ticket-file FILE -- psql -h 10.1.2.4

Or once, for all programs of this user:
  litz daemon TICKET &
  litz run -- curl http://10.1.2.3/
  litz run --publish 8080 -- nginx -c FILE

A connection that the far host does not allow is made without Litz, unless --strict is given.

Exit status: that of the program; 128 plus the number of the signal that killed it; or
  125  an error of litz: bad arguments, bad ticket, no connection
  126  the program cannot be executed
  127  the program is not there
  130  interrupted before the program was started";

/// How the command is called.
pub(crate) const USAGE: &str = "litz run [OPTIONS] [TICKET] -- PROGRAM [ARGUMENTS]...";

#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    server: ServerOptions,

    /// Use the daemon with this socket [default: that of `litz daemon`, if it runs and no ticket is
    /// given]
    #[arg(long, value_name = "PATH", conflicts_with = "own", help_heading = "Forwards")]
    daemon: Option<PathBuf>,

    /// Use no daemon, but a connection of this command's own
    #[arg(long, help_heading = "Forwards")]
    own: bool,

    /// Connect directly to this target; may be repeated
    ///
    /// RULE is as for `litz forward serve --target`: HOST:PORTS, with an address, a network such as
    /// 10.0.0.0/8, or `*`. Connections to 127.0.0.0/8 and ::1, of this host itself, are always direct. A name
    /// server that a RULE names is asked directly, too. So is all that a program does with a socket that it has
    /// bound to a device (SO_BINDTODEVICE), or in another network namespace.
    #[arg(long, value_name = "RULE", help_heading = "Forwards")]
    direct: Vec<TargetRule>,

    /// Let the far host listen on this port, and carry its connections to the same port of the program; may be
    /// repeated
    ///
    /// BIND is an address of the far host or `*`; without it, only programs on that host can connect. The
    /// far host must allow it by --permit-listen.
    #[arg(long, value_name = "[BIND:]PORT", value_parser = published_port, help_heading = "Forwards")]
    publish: Vec<Dynamic>,

    /// Let connections fail that the far host does not allow, instead of making them directly
    #[arg(long, help_heading = "Forwards")]
    strict: bool,

    /// Which host looks up the names that the program asks its name servers for
    ///
    /// The name servers are those of /etc/resolv.conf. The far host looks up only names that its --target
    /// allows.
    #[arg(long, value_name = "WHICH", default_value = "auto", help_heading = "Forwards")]
    dns: NamesFrom,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// The program listens on the same port, so that it has to be known.
fn published_port(text: &str) -> Result<Dynamic, String> {
    let place: Dynamic = text.parse()?;
    if place.port == 0 {
        return Err("the program listens on the same port: name one, not 0".to_owned());
    }
    Ok(place)
}

impl RunOptions {
    /// The daemon to use, if any.
    fn daemon(&self) -> Result<Option<PathBuf>, String> {
        let server = &self.server;
        if let Some(path) = &self.daemon {
            if server.is_given() {
                return Err("a daemon has its own server: give either --daemon or a ticket".to_owned());
            }
            return Ok(Some(path.clone()));
        }
        if self.own || server.is_given() || ticket::is_in_environment() {
            return Ok(None);
        }
        match place::default_path() {
            Some(path) if path.exists() => Ok(Some(path)),
            _ => Err("no ticket was given, and no daemon runs: name a ticket (--ticket-file, LITZ_TICKET), or start \
                      one with `litz daemon TICKET`"
                .to_owned()),
        }
    }
}

pub(crate) fn run(options: &RunOptions) -> ExitCode {
    raise_descriptor_limit();
    let json = options.server.transport.json;
    let run = || {
        let is_published = !options.publish.is_empty();
        let program = Program::new(&options.program, &options.direct, options.strict, options.dns, json, is_published)?;
        match options.daemon()? {
            Some(path) => daemon::run_program(&path, &options.server.transport, &program, &options.publish),
            None => client::run_program(&options.server, &program, &options.publish),
        }
    };
    match run() {
        Ok(status) => ExitCode::from(status),
        Err(message) => {
            out::redirect();
            exit::fail(json, LITZ_FAILED, &message)
        }
    }
}
