//! The arguments of `litz forward`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use forward::address::Target;
use forward::policy::{ListenRule, TargetRule};
use forward::spec::{Dynamic, Forward};
use units::Duration;

use crate::cli::credential::CredentialOptions;
use crate::cli::heading;
use crate::cli::listen_options::ListenOptions;
use crate::cli::path_options::{PathOptions, SinglePathOptions};
use crate::cli::serving::sandbox::SandboxMode;
use crate::cli::transport_options::TransportOptions;

/// The end of the help text.
pub(crate) const HELP: &str = "\
On the far host, which connects to the targets:
  litz forward serve --target localhost:22 --target 10.0.0.0/8:80,443
  litz forward serve --target '*:*' --allow KEYS

The first prints a ticket for one client, the second serves the clients whose keys are listed. On this \
host:
  litz forward -L 8080:db:80 TICKET    port 8080 here leads to port 80 of db
  litz forward -D 1080 TICKET          SOCKS5 proxy for browsers
  litz forward -R 2222:db:22 TICKET    port 2222 there leads to port 22 of db, as this host sees it; the \
far host needs --permit-listen 2222

For ssh: ProxyCommand litz forward --ticket-file FILE --stdio %h:%p

Exit status:
  0    with --stdio: both directions have ended in order
  1    with --stdio: the target was not reached, or the connection was reset
  2    an error: bad arguments, no connection, refused ticket
  130  interrupted; without --stdio the command runs until then";

/// The end of the help text of the server.
const SERVE_HELP: &str = "\
Examples:
  litz forward serve --target localhost:22 --target 10.0.0.0/8:80,443
  litz forward serve --target '*:*' --allow KEYS

The first prints a ticket for one client, the second serves the clients whose keys are listed. `litz forward \
--help` shows what clients do with it.

Exit status:
  2    an error: bad arguments, no socket, a ticket that has expired or was revoked
  130  interrupted; the server runs until then";

/// How the command is called.
pub(crate) const USAGE: &str = "\
litz forward [OPTIONS] [TICKET]
       litz forward serve [OPTIONS]";

/// The heading of what is forwarded.
const FORWARDS: &str = "Forwards";

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ForwardOptions {
    #[command(subcommand)]
    pub(crate) serve: Option<ForwardCommand>,

    #[command(flatten)]
    pub(crate) client: ClientOptions,

    /// Connect standard input and output to this target, as a proxy command of ssh does
    ///
    /// TARGET is HOST:PORT, or the path of a UNIX socket.
    #[arg(short = 'W', long, value_name = "TARGET", conflicts_with_all = ["local", "remote", "dynamic"],
          help_heading = FORWARDS)]
    pub(crate) stdio: Option<Target>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ForwardCommand {
    /// Serve clients: connect to the targets that they name, as far as --target allows
    #[command(after_help = SERVE_HELP)]
    Serve(Box<ServeOptions>),
}

#[derive(Args, Debug)]
pub(crate) struct ClientOptions {
    #[command(flatten)]
    pub(crate) server: ServerOptions,

    #[command(flatten)]
    pub(crate) forwards: Forwards,
}

/// What is forwarded.
#[derive(Args, Debug)]
pub(crate) struct Forwards {
    /// Listen here, and connect to a target from the far host; may be repeated
    ///
    /// FORWARD is [BIND:]PORT:HOST:HOSTPORT. In place of BIND and PORT, or of HOST and HOSTPORT, it may
    /// have the absolute path of a UNIX socket. `udp:` before it forwards UDP. BIND is an address of
    /// this host; `*` or nothing before the colon means all. Without BIND, only programs on this host
    /// can connect. An IPv6 address is in brackets. The far host looks up names.
    #[arg(short = 'L', long = "local", value_name = "FORWARD", help_heading = FORWARDS)]
    pub(crate) local: Vec<Forward>,

    /// Listen on the far host, and connect to a target from here; may be repeated
    ///
    /// FORWARD is as for --local. The far host must allow it by --permit-listen.
    #[arg(short = 'R', long = "remote", value_name = "FORWARD", help_heading = FORWARDS)]
    pub(crate) remote: Vec<Forward>,

    /// Listen here as a SOCKS5 proxy, with UDP; may be repeated
    ///
    /// The proxy asks for no password. So other hosts may use it only with --gateway.
    #[arg(short = 'D', long = "dynamic", value_name = "[BIND:]PORT", help_heading = FORWARDS)]
    pub(crate) dynamic: Vec<Dynamic>,

    /// Let --dynamic listen on addresses that other hosts can reach
    #[arg(short, long, help_heading = FORWARDS)]
    pub(crate) gateway: bool,

    /// End a UDP flow after this time without a packet
    #[arg(long, value_name = "TIME", default_value = "2min", help_heading = FORWARDS)]
    pub(crate) udp_idle: Duration,
}

impl Forwards {
    /// Nothing is forwarded.
    pub(crate) const fn none() -> Self {
        Self {
            local: Vec::new(),
            remote: Vec::new(),
            dynamic: Vec::new(),
            gateway: false,
            udp_idle: Duration::from_secs(120),
        }
    }
}

/// How to reach the server.
#[derive(Args, Debug)]
pub(crate) struct ServerOptions {
    /// The ticket that `litz forward serve` printed
    #[arg(value_name = "TICKET")]
    pub(crate) ticket: Option<OsString>,

    #[command(flatten)]
    pub(crate) credential: CredentialOptions,

    #[command(flatten)]
    pub(crate) single_path: SinglePathOptions,

    #[command(flatten)]
    pub(crate) paths: PathOptions,

    /// Reconnect after a lost connection, until this time has passed; 0 disables it [default: no
    /// limit]
    ///
    /// Meanwhile listeners stay open, and a new connection waits up to 10 seconds. Those that were forwarded
    /// when the connection was lost are reset. The command fails at once if the first connection fails, if
    /// the server refuses the client, or if another host answers. A server of `litz daemon --servers` is
    /// tried again if its first connection fails, and is given up alone.
    #[arg(long, value_name = "TIME", help_heading = heading::PATHS)]
    pub(crate) retry_for: Option<Duration>,

    #[command(flatten)]
    pub(crate) transport: TransportOptions,
}

impl ServerOptions {
    /// Whether an argument names the server.
    pub(crate) const fn is_given(&self) -> bool {
        self.ticket.is_some() || self.credential.ticket.is_given()
    }
}

#[derive(Args, Debug)]
pub(crate) struct ServeOptions {
    /// Let clients connect to this target; may be repeated
    ///
    /// RULE is [tcp:|udp:]HOST:PORTS, or the path of a UNIX socket. HOST is a name, `*.SUFFIX`, an
    /// address, a network such as 10.0.0.0/8, or `*`. PORTS are numbers and ranges such as
    /// 80,443,8000-8099, or `*`. Without tcp: or udp:, both are allowed. A name is compared as the
    /// client writes it; whatever addresses it has are allowed then. Everything that no rule allows is
    /// refused.
    #[arg(short, long = "target", value_name = "RULE", help_heading = FORWARDS)]
    pub(crate) targets: Vec<TargetRule>,

    /// Connect to targets from this address; may be repeated, for IPv4 and IPv6
    ///
    /// SOURCE is an address of this host, or an interface, whose addresses at the start are used.
    /// Without it, the system chooses by the target. Programs that know their peers by address, such as
    /// those of Open MPI, may need it.
    #[arg(long = "source", value_name = "SOURCE", help_heading = FORWARDS)]
    pub(crate) sources: Vec<String>,

    /// Let clients listen on this host (their -R); may be repeated
    ///
    /// RULE is [tcp:|udp:][BIND:]PORTS, or the path of a UNIX socket. BIND is an address of this host or
    /// `*`; without it, clients may listen for programs on this host only.
    #[arg(long = "permit-listen", value_name = "RULE", help_heading = FORWARDS)]
    pub(crate) listeners: Vec<ListenRule>,

    /// End a UDP flow after this time without a packet
    #[arg(long, value_name = "TIME", default_value = "2min", help_heading = FORWARDS)]
    pub(crate) udp_idle: Duration,

    #[command(flatten)]
    pub(crate) listening: ListenOptions,

    /// Lifetime of the ticket, if it is a new one: no client can connect with it afterwards [default: 24h]
    #[arg(long, value_name = "TIME", help_heading = heading::SECURITY)]
    pub(crate) expires: Option<Duration>,

    /// Issue a new ticket, and revoke the earlier ones for the same targets
    ///
    /// Without this option, a server that is started again for the same targets serves its newest
    /// ticket again. `litz tickets` lists all tickets and revokes single ones.
    #[arg(long, help_heading = heading::SECURITY)]
    pub(crate) new_ticket: bool,

    /// Serve the clients whose keys are listed in this file, without a ticket secret
    ///
    /// The file is as for `litz recv --allow`: a line begins with a public key, as `litz id` prints it
    /// on the client's host. A change takes effect at once, also for connected clients. --target says
    /// what they may connect to.
    #[arg(long, value_name = "FILE", alias = "authorized-keys", help_heading = heading::SECURITY)]
    pub(crate) allow: Option<PathBuf>,

    /// Whether to give up rights that the server does not need before it takes a packet
    ///
    /// Landlock limits the server to its state folder, what other options name, libraries, and files for
    /// name lookups; seccomp leaves it the system calls that a server makes, none of which runs programs.
    /// Neither limits the targets of clients: --target does. With `auto`, what the kernel does not have is left
    /// out. With `require`, the server does not start then. With `off`, it keeps all rights of its user.
    #[arg(long, value_name = "MODE", default_value = "auto", help_heading = heading::SECURITY)]
    pub(crate) sandbox: SandboxMode,

    #[command(flatten)]
    pub(crate) transport: TransportOptions,
}
