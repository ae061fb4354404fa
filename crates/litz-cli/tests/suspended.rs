//! A process is suspended, as by Ctrl-Z or a laptop's lid, in the middle of a transfer. The default
//! idle timeout is 30 s. After a shorter pause the connection continues. After a longer pause the
//! peer has closed it; then the sender reconnects, and verified data is not sent again.

use std::time::Duration;

use net::MonotonicClock;

use crate::support::{Litz, Place, assert_same};

const SIZE: usize = 40_000_000;

/// The transfer is under way and not done: at 64 Mb/s it takes five seconds.
const RATE: &str = "--rate=64Mb/s";

/// When this much has arrived, the first segments are not only complete but synced, also on a busy
/// machine: two of 4 MiB travel at a time, and the journal names none that is not on the disk.
const ENOUGH: u64 = 24_000_000;

/// Maximum seconds for the rest of the transfer, including a retry and a busy machine; it takes
/// about four.
const SOON: f64 = 20.0;

/// Which process is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    Sender,
    Receiver,
}

struct Outcome {
    /// Time from the continuation of the process to the end of the transfer.
    seconds_after: f64,
    /// How often the sender reconnected.
    retries: usize,
    bytes_moved: u64,
}

#[expect(clippy::disallowed_methods, reason = "a test that waits while a process is stopped")]
fn sleep(span: Duration) {
    std::thread::sleep(span);
}

/// The state of the process, as the kernel names it: `T` is stopped.
fn state_of(process: &Litz) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).expect("it runs");
    stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next()).expect("a state")
}

/// A transfer during which one process is stopped for `span`.
fn transfer(stopped: Stopped, span: Duration, options: &[&str]) -> Outcome {
    let place = Place::new();
    let file = place.file("file", SIZE, 1);
    let (mut receiver, ticket) = place.recv(options);
    let mut sender = place.send(&[&file], &ticket, &[&[RATE, "--parallel=2"], options].concat());
    receiver.wait_for_bytes(ENOUGH);
    let process = if stopped == Stopped::Sender { &sender } else { &receiver };
    process.signal("STOP");
    // The signal is delivered at once, every thread stops within moments.
    sleep(Duration::from_millis(200));
    assert_eq!(state_of(process), 'T', "{stopped:?} is stopped");
    sleep(span - Duration::from_millis(200));
    assert_eq!(state_of(process), 'T', "{stopped:?} is still stopped");
    process.signal("CONT");
    let clock = MonotonicClock::start();
    let summary = sender.succeed();
    let seconds_after = clock.now().since_start().as_secs_f64();
    receiver.succeed();
    assert_same(&file, &place.inbox().join("file"));
    let retries = sender.seen.iter().filter(|event| event["event"] == "retrying").count();
    let bytes_moved = summary["bytes_moved"].as_u64().expect("a count");
    Outcome { seconds_after, retries, bytes_moved }
}

/// A pause shorter than the idle timeout costs the pause.
fn continues(stopped: Stopped) {
    let outcome = transfer(stopped, Duration::from_secs(30), &["--idle-timeout=60s"]);
    assert_eq!(outcome.retries, 0, "{stopped:?}: the connection lives");
    assert_eq!(outcome.bytes_moved, SIZE as u64, "{stopped:?}: nothing travels twice");
    assert!(outcome.seconds_after < SOON, "{stopped:?}: done {:.1} s later", outcome.seconds_after);
}

/// With the default of 30 s.
fn reconnects(stopped: Stopped) {
    let outcome = transfer(stopped, Duration::from_secs(33), &[]);
    assert!(outcome.retries > 0, "{stopped:?}: the connection was given up");
    assert!(outcome.seconds_after < SOON, "{stopped:?}: done {:.1} s later", outcome.seconds_after);
    assert!(outcome.bytes_moved < SIZE as u64, "{stopped:?}: what was verified does not travel again");
}

/// One test, so that all four cases wait at the same time, even if few tests run in parallel.
#[test]
fn a_process_stopped_for_half_a_minute_continues_or_reconnects() {
    std::thread::scope(|scope| {
        for stopped in [Stopped::Sender, Stopped::Receiver] {
            scope.spawn(move || continues(stopped));
            scope.spawn(move || reconnects(stopped));
        }
    });
}
