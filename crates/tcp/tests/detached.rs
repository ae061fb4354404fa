//! A connection whose receive half is on another processor sends the same packets at the same times.

use netem::{CoDel, Discipline, LinkConfig};
use tcp::{AckPolicy, AckThreshold, AckTimer, Nagle, TcpConfig};
use units::{Duration, Ratio};

use crate::support::{Pair, link, pattern};

const LEN: usize = 700_000;

/// Transfers data in both directions, and returns the digests of what both hosts have sent.
fn run(seed: u64, links: &LinkConfig, config: &TcpConfig, splits: [bool; 2]) -> ([u64; 2], [u64; 2]) {
    let mut pair = Pair::with(seed, [links.clone(), links.clone()], [config.clone(), config.clone()]);
    for (host, is_wanted) in pair.hosts.iter_mut().zip(splits) {
        host.split.is_wanted = is_wanted;
    }
    pair.connect();
    pair.hosts[0].send(pattern(LEN, seed), true);
    pair.hosts[1].send(pattern(LEN / 3, seed + 1), false);
    let is_done = pair.run_until(Duration::from_secs(900), |pair| pair.hosts[1].has_ended);
    assert!(is_done, "seed {seed}");
    // The application of one host pauses, so that its window closes, and goes on.
    pair.hosts[0].reads = false;
    pair.hosts[1].send(pattern(LEN, seed + 2), true);
    pair.run_for(Duration::from_secs(20));
    pair.hosts[0].reads = true;
    let is_done = pair.run_until(Duration::from_secs(900), |pair| pair.hosts[0].has_ended);
    assert!(is_done, "seed {seed}");
    pair.run_for(Duration::from_secs(200));
    assert_eq!(pair.hosts[1].received, pattern(LEN, seed));
    assert_eq!(pair.hosts[0].received, [pattern(LEN / 3, seed + 1), pattern(LEN, seed + 2)].concat());
    for host in &pair.hosts {
        let split = &host.split;
        assert_eq!(split.is_wanted, split.detached > 0 && split.reports > 50 && split.commands > 50, "seed {seed}");
    }
    let segments = [0, 1].map(|host: usize| pair.hosts[host].sent.len() as u64);
    (pair.hosts.map(|host| host.wire), segments)
}

/// Checks that the digests are equal wherever the receive halves are.
fn is_the_same(seed: u64, links: &LinkConfig, config: &TcpConfig) {
    let attached = run(seed, links, config, [false; 2]);
    for splits in [[true, false], [false, true], [true; 2]] {
        assert_eq!(run(seed, links, config, splits), attached, "seed {seed}, {splits:?}");
    }
}

#[test]
fn a_detached_half_changes_no_packet_over_links_that_lose_reorder_and_duplicate() {
    let links = LinkConfig {
        loss: Ratio::new(1, 40),
        duplicate: Ratio::new(1, 50),
        reorder: Ratio::new(1, 30),
        reorder_by: Duration::from_millis(8),
        ..link(20, 10)
    };
    let default = TcpConfig { receive_buffer: 200_000, ..TcpConfig::default() };
    let configs = [
        TcpConfig { sack: false, ..default.clone() },
        TcpConfig { timestamps: false, ecn: false, ..default.clone() },
        TcpConfig { window_scaling: false, nagle: Nagle::Off, ..default.clone() },
        TcpConfig::classic(),
        TcpConfig { buffers_initial: 20_000, ..default.clone() },
        default,
    ];
    (0..12).for_each(|seed| is_the_same(seed, &links, &configs[seed as usize % configs.len()]));
}

#[test]
fn acknowledgements_at_a_share_of_the_buffer_and_delayed_ones_are_the_same() {
    for threshold in [AckThreshold::BufferPercent(35), AckThreshold::Segments(7), AckThreshold::Read] {
        let acks = AckPolicy { threshold, delay_max: Duration::from_millis(90), timer: AckTimer::FromSegment };
        is_the_same(3, &link(10, 15), &TcpConfig { acks, receive_buffer: 150_000, ..TcpConfig::default() });
    }
}

#[test]
fn marks_are_counted_wherever_the_receive_half_is() {
    let codel = CoDel { ecn: true, interval: Duration::from_millis(20), target: Duration::from_millis(1) };
    let links = LinkConfig { discipline: Discipline::CoDel(codel), loss: Ratio::new(1, 200), ..link(20, 10) };
    for accurate_ecn in [true, false] {
        is_the_same(5, &links, &TcpConfig { accurate_ecn, ..TcpConfig::default() });
    }
}
