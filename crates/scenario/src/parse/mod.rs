//! Parses a file into a [`Scenario`]: every key, its bounds and its default. The format is defined
//! in `docs/spec/scenario.md`.

mod check;
mod fault;
mod infeasible;
mod link;
mod names;
mod problem;
mod quantity;
mod reader;
mod work;

use core::ops::Range;

use quic::{Policy, Strategy};
use recovery::Algorithm;
use toml::de::DeTable;
use units::Duration;

use crate::faults;
use crate::model::{
    CHECKS_MAX, DATAGRAM_SIZE, DURATION_MAX, FAULTS_MAX, Host, LINKS_MAX, PARTS_MAX, Path, SEEDS_MAX, SUBSETS_MAX,
    Scenario, Transport,
};

pub use link::FindTrace;
pub(crate) use link::explain;
use names::{read_index, read_name};
pub use problem::{PROBLEMS_MAX, ParseError, Problem};
use reader::{Source, Table};

/// The supported version of the format.
pub const VERSION: u64 = 1;

/// Maximum size of a file, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Default number of seeds.
const SEEDS: u32 = 10;

/// Default receive window and send buffer of a host: more than the shipped links have in flight.
const WINDOW_BYTES: u64 = 64 << 20;

/// Allowed receive windows and send buffers: 64 KiB to 1 TiB.
const HOST_BYTES: Range<u64> = 64 << 10..(1 << 40) + 1;

/// Maximum interrupt coalescing of a host: a hundred times the usual setting of drivers.
const COALESCE_MAX: Duration = Duration::from_millis(10);

/// Parses a scenario. `file` is its name in messages; `trace` loads the trace that a link names.
///
/// # Errors
/// Returns all problems, each with its line and key, up to [`PROBLEMS_MAX`].
pub fn parse(file: &str, text: &str, trace: FindTrace<'_>) -> Result<Scenario, ParseError> {
    if text.len() > FILE_BYTES_MAX {
        let message = format!("the file is longer than {FILE_BYTES_MAX} bytes");
        return Err(ParseError::new(file, vec![Problem { line: 1, key: String::new(), message }]));
    }
    let source = Source::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let line = error.span().map_or(1, |span| source.line(span.start));
        source.add_problem(line, "", error.message());
    }
    // After a syntax error, later keys would only be reported as missing.
    let scenario = if errors.is_empty() {
        let root = Table::new(&source, String::new(), 0..0, document.get_ref());
        read(&root, trace)
    } else {
        None
    };
    match scenario {
        Some(scenario) if !source.has_problems() => Ok(scenario),
        _ => Err(ParseError::new(file, source.into_problems())),
    }
}

fn read(root: &Table<'_, '_>, trace: FindTrace<'_>) -> Option<Scenario> {
    let version = root.required("version", root.integer("version", 0..u64::MAX));
    if let Some(version) = version.filter(|version| *version != VERSION) {
        root.add_problem("version", format!("is {version}; this program supports version {VERSION}"));
        return None;
    }
    let head = root.table("scenario");
    if head.is_none() && !root.has("scenario") {
        root.add_problem("scenario", "is missing: add [scenario] with a name");
    }
    let head = head.map(|head| read_head(&head));
    let hosts = read_hosts(root);
    let links: Vec<_> = root.tables("link", LINKS_MAX).iter().filter_map(|table| link::read(table, trace)).collect();
    if !root.has("link") {
        root.add_problem("link", "is missing: add at least one [[link]]");
    }
    require_unique(root, "link", links.iter().map(|link| (link.name.as_str(), link.line)));
    let names: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
    let paths = read_paths(root, &names);
    let transport = read_transport(root);
    let parts: Vec<_> = root.tables("workload", PARTS_MAX).iter().filter_map(work::read).collect();
    if !root.has("workload") {
        root.add_problem("workload", "is missing: add at least one [[workload]]");
    }
    require_unique(root, "workload", parts.iter().map(|part| (part.name.as_str(), part.line)));
    let faults: Vec<_> =
        root.tables("fault", FAULTS_MAX).iter().filter_map(|table| fault::read(table, &names)).collect();
    let path_names: Vec<_> = paths.iter().map(|path| path.name.as_str()).collect();
    let subsets = read_subsets(root, &path_names);
    let checks: Vec<_> = root
        .tables("check", CHECKS_MAX)
        .iter()
        .filter_map(|table| check::read(table, &check::Known { parts: &parts, paths: &path_names, links: &links }))
        .collect();
    root.finish();
    let (name, about, duration, seeds) = head??;
    // An incomplete scenario would only cause follow-up messages.
    if root.source.has_problems() {
        return None;
    }
    let scenario =
        Scenario { name, about, duration, seeds, hosts, links, paths, transport, parts, faults, checks, subsets };
    for problem in faults::problems(&scenario).into_iter().chain(infeasible::problems(&scenario)) {
        root.source.add_problem(problem.line, problem.key, problem.message);
    }
    Some(scenario)
}

fn read_head(head: &Table<'_, '_>) -> Option<(String, String, Duration, u32)> {
    let name = head.required("name", read_name(head, "name"));
    let about = head.required("about", head.text("about").map(|text| text.trim().to_owned()));
    let duration = head.required("duration", head.duration_above_zero("duration"));
    if duration.is_some_and(|duration| duration > DURATION_MAX) {
        head.add_problem("duration", format!("must be at most {DURATION_MAX}"));
    }
    let seeds = head.integer("seeds", 1..u64::from(SEEDS_MAX) + 1).unwrap_or(u64::from(SEEDS)) as u32;
    head.finish();
    Some((name?, about?, duration?, seeds))
}

fn require_unique<'a>(root: &Table<'_, '_>, key: &str, names: impl Iterator<Item = (&'a str, usize)>) {
    let mut seen: Vec<&str> = Vec::new();
    for (name, line) in names {
        if seen.contains(&name) {
            root.source.add_problem(line, format!("{key}.name"), format!("{name:?} is taken: names must be unique"));
        }
        seen.push(name);
    }
}

fn read_hosts(root: &Table<'_, '_>) -> [Host; 2] {
    let hosts = root.table("hosts");
    let read = |key: &'static str| {
        let host = hosts.as_ref().and_then(|hosts| hosts.table(key));
        let name = host.as_ref().and_then(|host| read_name(host, "name"));
        let size = |key| host.as_ref().and_then(|host| host.size(key, HOST_BYTES)).unwrap_or(WINDOW_BYTES);
        let read = Host {
            name: name.unwrap_or_else(|| key.to_owned()),
            receive_window: size("receive-window"),
            send_buffer: size("send-buffer"),
            coalesce: host.as_ref().and_then(|host| host.duration_up_to("coalesce", COALESCE_MAX)).unwrap_or_default(),
        };
        if let Some(host) = host {
            host.finish();
        }
        read
    };
    let both = [read("a"), read("b")];
    if let Some(hosts) = hosts {
        if both[0].name == both[1].name {
            // At least one name is in the file. It is b's, unless both have b's default name.
            if let Some(host) = hosts.table(if both[1].name == "b" { "a" } else { "b" }) {
                host.add_problem("name", format!("{:?} is taken: names must differ", both[0].name));
            }
        }
        hosts.finish();
    }
    both
}

/// Reads the paths; without `[[path]]`, every link is one path.
fn read_paths(root: &Table<'_, '_>, links: &[&str]) -> Vec<Path> {
    if !root.has("path") {
        let path = |(link, name): (usize, &&str)| Path { name: (*name).to_owned(), link, is_backup: false };
        return links.iter().enumerate().map(path).collect();
    }
    let tables = root.tables("path", LINKS_MAX);
    let paths: Vec<_> = tables.iter().filter_map(|table| read_path(table, links)).collect();
    let lines = tables.iter().map(|table| table.line);
    require_unique(root, "path", paths.iter().map(|path| path.name.as_str()).zip(lines));
    if paths.iter().all(|path| path.is_backup) && !paths.is_empty() {
        root.add_problem("path", "all paths are backups: at least one must not be");
    }
    paths
}

fn read_path(table: &Table<'_, '_>, links: &[&str]) -> Option<Path> {
    let link = table.required("link", read_index(table, "link", "link", links));
    let name = if table.has("name") { read_name(table, "name") } else { link.map(|link| links[link].to_owned()) };
    let is_backup = table.boolean("backup").unwrap_or(false);
    table.finish();
    Some(Path { name: name?, link: link?, is_backup })
}

fn read_transport(root: &Table<'_, '_>) -> Transport {
    let table = root.table("transport");
    let transport = Transport {
        scheduler: table
            .as_ref()
            .and_then(|table| table.parsed("scheduler", |text| text.parse::<Strategy>().map_err(|e| e.to_string())))
            .unwrap_or_default(),
        congestion: table
            .as_ref()
            .and_then(|table| table.parsed("congestion", |text| text.parse::<Algorithm>().map_err(|e| e.to_string())))
            .unwrap_or_default(),
        policy: table
            .as_ref()
            .and_then(|table| table.parsed("policy", |text| text.parse::<Policy>().map_err(|e| e.to_string())))
            .unwrap_or_default(),
        datagram_size: table
            .as_ref()
            .and_then(|table| table.size("datagram-size", 1200..quic::config::DATAGRAM_SIZE_MAX as u64 + 1))
            .map_or(DATAGRAM_SIZE, |size| size as usize),
        idle_timeout: table
            .as_ref()
            .and_then(|table| table.duration_above_zero("idle-timeout"))
            .unwrap_or(Duration::from_secs(30)),
    };
    if let Some(table) = table {
        table.finish();
    }
    transport
}

fn read_subsets(root: &Table<'_, '_>, paths: &[&str]) -> Vec<Vec<usize>> {
    let tables = root.tables("subset", SUBSETS_MAX);
    tables.iter().filter_map(|table| read_subset(table, paths)).collect()
}

fn read_subset(table: &Table<'_, '_>, paths: &[&str]) -> Option<Vec<usize>> {
    let names = table.required("paths", table.texts("paths"));
    table.finish();
    let mut subset = Vec::new();
    for name in names? {
        match paths.iter().position(|path| *path == name) {
            Some(path) if !subset.contains(&path) => subset.push(path),
            Some(_) => table.add_problem("paths", format!("{name:?} is listed twice")),
            None => table.add_problem("paths", format!("there is no path {name:?}; there are {}", paths.join(", "))),
        }
    }
    if subset.len() < 2 {
        table.add_problem("paths", "a subset needs at least two paths; single paths are always run");
        return None;
    }
    subset.sort_unstable();
    Some(subset)
}

#[cfg(test)]
mod tests;
