//! `litz scenario run --world netns`: shipped scenarios and failures, between network namespaces.
//! Skipped without root on Linux. The runs take real time and the machine may be busy, so bounds on
//! times and rates are loose. The delivered data is checked exactly.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use net::MonotonicClock;
use serde_json::Value;

use crate::support::needs::{has_root, skipped};

/// Serializes the runs, because parallel runs would compete for the processors.
static ALONE: Mutex<()> = Mutex::new(());

fn root() -> Option<MutexGuard<'static, ()>> {
    if !has_root() {
        return None;
    }
    Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A shipped scenario, changed: each text stands in it once and becomes the other. The comparison
/// with single paths, which takes a run for each, is left out with all that follows it.
fn shipped(name: &str, changes: &[(&str, &str)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../scenarios/{name}.toml"));
    let mut text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let end = text.find("[[check]]\nkind = \"against-best-path\"").expect("the comparison");
    text.truncate(end);
    for (from, to) in changes {
        assert_eq!(text.matches(from).count(), 1, "{name}: {from}");
        text = text.replace(from, to);
    }
    text
}

fn scenario(duration: &str, body: &str) -> String {
    format!("version = 1\n[scenario]\nname = 'small'\nabout = 'A test.'\nduration = '{duration}'\n{body}\n")
}

/// One scenario in a folder of its own.
struct Place(tempfile::TempDir);

impl Place {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("x.toml"), text).expect("written");
        Self(folder)
    }

    /// `program` runs the scenario; its arguments come before the command.
    fn command(&self, program: &[&str]) -> Command {
        let litz = [env!("CARGO_BIN_EXE_litz"), "scenario", "run", "x.toml", "--world", "netns", "--out", "."];
        let all = [program, &litz].concat();
        let mut command = Command::new(all[0]);
        command.args(&all[1..]).current_dir(self.0.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it to its end.
    fn run(&self, program: &[&str]) -> Ended {
        self.run_with(program, &[])
    }

    /// The same with more arguments.
    fn run_with(&self, program: &[&str], more: &[&str]) -> Ended {
        let child = self.command(program).args(more).spawn().expect("the command starts");
        let id = child.id();
        Ended::new(id, &child.wait_with_output().expect("it was started"))
    }

    /// The result that it wrote about its only run.
    fn result(&self) -> Value {
        let text = std::fs::read_to_string(self.0.path().join("scenarios.json")).expect("it was written");
        let json: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(json["world"], "netns");
        assert_eq!(json["scenarios"][0]["runs"].as_array().map(Vec::len), Some(1));
        json["scenarios"][0]["runs"][0].clone()
    }
}

/// A command that has ended and left nothing behind.
struct Ended {
    status: Option<i32>,
    text: String,
}

impl Ended {
    fn new(id: u32, output: &Output) -> Self {
        assert_eq!(namespaces_of(id), Vec::<String>::new());
        let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
        Self { status: output.status.code(), text }
    }

    #[track_caller]
    fn is(&self, status: i32, words: &str) {
        assert_eq!(self.status, Some(status), "{}", self.text);
        assert!(self.text.contains(words), "{words:?} is not in: {}", self.text);
    }
}

/// The namespaces that this process has made and not removed.
fn namespaces_of(id: u32) -> Vec<String> {
    let prefix = format!("litz-scenario-{id}-");
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return Vec::new() };
    let names = entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&prefix)).collect()
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("the command ip");
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Every byte of each part has arrived, once, where it belongs.
#[track_caller]
fn assert_whole(run: &Value, delivered: &[(&str, u64, u64)]) {
    let parts = run["workload"].as_array().expect("parts");
    assert_eq!(parts.len(), delivered.len());
    assert_eq!((&run["failure"], run["foreign_streams"].as_u64()), (&Value::Null, Some(0)), "{run:#}");
    for (part, (name, bytes, items)) in parts.iter().zip(delivered) {
        assert_eq!(part["name"], *name);
        let counts = ["delivered_bytes", "items_delivered", "missing_bytes", "misplaced_bytes", "surplus_bytes"];
        let found = counts.map(|key| part[key].as_u64().unwrap_or_else(|| panic!("{key}: {part:#}")));
        assert_eq!(found, [*bytes, *items, 0, 0, 0], "{name}");
        assert!(part["finished_ns"].as_u64().is_some(), "{name}");
    }
}

fn path_bytes(run: &Value) -> Vec<u64> {
    let paths = run["path_use"].as_array().expect("paths");
    paths.iter().map(|path| path["forward_bytes"].as_u64().expect("a number")).collect()
}

#[test]
fn a_file_uses_four_different_links() {
    let Some(_alone) = root() else { return };
    let later = "[[check]]\nkind = \"share-of-capacity\"\nfrom = \"1s\"\nat-least = 0.90\n";
    let changes = [("160MB", "80MB"), ("at-least = 0.88", "at-least = 0.2"), (later, "")];
    let place = Place::new(&shipped("four-unlike", &changes));
    place.run(&[]).is(0, "four-unlike between network namespaces, seed 1");
    let run = place.result();
    assert_whole(&run, &[("file", 80_000_000, 77)]);
    let bytes = path_bytes(&run);
    assert!(bytes.len() == 4 && bytes.iter().all(|bytes| *bytes > 100_000), "{bytes:?}");
    assert!(bytes[0] > 2 * bytes[3] && bytes.iter().sum::<u64>() > 80_000_000, "{bytes:?}");
    // A link was offered what its path sent, except for packets in flight at the end of the run.
    for (link, bytes) in run["links"].as_array().expect("links").iter().zip(&bytes) {
        let offered = link["forward"]["offered_bytes"].as_u64().expect("a number");
        assert!(offered <= *bytes && offered * 10 > bytes * 9, "{link:#} for {bytes}");
    }
}

#[test]
fn one_link_fails_silently_and_the_other_continues() {
    let Some(_alone) = root() else { return };
    let changes = [("60MB", "35MB"), ("\"500ms\"", "\"2s\""), ("at-least = 0.75", "at-least = 0.3")];
    let place = Place::new(&shipped("dropped-link", &changes));
    place.run_with(&[], &["--plot=rate.svg"]).is(0, "longest gap in file");
    let run = place.result();
    assert_whole(&run, &[("file", 35_000_000, 34)]);
    let plot = std::fs::read_to_string(place.0.path().join("rate.svg")).expect("it was written");
    for link in run["links"].as_array().expect("a list") {
        let name = link["name"].as_str().expect("a name");
        let curve = plot.split(&format!("class=\"link {name}\" points=\"")).nth(1).expect("a line for the link");
        let heights: std::collections::BTreeSet<_> =
            curve.split('"').next().expect("points").split(' ').map(|point| point.split(',').nth(1)).collect();
        assert!(heights.len() > 10, "{name}: {heights:?}");
    }
    let fault = &run["faults"][0];
    assert_eq!((fault["occurrences"].as_u64(), fault["effective"].as_u64()), (Some(1), Some(1)), "{fault}");
    // The packets lost in the outage prove it, in both directions.
    let vanished =
        ["forward", "back"].map(|direction| run["links"][0][direction]["vanished"].as_u64().expect("a number"));
    let met = fault["packets"].as_u64().expect("a number");
    assert!(met > 0 && met <= vanished.iter().sum(), "{met} of {vanished:?}");
}

#[test]
fn messages_arrive_in_time_beside_a_file() {
    let Some(_alone) = root() else { return };
    let changes = [("40MB", "20MB"), ("at-most = \"200ms\"", "at-most = \"1s\""), ("at-least = 0.8", "at-least = 0.3")];
    let place = Place::new(&shipped("messages-and-bulk", &changes));
    place.run(&[]).is(0, "latency of messages p99");
    let run = place.result();
    assert_whole(&run, &[("bulk", 20_000_000, 20), ("messages", 90_000, 300)]);
    let messages = &run["workload"][1];
    assert_eq!(messages["latency_count"], 300);
    // No message is faster than the shorter link.
    assert!(messages["latency_p50_ns"].as_u64() >= Some(10_000_000), "{messages}");
}

#[test]
fn requests_are_answered_over_the_shorter_link() {
    let Some(_alone) = root() else { return };
    let changes = [("400", "100"), ("\"22ms\"", "\"60ms\""), ("\"40ms\"", "\"1s\"")];
    let place = Place::new(&shipped("requests", &changes));
    place.run(&[]).is(0, "latency of request-response p50");
    let run = place.result();
    assert_whole(&run, &[("request-response", 409_600, 100)]);
    assert!(run["workload"][0]["latency_p50_ns"].as_u64() >= Some(16_000_000), "{}", run["workload"][0]);
}

#[test]
fn paths_share_a_link_a_backup_is_idle_and_settings_apply() {
    let Some(_alone) = root() else { return };
    let body = "
        [hosts.b]
        receive-window = '2MiB'
        [[link]]
        name = 'a-link-whose-name-is-long'
        rate = '40Mb/s'
        delay = '5ms'
        overhead = '100B'
        [[link]]
        name = 'reserve'
        rate = '40Mb/s'
        [[path]]
        name = 'one'
        link = 'a-link-whose-name-is-long'
        [[path]]
        name = 'other'
        link = 'a-link-whose-name-is-long'
        [[path]]
        link = 'reserve'
        backup = true
        [transport]
        scheduler = 'round-robin'
        congestion = 'newreno'
        datagram-size = '8000B'
        [[workload]]
        kind = 'stream'
        size = '4MB'
        [[check]]
        kind = 'path-share'
        path = 'reserve'
        at-most = 0.1
        [[check]]
        kind = 'path-share'
        path = 'other'
        at-least = 0.2
        [[check]]
        kind = 'path-share'
        path = 'one'
        at-least = 0.2
        [[check]]
        kind = 'order-kept'
    ";
    let place = Place::new(&scenario("30s", body));
    place.run(&[]).is(0, "path reserve");
    let run = place.result();
    assert_whole(&run, &[("stream", 4_000_000, 1)]);
    let link = &run["links"][0]["forward"];
    let mean = link["offered_bytes"].as_u64().expect("bytes") / link["offered"].as_u64().expect("packets");
    assert!((4000..=8000).contains(&mean), "datagrams of 8000 bytes, some smaller: {mean}");
    // Not faster than the line, with what each datagram costs on it.
    let took = run["workload"][0]["finished_ns"].as_u64().expect("finished");
    assert!(took > 4_000_000 * 8 * 1000 / 40, "{took} ns");
}

#[test]
fn failed_checks_are_reported() {
    let Some(_alone) = root() else { return };
    let body = "[[link]]\nname = 'a'\nrate = '20Mb/s'\n[[workload]]\nkind = 'file'\nsize = '500kB'\n\
                [[check]]\nkind = 'share-of-capacity'\nat-least = 1.5\n";
    Place::new(&scenario("20s", body)).run(&[]).is(1, "checks failed: small");
}

#[test]
fn a_failed_handshake_is_an_outcome() {
    let Some(_alone) = root() else { return };
    let body = "[[link]]\nname = 'a'\n[transport]\nidle-timeout = '1s'\n[[workload]]\nkind = 'file'\nsize = '500kB'\n\
                [[fault]]\nlink = 'a'\nat = '0'\nstate = 'silent'\n";
    let place = Place::new(&scenario("20s", body));
    place.run(&[]).is(1, "FAILED");
    let run = place.result();
    assert_eq!((&run["connected_ns"], run["workload"][0]["missing_bytes"].as_u64()), (&Value::Null, Some(500_000)));
    assert!(run["failure"].is_string() && run["ended_ns"].as_u64() < Some(15_000_000_000), "{run:#}");
    assert_eq!(run["faults"][0]["effective"], 1);
}

#[test]
fn a_failed_connection_fails_a_run_with_endless_work() {
    let Some(_alone) = root() else { return };
    let body = "[[link]]\nname = 'a'\nrate = '20Mb/s'\n[transport]\nidle-timeout = '1s'\n[[workload]]\nkind = 'stream'\n\
                [[fault]]\nlink = 'a'\nat = '1s'\nstate = 'silent'\n";
    let place = Place::new(&scenario("20s", body));
    let ended = place.run(&[]);
    ended.is(1, "the connection failed: ");
    let failed = |kind: &str| ended.text.lines().any(|line| line.contains(kind) && line.trim_end().ends_with("FAILED"));
    assert!(failed(" connection ") && failed(" complete "), "{}", ended.text);
    let run = place.result();
    let part = &run["workload"][0];
    assert!(run["failure"].is_string() && part["finished_ns"].is_null(), "{run:#}");
    assert!(part["missing_bytes"].as_u64() > Some(0), "{part:#}");
}

/// A run that continues until it is ended.
const ENDLESS: &str = "[[link]]\nname = 'a'\nrate = '20Mb/s'\n[[workload]]\nkind = 'stream'\n";

/// Starts it, and disturbs it once its namespaces are there and its link, too.
fn disturbed(disturb: impl FnOnce(u32, &str)) -> Ended {
    let place = Place::new(&scenario("60s", ENDLESS));
    let child = place.command(&[]).spawn().expect("the command starts");
    let clock = MonotonicClock::start();
    let namespace = format!("litz-scenario-{}-0-a", child.id());
    let has_link = || {
        let output = Command::new("ip").args(["-netns", &namespace, "-stats", "link", "show", "link0"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    while !has_link() {
        assert!(clock.now().since_start() < units::Duration::from_secs(20), "no link after 20 s");
    }
    assert_eq!(namespaces_of(child.id()).len(), 2);
    disturb(child.id(), &namespace);
    Ended::new(child.id(), &child.wait_with_output().expect("it was started"))
}

#[test]
fn an_interrupt_or_a_removed_link_ends_it_and_nothing_is_left() {
    let Some(_alone) = root() else { return };
    for signal in ["-INT", "-TERM"] {
        let ended = disturbed(|id, _| {
            let status = Command::new("kill").args([signal, &id.to_string()]).status();
            assert!(status.expect("kill runs").success());
        });
        ended.is(130, "interrupted");
    }
    disturbed(|_, namespace| ip(&["-netns", namespace, "link", "delete", "link0"])).is(2, "");
}

#[test]
fn leftovers_of_another_process_do_no_harm() {
    let Some(_alone) = root() else { return };
    let body = "[[link]]\nname = 'a'\n[[workload]]\nkind = 'stream'\nsize = '50kB'\n";
    let place = Place::new(&scenario("20s", body));
    // The namespace that it would take: the shell's number becomes its own.
    let script = "ip netns add litz-scenario-$$-0-b && exec \"$0\" \"$@\"";
    let child = place.command(&["sh", "-c", script]).spawn().expect("the command starts");
    let id = child.id();
    let output = child.wait_with_output().expect("it was started");
    assert_eq!(namespaces_of(id), [format!("litz-scenario-{id}-0-b")], "what is another's stays");
    ip(&["netns", "delete", &format!("litz-scenario-{id}-0-b")]);
    Ended::new(id, &output).is(0, "small between network namespaces");
}

#[test]
fn an_impossible_run_is_reported_in_one_line() {
    let Some(_alone) = root() else { return };
    let body = "[[link]]\nname = 'a'\nrate = '40Gb/s'\n[[workload]]\nkind = 'stream'\n";
    Place::new(&scenario("20s", body)).run(&[]).is(2, "40.00 Gb/s together");
    let place = Place::new(&scenario("20s", ENDLESS));
    place.run(&["env", "PATH=/nowhere"]).is(2, "cannot run the command ip");
}

/// Without the privilege the message says what to do. Runs with and without root.
#[test]
fn without_the_privilege_it_says_what_to_do() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let place = Place::new(&scenario("20s", ENDLESS));
    if !rustix::process::geteuid().is_root() {
        return place.run(&[]).is(2, "run it as root");
    }
    let drop = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-all"];
    match Command::new(drop[0]).args(&drop[1..]).arg("true").status() {
        Ok(status) if status.success() => place.run(&drop).is(2, "run it as root"),
        result => skipped(&format!("setpriv cannot take the privilege away: {result:?}")),
    }
}

/// The blocks of a pcapng file: type and body.
fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let length = word(file, 4) as usize;
        assert_eq!(word(file, length - 4) as usize, length);
        blocks.push((word(file, 0), file[8..length - 4].to_vec()));
        file = &file[length..];
    }
    blocks
}

/// The number of packets in which tshark sees a frame of a stream; none without tshark.
fn decrypted_packets(file: &Path) -> Option<usize> {
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(file).args(["-d", "udp.port==4433,quic", "-Y", "quic.stream.stream_id", "-T", "fields"]);
    let output = tshark.args(["-e", "frame.number"]).output().ok()?;
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).expect("numbers").lines().count())
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped part says why")]
fn packets_are_captured_and_keys_only_on_request() {
    use std::os::unix::fs::PermissionsExt as _;

    let Some(_alone) = root() else { return };
    let body = "[[link]]\nname = 'a'\nrate = '20Mb/s'\ndelay = '5ms'\n[[workload]]\nkind = 'file'\nsize = '200KB'";
    let place = Place::new(&scenario("10s", body));
    let captured = |name: &str, more: &[&str]| {
        let output = place.command(&[]).args(["--pcapng", name]).args(more).output().expect("the command starts");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        place.0.path().join(name)
    };
    let (without, with) = (captured("plain.pcapng", &[]), captured("keys.pcapng", &["--keys-in-pcapng"]));
    let read = |path: &Path| blocks(&std::fs::read(path).expect("it was written"));
    let (plain, keyed) = (read(&without), read(&with));

    let is_secret = |block: &&(u32, Vec<u8>)| block.0 == 10;
    assert_eq!(plain.iter().filter(is_secret).count(), 0, "no keys without --keys-in-pcapng");
    assert_eq!(with.metadata().expect("it exists").permissions().mode() & 0o777, 0o600);
    let mut lines = Vec::new();
    for (_, body) in keyed.iter().filter(is_secret) {
        assert_eq!(&body[..4], b"KSLT", "the type TLSK, little-endian");
        let length = u32::from_le_bytes(body[4..8].try_into().expect("four bytes")) as usize;
        lines.push(String::from_utf8(body[8..8 + length].to_vec()).expect("a text"));
    }
    for label in ["CLIENT", "SERVER"]
        .iter()
        .flat_map(|side| [format!("{side}_HANDSHAKE_TRAFFIC_SECRET "), format!("{side}_TRAFFIC_SECRET_0 ")])
    {
        assert_eq!(lines.iter().filter(|line| line.starts_with(&label)).count(), 1, "{label}: {lines:?}");
    }
    // Each packet is there twice, unless it was lost: 200 KB are more than a hundred packets.
    let packets = |blocks: &[(u32, Vec<u8>)]| blocks.iter().filter(|block| block.0 == 6).count();
    assert!(packets(&plain) > 250 && packets(&keyed) > 250, "{} and {}", packets(&plain), packets(&keyed));

    match (decrypted_packets(&without), decrypted_packets(&with)) {
        (Some(without), Some(with)) => assert!(without == 0 && with > 200, "{without} and {with}"),
        _ => eprintln!("SKIPPED: there is no tshark, which would decrypt the capture"),
    }
}

#[test]
fn what_a_world_cannot_record_is_refused() {
    let Some(_alone) = root() else { return };
    let place = Place::new(&scenario("1s", "[[link]]\nname = 'a'\n[[workload]]\nkind = 'file'\nsize = '1KB'"));
    let refused = |arguments: &[&str], words: &str| {
        let output = place.command(&[]).args(arguments).output().expect("the command starts");
        let error = String::from_utf8(output.stderr).expect("a text");
        assert!(output.status.code() == Some(2) && error.contains(words), "{arguments:?}: {error}");
    };
    refused(&["--trace", "x.json"], "record a simulated run");
    refused(&["--qlog", "folder"], "record a simulated run");
    refused(&["--keys-in-pcapng"], "--pcapng");
}
