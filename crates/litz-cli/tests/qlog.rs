//! `--qlog` as a user runs it: a transfer on both sides, a recorded journal, a simulated run.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{Place, assert_same};

/// Every event that the files may have: docs/spec/qlog.md lists them.
const EVENTS: [&str; 20] = [
    "connectivity:connection_closed",
    "connectivity:connection_started",
    "connectivity:connection_state_updated",
    "connectivity:mtu_updated",
    "connectivity:path_assigned",
    "connectivity:path_migrated",
    "connectivity:path_state_updated",
    "recovery:congestion_state_updated",
    "recovery:ecn_state_updated",
    "recovery:metrics_updated",
    "recovery:packet_lost",
    "recovery:parameters_set",
    "security:key_updated",
    "transport:alpn_information",
    "transport:datagrams_received",
    "transport:packet_dropped",
    "transport:packet_received",
    "transport:packet_sent",
    "transport:parameters_set",
    "transport:version_information",
];

/// The files of a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The events of a qlog file, whose header and names are checked.
fn events(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut records = text.split('\u{1e}');
    assert_eq!(records.next(), Some(""));
    let mut records = records.map(|record| serde_json::from_str::<Value>(record).unwrap());
    let header = records.next().expect("a header");
    assert_eq!((&header["qlog_version"], &header["qlog_format"]), (&"0.3".into(), &"JSON-SEQ".into()));
    let events: Vec<Value> = records.collect();
    let unknown = events.iter().find(|event| !EVENTS.iter().any(|name| event["name"] == *name));
    assert_eq!(unknown, None, "an event that the specification does not list");
    events
}

fn named<'a>(events: &'a [Value], name: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["name"] == name).map(|event| &event["data"])
}

fn replay(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_litz")).arg("replay").args(arguments).output().unwrap()
}

/// A transfer of 3 MB over two paths.
fn transfer(place: &Place, sender: &[&str], receiver: &[&str]) {
    let file = place.file("file", 3_000_000, 1);
    let (mut receiving, ticket) = place.recv(receiver);
    place.send(&[&file], &ticket, &[&["--path=127.0.0.1", "--path=127.0.0.1"], sender].concat()).succeed();
    receiving.succeed();
    assert_same(&file, &place.inbox().join("file"));
}

fn option(name: &str, folder: &Path) -> String {
    format!("--{name}={}", folder.display())
}

#[test]
fn a_transfer_leaves_a_private_qlog_file_on_each_side() {
    let place = Place::new();
    let folders = [place.path("sent"), place.path("received")];
    let options = folders.clone().map(|folder| option("qlog", &folder));
    transfer(&place, &[&options[0]], &[&options[1]]);
    let mut payload = [0, 0];
    for (side, folder) in folders.iter().enumerate() {
        let files = files(folder);
        assert!(
            !files.is_empty() && files.iter().all(|file| file.extension().is_some_and(|name| name == "sqlog")),
            "{files:?}"
        );
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        for file in &files {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
        }
        // The sender may have tried several addresses; one of its connections has the data.
        let (at, events) = files
            .iter()
            .map(|file| events(file))
            .map(|events| (named(&events, "transport:packet_sent").count(), events))
            .max_by_key(|(packets, _)| *packets)
            .expect("a connection");
        assert!(at > 10, "{at} packets");
        assert_eq!(events[0]["name"], "connectivity:connection_started");
        assert_eq!(named(&events, "connectivity:connection_closed").count(), 1);
        let alpn = named(&events, "transport:alpn_information").next().expect("the protocol");
        assert!(alpn["chosen_alpn"].as_str().is_some_and(|name| name.starts_with("litz/")), "{alpn}");
        assert!(events.iter().any(|event| event["group_id"] == "1"), "events of the second path");
        let name = ["transport:packet_sent", "transport:packet_received"][side];
        let frames = named(&events, name).flat_map(|data| data["frames"].as_array().unwrap());
        payload[side] =
            frames.filter_map(|frame| frame["length"].as_u64().filter(|_| frame["frame_type"] == "stream")).sum();
    }
    assert!(payload.iter().all(|bytes| *bytes >= 3_000_000), "{payload:?}");
}

#[test]
fn a_kept_journal_converts_to_the_same_file() {
    let place = Place::new();
    let [journals, qlogs, again] = ["journals", "qlogs", "again"].map(|name| place.path(name));
    transfer(&place, &[&option("journal", &journals), &option("qlog", &qlogs)], &[]);
    let kept = files(&journals);
    assert_eq!(kept.len(), files(&qlogs).len());
    let output = replay(&["--json", journals.to_str().unwrap(), &option("qlog", &again)]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let paths: Vec<&str> =
        lines.iter().filter(|line| line["event"] == "qlog").filter_map(|line| line["path"].as_str()).collect();
    assert_eq!(paths.len(), kept.len());
    for (one, other) in files(&qlogs).iter().zip(files(&again)) {
        assert_eq!((one.file_name(), one.extension().is_some()), (other.file_name(), true));
        assert!(events(one) == events(&other), "{} and {} differ", one.display(), other.display());
    }
    // A second conversion leaves the first one.
    assert_eq!(replay(&[journals.to_str().unwrap(), &option("qlog", &again)]).status.code(), Some(0));
    assert_eq!(files(&again).len(), 2 * kept.len());
    assert!(again.join("0001-client-2.sqlog").exists(), "{:?}", files(&again));
}

#[test]
fn what_a_killed_process_has_recorded_can_be_converted() {
    let place = Place::new();
    let [journals, qlogs] = ["journals", "qlogs"].map(|name| place.path(name));
    // Slow enough for several blocks, which are written every 100 ms.
    transfer(&place, &[&option("journal", &journals), "--rate=50Mb/s"], &[]);
    let log = files(&journals).into_iter().max_by_key(|log| log.metadata().unwrap().len()).unwrap();
    let whole = std::fs::read(&log).unwrap();
    std::fs::write(&log, &whole[..whole.len() - 10]).unwrap();
    let output = replay(&[log.to_str().unwrap(), &option("qlog", &qlogs)]);
    assert_eq!(output.status.code(), Some(1), "the journal is cut: {output:?}");
    let files = files(&qlogs);
    assert_eq!(files.len(), 1);
    let events = events(&files[0]);
    assert!(named(&events, "transport:packet_sent").count() > 10);
    assert_eq!(named(&events, "connectivity:connection_closed").count(), 0);
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_at_once() {
    let place = Place::new();
    let file = place.file("file", 10, 1);
    let wrong = option("qlog", &file.join("folder"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    let output = command
        .args(["recv", &wrong, &option("state-dir", &place.path("state"))])
        .current_dir(place.path(""))
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("cannot write qlog files into"), "{error}");
    let output = replay(&["nothing.journal", &wrong]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot write qlog files into"));
}

#[test]
fn a_simulated_run_has_a_qlog_file_for_each_host() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = "version = 1\n[scenario]\nname = 'small'\nabout = 'A test.'\nduration = '5s'\nseeds = 2\n\
        [[link]]\nname = 'wifi'\nrate = '20Mb/s'\ndelay = '1ms'\n[[link]]\nname = 'lte'\nrate = '10Mb/s'\ndelay = '9ms'\n\
        [[workload]]\nkind = 'file'\nsize = '1MB'\n";
    std::fs::write(folder.path().join("small.toml"), scenario).unwrap();
    let litz = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
        command.args(["scenario", "run", "small.toml", "--qlog=qlogs"]).args(arguments).current_dir(folder.path());
        command.output().unwrap()
    };
    let refused = litz(&[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("--qlog records a simulated run"));
    let done = litz(&["--world=sim"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let files = files(&folder.path().join("qlogs"));
    let names: Vec<_> = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["0001-client.sqlog", "0001-server.sqlog"]);
    let [client, server] = [events(&files[0]), events(&files[1])];
    let (sent, received) =
        (named(&client, "transport:packet_sent").count(), named(&server, "transport:packet_received").count());
    assert!(received > 700 && received <= sent, "{received} of {sent}");
}
