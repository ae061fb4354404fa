//! The command line: arguments in, exit status out.

mod args;
mod argument_errors;
mod bench;
mod bounded;
mod colour;
pub(crate) mod connect;
mod connection_log;
mod costs;
mod credential;
mod demo;
mod emulate;
mod exit;
pub(crate) mod forward;
mod groups;
mod heading;
mod help;
mod host;
mod id;
mod journals;
mod keep;
mod lines;
mod links;
mod listen_options;
mod lost;
mod out;
mod packaging;
mod path_options;
mod path_report;
mod paths;
mod predict;
mod problems;
mod profile;
mod progress;
mod qlog;
mod recording;
mod recv;
mod replay;
mod runtime_folder;
mod scenario;
mod scheduler_trace;
mod send;
mod serving;
mod signals;
mod ssh;
mod standard_streams;
mod status;
mod study;
mod tables;
mod takeover;
mod tcp;
mod ticket;
mod tickets;
mod tls;
mod transport_options;
mod tunnel;
mod update_options;
mod version;
mod warning;
mod wrap;

use std::ffi::OsString;
use std::process::ExitCode;

use args::{Arguments, Command};

/// Runs the command given by the process arguments.
pub(crate) fn run() -> ExitCode {
    let given: Vec<OsString> = std::env::args_os().collect();
    let parsed = help::command().try_get_matches_from(&given).and_then(|matches| Arguments::of(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => return out::conclude(argument_errors::print(&error, &given)),
    };
    start_logging(arguments.verbose);
    let status = match arguments.command {
        Command::Recv(mut options) => {
            options.transport.verbose = arguments.verbose > 0;
            recv::run(&options)
        }
        Command::Send(mut options) => {
            options.transport.verbose = arguments.verbose > 0;
            send::run(&options)
        }
        Command::Forward(options) => forward::run(&options),
        Command::Run(options) => forward::run_program(&options),
        Command::Daemon(options) => forward::run_daemon(&options),
        Command::Id(options) => id::run(&options),
        Command::Tickets(options) => tickets::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Profile(options) => profile::run(&options),
        Command::Predict(options) => predict::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Scenario(options) => scenario::run(&options),
        Command::Study(options) => study::run(&options),
        Command::Paths(options) => paths::run(&options),
        Command::Replay(options) => replay::run(&options),
        Command::Emulate(options) => emulate::run(&options),
        Command::Tcp(options) => tcp::run(&options),
        Command::Tunnel(options) => run_tunnel(&options, &given),
        Command::SshEnd(options) => ssh::end::run(&options),
        Command::Version(options) => version::run(&options),
        Command::Completions(options) => packaging::run_completions(&options, help::command()),
        Command::Man(options) => packaging::run_man(&options, help::command_for(packaging::UNWRAPPED)),
    };
    out::conclude(status)
}

/// Runs a command of tunnels, with the options of a file if the arguments name one.
fn run_tunnel(options: &tunnel::TunnelOptions, given: &[OsString]) -> ExitCode {
    match options.with_file(help::command(), given) {
        None => tunnel::run(options),
        Some(Err(message)) => exit::fail(options.is_json(), exit::FAILED, &message),
        Some(Ok(matches)) => match Arguments::of(&matches) {
            Ok(Arguments { command: Command::Tunnel(options), .. }) => tunnel::run(&options),
            Ok(_) => unreachable!("the same command"),
            Err(error) => argument_errors::print(&error, given),
        },
    }
}

/// The log of `-v`: connections and anomalies, but nothing per packet. A crate is meant by the
/// beginning of its name.
const CONNECTIONS_LOG: &str = "warn,litz=debug,transfer=debug,engine=debug,quic=debug,recovery=debug,net=debug,\
                               emulate=debug,forwarding=debug,tunnel_end=debug,tcp_stack=debug";

/// Logs go to standard error, so that they never mix with `--json` lines.
fn start_logging(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => CONNECTIONS_LOG,
        2 => "debug",
        _ => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(standard_streams::Log::start());
    // The library would report a failed write on standard error, and panic if that fails too.
    let log = log.log_internal_errors(false);
    log.with_ansi(colour::is_wanted()).init();
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Crates that log things of single packets on the level of connections.
    const PER_PACKET: [&str; 2] = ["driver", "tcp-driver"];

    fn sources(folder: &Path, has_log: &mut bool) {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                sources(&path, has_log);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("text");
                *has_log |= text.contains("tracing::debug!") || text.contains("tracing::info!");
            }
        }
    }

    #[test]
    fn the_log_of_connections_names_every_crate_that_logs() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of crates");
        for folder in std::fs::read_dir(crates).expect("a folder").flatten() {
            let (name, mut has_log) = (folder.file_name().into_string().expect("text"), false);
            sources(&folder.path().join("src"), &mut has_log);
            let target = name.replace('-', "_");
            let is_named = CONNECTIONS_LOG
                .split(',')
                .filter_map(|directive| directive.strip_suffix("=debug"))
                .any(|prefix| target.starts_with(prefix.trim()));
            assert!(!has_log || is_named || PER_PACKET.contains(&&*name), "{name} is missing");
        }
    }
}
