//! The arguments of `litz predict`.

use std::path::PathBuf;

use clap::Args;
use quic::config::DATAGRAM_SIZE_MAX;
use scenario::simulated::{PROCESSORS_MAX, Placement};
use units::Duration;

use super::choice::Choice;

/// RFC 9000, section 14: no path carries less.
const DATAGRAM_SIZE_MIN: usize = 1200;

/// Sizes of datagrams, if nobody says: what links of today carry, and what good ones do.
const DATAGRAM_SIZES: [usize; 2] = [1472, 8972];

/// How long each run takes after its warm-up, if nobody says.
const TIME: Duration = Duration::from_millis(500);

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

    /// Placements, separated by commas: auto, inline, thread, split, packet(N), path(N), connection(N) [default: inline,thread,split; of a
    /// scenario with --verify, which has no inline, thread,split]
    ///
    /// auto is what an endpoint would choose, by processors, sockets and cipher. Of bulk, connection(N) has N connections, one for
    /// each processor; a scenario has one.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    placement: Vec<Choice>,

    /// Processors of a machine [default: as many as this one has, 64 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=PROCESSORS_MAX as i64))]
    pub(super) processors: Option<u16>,

    /// Nanoseconds it takes to wake a thread [default: as the profile says]
    #[arg(long, value_name = "NS")]
    pub(super) hand_over: Option<f64>,

    /// With --bulk: sizes of datagrams, as bytes of UDP payload [default: 1472,8972]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    datagram_size: Vec<usize>,

    /// With --bulk: how long each run takes, simulated or live, after its warm-up [default: 500ms]
    #[arg(long, value_name = "TIME")]
    time: Option<Duration>,

    /// Do it, on this machine, and print what was measured beside what was predicted: bulk over loopback, a scenario between network
    /// namespaces (Linux, root)
    ///
    /// The live runs have this machine as it is: other --processors and --hand-over change the prediction alone, and a warning says so.
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
    /// Which thread does what: what was asked for, otherwise what can be done.
    pub(super) fn placements(&self) -> Vec<Choice> {
        match &self.placement[..] {
            // Live, the applications of a scenario have a thread of their own.
            [] if self.verify && !self.bulk => [Placement::Thread, Placement::Split].map(Choice::Named).to_vec(),
            [] => [Placement::Inline, Placement::Thread, Placement::Split].map(Choice::Named).to_vec(),
            named => named.to_vec(),
        }
    }

    /// Bytes of UDP payload, of bulk.
    pub(super) fn datagram_sizes(&self) -> &[usize] {
        if self.datagram_size.is_empty() { &DATAGRAM_SIZES } else { &self.datagram_size }
    }

    /// How long each run takes after its warm-up: of bulk, and of the profile.
    pub(super) fn time(&self) -> Duration {
        self.time.unwrap_or(TIME)
    }

    /// Checks what the parser cannot.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.scenario.is_none() && !self.bulk {
            return Err("nothing to predict: name a scenario file, or ask for --bulk".to_owned());
        }
        let of_bulk = [("--datagram-size", !self.datagram_size.is_empty()), ("--time", self.time.is_some())];
        if let Some((option, _)) = of_bulk.iter().find(|(_, is_given)| *is_given && !self.bulk) {
            return Err(format!(
                "{option} is for --bulk: a scenario says what is sent, in datagrams of which size, and for how long"
            ));
        }
        let allowed = DATAGRAM_SIZE_MIN..=DATAGRAM_SIZE_MAX;
        if let Some(size) = self.datagram_size.iter().find(|size| !allowed.contains(size)) {
            return Err(format!("datagrams have {DATAGRAM_SIZE_MIN} to {DATAGRAM_SIZE_MAX} bytes, not {size}"));
        }
        if !(Duration::from_millis(50)..=Duration::from_secs(60)).contains(&self.time()) {
            return Err(format!("--time takes 50ms to 60s, not {}", self.time()));
        }
        if let Some(hand_over) = self.hand_over
            && !(0.0..=1e6).contains(&hand_over)
        {
            return Err(format!("--hand-over takes 0 to 1000000 ns, not {hand_over}"));
        }
        Ok(())
    }

    /// How the machine of the prediction differs from this one, of `present` processors, which the live runs have.
    pub(super) fn differences(&self, present: usize) -> Vec<String> {
        if !self.verify {
            return Vec::new();
        }
        let processors = self.processors.map(usize::from).filter(|asked| *asked != present.min(PROCESSORS_MAX));
        let processors = processors.map(|asked| {
            format!(
                "--processors: the prediction is of {asked} processors, the live runs have this machine's {present}"
            )
        });
        let hand_over = self.hand_over.map(|ns| {
            format!(
                "--hand-over: in the prediction it takes {ns} ns to wake a thread, in the live runs what it takes here"
            )
        });
        processors.into_iter().chain(hand_over).map(|words| format!("{words}: unlike machines are compared")).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: PredictOptions,
    }

    fn options(words: &[&str]) -> PredictOptions {
        Line::try_parse_from(["predict"].iter().chain(words)).unwrap_or_else(|error| panic!("{error}")).options
    }

    #[test]
    fn what_is_for_bulk_alone_is_refused_with_a_scenario() {
        for option in ["--datagram-size=1472", "--time=500ms"] {
            let name = option.split('=').next().unwrap();
            let words = options(&["links.toml", option]).check().unwrap_err();
            assert!(words.starts_with(name) && words.contains("is for --bulk"), "{words}");
            assert_eq!(options(&["--bulk", option]).check(), Ok(()));
        }
        assert_eq!(options(&["links.toml"]).check(), Ok(()));
        let bulk = options(&["--bulk"]);
        assert_eq!((bulk.datagram_sizes(), bulk.time()), (&[1472, 8972][..], Duration::from_millis(500)));
    }

    #[test]
    fn by_default_a_scenario_is_verified_under_placements_that_it_can_have_live() {
        let named = |words: &[&str]| options(words).placements().iter().map(ToString::to_string).collect::<Vec<_>>();
        for words in [&["links.toml"][..], &["--bulk"], &["--bulk", "--verify"]] {
            assert_eq!(named(words), ["inline", "thread", "split"], "{words:?}");
        }
        assert_eq!(named(&["links.toml", "--verify"]), ["thread", "split"]);
        assert_eq!(named(&["links.toml", "--verify", "--placement=inline"]), ["inline"]);
    }

    #[test]
    fn a_prediction_of_another_machine_than_the_live_one_is_warned_of() {
        let words = |more: &[&str], present| options(&[&["--bulk", "--verify"], more].concat()).differences(present);
        assert_eq!(words(&[], 2), Vec::<String>::new());
        assert_eq!(words(&["--processors=2"], 2), Vec::<String>::new(), "the same machine");
        assert_eq!(words(&["--processors=64"], 384), Vec::<String>::new(), "as many as can be simulated");
        assert_eq!(options(&["--bulk", "--processors=16"]).differences(2), Vec::<String>::new(), "nothing is compared");
        let both = words(&["--processors=16", "--hand-over=1000000"], 2);
        assert!(
            both[0].starts_with("--processors: ") && both[0].contains("of 16 ") && both[0].contains("machine's 2:"),
            "{both:?}"
        );
        assert!(both[1].starts_with("--hand-over: ") && both[1].contains(" 1000000 ns "), "{both:?}");
    }
}
