//! The arguments. One definition feeds parsing and help; what the parser cannot check, the commands do.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use units::{ByteSize, Duration, Rate};

use super::bench::BenchOptions;
use super::emulate::EmulateOptions;
use super::exit;
use super::path_options::PathOptions;
use super::paths::PathsOptions;
use super::predict::PredictOptions;
use super::profile::ProfileOptions;
use super::replay::ReplayOptions;
use super::scenario::ScenarioOptions;
use super::study::StudyOptions;

/// One connection over every link and every core, each strand encrypted.
#[derive(Parser, Debug)]
#[command(name = "litz", version = crate::provenance::VERSION, about, after_help = exit::HELP, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Say more on standard error; twice or three times for still more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Receive files: prints a ticket, and waits for the sender who has it
    #[command(after_help = exit::HELP)]
    Recv(RecvOptions),
    /// Send files and directories to the receiver who printed the ticket
    #[command(after_help = exit::HELP, override_usage = "litz send [OPTIONS] <PATH>... <TICKET>")]
    Send(SendOptions),
    /// See a transfer on this machine: four unlike links, each alone, all together, one cut and restored, verified
    #[command(after_help = exit::HELP)]
    Demo(DemoOptions),
    /// See where a packet's time goes on this machine: nanoseconds for each stage, and what more processors could gain
    #[command(after_help = super::profile::HELP)]
    Profile(ProfileOptions),
    /// Say what a machine would carry, from a profile of it: goodput and processors under each placement, and beside it the truth
    #[command(after_help = super::predict::HELP)]
    Predict(PredictOptions),
    /// Experiments on this machine: what more processors gain
    #[command(after_help = super::bench::HELP)]
    Bench(BenchOptions),
    /// Run scenario files: links, faults, workload and checks, in virtual time or between network namespaces
    #[command(after_help = super::scenario::HELP)]
    Scenario(ScenarioOptions),
    /// Run the papers' experiments again in the simulator: paper, ours, difference, and what it rests on
    #[command(after_help = super::study::HELP)]
    Study(StudyOptions),
    /// See which paths a sender would use for a ticket, and why; nothing is sent
    #[command(after_help = super::paths::HELP)]
    Paths(PathsOptions),
    /// Make the connections of journals happen again, see what they did, and check that the same bytes come out
    #[command(after_help = super::replay::HELP)]
    Replay(ReplayOptions),
    /// Put links with rate, delay, loss and cuts between programs as they are
    #[command(after_help = super::emulate::HELP)]
    Emulate(EmulateOptions),
}

/// The placements under which one connection gains something, and which need no caller.
fn placement_of_a_transfer(words: &str) -> Result<litz::Placement, String> {
    match words.parse() {
        Ok(litz::Placement::Inline) => {
            Err("a transfer needs a thread of its own: auto, thread, split, packet(N) or path(N)".into())
        }
        Ok(litz::Placement::Connection(_)) => Err(
            "a transfer is one connection, which connection(N) would not divide: auto, thread, split, packet(N) or path(N)"
                .into(),
        ),
        Ok(placement) => Ok(placement),
        Err(error) => Err(error.to_string()),
    }
}

/// What both ends of a transfer can set.
#[derive(Args, Debug, Clone)]
pub(crate) struct TransportOptions {
    /// Size of the datagrams we send, as bytes of UDP payload; the path must carry it
    #[arg(long, value_name = "BYTES", default_value_t = 1200)]
    pub(crate) datagram_size: usize,

    /// Congestion controller: cubic, bbr or newreno
    #[arg(long, value_name = "NAME", default_value = "bbr")]
    pub(crate) congestion: recovery::Algorithm,

    /// Which path the next packets take: earliest (by estimated delivery), lowest-rtt, round-robin, or redundant:N (each on N
    /// paths)
    #[arg(long, value_name = "NAME", default_value = "earliest")]
    pub(crate) scheduler: litz::Strategy,

    /// What is decided path by path (D) and what for all paths at once (C): retransmissions (R), then acknowledgements (A). DRDA,
    /// DRCA, CRDA or CRCA
    ///
    /// DR.. sends what a path lost on that path again, CR.. wherever the scheduler says. ..DA acknowledges the packets of each path
    /// on that path, ..CA those of all paths in one packet on the path that answers soonest. Each end chooses for what it sends;
    /// give both the same unless you want to see them differ.
    #[arg(long, value_name = "NAME", default_value = "CRDA")]
    pub(crate) policy: quic::Policy,

    /// Which processors run the protocol: auto, thread, split (one sends, one receives), packet(N) (one decides, N seal and open) or
    /// path(N) (N share the sockets).
    /// Never changes what is sent
    #[arg(long, value_name = "NAME", default_value = "thread", value_parser = placement_of_a_transfer)]
    pub(crate) placement: litz::Placement,

    /// Write every choice of a path with what it was made from to this file; `litz paths --replay FILE` makes them again
    #[arg(long, value_name = "FILE")]
    pub(crate) trace_scheduler: Option<PathBuf>,

    /// Keep a journal of each connection in this folder: all that goes into it, for `litz replay`
    ///
    /// A journal holds no content of files and no keys, but addresses, connection IDs, sizes, times, and what TLS said in the
    /// handshake. Only you may read it.
    #[arg(long, value_name = "DIR")]
    pub(crate) journal: Option<PathBuf>,

    /// Give a silent connection up after this time
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(crate) idle_timeout: Duration,

    /// One JSON object a line on standard output instead of text
    #[arg(long)]
    pub(crate) json: bool,

    /// No progress, only results and errors
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Folder of keys and tickets instead of the default one
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct RecvOptions {
    /// Where the files go; must exist
    #[arg(default_value = ".")]
    pub(crate) directory: PathBuf,

    /// Address and port to listen on [default: every address of this host, and one free port on all of them]
    ///
    /// Each address gets a socket of its own, bound to its network device, so that every path answers from where it was
    /// asked. 0.0.0.0 and [::] are one socket for all addresses of their family. Port 0 is any, or, when resuming, the ticket's.
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,

    /// Network device to receive on, and on no other
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,

    /// Addresses to put into the ticket instead of this host's own: IP, or IP:PORT where a router forwards
    #[arg(long, value_name = "ADDRESS", value_parser = parse_advertised)]
    pub(crate) advertise: Vec<Advertised>,

    /// How long the ticket is good for
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub(crate) expires: Duration,

    /// Let files replace others of the same name
    #[arg(long)]
    pub(crate) overwrite: bool,

    /// The most bytes a transfer may announce; one that announces more ends both commands
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_size: Option<ByteSize>,

    /// Issue a new ticket even if an unfinished one exists for this directory
    #[arg(long)]
    pub(crate) new_ticket: bool,

    /// Standing server: no ticket secret; let in the keys listed in this file, again and again
    #[arg(long, value_name = "FILE")]
    pub(crate) allow: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) transport: TransportOptions,
}

/// An address for the ticket.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Advertised {
    /// With the port we listen on.
    Ip(IpAddr),
    /// With another port.
    Socket(SocketAddr),
}

fn parse_advertised(text: &str) -> Result<Advertised, String> {
    text.parse()
        .map(Advertised::Socket)
        .or_else(|_| text.parse().map(Advertised::Ip))
        .map_err(|_| "expected an IP address, or one with a port such as 192.0.2.7:4433".to_owned())
}

#[derive(Args, Debug)]
pub(crate) struct SendOptions {
    /// Files and directories to send, then the ticket
    #[arg(required = true, num_args = 2.., value_name = "PATH... TICKET")]
    pub(crate) paths_and_ticket: Vec<PathBuf>,

    /// Never send faster than this, all paths together
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,

    /// With --rate: how much may leave at once, 1200 bytes or more [default: 64KiB]
    #[arg(long, value_name = "SIZE", requires = "rate")]
    pub(crate) burst: Option<ByteSize>,

    /// Local address to send from, on a single path
    #[arg(short, long, value_name = "ADDRESS", conflicts_with_all = ["paths", "limit"])]
    pub(crate) bind: Option<SocketAddr>,

    /// Network device to send on, and on no other, on a single path
    #[arg(long, value_name = "NAME", conflicts_with_all = ["paths", "limit"])]
    pub(crate) device: Option<String>,

    #[command(flatten)]
    pub(crate) paths: PathOptions,

    /// Reconnect when a connection is lost, until this long has passed without progress; 0 is never
    ///
    /// Progress is a byte that moved or was verified. Reconnecting goes on from where the transfer was. Final at once, with
    /// status 2: a first connection that fails, a refusal, a wrong fingerprint, and a receiver that gives up for good
    /// (such as by its --max-size).
    #[arg(long, value_name = "TIME", default_value = "10min")]
    pub(crate) retry_for: Duration,

    /// Parts of files read, hashed and sent at a time [default: the processors, 8 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) parallel: Option<u8>,

    /// Show our key to a standing server that has it on its list, instead of proving a ticket's secret
    #[arg(long)]
    pub(crate) by_key: bool,

    #[command(flatten)]
    pub(crate) transport: TransportOptions,
}

#[derive(Args, Debug)]
pub(crate) struct DemoOptions {
    /// An emulated link; give it several times for several links, in place of these four
    ///
    /// A text of settings, apart by commas, as `litz emulate relay --help` tells. Each link needs a rate that stays as it is;
    /// delays are one way.
    #[arg(long = "link", value_name = "LINK", default_values = super::demo::LINKS)]
    pub(crate) links: Vec<String>,

    /// Size of the file that travels over all links together [default: what they carry in 4.5 s]
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<ByteSize>,

    /// The fastest link is cut for this long, when 40 % of the file have arrived
    #[arg(long, value_name = "TIME", default_value = "1s", conflicts_with = "no_cut")]
    pub(crate) cut_for: Duration,

    /// Cut no link
    #[arg(long)]
    pub(crate) no_cut: bool,

    /// Seed of the files' content and of the links' faults
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// The result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_send_needs_a_path_and_a_ticket() {
        assert!(Arguments::try_parse_from(["litz", "send", "only-a-path"]).is_err());
        assert!(Arguments::try_parse_from(["litz", "send", "path", "ticket"]).is_ok());
        assert!(Arguments::try_parse_from(["litz", "send", "path", "ticket", "--burst", "1MB"]).is_err());
        assert!(Arguments::try_parse_from(["litz", "send", "path", "ticket", "--rate", "10"]).is_err());
    }
}
