//! Runs the cases of `litz_interop::matrix` against the peers.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use litz_interop::certificates::Made;
use litz_interop::matrix::cases::{CASES, Case};
use litz_interop::matrix::peers::{Built, PEERS, Peer};
use litz_interop::matrix::run::{Files, Role, run};
use litz_interop::matrix::table::{Cell, Outcome, PeerResult, to_json, write_page};
use serde_json::{Value, json};

const HELP: &str = "\
matrix [--quick] [--peer NAME]... [--case NAME]... [--role client|server] [--seed N] [--rounds N]
       [--results FILE] [--page FILE]
Tries Litz with other QUIC implementations, in both roles.
--quick      short transfers, and only the peers that build quickly unless --peer names others
--role       the role of Litz
--rounds     run each case so often
--results    write the results as JSON
--page       write the tables into a page of the documents, between its marks
It fails if a case fails or a peer cannot be built.";

/// Bytes of a long transfer.
const LONG: u64 = 100_000_000;
/// The same in the quick run.
const LONG_QUICK: u64 = 10_000_000;

#[derive(Debug, Default)]
struct Options {
    is_quick: bool,
    peers: Vec<String>,
    cases: Vec<String>,
    role: Option<String>,
    seed: u64,
    rounds: u32,
    results: Option<PathBuf>,
    page: Option<PathBuf>,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { seed: 1, rounds: 1, ..Self::default() };
        let mut arguments = arguments.peekable();
        while let Some(name) = arguments.next() {
            if name == "--quick" {
                options.is_quick = true;
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("{name} has no value\n{HELP}"))?;
            let number = || value.parse::<u64>().map_err(|error| format!("{name}: {error}"));
            match name.as_str() {
                "--peer" => options.peers.push(value),
                "--case" => options.cases.push(value),
                "--role" => options.role = Some(value),
                "--seed" => options.seed = number()?,
                "--rounds" => options.rounds = number()?.try_into().map_err(|_| "too many rounds")?,
                "--results" => options.results = Some(value.into()),
                "--page" => options.page = Some(value.into()),
                _ => return Err(format!("there is no option {name}\n{HELP}")),
            }
        }
        let unknown_peer = options.peers.iter().find(|name| !PEERS.iter().any(|peer| peer.name == **name));
        let unknown_case = options.cases.iter().find(|name| Case::find(name).is_none());
        if let Some(name) = unknown_peer.or(unknown_case) {
            return Err(format!("there is no peer or case {name}"));
        }
        Ok(options)
    }

    fn wants(chosen: &[String], name: &str) -> bool {
        chosen.is_empty() || chosen.iter().any(|wanted| wanted == name)
    }
}

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| all(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of this workspace.
fn interop() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether all passed.
fn all(options: &Options) -> Result<bool, String> {
    let target = interop().join("target/peers");
    let made = Made::new();
    let folder = target.join("certificate");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    for (name, pem) in [("cert.pem", &made.certificate_pem), ("key.pem", &made.key_pem)] {
        std::fs::write(folder.join(name), pem).map_err(|error| error.to_string())?;
    }
    let files = Files { folder: &folder, made: &made };
    let mut results = Vec::new();
    for peer in PEERS {
        let is_left_out = options.is_quick && options.peers.is_empty() && !peer.is_quick;
        let is_chosen = Options::wants(&options.peers, peer.name) && !is_left_out;
        if is_chosen {
            results.push(with_peer(peer, options, &files, &target));
        }
    }
    let context = context(options);
    if let Some(path) = &options.results {
        let text = serde_json::to_string_pretty(&to_json(&results, &context)).map_err(|error| error.to_string())?;
        std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if let Some(path) = &options.page {
        write_page(path, &results, &context)?;
    }
    let has_failed = |peer: &PeerResult| {
        peer.version.is_err() || peer.cells.iter().any(|cell| matches!(cell.outcome, Outcome::Failed(_)))
    };
    Ok(!results.iter().any(has_failed))
}

fn with_peer(peer: &'static Peer, options: &Options, files: &Files<'_>, target: &Path) -> PeerResult {
    let begun = Instant::now();
    let built = peer.build(&interop().join("peers"), target);
    println!("{}: {} ({:.1} s)", peer.name, describe(&built), begun.elapsed().as_secs_f64());
    let mut result = PeerResult { name: peer.name, version: Ok(String::new()), cells: Vec::new() };
    match built {
        Err(reason) => result.version = Err(reason),
        Ok(built) => {
            let roles = [Role::Client, Role::Server].into_iter();
            let roles: Vec<Role> =
                roles.filter(|role| options.role.as_ref().is_none_or(|wanted| wanted == role.name())).collect();
            for case in CASES.iter().filter(|case| Options::wants(&options.cases, case.name)) {
                // In turns, so that the drift of the machine's speed meets both roles.
                for round in 0..options.rounds {
                    let is_run = |role: &&Role| {
                        !(options.is_quick && options.cases.is_empty() && peer.is_left_out_of_quick(case.name, **role))
                    };
                    let run = roles.iter().filter(is_run);
                    result.cells.extend(run.map(|role| cell(peer, &built, case, *role, options, round, files)));
                }
            }
            result.version = Ok(built.version);
        }
    }
    result
}

fn describe(built: &Result<Built, String>) -> String {
    built.as_ref().map_or_else(|reason| format!("NOT BUILT: {reason}"), |built| format!("{} is ready", built.version))
}

fn cell(
    peer: &'static Peer,
    built: &Built,
    case: &'static Case,
    role: Role,
    options: &Options,
    round: u32,
    files: &Files<'_>,
) -> Cell {
    let begun = Instant::now();
    let long = if options.is_quick { LONG_QUICK } else { LONG } / peer.share;
    let outcome = match peer.lacks(case.name, role) {
        Some(reason) => Outcome::Unsupported(reason.to_owned()),
        None => {
            let plan = (case.plan)(long);
            let observed = run(&built.command, role, &plan, files, options.seed + u64::from(round));
            match observed.and_then(|observed| case.check(role, &plan, &observed)) {
                Ok(remark) => Outcome::Passed(remark),
                Err(reason) => Outcome::Failed(reason),
            }
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    println!("{:9} {:18} Litz as {:6} {seconds:5.1} s  {outcome:?}", peer.name, case.name, role.name());
    Cell { case: case.name, role, outcome, seconds }
}

/// What one needs to know to read the results.
fn context(options: &Options) -> Value {
    let first_line = |path: &str, key: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned()
    };
    let processor = first_line("/proc/cpuinfo", "model name");
    let processor = processor.split_once(": ").map_or("unknown processor", |(_, name)| name).trim();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let command = |program: &str, arguments: &[&str]| {
        let output = std::process::Command::new(program).args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    };
    json!({
        "date": command("date", &["-u", "+%Y-%m-%d"]),
        "commit": command("git", &["rev-parse", "--short", "HEAD"]),
        "machine": format!("{processor}, {processors} processors, Linux {}", kernel.trim()),
        "seed": options.seed,
        "is_quick": options.is_quick,
        "long_transfer_bytes": if options.is_quick { LONG_QUICK } else { LONG },
    })
}
