//! Digests of every datagram of every shipped scenario, kept in `digests.txt`. A change that must
//! not alter the protocol's behaviour must not alter these lines; a change that does says why in
//! its commit.
//!
//! | world | hosts |
//! |---|---|
//! | `memory` | simulated hosts without processors, under each placement |
//! | `live` | the live engine with a manual clock over sockets in memory, under each placement |
//! | `machine` | simulated hosts with two processors and a fixed cost for each task, under each placement |
//!
//! A datagram counts with its time, direction, path, number and bytes. Under `packet(n)` and
//! `path(n)` the kept digest is that of the sorted datagrams; the tests of the parent module compare
//! their order.
//!
//! - `LITZ_DIGESTS=keep` rewrites the file.
//! - `LITZ_DIGESTS_MS=N` runs N ms of virtual time of each scenario, prints the lines and compares
//!   nothing. Use it to `diff` two builds over whole runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use scenario::recording::Recording;
use scenario::simulated::{Costs, Machine, simulate_recorded};

use super::*;

/// Every placement.
fn placements() -> impl Iterator<Item = Placement> {
    std::iter::once(Placement::Thread).chain(PLACEMENTS)
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/digests.txt")
}

/// Virtual time of each run: `LITZ_DIGESTS_MS`, or short enough for a test.
fn duration_max(placement: Placement) -> Duration {
    let setting = std::env::var("LITZ_DIGESTS_MS").ok().map(|text| text.parse().expect("milliseconds"));
    let ms = setting.unwrap_or(if placement == Placement::Thread { 1_500 } else { 400 });
    Duration::from_millis(ms)
}

/// Returns the number of datagrams, and the digest of all their fields.
fn line(mut packets: Vec<Digest>, placement: Placement) -> String {
    if matches!(placement, Placement::Packet(_) | Placement::Path(_)) {
        packets.sort_unstable();
    }
    let mut hasher = blake3::Hasher::new();
    for (at, direction, path, number, len, bytes) in &packets {
        for field in [at.as_nanos(), *direction as u64, *path as u64, *number, *len as u64, *bytes] {
            hasher.update(&field.to_le_bytes());
        }
    }
    format!("{} {}", packets.len(), &hasher.finalize().to_hex()[..32])
}

/// A packet costs some microseconds at each end, so processors are what limits fast scenarios.
const PROFILE: &str = "{\"format\":\"litz-profile\",\"version\":1,\"memory\":{\
    \"sending\":{\"points\":[{\"datagram_bytes\":1472,\"ns\":{\"plan\":700,\"seal.cipher\":1200,\"send_call\":900}}]},\
    \"receiving\":{\"points\":[{\"datagram_bytes\":1472,\"ns\":{\"recv_call\":900,\"open_absorb.cipher\":1200,\
    \"open_absorb.absorb\":600,\"application\":400}}]}}}";

/// Collects a capture.
#[derive(Clone, Default)]
struct CaptureBuffer(Arc<Mutex<Vec<u8>>>);

impl io::Write for CaptureBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the number of packets in a capture and their digest. Only enhanced packet blocks count:
/// the others hold names and prose.
fn capture_line(pcapng: &[u8]) -> String {
    const ENHANCED_PACKET: u32 = 6;
    let word = |at: usize| u32::from_le_bytes(pcapng[at..at + 4].try_into().expect("four bytes"));
    let (mut hasher, mut at, mut count) = (blake3::Hasher::new(), 0, 0);
    while at < pcapng.len() {
        let len = word(at + 4) as usize;
        if word(at) == ENHANCED_PACKET {
            hasher.update(&pcapng[at..at + len]);
            count += 1;
        }
        at += len;
    }
    format!("{count} {}", &hasher.finalize().to_hex()[..32])
}

/// A run of hosts with simulated processors: its packets, and the processor time spent.
fn machine_line(scenario: &Scenario, placement: Placement) -> String {
    let placements = [placement; 2];
    let costs = Costs::from_profile(PROFILE).expect("a valid profile");
    let machine = Machine { costs, placements, processors: [2; 2], is_shared: false };
    let packets = CaptureBuffer::default();
    let recording = Recording { packets: Some(Box::new(packets.clone())), ..Recording::default() };
    let plan = plan(scenario, 1);
    let simulated =
        simulate_recorded(scenario, &plan, &machine, Some(recording), &mut |_| true).expect("the run completes");
    let busy: u64 = simulated.busy.iter().flatten().map(|busy| busy.as_nanos()).sum();
    format!("{} busy {busy} ns", capture_line(&packets.0.lock().expect("not poisoned")))
}

/// One line for each run, by the run's name.
fn made(placements: impl Iterator<Item = Placement>) -> BTreeMap<String, String> {
    let mut lines = BTreeMap::new();
    for placement in placements {
        for scenario in shipped(duration_max(placement)) {
            let ms = scenario.duration.as_millis();
            let mut insert = |world: &str, line| {
                lines.insert(format!("{world} {placement} {} {ms} ms", scenario.name), line);
            };
            let [memory, live] = digests(&scenario, placement);
            insert("memory", line(memory, placement));
            insert("live", line(live, placement));
            insert("machine", machine_line(&scenario, placement));
        }
    }
    lines
}

#[test]
#[expect(clippy::print_stdout, reason = "LITZ_DIGESTS_MS prints the lines")]
fn every_datagram_of_the_shipped_scenarios_is_the_kept_one() {
    let made = made(placements());
    let text = made.iter().fold(String::new(), |mut text, (name, line)| {
        writeln!(text, "{name}: {line}").expect("writing to a string cannot fail");
        text
    });
    if std::env::var_os("LITZ_DIGESTS_MS").is_some() {
        println!("{text}");
        return;
    }
    if std::env::var("LITZ_DIGESTS").is_ok_and(|setting| setting == "keep") {
        std::fs::write(file(), &text).expect("the file can be written");
    }
    let kept = std::fs::read_to_string(file()).expect("the file exists");
    let differences: Vec<_> = kept
        .lines()
        .zip(text.lines())
        .filter(|(kept, made)| kept != made)
        .map(|(kept, made)| format!("kept {kept}\nmade {made}\n"))
        .collect();
    assert_eq!(kept.lines().count(), text.lines().count(), "as many runs as are kept");
    assert!(
        differences.is_empty(),
        "{} of {} runs differ from the kept ones (if that is intended, LITZ_DIGESTS=keep rewrites the file):\n{}",
        differences.len(),
        made.len(),
        differences.concat()
    );
}
