//! The arguments. One definition serves parsing and help. The commands check what the parser
//! cannot.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use transfer::Filter;
use units::{ByteSize, Duration, Rate};

use super::bench::BenchOptions;
use super::credential::CredentialOptions;
use super::demo::DemoOptions;
use super::emulate::EmulateOptions;
use super::exit;
use super::forward::{DaemonOptions, ForwardOptions, RunOptions};
use super::heading;
use super::id::IdOptions;
use super::listen_options::ListenOptions;
use super::packaging::{CompletionsOptions, ManOptions};
use super::path_options::{PathOptions, SinglePathOptions};
use super::paths::PathsOptions;
use super::predict::PredictOptions;
use super::profile::ProfileOptions;
use super::replay::ReplayOptions;
use super::scenario::ScenarioOptions;
use super::serving::sandbox::SandboxMode;
use super::ssh::invitation::{Invitation, Peer};
use super::ssh::options::{SshEndOptions, SshOptions};
use super::study::StudyOptions;
use super::tcp::TcpOptions;
use super::tickets::TicketsOptions;
use super::transport_options::TransportOptions;
use super::tunnel::TunnelOptions;
use super::update_options::UpdateOptions;
use super::version::VersionOptions;

/// The usage of `litz send`, which clap cannot derive.
const SEND_USAGE: &str = "\
litz send [OPTIONS] <PATH>... <TICKET>
       litz send [OPTIONS] <PATH>... <[USER@]HOST>:[DIR]
       litz send [OPTIONS] <[USER@]HOST>:<PATH>... <DIR>
       litz send [OPTIONS] <PATH>... --to <TICKET>
       litz send [OPTIONS] <PATH>... --ticket-file <FILE>";

/// Multipath QUIC transport: file transfer, tunnels, forwarded connections, measurements, emulation and
/// simulation.
///
/// Litz makes one encrypted connection out of all network interfaces of a host. It sends files over it,
/// carries IP packets, and forwards connections of programs. It also measures this machine, emulates links,
/// and runs scenarios and studies in a simulator.
#[derive(Parser, Debug)]
#[command(name = "litz", version = crate::provenance::VERSION, after_help = exit::HELP)]
pub(crate) struct Arguments {
    /// Print more on standard error; repeat up to three times for more detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = heading::OUTPUT)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Receive files: print a ticket and wait for the sender that has it
    #[command(after_help = exit::TRANSFER_HELP)]
    Recv(RecvOptions),
    /// Send files and directories to the receiver that printed the ticket
    #[command(after_help = exit::TRANSFER_HELP, override_usage = SEND_USAGE)]
    Send(SendOptions),
    /// Forward TCP, UDP and UNIX connections over all links, as ssh -L, -R, -D and -W do over one
    #[command(after_help = super::forward::HELP, override_usage = super::forward::USAGE)]
    Forward(Box<ForwardOptions>),
    /// Run a program, and forward the connections that it makes over all links; it needs no change
    #[command(after_help = super::forward::RUN_HELP, override_usage = super::forward::RUN_USAGE)]
    Run(Box<RunOptions>),
    /// Make the connections of programs under `litz run`, over one connection with all links
    #[command(after_help = super::forward::DAEMON_HELP, override_usage = super::forward::DAEMON_USAGE)]
    Daemon(Box<DaemonOptions>),
    /// Print this host's public key, as a line for the list of --allow of another host; the first call creates
    /// the key
    #[command(after_help = super::id::HELP)]
    Id(IdOptions),
    /// List the tickets that this host has issued, or revoke some of them
    #[command(after_help = super::tickets::HELP)]
    Tickets(TicketsOptions),
    /// Watch a transfer on this machine: four different links, first each alone, then all together
    /// while one is cut and restored
    #[command(after_help = super::demo::HELP)]
    Demo(DemoOptions),
    /// Measure where a packet's time goes on this machine: nanoseconds per stage, and how much more
    /// processors could gain
    #[command(after_help = super::profile::HELP)]
    Profile(ProfileOptions),
    /// Predict goodput and CPU use for each placement from a profile of a machine; --verify
    /// compares with live runs
    #[command(after_help = super::predict::HELP)]
    Predict(PredictOptions),
    /// Run benchmarks on this machine: how much more processors gain
    #[command(after_help = super::bench::HELP)]
    Bench(BenchOptions),
    /// Run scenario files (links, faults, workload, checks) in virtual time or between network
    /// namespaces
    #[command(after_help = super::scenario::HELP)]
    Scenario(ScenarioOptions),
    /// Repeat the papers' experiments in the simulator: the paper's values, ours, the difference,
    /// and the assumptions
    #[command(after_help = super::study::HELP)]
    Study(StudyOptions),
    /// Show which paths a sender would use for a ticket, and why; nothing is sent
    #[command(after_help = super::paths::HELP)]
    Paths(PathsOptions),
    /// Replay recorded connections, show what they did, and check that they produce the same bytes
    #[command(after_help = super::replay::HELP)]
    Replay(ReplayOptions),
    /// Emulate links (rate, delay, loss, outages) between unmodified programs
    #[command(after_help = super::emulate::HELP)]
    Emulate(EmulateOptions),
    /// Use the TCP/IP stack of this program on a device of its own: connect to programs, accept them,
    /// measure it against the kernel's
    #[command(after_help = super::tcp::HELP)]
    Tcp(TcpOptions),
    /// Carry IP packets of this host over all its links to another host: a network device leads there
    #[command(after_help = super::tunnel::HELP)]
    Tunnel(TunnelOptions),
    /// The far end of `litz send` with HOST:PATH, which ssh starts
    #[command(hide = true, after_help = super::ssh::options::END_HELP)]
    SshEnd(SshEndOptions),
    /// Print the version of this program and of the protocols that it speaks
    #[command(after_help = super::version::HELP)]
    Version(VersionOptions),
    /// Print a script that completes the arguments in a shell
    #[command(after_help = super::packaging::COMPLETIONS_HELP)]
    Completions(CompletionsOptions),
    /// Print the manual page, or write those of all commands
    #[command(after_help = super::packaging::MAN_HELP)]
    Man(ManOptions),
}

#[derive(Args, Debug)]
pub(crate) struct RecvOptions {
    /// Directory to receive into; must exist
    #[arg(default_value = ".")]
    pub(crate) directory: PathBuf,

    /// Write what is received to standard output, as in `litz recv -o - | tar x`; "-" is the only FILE
    ///
    /// The sender runs `litz send -`. Each piece of 256 KiB is verified before it is written, and the
    /// hash of the whole at the end: use the data only if the exit status is 0. Everything else that
    /// this command prints goes to standard error. The ticket serves one transfer; an interrupted one
    /// cannot be resumed.
    #[arg(short, long, value_name = "FILE", value_parser = ["-"], hide_possible_values = true,
          conflicts_with_all = ["directory", "allow", "overwrite", "update", "dry_run"], help_heading = heading::FILES)]
    pub(crate) output: Option<String>,

    /// Write to standard output even if it is a terminal
    #[arg(long, requires = "output", help_heading = heading::FILES)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) listening: ListenOptions,

    /// Lifetime of the ticket, if it is a new one [default: 24h]
    #[arg(long, value_name = "TIME", help_heading = heading::SECURITY)]
    pub(crate) expires: Option<Duration>,

    /// Replace existing files of the same name
    #[arg(long, help_heading = heading::FILES)]
    pub(crate) overwrite: bool,

    #[command(flatten)]
    pub(crate) update: UpdateOptions,

    /// Maximum size of a transfer; a larger one is refused, and the receiver waits for another
    #[arg(long, value_name = "SIZE", help_heading = heading::FILES)]
    pub(crate) max_size: Option<ByteSize>,

    /// Issue a new ticket, and revoke the unfinished ones for this directory
    ///
    /// Without this option, the newest unfinished ticket for the directory is used again, so that
    /// its transfer can be resumed. `litz tickets` lists all tickets and revokes single ones.
    #[arg(long, help_heading = heading::SECURITY)]
    pub(crate) new_ticket: bool,

    /// Run as a server: accept any number of transfers from the keys listed in this file, without a
    /// ticket secret
    ///
    /// A line of the file begins with a public key, as `litz id` prints it on the sending host, or
    /// with its fingerprint. A name may follow; the rest of the line, and everything after #, is a
    /// comment. A change of the file takes effect at once: a key that is removed can start no transfer,
    /// and its running ones end. Other users must not be able to write the file.
    #[arg(long, value_name = "FILE", alias = "authorized-keys", help_heading = heading::SECURITY)]
    pub(crate) allow: Option<PathBuf>,

    /// Give each key of --allow a folder of its own
    ///
    /// The folder has the name that follows the key in the list (letters, digits, dots, hyphens and
    /// underscores). A key without such a name gets a folder named by its fingerprint. Keys with the
    /// same name share a folder.
    #[arg(long, requires = "allow", help_heading = heading::SECURITY)]
    pub(crate) folder_per_sender: bool,

    /// Maximum size of each sender's folder, all files together
    ///
    /// A transfer that would exceed it is refused before any data are sent. Files that are there
    /// already, also in part, are not counted twice. Holes count as if they were data. Leave room on
    /// the disk beyond it: while a file is replaced (--overwrite), the old one stays until the new one
    /// is complete.
    #[arg(long, value_name = "SIZE", requires = "folder_per_sender", help_heading = heading::SECURITY)]
    pub(crate) quota: Option<ByteSize>,

    /// Whether to give up rights that a receiver does not need before it takes a packet
    ///
    /// Landlock limits the receiver to the directory, its state folder, what other options name, and
    /// libraries, and takes TCP from it; seccomp leaves it the system calls that a receiver makes, none
    /// of which runs programs.
    /// With `auto`, what the kernel does not have is left out. With `require`, the receiver does not
    /// start then. With `off`, it keeps all rights of its user.
    #[arg(long, value_name = "MODE", default_value = "auto", help_heading = heading::SECURITY)]
    pub(crate) sandbox: SandboxMode,

    #[command(flatten)]
    pub(crate) transport: TransportOptions,

    /// The only sender, if it was agreed upon over ssh.
    #[arg(skip)]
    pub(crate) invitation: Option<Invitation>,
}

#[derive(Args, Debug)]
pub(crate) struct SendOptions {
    /// Files and directories to send, or "-" for standard input, then the ticket or HOST:DIR; or HOST:PATH to
    /// fetch, then a directory
    #[arg(required = true, num_args = 1.., value_name = "PATH... TICKET")]
    pub(crate) paths_and_ticket: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) credential: CredentialOptions,

    /// Name under which standard input arrives [default: stdin]
    #[arg(long, value_name = "NAME", help_heading = heading::FILES)]
    pub(crate) name: Option<PathBuf>,

    /// Keep these besides names, content and times: a comma-separated list of modes, links, hard-links and
    /// holes, or all, or none [default: modes,links]
    ///
    /// modes: permission bits; otherwise the receiver's default applies. links: symbolic links. Those
    /// that lead out of what is sent are skipped, and without the word all are; then the exit status is 1. hard-links:
    /// several names of one file; otherwise each name arrives as a file of its own. holes: the holes of
    /// sparse files are neither sent nor stored. Owners, access lists and extended attributes are never
    /// kept: send a tar stream for those (`tar c DIR | litz send - TICKET`). A symbolic link that is named
    /// itself as a PATH is followed.
    #[arg(long, value_name = "LIST", value_parser = super::keep::parse_keep, help_heading = heading::FILES)]
    pub(crate) keep: Option<transfer::Keep>,

    /// Leave out files and directories that match this pattern; may be repeated, also with --include
    ///
    /// The rules are those of rsync: the first pattern that matches decides. `*.o` is compared with the last
    /// component of a name, `build/` with directories, `/src/*.o` with names from the top, where the first
    /// component is that of the PATH, `a/b` with the end of a name, and `**` also matches slashes. A directory
    /// that is left out is not looked into.
    #[arg(long, value_name = "PATTERN", help_heading = heading::FILES)]
    pub(crate) exclude: Vec<String>,

    /// Send files and directories that match this pattern, whatever later patterns say; may be repeated
    #[arg(long, value_name = "PATTERN", help_heading = heading::FILES)]
    pub(crate) include: Vec<String>,

    #[command(flatten)]
    pub(crate) update: UpdateOptions,

    /// With HOST:PATH, delete at the receiving end what the sent directories do not have
    ///
    /// As with rsync, what a pattern of --exclude matches is kept. Only directories that are sent are looked
    /// at, and no symbolic link is followed. Nothing is deleted unless everything has arrived and nothing was
    /// skipped. See before with --dry-run what would be deleted.
    #[arg(long, help_heading = heading::FILES)]
    pub(crate) delete: bool,

    /// The places of the patterns among the arguments: of all in `exclude`, then of all in `include`.
    #[arg(skip)]
    pattern_places: Vec<usize>,

    #[command(flatten)]
    pub(crate) ssh: SshOptions,

    /// Maximum sending rate, over all paths together
    #[arg(long, value_name = "RATE", help_heading = heading::PATHS)]
    pub(crate) rate: Option<Rate>,

    /// Burst size with --rate, at least 1200 bytes [default: 64KiB]
    #[arg(long, value_name = "SIZE", requires = "rate", help_heading = heading::PATHS)]
    pub(crate) burst: Option<ByteSize>,

    #[command(flatten)]
    pub(crate) single_path: SinglePathOptions,

    #[command(flatten)]
    pub(crate) paths: PathOptions,

    /// Reconnect after a lost connection, until this time has passed without progress; 0 disables
    /// it
    ///
    /// Progress means that bytes were transferred or verified. After reconnecting, the transfer
    /// resumes. The command ends at once with status 2 if the first connection fails, if the
    /// receiver refuses the transfer (for example because of its --max-size), or if another host
    /// answers. While another `litz send` uses the same ticket, it tries for 6 seconds.
    #[arg(long, value_name = "TIME", default_value = "10min", help_heading = heading::PATHS)]
    pub(crate) retry_for: Duration,

    /// Number of file segments to read, hash and send in parallel [default: number of processors,
    /// at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64), help_heading = heading::FILES)]
    pub(crate) parallel: Option<u8>,

    #[command(flatten)]
    pub(crate) transport: TransportOptions,

    /// The host that asked for the transfer over ssh.
    #[arg(skip)]
    pub(crate) peer: Option<Arc<dyn Peer>>,
}

impl Arguments {
    /// Parses the arguments of the process, whose first one is its name.
    ///
    /// # Errors
    /// That of clap, whose text is for the user.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        Self::of(&Self::command().try_get_matches_from(arguments)?)
    }

    /// The arguments of a command line that was parsed.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub(crate) fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut arguments = Self::from_arg_matches(matches)?;
        if let (Command::Send(options), Some((_, matches))) = (&mut arguments.command, matches.subcommand()) {
            let places = ["exclude", "include"].map(|name| matches.indices_of(name).into_iter().flatten());
            options.pattern_places = places.into_iter().flatten().collect();
        }
        Ok(arguments)
    }
}

impl SendOptions {
    /// The patterns in the order of the arguments; true for those of --include.
    pub(crate) fn patterns(&self) -> Vec<(bool, String)> {
        let excluded = self.exclude.iter().map(|pattern| (false, pattern.clone()));
        let patterns = excluded.chain(self.include.iter().map(|pattern| (true, pattern.clone())));
        let mut placed: Vec<_> = self.pattern_places.iter().zip(patterns).collect();
        placed.sort_by_key(|(place, _)| **place);
        placed.into_iter().map(|(_, pattern)| pattern).collect()
    }

    /// The filter of these patterns.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn filter(&self) -> Result<Filter, String> {
        filter_of(&self.patterns())
    }
}

/// The filter of these patterns; true for those that include.
///
/// # Errors
/// A message for the user.
pub(crate) fn filter_of(patterns: &[(bool, String)]) -> Result<Filter, String> {
    let mut filter = Filter::default();
    for (admits, pattern) in patterns {
        let added = if *admits { filter.include(pattern) } else { filter.exclude(pattern) };
        added.map_err(|error| error.to_string())?;
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// The short help of an argument or command is one sentence, without a full stop.
    #[test]
    fn short_help_is_one_sentence() {
        let mut faults = Vec::new();
        collect_faults(&Arguments::command(), &mut faults);
        assert!(faults.is_empty(), "an empty /// line separates short help from the rest:\n{}", faults.join("\n"));
    }

    fn collect_faults(command: &clap::Command, faults: &mut Vec<String>) {
        let name = command.get_name();
        let about = command.get_about().map(|text| (name.to_owned(), text.to_string()));
        let arguments = command
            .get_arguments()
            .filter_map(|argument| Some((format!("{name} {}", argument.get_id()), argument.get_help()?.to_string())));
        faults.extend(about.into_iter().chain(arguments).filter_map(|(name, text)| {
            let is_one_sentence = text.chars().count() <= 160 && !has_second_sentence(&text);
            (!is_one_sentence).then(|| format!("{name}: {text}"))
        }));
        command.get_subcommands().for_each(|command| collect_faults(command, faults));
    }

    /// Whether a capitalized word, such as "The", follows a lowercase word, a full stop or a closing
    /// bracket. Proper names are exempt.
    fn has_second_sentence(text: &str) -> bool {
        let words: Vec<_> = text.split(' ').collect();
        words.windows(2).any(|pair| {
            let ends = pair[0].ends_with(|end: char| end.is_ascii_lowercase() || matches!(end, '.' | ']' | ')' | '`'));
            let mut letters = pair[1].chars();
            let begins = letters.next().is_some_and(char::is_uppercase)
                && (pair[1] == "A" || letters.next().is_some_and(char::is_lowercase));
            let word = pair[1].trim_end_matches([',', ';', ']']);
            ends && begins
                && !["Ctrl-C", "Ethernet", "Kaiserswerth", "Linux", "Perfetto", "Ruetsche", "Wireshark"].contains(&word)
        })
    }

    #[test]
    fn options_of_send_may_stand_anywhere() {
        for line in ["send -q path ticket", "send path -q ticket", "send path ticket -q", "send path -q --to=x ticket"]
        {
            let parsed = Arguments::try_parse_from(std::iter::once("litz").chain(line.split(' '))).expect(line);
            let Command::Send(options) = parsed.command else { panic!("another command: {line}") };
            assert_eq!(options.paths_and_ticket, ["path", "ticket"].map(PathBuf::from), "{line}");
            assert!(options.transport.quiet, "{line}");
        }
    }

    #[test]
    fn send_requires_a_path() {
        assert!(Arguments::try_parse_from(["litz", "send", "--to=ticket"]).is_err());
        assert!(Arguments::try_parse_from(["litz", "send", "path", "--to=ticket", "--ticket-file=file"]).is_err());
        assert!(Arguments::try_parse_from(["litz", "send", "path", "ticket"]).is_ok());
        assert!(Arguments::try_parse_from(["litz", "send", "path", "ticket", "--burst", "1MB"]).is_err());
        assert!(Arguments::try_parse_from(["litz", "send", "path", "ticket", "--rate", "10"]).is_err());
    }
}
