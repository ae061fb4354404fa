//! All links together.

use quic::Dir;
use units::Duration;

use crate::links::{capacity_mbps, connected, link};
use crate::support::apps;

fn goodput_share(seed: u64, links: &[netem::LinkConfig], bytes: u64) -> f64 {
    let mut pair = connected(seed, links);
    let took = apps::transfer(&mut pair, bytes, Duration::from_secs(60));
    let mbps = bytes as f64 * 8.0 / took.as_nanos() as f64 * 1000.0;
    for path in pair.client.connection(0).path_stats() {
        println!("{path:?}");
    }
    println!("{mbps} Mb/s of {} in {took}", capacity_mbps(links));
    mbps / capacity_mbps(links)
}

#[test]
fn two_equal_links_carry_twice_as_much() {
    let share = goodput_share(1, &[link(100, 10), link(100, 10)], 50_000_000);
    assert!(share > 0.9, "{share}");
}

#[test]
fn unlike_links_carry_their_sum() {
    let links = [link(200, 5), link(100, 20), link(50, 40), link(25, 75)];
    let share = goodput_share(2, &links, 100_000_000);
    assert!(share > 0.85, "{share}");
}

#[test]
fn a_small_message_takes_the_shortest_path() {
    let mut pair = connected(3, &[link(100, 40), link(50, 5)]);
    let id = pair.client.connection(0).open(Dir::Uni).expect("a stream is allowed");
    let mut writer = apps::Writer::new(id, 200);
    writer.pump(pair.client.connection(0));
    let sent_at = pair.now;
    let read = pair.run_until(Duration::from_secs(1), |pair| {
        let mut reader = apps::Reader::new(id);
        reader.pump_if_known(pair.now, pair.server.connection(0));
        reader.ended
    });
    assert!(read && pair.now - sent_at < Duration::from_millis(6), "{}", pair.now - sent_at);
}
