//! The arguments of `litz scenario`.

use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use scenario::model::{SEEDS_MAX, Scenario};
use scenario::simulated::{Machine, PROCESSORS_MAX, Placement};

use crate::cli::costs::read_costs;
use crate::cli::heading;

/// The end of the help text.
pub(crate) const HELP: &str = "\
Examples:
  litz scenario list
  litz scenario run dropped-link
  litz scenario run --world sim --seeds 3 --plot rate.svg four-unlike

Worlds:
  memory  Virtual time, in this process: a run takes only the time to compute it. The same file, paths and \
seed give the same result, to the byte.
  sim     The same runs, packet for packet, but without payload bytes and several times as fast. With \
--profile, hosts have processors, and packets take the CPU time from the profile.
  netns   Real time, between two network namespaces: emulated links, sockets and TLS. A run takes the \
duration in the file. Runs are sequential, with one seed by default. Needs Linux and root.

Exit status:
  0    all checks hold
  1    a check does not hold
  2    an error: bad arguments, an unreadable file, a run that failed
  130  interrupted";

/// The end of the help text of the commands that only read files.
const READ_HELP: &str = "\
Exit status:
  0    all files are valid scenarios
  2    an error: an unreadable or invalid file";

/// The end of the help text of `show`.
const SHOW_HELP: &str = "\
Example:
  litz scenario show four-unlike > mine.toml

Exit status:
  0    the file was printed
  2    an error: an unknown name";

/// Name of the result's file in the folder of `--out`.
const RESULT_NAME: &str = "scenarios.json";

#[derive(Args, Debug)]
pub(crate) struct ScenarioOptions {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Run scenarios and evaluate their checks
    #[command(after_help = HELP)]
    Run(Box<RunOptions>),
    /// Validate scenario files without running them
    #[command(after_help = READ_HELP)]
    Check {
        /// Scenario files, folders of scenario files, or names of shipped scenarios
        #[arg(required = true, value_name = "SCENARIO")]
        files: Vec<PathBuf>,

        /// Print one JSON object on standard output: the contents of the files and their errors
        #[arg(long)]
        json: bool,
    },
    /// List the shipped scenarios, or those of a folder
    #[command(after_help = READ_HELP)]
    List {
        /// The folder to list [default: the shipped scenarios]
        folder: Option<PathBuf>,

        /// Print one JSON object on standard output: the contents of the files and their errors
        #[arg(long)]
        json: bool,
    },
    /// Print the file of a shipped scenario, to change it
    #[command(after_help = SHOW_HELP)]
    Show {
        /// Name of the scenario, as in `litz scenario list`
        name: String,
    },
}

/// The world to run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WorldName {
    /// In this process, in virtual time; the same seed gives the same result
    Memory,
    /// As memory, but faster, without payload bytes; with --profile, processing takes time
    Sim,
    /// In real time between two network namespaces, with real sockets over emulated links; needs
    /// Linux and root
    Netns,
}

#[derive(Args, Debug)]
pub(super) struct RunOptions {
    /// Scenario files, folders of scenario files, or names of shipped scenarios (`litz scenario list`)
    #[arg(required = true, value_name = "SCENARIO")]
    pub(super) files: Vec<PathBuf>,

    /// World to run in
    #[arg(long, value_name = "NAME", default_value = "memory")]
    pub(super) world: WorldName,

    /// Run only this seed
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,

    /// Number of seeds, starting with 1 [default: from the file; 1 with --world netns]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(SEEDS_MAX)))]
    seeds: Option<u32>,

    /// Comma-separated list of the paths to use; the path subsets of the file are not run
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) paths: Vec<String>,

    /// Path scheduler, overriding the file: earliest, lowest-rtt, round-robin or redundant:N
    #[arg(long, value_name = "NAME")]
    scheduler: Option<quic::Strategy>,

    /// Congestion controller, overriding the file: cubic (unless the file names another), bbr, newreno or
    /// prague; the commands that transfer data use bbr
    #[arg(long, value_name = "NAME")]
    congestion: Option<recovery::Algorithm>,

    /// Policy for retransmissions and acknowledgements, per path (D) or centralized (C), overriding
    /// the file: DRDA, DRCA, CRDA or CRCA
    #[arg(long, value_name = "NAME", help_heading = heading::PROTOCOL)]
    policy: Option<quic::Policy>,

    /// With --world sim: output of `litz profile --json`; each host is such a machine
    #[arg(long, value_name = "FILE", help_heading = heading::MACHINE)]
    profile: Option<PathBuf>,

    /// With --profile: placement of the hosts: inline, thread, split, packet(N), path(N) or
    /// connection(N)
    #[arg(long, value_name = "NAME", default_value_t = Placement::Thread, requires = "profile", help_heading = heading::MACHINE)]
    placement: Placement,

    /// With --profile: number of processors of each host
    #[arg(long, value_name = "N", default_value_t = 4, requires = "profile", value_parser = clap::value_parser!(u16).range(1..=PROCESSORS_MAX as i64), help_heading = heading::MACHINE)]
    processors: u16,

    /// With --world sim: write a trace of a run to this file, for https://ui.perfetto.dev; the file
    /// must not exist
    ///
    /// The traced run is that of the first seed on all paths, or on --paths. The trace contains the
    /// activity of threads and sockets, links and their queues, congestion windows and round-trip
    /// times of paths, events of the connection, and faults. Tracing does not change the run.
    #[arg(long, value_name = "FILE", help_heading = heading::RECORDING)]
    pub(super) trace: Option<PathBuf>,

    /// With --world sim or netns: write the packets of that run to this file, as pcapng; the file
    /// must not exist
    ///
    /// The file has one interface per end of each link. With --world sim, IP and UDP headers have the
    /// true lengths. Data packets are not encrypted in that world: the file contains only their
    /// headers, without header protection. All other packets are complete. With --world netns, all
    /// packets are complete and encrypted.
    #[arg(long, value_name = "FILE", help_heading = heading::RECORDING)]
    pub(super) pcapng: Option<PathBuf>,

    /// With --world netns and --pcapng: write the TLS keys of the run into the same file, so that
    /// Wireshark decrypts its packets
    ///
    /// Only the owner can read the file. With the file, all data of the run can be read.
    #[arg(long, requires = "pcapng", help_heading = heading::RECORDING)]
    pub(super) keys_in_pcapng: bool,

    /// With --world sim: write a qlog file of that run for each host into this folder, for
    /// https://qvis.quictools.info and other tools
    #[arg(long, value_name = "DIR", help_heading = heading::RECORDING)]
    pub(super) qlog: Option<PathBuf>,

    /// Write a plot of the rate over time to this file, as SVG: a panel for each scenario, with the
    /// first seed on all paths
    ///
    /// The lines are the parts of the workload, the links (what they deliver to the receiving host, as UDP
    /// payload, with repeated data), and the capacity of the links. Faults are shaded.
    #[arg(long, value_name = "FILE", help_heading = heading::OUTPUT)]
    pub(super) plot: Option<PathBuf>,

    /// Print the result as one JSON object, in the format of docs/spec/scenario.md, without the table
    #[arg(long, help_heading = heading::OUTPUT)]
    pub(super) json: bool,

    /// Also write the result into this folder, as scenarios.json; must exist
    #[arg(long, value_name = "DIR", help_heading = heading::OUTPUT)]
    out: Option<PathBuf>,

    /// Number of runs at a time [default: number of processors; always 1 with --world netns]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = heading::OUTPUT)]
    pub(super) jobs: Option<u16>,

    /// Print no progress, only results and errors
    #[arg(short, long, help_heading = heading::OUTPUT)]
    pub(super) quiet: bool,
}

impl RunOptions {
    /// The file of `--out`, if any.
    ///
    /// # Errors
    /// A message for the user, if there is no such folder.
    pub(super) fn result_file(&self) -> Result<Option<PathBuf>, String> {
        let Some(folder) = &self.out else { return Ok(None) };
        if !folder.is_dir() {
            return Err(format!("--out: there is no folder {}", folder.display()));
        }
        Ok(Some(folder.join(RESULT_NAME)))
    }

    pub(super) fn seeds(&self, scenario: &Scenario) -> RangeInclusive<u64> {
        match (self.seed, self.seeds) {
            (Some(seed), _) => seed..=seed,
            (None, Some(count)) => 1..=u64::from(count),
            // In real time each run takes its full duration, and the seed is only one of many
            // sources of variation.
            (None, None) if self.world == WorldName::Netns => 1..=1,
            (None, None) => 1..=u64::from(scenario.seeds),
        }
    }

    pub(super) const fn is_recorded(&self) -> bool {
        self.trace.is_some() || self.pcapng.is_some() || self.qlog.is_some()
    }

    /// Checks that the run can be recorded: one scenario in the simulated world, and different
    /// files, also for the plot.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn check_recording(&self, scenarios: usize) -> Result<(), String> {
        let result = self.out.as_ref().map(|folder| folder.join(RESULT_NAME));
        if is_same(&self.plot, &result) {
            return Err("--plot and --out name the same file".to_owned());
        }
        let named = [("--trace", &self.trace), ("--pcapng", &self.pcapng), ("--out", &result)];
        let recorded = [&named[..2], &[("--qlog", &self.qlog)]].concat();
        let Some((option, _)) = recorded.iter().find(|(_, path)| path.is_some()) else { return Ok(()) };
        let is_capture_only = self.trace.is_none() && self.qlog.is_none();
        if self.world == WorldName::Netns && !is_capture_only {
            return Err("--trace and --qlog record a simulated run: use --world sim".to_owned());
        }
        if self.world == WorldName::Memory {
            return Err(format!("{option} records a simulated run: add --world sim"));
        }
        if self.keys_in_pcapng && self.world != WorldName::Netns {
            return Err("--keys-in-pcapng needs --world netns: there are no TLS keys in a simulated run".to_owned());
        }
        if scenarios != 1 {
            return Err(format!(
                "{option} records a run of one scenario, not of {scenarios}: give a single scenario file"
            ));
        }
        for (index, (option, path)) in named.iter().enumerate().filter(|(_, (_, path))| path.is_some()) {
            if let Some((other, _)) = named[..index].iter().find(|(_, other)| is_same(other, path)) {
                return Err(format!("{other} and {option} name the same file"));
            }
        }
        Ok(())
    }

    /// The machine of the hosts; none if processing takes no time.
    ///
    /// # Errors
    /// A message for the user: an invalid profile, or one for a world without simulated machines.
    pub(super) fn machine(&self) -> Result<Option<Machine>, String> {
        let Some(path) = &self.profile else { return Ok(None) };
        if self.world != WorldName::Sim {
            return Err("--profile needs --world sim: the other worlds do not simulate machines".to_owned());
        }
        let costs = read_costs(path)?;
        let processors = [self.processors.into(); 2];
        Ok(Some(Machine { costs, placements: [self.placement; 2], processors, is_shared: false }))
    }

    /// Applies the settings of the command line, which override those of the file.
    pub(super) fn change(&self, scenario: &mut Scenario) {
        let transport = &mut scenario.transport;
        transport.scheduler = self.scheduler.unwrap_or(transport.scheduler);
        transport.congestion = self.congestion.unwrap_or(transport.congestion);
        transport.policy = self.policy.unwrap_or(transport.policy);
    }
}

/// Whether two paths name the same file, possibly through different folders or symbolic links. The
/// file need not exist.
fn is_same(one: &Option<PathBuf>, other: &Option<PathBuf>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return false };
    one == other || place(one).is_some_and(|found| place(other) == Some(found))
}

/// The canonical folder of a file, and its name; none if the folder does not exist.
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
            Top::Scenario(ScenarioOptions { command: Command::Run(options) }) => Ok(*options),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_overrides_the_file() {
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
    fn invalid_arguments_are_refused() {
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
