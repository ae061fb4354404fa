use litz::PathId;
use litz::paths::shown::ShownState;
use quic_endpoint::local_ends::LocalEnd;
use transfer::{FileError, FileErrorKind, RelativePath};

use super::*;

const MB: u64 = 1_000_000;

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// A path that has carried this many bytes, and was silent for that many seconds.
fn path(id: u32, bytes: u64, quiet: u64) -> PathLine {
    PathLine {
        id: PathId(id),
        end: LocalEnd { device: None, ip: [192, 0, 2, 1].into(), down: None },
        remote: "192.0.2.9:4433".to_owned(),
        state: ShownState::Active,
        is_backup: false,
        rate: Rate::from_mbps(80),
        round_trip: Duration::from_millis(20),
        loss_percent: 0.5,
        bytes,
        quiet_for: Duration::from_secs(quiet),
    }
}

fn name(text: &str) -> RelativePath {
    RelativePath::from_components(text.split('/').map(str::as_bytes)).unwrap()
}

/// A transfer of 100 MB of which 20 MB had been received before.
fn status() -> Status {
    let mut status = Status::default();
    status.on_event(at(0), &TransferEvent::Started { files: 2, bytes: 100 * MB });
    let old = name("photos/old.raw");
    status.on_event(at(0), &TransferEvent::FileStarted { path: &old, bytes: 20 * MB, bytes_resumed: 20 * MB });
    status.on_event(at(0), &TransferEvent::Progress { bytes_done: 20 * MB, bytes_total: 100 * MB });
    status
}

#[test]
fn rates_are_those_of_verified_bytes_and_of_the_wire() {
    let mut status = status();
    status.on_sample(at(0), &[path(0, 0, 0), path(1, 0, 0)]);
    status.on_event(at(0), &TransferEvent::Progress { bytes_done: 40 * MB, bytes_total: 100 * MB });
    status.on_sample(at(2000), &[path(0, 15 * MB, 0), path(1, 9 * MB, 0)]);
    assert_eq!(status.figures(at(2000)), "40.0 MB of 100.0 MB  10.0 MB/s verified, 12.0 MB/s on the wire  6 s left");
    assert_eq!(status.percent(), 40);
}

#[test]
fn the_wire_is_counted_on_when_a_path_ends_or_the_connection_is_new() {
    let mut status = status();
    status.on_sample(at(0), &[path(0, 0, 0)]);
    status.on_sample(at(500), &[path(0, MB, 0), path(1, MB, 0)]);
    status.on_sample(at(1000), &[path(1, 2 * MB, 0)]);
    assert!(status.figures(at(1000)).contains("3.0 MB/s on the wire"), "{}", status.figures(at(1000)));
    status.on_event(at(1500), &TransferEvent::Started { files: 2, bytes: 100 * MB });
    status.on_sample(at(1500), &[path(0, 0, 0)]);
    status.on_sample(at(2500), &[path(0, MB, 0)]);
    assert!(status.figures(at(2500)).contains("1.0 MB/s on the wire"), "{}", status.figures(at(2500)));
}

#[test]
fn silence_is_reported_at_once_then_rarely_and_its_end() {
    let mut status = status();
    let reports: Vec<_> = [0, 2, 3, 4, 12, 13, 20, 23, 0, 0]
        .into_iter()
        .enumerate()
        .map(|(step, quiet)| status.on_sample(at(step as u64 * 500), &[path(0, 5, quiet), path(1, 5, quiet + 9)]))
        .collect();
    let silent = |seconds| Some(SilenceChange::Silent(Duration::from_secs(seconds)));
    let expected = [None, None, silent(3), None, None, silent(13), None, silent(23), Some(SilenceChange::Ended), None];
    assert_eq!(reports, expected);
    status.on_sample(at(9000), &[path(0, 5, 30)]);
    assert_eq!(status.figures(at(9000)), "20.0 MB of 100.0 MB  no packets for 30 s");
}

#[test]
fn a_lost_connection_is_not_silent_but_being_made_again() {
    let mut status = status();
    status.on_sample(at(500), &[path(0, 5, 29)]);
    assert!(status.figures(at(500)).contains("no packets for 29 s"));
    status.on_lost();
    assert_eq!(status.figures(at(600)), "connecting");
    assert_eq!(status.silence(), None);
    status.on_event(at(900), &TransferEvent::Started { files: 2, bytes: 100 * MB });
    assert_eq!(status.on_sample(at(1000), &[path(0, 1, 0)]), None, "that packets arrive is no news");
}

#[test]
fn the_file_is_one_that_is_under_way() {
    let mut status = status();
    let (old, next) = (name("photos/old.raw"), name("photos/next.raw"));
    let changed = FileError::new(FileErrorKind::SourceChanged, "");
    let line = |status: &Status| status.line(at(0), 200);
    assert!(line(&status).ends_with("  photos/old.raw"), "{}", line(&status));
    status.on_event(at(0), &TransferEvent::FileStarted { path: &next, bytes: 1, bytes_resumed: 0 });
    assert!(line(&status).ends_with("  photos/next.raw"), "{}", line(&status));
    status.on_event(at(0), &TransferEvent::FileFailed { path: &next, error: &changed });
    assert!(line(&status).ends_with("  photos/old.raw"), "{}", line(&status));
    status.on_event(at(0), &TransferEvent::FileFailed { path: &old, error: &changed });
    assert!(line(&status).ends_with("of 100.0 MB"), "{}", line(&status));
}

#[test]
fn the_least_important_parts_of_a_line_are_left_out_first() {
    let mut status = status();
    let long = name("photos/2026/some-very-long-name-of-a-folder/IMG-0231.raw");
    status.on_event(at(0), &TransferEvent::FileStarted { path: &long, bytes: 1, bytes_resumed: 0 });
    status.on_sample(at(0), &[path(0, 0, 0)]);
    status.on_event(at(2000), &TransferEvent::Progress { bytes_done: 40 * MB, bytes_total: 100 * MB });
    status.on_sample(at(2000), &[path(0, 24 * MB, 0)]);
    let line = |width| status.line(at(2000), width);
    for width in 1..200 {
        assert!(line(width).chars().count() <= width, "{width}: {}", line(width));
    }
    let (sizes, wire) = ("40.0 MB of 100.0 MB  10.0 MB/s verified", ", 12.0 MB/s on the wire");
    assert_eq!(
        line(200),
        format!("{sizes}{wire}  6 s left  {}", "photos/2026/some-very-long-name-of-a-folder/IMG-0231.raw")
    );
    assert_eq!(line(90), format!("{sizes}{wire}  6 s left  photo…G-0231.raw"));
    assert_eq!(line(80), format!("{sizes}  6 s left  photos/20…folder/IMG-0231.raw"));
    assert_eq!(line(60), format!("{sizes}  6 s left"));
    assert_eq!(line(45), "40.0 MB of 100.0 MB  10.0 MB/s  6 s left");
    assert_eq!(shorten("abcdefghij", 7), "ab…ghij");
}

#[test]
fn rates_are_shown_once_they_are_known_and_include_what_came_after_the_last_sample() {
    let mut status = status();
    assert_eq!(status.plain_line(at(100)), "20 % received: 20.0 MB of 100.0 MB");
    status.on_sample(at(500), &[path(0, 0, 0)]);
    status.on_event(at(1000), &TransferEvent::Progress { bytes_done: 100 * MB, bytes_total: 100 * MB });
    let line = status.plain_line(at(1000));
    assert_eq!(line, "100 % received: 100.0 MB of 100.0 MB  80.0 MB/s verified");
}

#[test]
fn the_stages_before_the_transfer_have_no_share() {
    let mut status = Status::default();
    assert_eq!((status.line(at(0), 80).as_str(), status.has_length()), ("connecting", false));
    status.on_listing();
    status.on_sample(at(500), &[path(0, 10, 0)]);
    assert_eq!((status.line(at(1000), 80).as_str(), status.has_length()), ("listing the files", false));
    status.on_sample(at(9000), &[path(0, 10, 4)]);
    assert_eq!(status.line(at(9000), 80), "listing the files  no packets for 4 s");
}

#[test]
fn failed_files_are_not_reported_as_verified() {
    let mut summary = Summary::default();
    (summary.files, summary.files_done, summary.failed, summary.bytes_moved) = (5, 3, 2, MB);
    let line = Status::default().conclusion(Direction::Sending, &summary, Duration::from_secs(1));
    assert_eq!(line, "sent and verified 3 of 5 files, 1.0 MB in 1.00 s (1.0 MB/s); 2 failed");
}

#[test]
fn files_that_had_been_received_before_are_one_sentence() {
    let mut summary = Summary::default();
    (summary.files, summary.files_done, summary.bytes_resumed) = (1, 1, 20 * MB);
    let line = status().conclusion(Direction::Receiving, &summary, Duration::from_secs(1));
    assert_eq!(line, "received and verified 1 file, 0 B in 1.00 s (0 B/s); 20.0 MB of 1 file had been received before");
    assert_eq!([0, 999, 1000, 64_041, 1_000_000].map(grouped), ["0", "999", "1,000", "64,041", "1,000,000"]);
}
