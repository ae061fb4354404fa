//! The arguments of `litz profile`, and checks of their combinations.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use quic::config::DATAGRAM_SIZE_MAX;
use units::Duration;

use crate::cli::heading;
use crate::profile::{Settings, TcpSettings};

/// Every path carries datagrams of this size (RFC 9000, section 14).
const DATAGRAM_SIZE_MIN: usize = 1200;

/// Each size takes its own runs.
const SIZES_MAX: usize = 16;

/// Shorter runs consist of warm-up only; longer ones add no information.
const TIME_MIN: Duration = Duration::from_millis(10);
const TIME_MAX: Duration = Duration::from_secs(60);

/// The end of the help text of `tcp`.
const TCP_HELP: &str = "\
Stop other programs first: on a busy machine the profile contains a warning.

Exit status:
  0    the profile was printed
  2    an error: bad arguments
  130  interrupted";

/// The end of the help text.
pub(crate) const HELP: &str = "\
Both ends of one connection run on this machine, over loopback, each on its own thread and its own half of \
the processors. Stop other programs first: on a busy machine the profile contains a warning.

Exit status:
  0    the profile was printed
  2    an error: bad arguments, no socket, an unusable folder
  130  interrupted";

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ProfileOptions {
    /// Something else to measure
    #[command(subcommand)]
    pub(crate) other: Option<OtherProfile>,

    /// Size of the datagrams that the table describes, in bytes of UDP payload
    #[arg(long, value_name = "BYTES", default_value_t = 1472)]
    pub(crate) datagram_size: usize,

    /// Comma-separated list of sizes to measure; at least two, to separate the cost per packet from
    /// the cost per byte
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1200,1472,4096,8972")]
    pub(crate) sizes: Vec<usize>,

    /// Duration of each run, without its warm-up
    #[arg(long, value_name = "TIME", default_value = "800ms")]
    pub(crate) time: Duration,

    /// Number of runs at each size; the table shows medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) runs: u8,

    /// Also measure from file to file: the cost of reading, hashing and writing
    #[arg(long)]
    pub(crate) file: bool,

    /// With --file: create the temporary folder in this folder [default: the system's temporary
    /// folder]
    #[arg(long, value_name = "DIR", requires = "file")]
    pub(crate) dir: Option<PathBuf>,

    /// Print the result as one JSON object, in the format of docs/spec/profile.md
    #[arg(long, help_heading = heading::OUTPUT)]
    pub(crate) json: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum OtherProfile {
    /// Cost of a segment of TCP by the processes of Ruetsche and Kaiserswerth 1992, beside theirs
    ///
    /// One processor runs the whole stack over a device in memory whose other side is a script.
    #[command(after_help = TCP_HELP)]
    Tcp(TcpProfileOptions),
}

#[derive(Args, Debug)]
pub(crate) struct TcpProfileOptions {
    /// Bytes of data in a segment
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u16).range(512..=16384))]
    pub(crate) segment: u16,

    /// Duration of each run, without its warm-up
    #[arg(long, value_name = "TIME", default_value = "300ms")]
    pub(crate) time: Duration,

    /// Number of runs of each end; the table shows medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) runs: u8,

    /// Print the result as one JSON object, in the format of docs/spec/profile.md
    #[arg(long, help_heading = heading::OUTPUT)]
    pub(crate) json: bool,
}

impl TcpProfileOptions {
    /// Checks the arguments and returns what to measure.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn settings(&self) -> Result<TcpSettings, String> {
        check_time(self.time)?;
        Ok(TcpSettings { segment: self.segment.into(), time: self.time, runs: self.runs.into() })
    }
}

fn check_time(time: Duration) -> Result<(), String> {
    if (TIME_MIN..=TIME_MAX).contains(&time) {
        return Ok(());
    }
    Err(format!("--time must be from {TIME_MIN} to {TIME_MAX}, not {time}"))
}

impl ProfileOptions {
    /// Checks the arguments and returns what to measure.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn settings(&self) -> Result<Settings, String> {
        let mut sizes = self.sizes.clone();
        sizes.push(self.datagram_size);
        sizes.sort_unstable();
        sizes.dedup();
        let allowed = DATAGRAM_SIZE_MIN..=DATAGRAM_SIZE_MAX;
        if let Some(size) = sizes.iter().find(|size| !allowed.contains(size)) {
            return Err(format!("a datagram has {DATAGRAM_SIZE_MIN} to {DATAGRAM_SIZE_MAX} bytes, not {size}"));
        }
        if sizes.len() < 2 {
            return Err(
                "--sizes needs a second size, to separate the cost per packet from the cost per byte".to_owned()
            );
        }
        if sizes.len() > SIZES_MAX {
            return Err(format!("--sizes takes at most {SIZES_MAX} sizes, including --datagram-size"));
        }
        check_time(self.time)?;
        Ok(Settings {
            datagram_size: self.datagram_size,
            sizes,
            time: self.time,
            runs: self.runs.into(),
            file: self.file,
            dir: self.dir.clone(),
        })
    }
}
