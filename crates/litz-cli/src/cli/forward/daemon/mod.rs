//! `litz daemon`: one connection to a server for all programs of a user.
//!
//! | module | contents |
//! |---|---|
//! | [`server`], [`attached`] | the daemon's side: programs come in, and their connections |
//! | [`program_end`], [`ring_end`] | the daemon's end of a connection with a program |
//! | [`publications`] | places of the far host where it listens for programs |
//! | [`clients`] | the connections to servers |
//! | [`routes`], [`servers`] | which server a request goes to |
//! | [`user`] | the side of a program |
//! | [`place`], [`packets`] | the socket between them |
//!
//! The messages are in the crate `forward`, without sockets.

mod attached;
mod clients;
mod packets;
pub(super) mod place;
mod program_end;
mod publications;
mod ring_end;
mod routes;
pub(super) mod server;
pub(super) mod servers;
pub(super) mod user;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use forward::daemon::{MESSAGE_LEN_MAX, Reply, Request, StatusParts};
use forward::spec::Dynamic;
use serde_json::Value;
use transfer::CancelToken;

use super::engine::Engine;
use super::options::ClientOptions;
use super::program::Program;
use super::publisher::Publisher;
use super::report::Report;
use super::setup::{raise_descriptor_limit, runtime};
use crate::cli::transport_options::TransportOptions;
use crate::cli::{exit, out, signals};
use server::DaemonSocket;

/// How often a program that is not started yet looks for a signal.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The end of the help text.
pub(crate) const HELP: &str = "\
On the far host:
  litz forward serve --target '10.0.0.0/8:*'

It prints a ticket. On this host:
  litz daemon TICKET &
  litz run -- curl http://10.1.2.3/
  litz daemon status
  litz daemon stop

Several servers, each for its targets:
  litz daemon --servers servers.toml

Exit status:
  0    ended by `litz daemon stop`
  2    an error: bad arguments, no connection, refused ticket, another daemon runs
  130  interrupted";

/// The end of the help texts of what asks a daemon.
const ASK_HELP: &str = "\
Exit status:
  0    done
  2    an error: bad arguments, no daemon runs, or it runs as another user";

/// How the command is called.
pub(crate) const USAGE: &str = "litz daemon [OPTIONS] [TICKET]\n       litz daemon status|stop";

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DaemonOptions {
    #[command(subcommand)]
    command: Option<DaemonCommand>,

    #[command(flatten)]
    client: ClientOptions,

    /// Use the servers that this file lists, each for the targets that it has there
    ///
    /// A table `[[server]]` has a name, a ticket-file, and rules: target as --target of `litz forward serve`,
    /// permit-listen as its --permit-listen. A connection goes to the first server with a rule for its
    /// target; without one it fails, or is made without Litz. A table may have by-key = true. -L, -R and -D
    /// use the first server. Servers that cannot be reached now are tried again until they can be.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ticket", "to", "ticket_file", "by_key"],
          help_heading = "Forwards")]
    servers: Option<PathBuf>,

    #[command(flatten)]
    socket: SocketOptions,
}

#[derive(Args, Debug)]
struct SocketOptions {
    /// The socket for programs [default: litz/daemon.sock in XDG_RUNTIME_DIR, for root in /run]
    ///
    /// Only programs of the same user can use it.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum DaemonCommand {
    /// Show the daemon's programs and paths
    #[command(after_help = ASK_HELP)]
    Status(AskOptions),
    /// End the daemon; connections that it carries are reset
    #[command(after_help = ASK_HELP)]
    Stop(AskOptions),
}

#[derive(Args, Debug)]
struct AskOptions {
    #[command(flatten)]
    socket: SocketOptions,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &DaemonOptions) -> ExitCode {
    let (json, status) = match &options.command {
        None => (options.client.server.transport.json, serve(options)),
        Some(DaemonCommand::Status(options)) => (options.json, ask(options, &Request::Status)),
        Some(DaemonCommand::Stop(options)) => (options.json, ask(options, &Request::Stop)),
    };
    match status {
        Ok(status) => ExitCode::from(status),
        Err(message) => exit::fail(json, exit::FAILED, &message),
    }
}

fn serve(options: &DaemonOptions) -> Result<u8, String> {
    raise_descriptor_limit();
    let servers = options.servers.as_deref().map(servers::load).transpose()?;
    if servers.is_some() && options.client.server.transport.trace_scheduler.is_some() {
        return Err("--trace-scheduler records one connection: leave out --servers".to_owned());
    }
    let cancel = signals::cancel_token().map_err(|error| format!("cannot handle signals: {error}"))?;
    let daemon_socket = DaemonSocket::open(place::path(options.socket.socket.as_deref())?, cancel.clone())?;
    clients::run(&options.client, servers, &daemon_socket, cancel)
}

/// Runs a program whose connections a running daemon makes, and publishes its ports. Returns its status.
pub(super) fn run_program(
    path: &Path,
    options: &TransportOptions,
    program: &Program<'_>,
    publish: &[Dynamic],
) -> Result<u8, String> {
    // Standard output is the program's.
    out::redirect();
    let (runtime, report) = (runtime()?, Arc::new(Report::new(options)));
    let ready = runtime.block_on(async {
        tokio::select! {
            ready = begin(path, program, publish, &report) => ready.map(Some),
            () = cancelled(&program.cancel) => Ok(None),
        }
    })?;
    let Some(daemon) = ready else {
        exit::report(options.json, exit::INTERRUPTED, "interrupted");
        return Ok(exit::INTERRUPTED);
    };
    program.start(runtime.handle(), Engine::Daemon(daemon), report);
    runtime.block_on(program.ended());
    Ok(program.status().unwrap_or(exit::INTERRUPTED))
}

/// Connects to the daemon, and publishes the ports of a program before it is started.
async fn begin(
    path: &Path,
    program: &Program<'_>,
    publish: &[Dynamic],
    report: &Arc<Report>,
) -> Result<Arc<user::Daemon>, String> {
    let daemon = Arc::new(user::Daemon::connect(path, &program.name()).await?);
    if let Some(published) = &program.published {
        for place in publish {
            let publisher = Publisher::new(&daemon, published, report, place);
            let first = publisher.publish().await?;
            tokio::spawn(publisher.run(first));
        }
    }
    Ok(daemon)
}

/// Waits until a signal has come.
async fn cancelled(cancel: &CancelToken) {
    while !cancel.is_cancelled() {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Asks a running daemon, and prints its answer.
fn ask(options: &AskOptions, request: &Request) -> Result<u8, String> {
    let path = place::path(options.socket.socket.as_deref())?;
    match runtime()?.block_on(exchange(&path, request))? {
        Answer::Status(text) => {
            let status: Value = serde_json::from_str(&text)
                .map_err(|error| format!("the daemon on {} answered with no status: {error}", path.display()))?;
            if options.json { out::json(&status) } else { print(&status) }
        }
        Answer::Other(Reply::Stopping) => {}
        Answer::Other(Reply::Refused(failure)) => return Err(failure.to_string()),
        Answer::Other(_) => return Err(format!("the daemon on {} answered with another message", path.display())),
    }
    Ok(exit::DONE)
}

/// What a daemon answers.
enum Answer {
    /// The whole text.
    Status(String),
    Other(Reply),
}

async fn exchange(path: &Path, request: &Request) -> Result<Answer, String> {
    let explain = |error| user::explain(path, &error);
    let packets = user::dial(path).map_err(explain)?;
    let mut buffer = vec![0; MESSAGE_LEN_MAX];
    let mut reply = user::ask(&packets, request, &mut buffer).await.map_err(explain)?;
    if *request == Request::Stop {
        // Its socket is closed when it has ended.
        while matches!(packets.receive(&mut buffer).await, Ok(Some(_))) {}
    }
    let too_long = |error: forward::Malformed| explain(io::Error::new(io::ErrorKind::InvalidData, error));
    let mut parts = StatusParts::default();
    while let Reply::StatusPart(part) = &reply {
        parts.add(part).map_err(too_long)?;
        reply = user::next_reply(&packets, &mut buffer).await.map_err(explain)?;
    }
    match reply {
        Reply::Status(end) => parts.finish(&end).map(Answer::Status).map_err(too_long),
        other => Ok(Answer::Other(other)),
    }
}

/// The status as text.
fn print(status: &Value) {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for server in status["servers"].as_array().into_iter().flatten() {
        let name = server["name"].as_str().map_or_else(String::new, |name| format!("{name}: "));
        match &server["server"] {
            Value::Null => {
                let why = server["message"].as_str().map_or_else(String::new, |why| format!(": {why}"));
                let is_over = server["state"] == "given_up";
                out::line(&format!("{name}{}{why}", if is_over { "given up" } else { "not connected, trying again" }));
            }
            address => out::line(&format!("{name}connected to {}", text(address))),
        }
        for path in server["paths"].as_array().into_iter().flatten() {
            let (remote, state) = (text(&path["remote"]), text(&path["state"]));
            out::line(&format!(
                "  path {} to {remote}: {state}, round trip {} us, {} bytes sent, {} received, {} packets lost",
                path["path"], path["round_trip_us"], path["bytes_sent"], path["bytes_received"], path["packets_lost"],
            ));
        }
    }
    if let Some(count) = status["rings"]["connections"].as_u64().filter(|count| *count > 0) {
        out::line(&format!("{count} connections share {} bytes of memory", status["rings"]["memory_bytes"]));
    }
    for program in status["programs"].as_array().into_iter().flatten() {
        out::line(&format!(
            "{} ({}): {} connections of {} so far, {} bytes sent, {} received",
            text(&program["name"]),
            program["pid"],
            program["connections"],
            program["opened"],
            program["bytes_sent"],
            program["bytes_received"],
        ));
        for place in program["published"].as_array().into_iter().flatten() {
            out::line(&format!("  publishes {}", text(place)));
        }
    }
}
