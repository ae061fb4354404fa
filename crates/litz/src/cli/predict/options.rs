//! The arguments of `litz predict`.

use std::path::PathBuf;

use clap::Args;
use quic::config::DATAGRAM_SIZE_MAX;
use scenario::simulated::PROCESSORS_MAX;
use units::Duration;

use super::choice::Choice;

/// RFC 9000, section 14: no path carries less.
const DATAGRAM_SIZE_MIN: usize = 1200;

/// For the end of the help text.
pub(crate) const HELP: &str = "\
The protocol runs as it is, in virtual time; each packet takes the time that a profile says, on the thread that the placement
gives it. Without --profile, this machine is profiled first.

  litz predict --bulk --verify                         this machine, and how far the prediction is from the truth
  litz profile --json > machine.json                   on another machine; then here:
  litz predict links.toml --profile machine.json --processors 8

Exit status:
  0    the prediction is printed
  2    an error: bad arguments, a file that cannot be read, a run that cannot be made
  130  interrupted";

#[derive(Args, Debug)]
pub(crate) struct PredictOptions {
    /// Scenario file; its hosts are two machines like the one of the profile
    #[arg(value_name = "SCENARIO", conflicts_with = "bulk")]
    pub(super) scenario: Option<PathBuf>,

    /// Bulk data from memory to memory over loopback: each end has half of the machine's processors
    #[arg(long)]
    pub(super) bulk: bool,

    /// What `litz profile --json` has printed [default: this machine is profiled]
    #[arg(long, value_name = "FILE")]
    pub(super) profile: Option<PathBuf>,

    /// Placements, separated by commas: auto, inline, thread, split, packet(N), path(N), connection(N)
    ///
    /// auto is what an endpoint would choose, by processors, sockets and cipher. Of bulk, connection(N) has N connections, one for
    /// each processor; a scenario has one.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "inline,thread,split")]
    pub(super) placement: Vec<Choice>,

    /// Processors of a machine [default: as many as this one has, 64 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=PROCESSORS_MAX as i64))]
    pub(super) processors: Option<u16>,

    /// Nanoseconds it takes to wake a thread [default: as the profile says]
    #[arg(long, value_name = "NS")]
    pub(super) hand_over: Option<f64>,

    /// With --bulk: sizes of datagrams, as bytes of UDP payload
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1472,8972", requires = "bulk")]
    pub(super) datagram_size: Vec<usize>,

    /// With --bulk: how long each run takes, simulated or live, after its warm-up
    #[arg(long, value_name = "TIME", default_value = "500ms", requires = "bulk")]
    pub(super) time: Duration,

    /// Do it, on this machine, and print what was measured beside what was predicted: bulk over loopback, a scenario between network
    /// namespaces (Linux, root)
    #[arg(long)]
    pub(super) verify: bool,

    /// Runs of each kind, live and of the profile if one is taken; the medians count
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(super) runs: u8,

    /// The result as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl PredictOptions {
    /// Checks what the parser cannot.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.scenario.is_none() && !self.bulk {
            return Err("nothing to predict: name a scenario file, or ask for --bulk".to_owned());
        }
        let allowed = DATAGRAM_SIZE_MIN..=DATAGRAM_SIZE_MAX;
        if let Some(size) = self.datagram_size.iter().find(|size| !allowed.contains(size)) {
            return Err(format!("datagrams have {DATAGRAM_SIZE_MIN} to {DATAGRAM_SIZE_MAX} bytes, not {size}"));
        }
        if !(Duration::from_millis(50)..=Duration::from_secs(60)).contains(&self.time) {
            return Err(format!("--time takes 50ms to 60s, not {}", self.time));
        }
        if let Some(hand_over) = self.hand_over
            && !(0.0..=1e6).contains(&hand_over)
        {
            return Err(format!("--hand-over takes 0 to 1000000 ns, not {hand_over}"));
        }
        Ok(())
    }
}
