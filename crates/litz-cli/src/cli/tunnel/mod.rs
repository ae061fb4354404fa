//! `litz tunnel`: IP packets of this host over all its links to another host.

mod addresses;
mod changes;
mod clients;
mod control;
mod control_socket;
mod forwarding;
mod host_network;
mod ipv6;
mod keeper;
mod name_service;
mod offer;
mod own_addresses;
mod phase;
mod pool;
mod privileges;
mod refusals;
mod serve;
mod settings;
pub(in crate::cli) mod settings_file;
mod status;
mod status_text;
mod terms;
pub(in crate::cli) mod texts;
mod up;
mod upkeep_report;
mod userspace;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, Subcommand};

use self::settings_file::SettingsFile;

/// The end of the help text.
pub(crate) const HELP: &str = "\
Examples:
  litz tunnel serve                       on one host: prints a ticket
  litz tunnel up TICKET                   on the other: a network device, litz0, that leads there
  litz tunnel up --all --kill-switch TICKET
                                          all packets of this host go there, and none elsewhere
  litz tunnel status                      what the tunnel does now
  litz tunnel serve --allow keys --route 192.168.7.0/24
                                          for several hosts, which reach this network, too

  litz tunnel up --userspace TICKET       without root: a SOCKS5 proxy on port 1080 leads there

`serve` and `up` need root, or CAP_NET_ADMIN; `up --userspace` needs neither.

Exit status:
  0    of `status` and `down`: done
  2    an error: bad arguments, no device, no connection, refused
  130  of `serve` and `up`: interrupted, or ended by `down`";

/// The end of the help text of `serve`.
const SERVE_HELP: &str = "\
Examples:
  litz tunnel serve                       prints a ticket for one host
  litz tunnel serve --allow keys --route 192.168.7.0/24
                                          for several hosts, which reach this network, too

It needs root, or CAP_NET_ADMIN.

Exit status:
  2    an error: bad arguments, no device, no socket, a ticket that has expired or was revoked
  130  interrupted, or ended by `litz tunnel down`; the server runs until then";

/// The end of the help text of `up`.
const UP_HELP: &str = "\
Examples:
  litz tunnel up TICKET                   a network device, litz0, that leads to the other host
  litz tunnel up --all --kill-switch TICKET
                                          all packets of this host go there, and none elsewhere
  litz tunnel up --userspace TICKET       without root: a SOCKS5 proxy on port 1080 leads there

It needs root, or CAP_NET_ADMIN; with --userspace it needs neither.

Exit status:
  2    an error: bad arguments, no device, no connection, refused
  130  interrupted, or ended by `litz tunnel down`; the tunnel is there until then";

/// The end of the help texts of what asks a tunnel.
const ASK_HELP: &str = "\
Exit status:
  0    done
  2    an error: bad arguments, no tunnel of this host has this device";

#[derive(Args, Debug)]
pub(crate) struct TunnelOptions {
    #[command(subcommand)]
    command: TunnelCommand,
}

#[derive(Subcommand, Debug)]
enum TunnelCommand {
    /// Serve other hosts: print a ticket, and exchange IP packets with the hosts that have it, or
    /// whose keys are listed
    #[command(after_help = SERVE_HELP)]
    Serve(serve::ServeOptions),
    /// Connect to a host that serves: a network device leads there while the command runs
    #[command(after_help = UP_HELP)]
    Up(up::UpOptions),
    /// Show what a tunnel of this host does: its paths, and what went through it
    #[command(after_help = ASK_HELP)]
    Status(status::StatusOptions),
    /// End a tunnel of this host, and undo the routes of one that was killed
    #[command(after_help = ASK_HELP)]
    Down(status::DownOptions),
}

pub(crate) fn run(options: &TunnelOptions) -> ExitCode {
    match &options.command {
        TunnelCommand::Serve(options) => serve::run(options),
        TunnelCommand::Up(options) => up::run(options),
        TunnelCommand::Status(options) => status::run(options),
        TunnelCommand::Down(options) => status::run_down(options),
    }
}

impl TunnelOptions {
    /// The file with options that is named, and the name of the command.
    fn file(&self) -> Option<(&Path, &'static str)> {
        match &self.command {
            TunnelCommand::Serve(options) => Some((options.settings.as_deref()?, "serve")),
            TunnelCommand::Up(options) => Some((options.settings()?, "up")),
            TunnelCommand::Status(_) | TunnelCommand::Down(_) => None,
        }
    }

    /// Whether events are printed.
    pub(crate) fn is_json(&self) -> bool {
        match &self.command {
            TunnelCommand::Serve(options) => options.is_json(),
            TunnelCommand::Up(options) => options.is_json(),
            TunnelCommand::Status(_) | TunnelCommand::Down(_) => false,
        }
    }

    /// The arguments `given`, read again by `command` together with the options of the file that they name;
    /// arguments are preferred. None if they name no file.
    pub(crate) fn with_file(&self, command: Command, given: &[OsString]) -> Option<Result<ArgMatches, String>> {
        let (path, name) = self.file()?;
        Some(with_file(path, name, command, given))
    }
}

/// # Errors
/// A message for the user, with the line of the file.
fn with_file(path: &Path, name: &str, command: Command, given: &[OsString]) -> Result<ArgMatches, String> {
    let text = settings_file::read(path)?;
    // The last of two values counts.
    let command =
        command.mut_subcommand("tunnel", |tunnel| tunnel.mut_subcommand(name, |c| c.args_override_self(true)));
    let options = command.find_subcommand("tunnel").and_then(|tunnel| tunnel.find_subcommand(name));
    let options = options.ok_or("there is no such command")?;
    let file = SettingsFile::parse(path, &text, options, &format!("litz tunnel {name}"))?;
    file.refuse_open_secret(path)?;
    file.check(path, &text)?;
    let parse = |left_out: Option<usize>| {
        command.clone().try_get_matches_from(insert(given, path, name, file.arguments(left_out)))
    };
    parse(None).map_err(|error| file.explain(path, &text, &error, |left_out| parse(Some(left_out)).is_ok()))
}

/// The arguments with those of the file after the command's name. The file of `up` is where its ticket would
/// be, and left out.
fn insert(given: &[OsString], file: &Path, name: &str, more: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let after = |from: usize, word: &str| {
        let found = given[from..].iter().position(|argument| argument == OsStr::new(word));
        found.map_or(given.len(), |at| from + at + 1)
    };
    let (before, own) = given.split_at(after(after(0, "tunnel"), name));
    let is_file = |argument: &&OsString| name == "up" && Path::new(argument) == file;
    let file_at = own.iter().position(|argument| is_file(&argument));
    let own = own.iter().enumerate().filter(|(at, _)| Some(*at) != file_at).map(|(_, argument)| argument);
    before.iter().cloned().chain(more).chain(own.cloned()).collect()
}
