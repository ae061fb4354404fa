//! The demo with small files and links.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Litz, Place, TEST_TIMEOUT};

/// Two different links that any machine can emulate.
const LINKS: [&str; 2] =
    ["--link=name=quick,rate=24Mb/s,delay=2ms,queue=50ms", "--link=rate=8Mb/s,delay=10ms,queue=50ms"];

/// Runs the demo with its files in `folder`; returns the report.
fn demo(folder: &Path, more: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_litz"))
        .args(["demo", "--json"])
        .args(LINKS)
        .args(more)
        .env("TMPDIR", folder)
        .output()
        .expect("the command starts");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), 0, "nothing stays behind");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn the_demo_cuts_the_fastest_link_and_loses_nothing() {
    let place = Place::new();
    let report = demo(&place.inbox(), &["--size=6MB", "--cut-for=300ms"]);
    assert_eq!((&report["verified"], &report["bytes_lost"]), (&true.into(), &0.into()), "{report}");
    assert_eq!((&report["bytes"], &report["sum_bps"]), (&6_000_000.into(), &32_000_000.into()));
    let cut = &report["cut"];
    assert_eq!((&cut["link"], &cut["restored"]), (&"quick".into(), &true.into()), "{report}");
    assert!(cut["at_percent"].as_u64() >= Some(40), "{report}");
    assert!(cut["down_us"].as_u64() >= Some(300_000), "{report}");
    assert!(report["links"][0]["vanished"].as_u64() > Some(0), "the cut took packets away: {report}");
    assert_eq!(report["links"][1]["vanished"], 0, "and on that link only");
    assert!(report["packets_lost"].as_u64() > Some(0), "so some travelled again: {report}");
    assert!(report["longest_gap_us"].as_u64() > Some(0), "{report}");
    assert!(report["handshake_us"].as_u64() >= Some(4000), "one round trip is 4 ms: {report}");
    for (index, (name, rate)) in [("quick", 24_000_000), ("l1", 8_000_000)].into_iter().enumerate() {
        let link = &report["links"][index];
        assert_eq!((&link["name"], link["rate_bps"].as_u64()), (&name.into(), Some(rate)));
        let alone = link["alone_goodput_bps"].as_u64().expect("a rate");
        assert!(alone > 0 && alone < rate, "no link carries more than its rate: {report}");
        assert!(link["together_bytes"].as_u64() > Some(0), "every link takes part: {report}");
    }
    let (up, whole) = (report["share_percent"].as_f64(), report["share_of_whole_percent"].as_f64());
    assert!(up > whole && whole > Some(0.0) && up < Some(100.0), "{report}");
}

#[test]
fn without_an_outage_no_packet_is_lost_in_one() {
    let place = Place::new();
    let report = demo(&place.inbox(), &["--size=2MB", "--no-cut"]);
    assert_eq!((&report["cut"], &report["bytes_lost"]), (&Value::Null, &0.into()), "{report}");
    assert!((0..2).all(|link| report["links"][link]["vanished"] == 0), "{report}");
    let share = |key: &str| report[key].as_f64().expect("a share");
    assert!((share("share_percent") - share("share_of_whole_percent")).abs() < 0.1, "{report}");
}

#[test]
fn an_interrupt_ends_the_processes_and_removes_the_files() {
    let place = Place::new();
    let inbox = place.inbox();
    let mut child = Command::new(env!("CARGO_BIN_EXE_litz"))
        .args(["demo", "--json", "--link=rate=1Mb/s", "--size=50MB"])
        .env("TMPDIR", &inbox)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the command starts");
    let clock = net::MonotonicClock::start();
    // Both processes run once the receiver has created the file.
    let processes = loop {
        let processes = processes_in(&inbox);
        if processes.len() == 2 {
            break processes;
        }
        assert!(clock.now().since_start() < TEST_TIMEOUT.into(), "so far {processes:?}");
        pause();
    };
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.expect("kill runs").success());
    assert_eq!(child.wait().expect("it was started").code(), Some(130));
    assert_eq!(std::fs::read_dir(&inbox).expect("a folder").count(), 0, "nothing stays behind");
    assert_eq!(processes_in(&inbox), Vec::<u32>::new(), "of {processes:?}");
}

#[test]
fn unusable_links_end_with_status_2() {
    for (arguments, words) in [
        (&["--link=delay=5ms"][..], "needs a rate"),
        (&["--link=rate=1Mb/s,flap=1s 1s silent"], "makes its own outage"),
        (&["--link=rate=0b/s"], "rate"),
        (&["--link=trace=/dev/zero"], "not a regular file"),
        (&["--size=0B"], "--size"),
    ] {
        Litz::start(&[&["demo", "--json"], arguments].concat()).fail(2, words);
    }
    assert_eq!(Litz::start(&["demo", "--no-cut", "--cut-for=1s"]).finish("").0, 2);
}

/// Processes with this folder in their arguments.
fn processes_in(folder: &Path) -> Vec<u32> {
    let name = folder.to_str().expect("a readable name");
    let processes = std::fs::read_dir("/proc").expect("a process table").flatten();
    let numbers = processes.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let arguments = std::fs::read(entry.path().join("cmdline")).ok()?;
        String::from_utf8_lossy(&arguments).contains(name).then_some(number)
    });
    numbers.collect()
}

#[expect(clippy::disallowed_methods, reason = "a test looks again now and then")]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}
