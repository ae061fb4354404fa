//! The options of both ends of a transfer.

use std::path::PathBuf;

use clap::Args;
use litz::EndpointConfig;
use units::Duration;

use super::heading;

/// Options of both ends of a transfer.
#[derive(Args, Debug, Clone)]
pub(crate) struct TransportOptions {
    /// Size of the datagrams to send at first, in bytes of UDP payload; every path must carry this
    /// size
    #[arg(long, value_name = "BYTES", default_value_t = 1200, help_heading = heading::PROTOCOL)]
    pub(crate) datagram_size: usize,

    /// Largest size of datagrams that each path is probed for (path MTU discovery): 8972 for jumbo
    /// frames, 1200 for none
    #[arg(long, value_name = "BYTES", default_value_t = 1472, help_heading = heading::PROTOCOL)]
    pub(crate) datagram_size_max: usize,

    /// Do not mark packets as ECN-capable, so that routers can only drop them
    ///
    /// Without this option, marks are tested on each path, and left out where they do not work. The option
    /// applies to what this end sends.
    #[arg(long, help_heading = heading::PROTOCOL)]
    pub(crate) no_ecn: bool,

    /// Congestion controller: cubic, bbr, newreno; or prague, for networks that are known to have L4S
    /// queues
    #[arg(long, value_name = "NAME", default_value = "bbr", help_heading = heading::PROTOCOL)]
    pub(crate) congestion: recovery::Algorithm,

    /// Path scheduler: earliest (by estimated delivery), lowest-rtt, round-robin, or redundant:N
    /// (each packet on N paths)
    #[arg(long, value_name = "NAME", default_value = "earliest", help_heading = heading::PATHS)]
    pub(crate) scheduler: litz::Strategy,

    /// Whether retransmissions (R) and acknowledgements (A) are distributed per path (D) or
    /// centralized (C): DRDA, DRCA, CRDA or CRCA
    ///
    /// With DR, lost data is retransmitted on the path that lost it; with CR, on the path that the
    /// scheduler chooses. With DA, packets are acknowledged on the path they arrived on; with CA,
    /// the packets of all paths are acknowledged together on the path with the shortest delay. Each
    /// end applies the policy to what it sends. Use the same policy at both ends unless you want to
    /// compare them.
    #[arg(long, value_name = "NAME", default_value = "CRDA", help_heading = heading::PROTOCOL)]
    pub(crate) policy: quic::Policy,

    /// Placement of the protocol on processors: auto, thread, split, packet(N) or path(N)
    ///
    /// With split, one thread sends and one receives; with packet(N), one runs the protocol and N
    /// encrypt and decrypt; with path(N), N share the sockets. The placement never changes the rules
    /// of the protocol, only the order of its inputs and so the times of acknowledgements.
    #[arg(long, value_name = "NAME", default_value = "thread", value_parser = connection_placement, help_heading = heading::PROTOCOL)]
    pub(crate) placement: litz::Placement,

    /// Poll for this long before a thread of the protocol sleeps: shorter round trips, at the cost of a
    /// processor while packets come in such intervals
    ///
    /// To wake a sleeping thread takes a good part of a short round trip, above all on a virtual machine. Begin
    /// with 50us. Other threads run meanwhile, and for 200 ms after one that computes, the thread sleeps at
    /// once. 0s stands for no polling.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = busy_poll, help_heading = heading::PROTOCOL)]
    pub(crate) busy_poll: Duration,

    /// Write every path choice and its inputs to this file; `litz paths --replay FILE` repeats the
    /// choices
    #[arg(long, value_name = "FILE", help_heading = heading::RECORDING)]
    pub(crate) trace_scheduler: Option<PathBuf>,

    /// Record a journal of each connection in this folder: all inputs of the connection, for `litz
    /// replay`
    ///
    /// A journal contains addresses, connection IDs, sizes, times and the results of the TLS
    /// handshake, but no file contents and no keys. Only its owner can read it.
    #[arg(long, value_name = "DIR", help_heading = heading::RECORDING)]
    pub(crate) journal: Option<PathBuf>,

    /// Write a qlog file of each connection into this folder, for https://qvis.quictools.info and
    /// other tools: its packets, losses, windows and round-trip times
    ///
    /// The file is made from a journal when the connection has ended. Meanwhile the journal is in the
    /// same folder, or in that of --journal, where it stays. If the process is killed, `litz replay
    /// JOURNAL --qlog DIR` makes the file. It contains addresses, connection IDs, sizes and times, but
    /// no file contents, keys and tokens. Only its owner can read it. It has some 250 bytes for each
    /// packet.
    #[arg(long, value_name = "DIR", help_heading = heading::RECORDING)]
    pub(crate) qlog: Option<PathBuf>,

    /// Close a connection after this time without a packet from the peer
    #[arg(long, value_name = "TIME", default_value = "30s", help_heading = heading::PROTOCOL)]
    pub(crate) idle_timeout: Duration,

    /// Print one JSON object per line on standard output instead of text
    #[arg(long, help_heading = heading::OUTPUT)]
    pub(crate) json: bool,

    /// Print no progress, only results and errors
    #[arg(short, long, help_heading = heading::OUTPUT)]
    pub(crate) quiet: bool,

    /// Folder for keys and tickets [default: litz in XDG_STATE_HOME]
    #[arg(long, value_name = "DIR", help_heading = heading::SECURITY)]
    pub(crate) state_dir: Option<PathBuf>,

    /// Whether `--verbose` is given, which all commands share.
    #[arg(skip)]
    pub(crate) verbose: bool,
}

/// Polling for longer is a mistake in the unit: round trips of programs that wait for each other are shorter.
const BUSY_POLL_MAX: Duration = Duration::from_millis(100);

impl TransportOptions {
    /// An endpoint with the threads that the options ask for.
    pub(crate) fn endpoint(&self) -> EndpointConfig {
        EndpointConfig::default().with_placement(self.placement).with_busy_poll(self.busy_poll.into())
    }
}

/// Parses a time of polling.
fn busy_poll(text: &str) -> Result<Duration, String> {
    let time: Duration = text.parse().map_err(|error: <Duration as std::str::FromStr>::Err| error.to_string())?;
    if time > BUSY_POLL_MAX {
        return Err(format!("at most {BUSY_POLL_MAX}; begin with 50us"));
    }
    Ok(time)
}

/// Parses a placement for one connection, whose protocol runs on threads of its own.
fn connection_placement(text: &str) -> Result<litz::Placement, String> {
    match text.parse() {
        Ok(litz::Placement::Inline) => Err(
            "inline is for programs that run the protocol themselves: use auto, thread, split, packet(N) or path(N)"
                .into(),
        ),
        Ok(litz::Placement::Connection(_)) => {
            Err("connection(N) divides many connections, and here is only one connection: \
             use auto, thread, split, packet(N) or path(N)"
                .into())
        }
        Ok(litz::Placement::Pipeline) => {
            Err("pipeline is for litz tcp; use auto, thread, split, packet(N) or path(N)".into())
        }
        Ok(placement) => Ok(placement),
        Err(error) => Err(error.to_string()),
    }
}
