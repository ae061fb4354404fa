//! Runs the stacks in turn, round after round, so that other load on the machine affects all of them
//! equally, and writes the result.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use emulate::Namespace;
use serde_json::{Value, json};

use crate::{KERNEL, STACK};

struct Options {
    seconds: u64,
    rounds: usize,
    gvisor: Option<String>,
    stacks: Vec<String>,
    tests: Vec<String>,
}

impl Options {
    fn parse(arguments: &[&str]) -> Self {
        let words = |value: &str| value.split(',').map(str::to_owned).collect();
        let mut options = Self {
            seconds: 3,
            rounds: 5,
            gvisor: None,
            stacks: words("blind,litz,litz-inline,gvisor,smoltcp"),
            tests: words("from-kernel/cubic,from-kernel/bbr,to-kernel/cubic,connections/cubic"),
        };
        for pair in arguments.chunks(2) {
            match *pair {
                ["--seconds", value] => options.seconds = value.parse().expect("a number"),
                ["--rounds", value] => options.rounds = value.parse().expect("a number"),
                ["--gvisor", value] => options.gvisor = Some(value.to_owned()),
                ["--stacks", value] => options.stacks = words(value),
                ["--tests", value] => options.tests = words(value),
                _ => panic!("--seconds N, --rounds N, --gvisor PROGRAM, --stacks A,B or --tests A/CUBIC, not {pair:?}"),
            }
        }
        options
    }
}

pub(crate) fn run(arguments: &[&str]) {
    let options = Options::parse(arguments);
    let mut results = BTreeMap::<String, BTreeMap<String, Vec<Value>>>::new();
    for round in 0..options.rounds {
        for test in &options.tests {
            let (what, congestion) = test.split_once('/').expect("a test and a congestion control");
            let mut stacks = options.stacks.clone();
            if what == "connections" {
                // Its socket serves one connection at a time, so the next one may find it closed.
                stacks.retain(|stack| stack != "smoltcp");
                stacks.push("kernel".to_owned());
            }
            let count = stacks.len();
            stacks.rotate_left(round % count);
            for stack in &stacks {
                let Some(value) = measure(&options, stack, what, congestion) else { continue };
                eprintln!("{round} {test} {stack}: {value}");
                results.entry(test.clone()).or_default().entry(stack.clone()).or_default().push(value);
            }
        }
    }
    print(&options, &results);
}

/// One measurement; `None` if the stack is not there.
fn measure(options: &Options, stack: &str, what: &str, congestion: &str) -> Option<Value> {
    let own = std::env::current_exe().expect("a path");
    let own = own.to_str().expect("a plain path");
    let [namespace, other] = Namespace::create_pair("litz-bench-tcp").expect("root");
    let mut server = match (stack, &options.gvisor) {
        ("gvisor", None) => return None,
        ("gvisor", Some(program)) => start(&namespace, program, &[]),
        ("kernel", _) => {
            veth(&namespace, &other);
            start(&other, own, &["serve", "kernel"])
        }
        _ => start(&namespace, own, &["serve", stack]),
    };
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    assert_eq!(line.trim(), "ready", "{stack}");
    let before = cpu_seconds_of(&server);
    let seconds = options.seconds.to_string();
    let client = start(&namespace, own, &["measure", what, &seconds, congestion]);
    let output = client.wait_with_output().expect("it ends");
    let after = cpu_seconds_of(&server);
    server.kill().expect("it runs");
    server.wait().expect("it was started");
    if !output.status.success() {
        eprintln!("{stack} {what}: {}", output.status);
        return None;
    }
    let mut result: Value = serde_json::from_slice(&output.stdout).expect("a JSON object");
    result["stack_cpu_s"] = json!(after - before);
    Some(result)
}

fn start(namespace: &Namespace, program: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace.name(), program]).args(arguments).stdout(Stdio::piped());
    command.spawn().expect("it starts")
}

/// User and system time of a process.
fn cpu_seconds_of(child: &Child) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it runs");
    let fields: Vec<_> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
    // Fields 14 and 15 of proc(5), in ticks of 10 ms.
    [11, 12].map(|at| fields[at].parse::<f64>().expect("a number") / 100.0).iter().sum()
}

/// The addresses of the device, on a veth pair.
fn veth(one: &Namespace, other: &Namespace) {
    let ip = |arguments: &[&str]| {
        let status = Command::new("ip").args(arguments).status().expect("the command ip");
        assert!(status.success(), "ip {arguments:?}");
    };
    let (a, b) = (one.name(), other.name());
    ip(&["-n", a, "link", "add", "t0", "type", "veth", "peer", "name", "t0", "netns", b]);
    for (namespace, address) in [(a, KERNEL), (b, STACK)] {
        ip(&["-n", namespace, "addr", "add", &format!("{address}/24"), "dev", "t0"]);
        ip(&["-n", namespace, "link", "set", "t0", "up"]);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The raw results, and medians of the ratios to the ceiling and to the others, each within a round.
fn print(options: &Options, results: &BTreeMap<String, BTreeMap<String, Vec<Value>>>) {
    let values = |of: &[Value]| of.iter().map(|value| value["value"].as_f64().expect("a number")).collect::<Vec<_>>();
    let mut summary = BTreeMap::new();
    for (test, stacks) in results {
        let is_rate = !test.starts_with("connections");
        for (stack, all) in stacks {
            let unit = if is_rate { 1e9 } else { 1.0 };
            let mut entry = json!({ "median": median(values(all)) / unit });
            // Other load takes processors from a run, but hardly changes what a second of them does.
            let per_cpu = all.iter().map(|value| {
                let cpu = value["cpu_s"].as_f64().unwrap_or(0.0) + value["stack_cpu_s"].as_f64().unwrap_or(0.0);
                value["value"].as_f64().unwrap_or(0.0) * options.seconds as f64 / cpu / unit
            });
            entry["per_cpu_second"] = json!(median(per_cpu.collect()));
            for other in ["blind", "gvisor", "smoltcp", "kernel"] {
                let Some(of_other) = stacks.get(other).filter(|of_other| of_other.len() == all.len()) else { continue };
                let ratios = values(all).into_iter().zip(values(of_other)).map(|(one, other)| one / other);
                entry[format!("to_{other}")] = json!(median(ratios.collect()));
            }
            summary.insert(format!("{test} {stack}"), entry);
        }
    }
    let result = json!({
        "seconds": options.seconds,
        "rounds": options.rounds,
        "machine": machine(),
        "unit": "Gb/s; connections per second",
        "medians": summary,
        "rounds_raw": results,
    });
    println!("{}", serde_json::to_string_pretty(&result).expect("JSON"));
}

fn machine() -> Value {
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("").trim_start_matches([' ', '\t', ':']);
    json!({
        "cpu": model,
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": said("uname", &["-r"]),
        "commit": said("git", &["rev-parse", "--short", "HEAD"]),
        "load_average": std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim(),
    })
}
