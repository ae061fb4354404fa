use units::{Duration, Instant};

use super::super::cut::Cut;
use super::*;

const START: Instant = Instant::from_nanos(1_000_000_000);

/// A report on three links of 300, 200 and 100 Mb/s: 75 MB in 2 s.
fn report(cut_ms: Option<u64>) -> DemoReport {
    let texts = [300, 200, 100].map(|rate| format!("rate={rate}Mb/s,delay=1ms"));
    let links = DemoLink::parse_all(&texts).unwrap();
    let alone = Outcome { bytes: 1_000_000, span: Duration::from_millis(80), ..Outcome::default() };
    let cut = cut_ms.map(|millis| {
        let mut cut = Cut::new(0, Duration::from_millis(millis));
        cut.poll(START + Duration::from_millis(500), 41);
        cut.poll(START + Duration::from_millis(500 + millis), 70);
        cut
    });
    let span = Duration::from_secs(2);
    let together = Outcome {
        bytes: 75_000_000,
        span,
        longest_gap: Duration::from_millis(37),
        down: cut.as_ref().map_or(Duration::ZERO, |cut| cut.down_between(START, START + span)),
        cut,
        connected_at: START,
        link_bytes: vec![40_000_000, 25_000_000, 12_000_000],
        links: vec![LinkReport::default(); 3],
        packets_sent: 1000,
        packets_lost: 5,
        ..Outcome::default()
    };
    let files = Comparison { hash: "0123456789abcdef0123456789abcdef".to_owned(), is_same: true, bytes_lost: 0 };
    DemoReport { seed: 1, links, carried: None, alone: vec![alone; 3], together, files }
}

fn line<'a>(lines: &'a [String], name: &str) -> &'a str {
    lines.iter().find(|line| line.trim_start().starts_with(name)).expect(name)
}

#[test]
fn a_link_counts_only_while_it_was_up() {
    // 600 Mb/s for 2 s is 150 MB, less 37.5 MB for one second of the link of 300 Mb/s.
    let report = report(Some(1000));
    assert_eq!(report.capacity_bytes(), 112_500_000);
    assert!((report.share_percent() - 66.667).abs() < 0.01, "{}", report.share_percent());
    assert!((report.share_of_whole_percent() - 50.0).abs() < 0.01);
    let lines = report.lines();
    assert!(line(&lines, "share of capacity").contains("67 % of the links' capacity while"), "{lines:#?}");
    let outage = line(&lines, "outage").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(outage.contains("l0, silent in both directions, 500.0 ms after the start, at 41 %, for 1.0"), "{outage}");
}

#[test]
fn without_an_outage_both_shares_are_the_same() {
    let report = report(None);
    assert!((report.share_percent() - report.share_of_whole_percent()).abs() < 0.01);
    let lines = report.lines();
    assert!(line(&lines, "share of capacity").ends_with("50 % of 600.0 Mb/s"), "{lines:#?}");
    assert!(line(&lines, "outage").ends_with("none"));
    assert_eq!(report.json()["cut"], Value::Null);
}

#[test]
fn no_bytes_are_lost_only_if_the_files_are_identical() {
    let mut report = report(None);
    assert!(line(&report.lines(), "bytes lost").contains("0: the files are identical, BLAKE3 0123456789abcdef…"));
    report.files.is_same = false;
    report.files.bytes_lost = 7;
    assert!(line(&report.lines(), "bytes lost").contains("7: THE FILES DIFFER"));
    let json = report.json();
    assert_eq!((&json["bytes_lost"], &json["verified"]), (&7.into(), &false.into()));
}

#[test]
fn an_overloaded_machine_is_reported() {
    let mut report = report(None);
    let is_reported = |report: &DemoReport| report.lines().iter().any(|line| line.contains("too busy"));
    report.together.links[1].forward.lateness =
        Lateness { count: 1000, late: 10, max: Duration::from_millis(9), ..Lateness::default() };
    assert!(!is_reported(&report), "one in a hundred is acceptable");
    report.together.links[2].backward.lateness = Lateness { count: 1, late: 1, ..Lateness::default() };
    assert!(is_reported(&report));
    assert_eq!(report.json()["late_max_us"], 9000);
    report.together.links.fill(LinkReport::default());
    report.together.busy_percent = Some(94);
    assert!(!is_reported(&report) && report.json()["too_busy"] == false);
    report.together.busy_percent = Some(95);
    assert!(is_reported(&report) && report.json()["too_busy"] == true);
}

#[test]
fn each_link_is_shown_alone_and_together() {
    let lines = report(None).table();
    let words: Vec<_> = line(&lines, "l1").split_whitespace().collect();
    assert_eq!(words[..4], ["l1", "200.0", "Mb/s,", "1.0"], "{lines:#?}");
    assert!(line(&lines, "l1").contains("100.0 Mb/s  50 %") && line(&lines, "l1").ends_with("25.0 MB"), "{lines:#?}");
}

#[test]
fn the_report_fits_a_terminal_of_eighty_columns() {
    let mut report = report(Some(1000));
    report.links = DemoLink::defaults(Rate::from_mbps(750)).split_off(1);
    report.links.iter_mut().for_each(|link| link.name.insert_str(0, "long-name"));
    report.together.links[0].forward.link.vanished = 123_456;
    report.together.links[0].forward.link.overflowed = 123_456;
    report.together.links[0].forward.link.lost = 123_456;
    report.together.handshake = Duration::from_millis(12);
    (report.together.key_exchange, report.together.cipher) =
        ("X25519MLKEM768".into(), "TLS13_AES_128_GCM_SHA256".into());
    report.together.busy_percent = Some(95);
    for line in report.lines().iter().flat_map(|text| text.lines()) {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
}
