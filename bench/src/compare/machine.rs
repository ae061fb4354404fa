//! The machine and the versions with which the figures were measured.

use std::collections::BTreeMap;
use std::process::Command;

use serde::Serialize;

use crate::contender::Failure;

/// Packages whose versions are recorded in the results.
const PACKAGES: [&str; 13] = [
    "aws-lc-rs",
    "boring-sys",
    "litz",
    "noq",
    "noq-proto",
    "noq-udp",
    "quiche",
    "quinn",
    "quinn-proto",
    "quinn-udp",
    "rustls",
    "s2n-quic",
    "tquic",
];

#[derive(Serialize)]
pub struct Machine {
    processor: String,
    processors: usize,
    kernel: String,
    load_before: String,
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

pub fn describe() -> Machine {
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    Machine {
        processor: model.trim_start_matches([' ', '\t', ':']).to_owned(),
        processors: std::thread::available_parallelism().map_or(0, usize::from),
        kernel: read("/proc/sys/kernel/osrelease"),
        load_before: load(),
    }
}

/// The load averages.
pub fn load() -> String {
    read("/proc/loadavg")
}

/// The commit of the tree this was built from, with `-dirty` if files differ from it.
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_owned() };
    let clean = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|status| status.is_empty());
    if clean { commit } else { commit + "-dirty" }
}

/// The versions this program was built with, from its lock file.
pub fn versions() -> Result<BTreeMap<String, String>, Failure> {
    let lock = include_str!("../../Cargo.lock");
    let mut found = BTreeMap::new();
    let mut name = "";
    for line in lock.lines() {
        if let Some(value) = line.strip_prefix("name = ") {
            name = value.trim_matches('"');
        } else if let Some(value) = line.strip_prefix("version = ")
            && PACKAGES.contains(&name)
        {
            found.insert(name.to_owned(), value.trim_matches('"').to_owned());
        }
    }
    let rustc = Command::new("rustc").arg("--version").output()?;
    found.insert("rustc".to_owned(), String::from_utf8_lossy(&rustc.stdout).trim().to_owned());
    Ok(found)
}
