//! The arguments of `litz predict`.

use std::path::PathBuf;

use clap::Args;
use quic::config::DATAGRAM_SIZE_MAX;
use scenario::simulated::{PROCESSORS_MAX, Placement};
use units::Duration;

use crate::cli::heading;

/// Every path carries datagrams of this size (RFC 9000, section 14).
const DATAGRAM_SIZE_MIN: usize = 1200;

/// Default datagram sizes: for an MTU of 1500 and for jumbo frames.
const DATAGRAM_SIZES: [usize; 2] = [1472, 8972];

/// Default duration of each run, without its warm-up.
const TIME: Duration = Duration::from_millis(500);

/// The end of the help text.
pub(crate) const HELP: &str = "\
The protocol runs unmodified, in virtual time. Each packet takes the time from the profile, on the thread \
that the placement assigns. Without --profile, this machine is profiled first.

Examples:
  Predict for this machine, and compare with live runs:
    litz predict --bulk --verify
  Profile another machine, and predict for it here:
    litz profile --json > machine.json
    litz predict links.toml --profile machine.json --processors 8

Exit status:
  0    the prediction was printed
  2    an error: bad arguments, an unreadable file, a run that failed
  130  interrupted";

#[derive(Args, Debug)]
pub(crate) struct PredictOptions {
    /// Scenario file; both hosts are machines as in the profile
    #[arg(value_name = "SCENARIO", conflicts_with = "bulk")]
    pub(super) scenario: Option<PathBuf>,

    /// Predict bulk data from memory to memory over loopback; each end has half of the processors
    #[arg(long)]
    pub(super) bulk: bool,

    /// Output of `litz profile --json` [default: profile this machine]
    #[arg(long, value_name = "FILE", help_heading = heading::MACHINE)]
    pub(super) profile: Option<PathBuf>,

    /// Comma-separated list of placements [default: inline,thread,split; without inline for a
    /// scenario with --verify]
    ///
    /// The placements are auto, inline, thread, split, packet(N), path(N) and connection(N). With
    /// auto, the placement is the one that an endpoint would choose from the number of processors
    /// and sockets and the cipher. With --bulk, connection(N) has N connections, one per processor;
    /// a scenario has one connection.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = heading::MACHINE)]
    placement: Vec<Placement>,

    /// Number of processors of a machine [default: those of this machine, at most 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=PROCESSORS_MAX as i64), help_heading = heading::MACHINE)]
    pub(super) processors: Option<u16>,

    /// Time to wake a thread, in nanoseconds [default: from the profile]
    #[arg(long, value_name = "NS", help_heading = heading::MACHINE)]
    pub(super) hand_over: Option<f64>,

    /// With --bulk: comma-separated list of datagram sizes, in bytes of UDP payload [default:
    /// 1472,8972]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    datagram_size: Vec<usize>,

    /// With --bulk: duration of each run, simulated or live, without its warm-up [default: 500ms]
    #[arg(long, value_name = "TIME")]
    time: Option<Duration>,

    /// Also run live on this machine, and print the measured values next to the predicted ones
    ///
    /// Bulk data runs over loopback, a scenario between network namespaces (Linux, root).
    /// --processors and --hand-over change only the prediction, not the live runs; a warning says
    /// so.
    #[arg(long, help_heading = heading::MEASURED)]
    pub(super) verify: bool,

    /// Number of live runs and of profile runs of each kind; the result uses medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100), help_heading = heading::MEASURED)]
    pub(super) runs: u8,

    /// Print the result as one JSON object
    #[arg(long, help_heading = heading::OUTPUT)]
    pub(super) json: bool,
}

impl PredictOptions {
    /// The placements to predict: those given, or the defaults.
    pub(super) fn placements(&self) -> Vec<Placement> {
        match &self.placement[..] {
            // In a live run the applications of a scenario run on their own thread.
            [] if self.verify && !self.bulk => [Placement::Thread, Placement::Split].to_vec(),
            [] => [Placement::Inline, Placement::Thread, Placement::Split].to_vec(),
            named => named.to_vec(),
        }
    }

    /// Datagram sizes of bulk data, in bytes of UDP payload.
    pub(super) fn datagram_sizes(&self) -> &[usize] {
        if self.datagram_size.is_empty() { &DATAGRAM_SIZES } else { &self.datagram_size }
    }

    /// Duration of each run of bulk data and of the profile, without its warm-up.
    pub(super) fn time(&self) -> Duration {
        self.time.unwrap_or(TIME)
    }

    /// Checks what the parser cannot.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.scenario.is_none() && !self.bulk {
            return Err("nothing to predict: give a scenario file or --bulk".to_owned());
        }
        let of_bulk = [("--datagram-size", !self.datagram_size.is_empty()), ("--time", self.time.is_some())];
        if let Some((option, _)) = of_bulk.iter().find(|(_, is_given)| *is_given && !self.bulk) {
            return Err(format!(
                "{option} is for --bulk: a scenario file sets the workload, the datagram size and the duration"
            ));
        }
        let allowed = DATAGRAM_SIZE_MIN..=DATAGRAM_SIZE_MAX;
        if let Some(size) = self.datagram_size.iter().find(|size| !allowed.contains(size)) {
            return Err(format!("a datagram has {DATAGRAM_SIZE_MIN} to {DATAGRAM_SIZE_MAX} bytes, not {size}"));
        }
        if !(Duration::from_millis(50)..=Duration::from_secs(60)).contains(&self.time()) {
            return Err(format!("--time must be from 50ms to 60s, not {}", self.time()));
        }
        if let Some(hand_over) = self.hand_over
            && !(0.0..=1e6).contains(&hand_over)
        {
            return Err(format!("--hand-over must be from 0 to 1000000 ns, not {hand_over}"));
        }
        Ok(())
    }

    /// How the predicted machine differs from this one, which has `present` processors and makes
    /// the live runs.
    pub(super) fn differences(&self, present: usize) -> Vec<String> {
        if !self.verify {
            return Vec::new();
        }
        let processors = self.processors.map(usize::from).filter(|asked| *asked != present.min(PROCESSORS_MAX));
        let processors = processors.map(|asked| {
            format!("--processors: the prediction has {asked} processors, the live runs have this machine's {present}")
        });
        let hand_over = self.hand_over.map(|ns| {
            format!(
                "--hand-over: the prediction takes {ns} ns to wake a thread, the live runs take what this machine needs"
            )
        });
        processors
            .into_iter()
            .chain(hand_over)
            .map(|option| format!("{option}: two different machines are compared"))
            .collect()
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

    fn options(arguments: &[&str]) -> PredictOptions {
        Line::try_parse_from(["predict"].iter().chain(arguments)).unwrap_or_else(|error| panic!("{error}")).options
    }

    #[test]
    fn bulk_options_are_refused_with_a_scenario() {
        for option in ["--datagram-size=1472", "--time=500ms"] {
            let name = option.split('=').next().unwrap();
            let error = options(&["links.toml", option]).check().unwrap_err();
            assert!(error.starts_with(name) && error.contains("is for --bulk"), "{error}");
            assert_eq!(options(&["--bulk", option]).check(), Ok(()));
        }
        assert_eq!(options(&["links.toml"]).check(), Ok(()));
        let bulk = options(&["--bulk"]);
        assert_eq!((bulk.datagram_sizes(), bulk.time()), (&[1472, 8972][..], Duration::from_millis(500)));
    }

    #[test]
    fn the_default_placements_of_a_verified_scenario_can_run_live() {
        let named =
            |arguments: &[&str]| options(arguments).placements().iter().map(ToString::to_string).collect::<Vec<_>>();
        for arguments in [&["links.toml"][..], &["--bulk"], &["--bulk", "--verify"]] {
            assert_eq!(named(arguments), ["inline", "thread", "split"], "{arguments:?}");
        }
        assert_eq!(named(&["links.toml", "--verify"]), ["thread", "split"]);
        assert_eq!(named(&["links.toml", "--verify", "--placement=inline"]), ["inline"]);
    }

    #[test]
    fn a_prediction_for_a_different_machine_has_a_warning() {
        let differences =
            |more: &[&str], present| options(&[&["--bulk", "--verify"], more].concat()).differences(present);
        assert_eq!(differences(&[], 2), Vec::<String>::new());
        assert_eq!(differences(&["--processors=2"], 2), Vec::<String>::new(), "the same machine");
        assert_eq!(differences(&["--processors=64"], 384), Vec::<String>::new(), "the simulator's maximum");
        assert_eq!(
            options(&["--bulk", "--processors=16"]).differences(2),
            Vec::<String>::new(),
            "no live runs to compare with"
        );
        let both = differences(&["--processors=16", "--hand-over=1000000"], 2);
        assert!(
            both[0].starts_with("--processors: ")
                && both[0].contains("has 16 processors")
                && both[0].contains("machine's 2:"),
            "{both:?}"
        );
        assert!(both[1].starts_with("--hand-over: ") && both[1].contains(" 1000000 ns "), "{both:?}");
    }
}
