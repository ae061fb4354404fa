//! `--journal` and `litz replay` as a user runs them: a transfer is recorded on both sides and
//! replayed.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use litz::tcp::{IpDevice, MemoryTun, TcpConfig, TcpStack, TcpStackConfig};
use serde_json::Value;

use crate::support::{Litz, Place, assert_same};

/// The journals of a folder, by name.
fn journals(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The folders of sender and receiver after a transfer over two paths, with `more` for both.
fn transferred(place: &Place, more: &[&str]) -> [PathBuf; 2] {
    transferred_at("100Gb/s", place, more)
}

/// The same, with a rate limit.
fn transferred_at(rate: &str, place: &Place, more: &[&str]) -> [PathBuf; 2] {
    let file = place.file("file", 3_000_000, 1);
    let folders = [place.path("sent"), place.path("received")];
    let options = folders.clone().map(|folder| format!("--journal={}", folder.display()));
    let (mut receiver, ticket) = place.recv(&[more, &[&options[1]]].concat());
    let paths = ["--path=127.0.0.1", "--path=127.0.0.1", &format!("--rate={rate}")];
    place.send(&[&file], &ticket, &[&paths[..], more, &[&options[0]]].concat()).succeed();
    receiver.succeed();
    assert_same(&file, &place.inbox().join("file"));
    folders
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_litz")).arg("replay").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn events(output: &Output, name: &str) -> Vec<Value> {
    let lines = text(&output.stdout);
    let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["event"] == name).collect()
}

#[test]
fn a_transfer_is_replayed_on_both_sides() {
    let place = Place::new();
    let folders = transferred(&place, &["--placement=packet(2)"]);
    let output = run(&["--json", folders[0].to_str().unwrap(), folders[1].to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (logs, replayed) = (events(&output, "log"), events(&output, "replayed"));
    assert!(logs.len() >= 2 && logs.len() == replayed.len(), "{logs:#?}");
    assert!(replayed.iter().all(|one| one["same"] == true && one["end"] == "complete"), "{replayed:#?}");
    let side = |name: &str| logs.iter().position(|log| log["side"] == name).expect("a log of each side");
    let (sent, received) = (&replayed[side("client")], &replayed[side("server")]);
    assert_eq!(logs[side("client")]["connection"], logs[side("server")]["connection"]);
    assert!(sent["bytes"].as_u64() > Some(3_000_000) && received["bytes"].as_u64() < Some(1_000_000), "{sent:#}");
    assert!(sent["cipher"].as_str().is_some_and(|cipher| cipher.contains("AES")), "{sent:#}");
    assert!(!sent["paths"].as_array().unwrap().is_empty(), "{sent:#}");

    // The same as text.
    let output = run(&["--events", folders[0].to_str().unwrap()]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let lines = text(&output.stdout);
    for words in [
        "client of connection",
        "event: connected",
        "event: confirmed",
        "close with code 0",
        "event: closed:",
        "is finished",
        "path 1 is active",
        "no differences",
    ] {
        assert!(lines.contains(words), "{words}: {lines}");
    }
}

#[test]
fn a_detached_receive_half_is_shown() {
    let place = Place::new();
    // Slow enough for many round trips.
    let folders = transferred_at("400Mb/s", &place, &["--placement=split"]);
    let output = run(&["--events", folders[0].to_str().unwrap(), folders[1].to_str().unwrap()]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let lines = text(&output.stdout);
    assert!(lines.contains("detached: the receive half is on another processor"), "{lines}");
    assert!(lines.contains("attached: the receive half is back"), "{lines}");
    let output = run(&["--all", folders[1].to_str().unwrap()]);
    let lines = text(&output.stdout);
    for words in ["receive half: opened on path", "receive half: read", "receive half: gave_report 1", "took_report 1"]
    {
        assert!(lines.contains(words), "{words}: {lines}");
    }
}

#[test]
fn the_output_can_be_limited() {
    let place = Place::new();
    let folders = transferred(&place, &[]);
    let log = journals(&folders[0])[0].to_str().unwrap().to_owned();
    let all = events(&run(&["--json", "--all", &log]), "step");
    assert!(all.len() > 100, "{}", all.len());
    assert!(all.iter().zip(1..).all(|(step, number)| step["entry"] == number), "every entry, in order");

    let output = run(&["--json", "--all", "--until-entry=40", &log]);
    assert_eq!((events(&output, "step"), output.status.code()), (all[..40].to_vec(), Some(0)));
    assert_eq!(events(&output, "replayed")[0]["end"], "stopped");

    let middle = all[all.len() / 2]["at_ns"].as_u64().unwrap();
    let (before, after): (Vec<_>, Vec<_>) =
        all.iter().cloned().partition(|step| step["at_ns"].as_u64().unwrap() <= middle);
    let time = format!("{middle}ns");
    let until = events(&run(&["--json", "--all", &format!("--until={time}"), &log]), "step");
    assert_eq!(until, before);
    let from = events(&run(&["--json", "--all", &format!("--from={time}"), &log]), "step");
    assert!(from.ends_with(&after) && from.len() < all.len(), "{} of {}", from.len(), all.len());
}

#[test]
fn damaged_truncated_and_foreign_logs_are_distinguished() {
    let place = Place::new();
    // So slow that the log is written in several pieces.
    let folders = transferred_at("40Mb/s", &place, &[]);
    let log = journals(&folders[1])[0].clone();
    let bytes = std::fs::read(&log).unwrap();
    let replayed = |name: &str, bytes: &[u8]| {
        let path = place.path(name);
        std::fs::write(&path, bytes).unwrap();
        let output = run(&[path.to_str().unwrap()]);
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (status, shown, _) = replayed("cut", &bytes[..bytes.len() - 100]);
    assert!(status == Some(1) && shown.contains("the log is truncated"), "{status:?} {shown}");

    let mut changed = bytes.clone();
    changed[bytes.len() / 2] ^= 4;
    let (status, shown, error) = replayed("damaged", &changed);
    assert!(status == Some(2) && error.contains("damaged"), "{status:?} {shown} {error}");

    changed.clone_from(&bytes);
    changed[8] = 63;
    let (status, _, error) = replayed("later", &changed);
    assert!(status == Some(2) && error.contains("version 63"), "{status:?} {error}");

    let (status, _, error) = replayed("picture", b"\x89PNG\r\n\x1a\n and so on");
    assert!(status == Some(2) && error.contains("not a journal"), "{status:?} {error}");

    Litz::start(&["replay", "--json", "/dev/zero"]).fail(2, "not a journal");
    Litz::start(&["replay", "--json", place.path("none").to_str().unwrap()]).fail(2, "cannot read");
    Litz::start(&["replay", "--json", place.path("out").to_str().unwrap()]).fail(2, "no journals");
    // The other logs are still replayed.
    let output = run(&["--json", place.path("picture").to_str().unwrap(), log.to_str().unwrap()]);
    assert_eq!((output.status.code(), events(&output, "replayed").len()), (Some(2), 1), "{output:?}");
}

#[test]
fn an_unusable_folder_is_reported_before_anything_happens() {
    let place = Place::new();
    let file = place.file("file", 1000, 1);
    let (_receiver, ticket) = place.recv(&[]);
    let taken = format!("--journal={}", file.display());
    place.send(&[&file], &ticket, &[&taken]).fail(2, "cannot write journals into");
}

/// A folder with the journals of both sides of a TCP connection over a device in memory, and the bytes that
/// the client has sent: so many that each journal has several blocks.
fn tcp_transferred(place: &Place) -> (PathBuf, usize) {
    let folder = place.path("tcp");
    let journals = litz::JournalFolder::create(&folder).unwrap();
    let tuns = MemoryTun::pair();
    let ips = [IpAddr::from([10, 9, 0, 1]), IpAddr::from([10, 9, 0, 2])];
    let stack = |side: usize| {
        let device = IpDevice::memory(tuns[side].clone(), ips[side]);
        let tcp = TcpConfig { journal: Some(journals.source()), ..TcpConfig::default() };
        TcpStack::start(TcpStackConfig::new(device, &[ips[side]]).with_tcp(tcp)).unwrap()
    };
    let [client, server] = [stack(0), stack(1)];
    let listener = server.listen(80).unwrap();
    let sent = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let stream = listener.accept().unwrap();
            let mut bytes = 0;
            while let Some(chunk) = stream.read_chunk().unwrap() {
                bytes += chunk.len();
            }
            stream.finish();
            stream.closed();
            bytes
        });
        let stream = client.connect((ips[1], 80).into()).unwrap();
        let (chunk, mut sent) = (bytes::Bytes::from(vec![7; 1_000_000]), 0);
        while journals.file_count() < 2 {
            stream.write_chunk(chunk.clone()).unwrap();
            sent += chunk.len();
            assert!(sent < 100_000_000_000, "no block is full");
        }
        stream.finish();
        assert!(stream.read_chunk().unwrap().is_none());
        stream.closed();
        assert_eq!(receiver.join().unwrap(), sent);
        sent
    });
    [client, server].iter().for_each(TcpStack::close);
    journals.wait();
    assert_eq!(journals.take_errors(), Vec::<String>::new());
    (folder, sent)
}

#[test]
fn journals_of_tcp_are_recognised_and_replayed() {
    let place = Place::new();
    let (folder, sent) = tcp_transferred(&place);
    let logs = journals(&folder);
    assert_eq!(logs.len(), 2, "{logs:?}");
    let output = run(&["--json", folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (heads, replayed) = (events(&output, "log"), events(&output, "replayed"));
    let client = heads.iter().position(|head| head["side"] == "client").expect("one of the client");
    assert!(heads.iter().all(|head| head["protocol"] == "tcp"), "{heads:#?}");
    assert_eq!(heads[client]["remote"], "10.9.0.2:80");
    assert!(replayed.iter().all(|one| one["same"] == true && one["end"] == "complete"), "{replayed:#?}");
    assert_eq!(replayed[client]["bytes_sent"], sent);
    assert_eq!(replayed[1 - client]["bytes_received"], sent);
    assert!(replayed.iter().all(|one| one["dropped_by_paws"] == 0), "{replayed:#?}");

    let output = run(&["--events", logs[client].to_str().unwrap()]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let lines = text(&output.stdout);
    for words in [": TCP client 10.9.0.1:", "event: connected", "finish", "segments", "no differences", " sent again, "]
    {
        assert!(lines.contains(words), "{words} is not in {lines}");
    }

    // From a pipe.
    let file = std::fs::File::open(&logs[client]).unwrap();
    let mut cat = Command::new("cat").stdin(file).stdout(Stdio::piped()).spawn().unwrap();
    let pipe = cat.stdout.take().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_litz")).args(["replay", "/dev/stdin"]).stdin(pipe).output().unwrap();
    assert!(output.status.success() && text(&output.stdout).contains("no differences"), "{output:?}");
    cat.wait().unwrap();

    // Up to an entry, cut, changed, and with what only QUIC has.
    let output = run(&["--until-entry", "3", logs[client].to_str().unwrap()]);
    assert!(text(&output.stdout).contains("as requested"), "{output:?}");
    let log = std::fs::read(&logs[client]).unwrap();
    std::fs::write(&logs[client], &log[..log.len() - 5]).unwrap();
    let output = run(&[logs[client].to_str().unwrap()]);
    assert!(output.status.code() == Some(1) && text(&output.stdout).contains("truncated"), "{output:?}");
    let mut changed = log.clone();
    changed[log.len() / 2] ^= 1;
    std::fs::write(&logs[client], &changed).unwrap();
    let output = run(&[logs[client].to_str().unwrap()]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("damaged"), "{output:?}");
    let output = run(&["--qlog", folder.to_str().unwrap(), logs[1 - client].to_str().unwrap()]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("leave out --qlog"), "{output:?}");
}
