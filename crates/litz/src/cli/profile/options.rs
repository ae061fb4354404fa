//! The arguments of `litz profile`, and what they mean together.

use std::path::PathBuf;

use clap::Args;
use quic::config::DATAGRAM_SIZE_MAX;
use units::Duration;

use crate::profile::Settings;

/// RFC 9000, section 14: no path carries less.
const DATAGRAM_SIZE_MIN: usize = 1200;

/// Each takes its own runs.
const SIZES_MAX: usize = 16;

/// Shorter runs are all warm-up, longer ones say nothing more.
const TIME_MIN: Duration = Duration::from_millis(10);
const TIME_MAX: Duration = Duration::from_secs(60);

/// For the end of the help text.
pub(crate) const HELP: &str = "\
Two ends of one connection run on this machine, over loopback, each on a thread of its own and on its own half of the
processors. Stop other programs first: a profile of a busy machine says so.

Exit status:
  0    the profile is printed
  2    an error: bad arguments, no sockets, no folder
  130  interrupted";

#[derive(Args, Debug)]
pub(crate) struct ProfileOptions {
    /// Size of the datagrams that the table is about, as bytes of UDP payload
    #[arg(long, value_name = "BYTES", default_value_t = 1472)]
    pub(crate) datagram_size: usize,

    /// Sizes to measure, separated by commas: two at least, so that the costs of a packet and of a byte can be told apart
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1200,1472,4096,8972")]
    pub(crate) sizes: Vec<usize>,

    /// How long each run takes, after its warm-up
    #[arg(long, value_name = "TIME", default_value = "800ms")]
    pub(crate) time: Duration,

    /// Runs at each size; the table shows medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) runs: u8,

    /// From file to file too: what reading, hashing and writing add
    #[arg(long)]
    pub(crate) file: bool,

    /// With --file: the folder to measure in, below which a temporary one is made [default: the system's]
    #[arg(long, value_name = "PATH", requires = "file")]
    pub(crate) dir: Option<PathBuf>,

    /// The result as one JSON object, in the format of docs/spec/profile.md
    #[arg(long)]
    pub(crate) json: bool,
}

impl ProfileOptions {
    /// What to measure.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn settings(&self) -> Result<Settings, String> {
        let mut sizes = self.sizes.clone();
        sizes.push(self.datagram_size);
        sizes.sort_unstable();
        sizes.dedup();
        let allowed = DATAGRAM_SIZE_MIN..=DATAGRAM_SIZE_MAX;
        if let Some(size) = sizes.iter().find(|size| !allowed.contains(size)) {
            return Err(format!("datagrams have {DATAGRAM_SIZE_MIN} to {DATAGRAM_SIZE_MAX} bytes, not {size}"));
        }
        if sizes.len() < 2 {
            return Err("--sizes needs a second size, to tell the cost of a packet from that of a byte".to_owned());
        }
        if sizes.len() > SIZES_MAX {
            return Err(format!("--sizes takes {SIZES_MAX} sizes at most, --datagram-size included"));
        }
        if !(TIME_MIN..=TIME_MAX).contains(&self.time) {
            return Err(format!("--time takes {TIME_MIN} to {TIME_MAX}, not {}", self.time));
        }
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
