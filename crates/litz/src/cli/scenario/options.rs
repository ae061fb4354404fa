//! The arguments of `litz scenario`.

use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use scenario::model::{SEEDS_MAX, Scenario};
use scenario::simulated::{Machine, PROCESSORS_MAX, Placement};

use crate::cli::predict::read_costs;

/// For the end of the help text.
pub(crate) const HELP: &str = "\
Worlds:
  memory  virtual time: a run takes as long as it takes to work it out; the same
          file, paths and seed give the same result to the byte
  sim     the same runs, packet for packet, without the bytes, and several times
          as fast; with --profile hosts have processors, too, and what a packet
          costs there takes its time
  netns   real time between two network namespaces: emulated links, sockets, TLS;
          a run takes what its file says, and they follow one another, with one
          seed unless told; needs Linux and root

Exit status:
  0    every check holds
  1    a check does not hold
  2    an error: bad arguments, a file that cannot be read, a run that cannot be made
  130  interrupted";

/// For the end of the help text of what only reads.
const READ_HELP: &str = "\
Exit status:
  0    every file is a scenario
  2    an error: a file that cannot be read or is wrong";

#[derive(Args, Debug)]
pub(crate) struct ScenarioOptions {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Run scenarios and judge them by their own checks
    #[command(after_help = HELP)]
    Run(RunOptions),
    /// Read scenarios and say what is wrong with them; nothing is run
    #[command(after_help = READ_HELP)]
    Check {
        /// Scenario files, or folders of them
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,

        /// One JSON object on standard output: what the files say and what is wrong with them
        #[arg(long)]
        json: bool,
    },
    /// List the scenarios of a folder
    #[command(after_help = READ_HELP)]
    List {
        /// The folder [default: scenarios]
        folder: Option<PathBuf>,

        /// One JSON object on standard output: what the files say and what is wrong with them
        #[arg(long)]
        json: bool,
    },
}

/// Where to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WorldName {
    /// In this process, in virtual time: the same seed gives the same result
    Memory,
    /// As in memory, without bytes: faster; with --profile on machines that take time for what they do
    Sim,
    /// In real time between two network namespaces, with real sockets over emulated links; Linux, root
    Netns,
}

#[derive(Args, Debug)]
pub(super) struct RunOptions {
    /// Scenario files, or folders of them
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,

    /// Where to run
    #[arg(long, value_name = "NAME", default_value = "memory")]
    pub(super) world: WorldName,

    /// This seed only
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,

    /// This many seeds, from one [default: what the file says; one with --world netns]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(SEEDS_MAX)))]
    seeds: Option<u32>,

    /// These paths only, separated by commas; subsets of the file are not run then
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) paths: Vec<String>,

    /// Path scheduler instead of the file's: earliest, lowest-rtt, round-robin or redundant:N
    #[arg(long, value_name = "NAME")]
    scheduler: Option<quic::Strategy>,

    /// Congestion controller instead of the file's: cubic, bbr or newreno
    #[arg(long, value_name = "NAME")]
    congestion: Option<recovery::Algorithm>,

    /// Retransmissions and acknowledgements path by path (D) or central (C), instead of the file's: DRDA, DRCA, CRDA or CRCA
    #[arg(long, value_name = "NAME")]
    policy: Option<quic::Policy>,

    /// With --world sim: what `litz profile --json` has printed; each host is such a machine
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,

    /// With --profile: which thread of a host does what: inline, thread, split, packet(N), path(N) or connection(N)
    #[arg(long, value_name = "NAME", default_value_t = Placement::Thread, requires = "profile")]
    placement: Placement,

    /// With --profile: processors of each host
    #[arg(long, value_name = "N", default_value_t = 4, requires = "profile", value_parser = clap::value_parser!(u16).range(1..=PROCESSORS_MAX as i64))]
    processors: u16,

    /// With --world sim: write there what happens in a run, as a trace that https://ui.perfetto.dev opens; the file must not exist
    ///
    /// It is the run of the first seed on all paths (or on --paths): threads at work, sockets, links and their queues, windows and
    /// round trips of paths, what becomes of the connection, faults. Recording changes nothing of it.
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,

    /// With --world sim: write there the packets of that run as pcapng, each end of each link an interface; the file must not exist
    ///
    /// IP and UDP headers with true lengths. Of data packets, which are never sealed there, the headers follow, not protected; of all
    /// other packets all bytes.
    #[arg(long, value_name = "FILE")]
    pub(super) pcapng: Option<PathBuf>,

    /// Write everything that was measured there as JSON; - is standard output, and then there is no table
    #[arg(long, value_name = "PATH")]
    pub(super) json: Option<PathBuf>,

    /// Runs at a time [default: the processors; always one with --world netns]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) jobs: Option<u16>,

    /// No progress, only results and errors
    #[arg(short, long)]
    pub(super) quiet: bool,
}

impl RunOptions {
    pub(super) fn json_to_stdout(&self) -> bool {
        self.json.as_deref() == Some(Path::new("-"))
    }

    pub(super) fn seeds(&self, scenario: &Scenario) -> RangeInclusive<u64> {
        match (self.seed, self.seeds) {
            (Some(seed), _) => seed..=seed,
            (None, Some(count)) => 1..=u64::from(count),
            // There a run takes the time it takes, and another seed is only one more of many things that vary.
            (None, None) if self.world == WorldName::Netns => 1..=1,
            (None, None) => 1..=u64::from(scenario.seeds),
        }
    }

    pub(super) const fn is_recorded(&self) -> bool {
        self.trace.is_some() || self.pcapng.is_some()
    }

    /// Whether what is to be recorded can be: one scenario of the simulated world, each file of its own name.
    ///
    /// # Errors
    /// In words for the user: what to do.
    pub(super) fn check_recording(&self, scenarios: usize) -> Result<(), String> {
        let named = [("--trace", &self.trace), ("--pcapng", &self.pcapng), ("--json", &self.json)];
        let Some((option, _)) = named[..2].iter().find(|(_, path)| path.is_some()) else { return Ok(()) };
        if self.world != WorldName::Sim {
            return Err(format!("{option} records a simulated run: add --world sim"));
        }
        if scenarios != 1 {
            return Err(format!("{option} records a run of one scenario, and there are {scenarios}: name one"));
        }
        for (index, (option, path)) in named.iter().enumerate().filter(|(_, (_, path))| path.is_some()) {
            if let Some((other, _)) = named[..index].iter().find(|(_, other)| is_same(other, path)) {
                return Err(format!("{other} and {option} name the same file"));
            }
        }
        Ok(())
    }

    /// What the hosts are; none if only links take time.
    ///
    /// # Errors
    /// In words: a profile that is none, or one for a world without machines.
    pub(super) fn machine(&self) -> Result<Option<Machine>, String> {
        let Some(path) = &self.profile else { return Ok(None) };
        if self.world != WorldName::Sim {
            return Err("--profile is for --world sim: the other worlds have no machines to simulate".to_owned());
        }
        let costs = read_costs(path)?;
        let processors = [self.processors.into(); 2];
        Ok(Some(Machine { costs, placements: [self.placement; 2], processors, is_shared: false }))
    }

    /// What the command line says goes before what the file says.
    pub(super) fn change(&self, scenario: &mut Scenario) {
        let transport = &mut scenario.transport;
        transport.scheduler = self.scheduler.unwrap_or(transport.scheduler);
        transport.congestion = self.congestion.unwrap_or(transport.congestion);
        transport.policy = self.policy.unwrap_or(transport.policy);
    }
}

/// Whether two paths name one file, which need not be there, in other words: by way of other folders or of links to them.
fn is_same(one: &Option<PathBuf>, other: &Option<PathBuf>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return false };
    one == other || place(one).is_some_and(|found| place(other) == Some(found))
}

/// The folder of a file, as it is without links, and its name there; none if there is no such folder.
fn place(path: &Path) -> Option<(PathBuf, &OsStr)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some((folder.canonicalize().ok()?, path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::super::super::args::{Arguments, Command as Top};
    use super::*;
    use clap::Parser;

    fn parse(arguments: &[&str]) -> Result<RunOptions, clap::Error> {
        let head = ["litz", "scenario", "run"];
        match Arguments::try_parse_from(head.iter().chain(arguments))?.command {
            Top::Scenario(ScenarioOptions { command: Command::Run(options) }) => Ok(options),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_goes_before_the_file() {
        let text = "version = 1\n[scenario]\nname = 'x'\nabout = 'x'\nduration = '1s'\nseeds = 4\n\
                    [[link]]\nname = 'a'\n[[workload]]\nkind = 'stream'\n";
        let mut scenario = scenario::parse::parse("x.toml", text, &|_| Err(String::new())).expect("it is right");
        let options = parse(&["x.toml"]).expect("enough");
        assert_eq!(options.seeds(&scenario), 1..=4);
        let live = |more: &[&str]| parse(&[&["x.toml", "--world", "netns"], more].concat()).expect("right");
        assert_eq!((live(&[]).seeds(&scenario), live(&["--seeds", "2"]).seeds(&scenario)), (1..=1, 1..=2));
        assert_eq!(parse(&["x.toml", "--seeds", "2"]).expect("right").seeds(&scenario), 1..=2);
        let transport = ["--congestion", "bbr", "--scheduler", "redundant:2", "--policy", "DRCA"];
        let options = parse(&[&["x.toml", "--seed", "9"][..], &transport].concat()).expect("right");
        assert_eq!(options.seeds(&scenario), 9..=9);
        options.change(&mut scenario);
        assert_eq!(scenario.transport.congestion.to_string(), "bbr");
        assert_eq!(scenario.transport.scheduler, quic::Strategy::Redundant { copies: 2 });
        assert_eq!(scenario.transport.policy, quic::Policy::DRCA);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            &[][..],
            &["x", "--seed", "1", "--seeds", "2"],
            &["x", "--seeds", "0"],
            &["x", "--world", "moon"],
            &["x", "--scheduler", "best"],
            &["x", "--congestion", "reno"],
            &["x", "--policy", "DCRA"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
