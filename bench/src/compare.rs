//! Runs contenders in turn, interleaved, and keeps every figure.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use clap::ValueEnum;
use serde::Serialize;

use crate::contender::{Failure, Name};
use crate::namespaces::{CLIENT, Namespaces, SERVER, SERVER_ADDRESS};
use crate::work::{Figures, Test, Timing};

/// What to run.
pub struct Plan {
    runs: usize,
    timing: Timing,
    tests: Vec<Test>,
    contenders: Vec<Name>,
}

impl Plan {
    /// An empty list means all.
    pub fn new(runs: usize, timing: Timing, tests: &[Test], contenders: &[Name]) -> Self {
        let tests = if tests.is_empty() { Test::value_variants() } else { tests };
        let contenders = if contenders.is_empty() { Name::value_variants() } else { contenders };
        Self { runs, timing, tests: tests.to_vec(), contenders: contenders.to_vec() }
    }
}

/// One run's figures.
#[derive(Serialize)]
struct Run {
    test: Test,
    contender: Name,
    /// From zero; the warm-up round is not counted.
    round: usize,
    server: Figures,
    client: Figures,
}

#[derive(Serialize)]
struct Results {
    date_unix: u64,
    machine: Machine,
    versions: BTreeMap<String, String>,
    warm_up_s: f64,
    time_s: f64,
    runs: Vec<Run>,
}

#[derive(Serialize)]
struct Machine {
    processor: String,
    processors: usize,
    kernel: String,
    load_before: String,
}

/// Runs the plan, prints medians, writes the raw results below `results`.
pub fn run(plan: &Plan, results: &Path) -> Result<(), Failure> {
    let _namespaces = Namespaces::make()?;
    let machine = machine();
    let mut runs = Vec::new();
    for &test in &plan.tests {
        // One round more than counted: the first warms caches, frequencies and memory.
        for round in 0..=plan.runs {
            for &contender in &plan.contenders {
                let (server, client) = one(contender, test, plan.timing)?;
                if round > 0 {
                    runs.push(Run { test, contender, round: round - 1, server, client });
                }
            }
            eprint!("\r{test:?}: round {round} of {}   ", plan.runs);
        }
        eprintln!();
    }
    print(plan, &runs);
    let date_unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let (warm_up_s, time_s) = (plan.timing.warm_up, plan.timing.time);
    let results_file = results.join(format!("compare-{date_unix}.json"));
    let all = Results { date_unix, machine, versions: versions()?, warm_up_s, time_s, runs };
    std::fs::create_dir_all(results)?;
    std::fs::write(&results_file, serde_json::to_string_pretty(&all)? + "\n")?;
    println!("\nraw results: {}", results_file.display());
    Ok(())
}

/// One run: a server process, a client process, their figures.
fn one(contender: Name, test: Test, timing: Timing) -> Result<(Figures, Figures), Failure> {
    // Bulk data cross the veth pair; latencies and memory are those of loopback.
    let split = test == Test::Bulk;
    let name = contender.to_possible_value().expect("every contender has a name").get_name().to_owned();
    let test_name = test.to_possible_value().expect("every test has a name").get_name().to_owned();
    let timing = [format!("--warm-up={}", timing.warm_up), format!("--time={}", timing.time)];
    let listen = if split { format!("--listen={SERVER_ADDRESS}:0") } else { "--listen=127.0.0.1:0".to_owned() };
    let mut server = Process::start(split.then_some(SERVER), &["serve", &name, &test_name, &listen], &timing)?;
    let address: SocketAddr = server.line()?.trim().parse()?;
    let connect = format!("--connect={address}");
    let mut client = Process::start(split.then_some(CLIENT), &["drive", &name, &test_name, &connect], &timing)?;
    let client_figures: Figures = serde_json::from_str(&client.line()?)?;
    let server_figures: Figures = serde_json::from_str(&server.end()?)?;
    client.end()?;
    Ok((server_figures, client_figures))
}

/// A process of this program.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(namespace: Option<&str>, arguments: &[&str], timing: &[String]) -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        let mut command = match namespace {
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(arguments).args(timing);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Ok(Self { child, input, output })
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("a process ended without its figures".into());
        }
        Ok(line)
    }

    /// Ends the process by closing its input; returns what it still said.
    fn end(&mut self) -> Result<String, Failure> {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest)?;
        self.child.wait()?;
        Ok(rest)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn print(plan: &Plan, runs: &[Run]) {
    type Read = fn(&Run) -> Option<f64>;
    let figures: [(&str, Read); 8] = [
        ("goodput, Gb/s", |run| run.server.goodput_bps.map(|bps| bps / 1e9)),
        ("CPU s/GB, sender", |run| run.client.cpu_s_per_gb),
        ("CPU s/GB, receiver", |run| run.server.cpu_s_per_gb),
        ("median, us", |run| run.client.median_us),
        ("p99, us", |run| run.client.p99_us),
        ("server KiB/connection", |run| run.server.bytes_per_connection.map(|bytes| bytes / 1024.0)),
        ("client KiB/connection", |run| run.client.bytes_per_connection.map(|bytes| bytes / 1024.0)),
        ("", |_| None),
    ];
    println!("{:<18} {:<24} {:<14} {:>10}   [min .. max]", "test", "figure", "contender", "median");
    for &test in &plan.tests {
        for (label, read) in figures {
            for &contender in &plan.contenders {
                let values: Vec<f64> =
                    runs.iter().filter(|run| run.test == test && run.contender == contender).filter_map(read).collect();
                let Some(middle) = median(values.clone()) else { continue };
                let low = values.iter().copied().fold(f64::INFINITY, f64::min);
                let high = values.iter().copied().fold(0.0, f64::max);
                let (test, contender) = (format!("{test:?}"), format!("{contender:?}"));
                println!("{test:<18} {label:<24} {contender:<14} {middle:>10.3}   [{low:.3} .. {high:.3}]");
            }
        }
    }
}

fn machine() -> Machine {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    Machine {
        processor: model.trim_start_matches([' ', '\t', ':']).to_owned(),
        processors: std::thread::available_parallelism().map_or(0, usize::from),
        kernel: read("/proc/sys/kernel/osrelease"),
        load_before: read("/proc/loadavg"),
    }
}

/// The versions this program was built with, from the lock file beside it.
fn versions() -> Result<BTreeMap<String, String>, Failure> {
    let lock = include_str!("../Cargo.lock");
    let mut found = BTreeMap::new();
    let mut name = "";
    for line in lock.lines() {
        if let Some(value) = line.strip_prefix("name = ") {
            name = value.trim_matches('"');
        } else if let Some(value) = line.strip_prefix("version = ")
            && ["litz", "quinn", "quinn-proto", "quinn-udp", "rustls", "aws-lc-rs"].contains(&name)
        {
            found.insert(name.to_owned(), value.trim_matches('"').to_owned());
        }
    }
    let rustc = Command::new("rustc").arg("--version").output()?;
    found.insert("rustc".to_owned(), String::from_utf8_lossy(&rustc.stdout).trim().to_owned());
    Ok(found)
}
