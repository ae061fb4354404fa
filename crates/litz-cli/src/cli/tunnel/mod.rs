//! `litz tunnel`: IP packets of this host over all its links to another host.

mod addresses;
mod control;
mod control_socket;
mod host_network;
mod serve;
mod settings;
mod status;
mod up;
mod userspace;

use std::process::ExitCode;

use clap::{Args, Subcommand};

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

It needs root, or CAP_NET_ADMIN, but for --userspace.

Exit status:
  0    ended in order
  2    an error: bad arguments, no device, no connection, refused
  130  interrupted";

#[derive(Args, Debug)]
pub(crate) struct TunnelOptions {
    #[command(subcommand)]
    command: TunnelCommand,
}

#[derive(Subcommand, Debug)]
enum TunnelCommand {
    /// Serve other hosts: print a ticket, and exchange IP packets with the hosts that have it, or
    /// whose keys are listed
    #[command(after_help = HELP)]
    Serve(serve::ServeOptions),
    /// Connect to a host that serves: a network device leads there while the command runs
    #[command(after_help = HELP)]
    Up(up::UpOptions),
    /// Show what a tunnel of this host does: its paths, and what went through it
    Status(status::StatusOptions),
    /// End a tunnel of this host, and undo the routes of one that was killed
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
