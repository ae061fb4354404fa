//! Paths that look slow because their round trip was measured long ago.

use units::Duration;

use super::links::{connected, connected_as, link, set_delay};
use crate::support::{Pair, Setup, apps};

/// A path whose first round trips took this long one way.
const SLOW: Duration = Duration::from_millis(300);

/// Bytes of a message: 12 ms on the first link, so no path with a round trip of 600 ms helps.
const MESSAGE_BYTES: u64 = 30_000;

/// Two links of 20 Mb/s, of which the second one was slow when it was measured.
fn second_was_slow(seed: u64) -> Pair {
    let slow = netem::LinkConfig { delay: SLOW, ..link(20, 5) };
    connected(seed, &[link(20, 5), slow])
}

/// Sends one message after another for this long. Returns their number.
fn send_messages(pair: &mut Pair, span: Duration) -> u64 {
    let end = pair.now + span;
    let mut count = 0;
    while pair.now < end {
        apps::transfer(pair, MESSAGE_BYTES, Duration::from_secs(1));
        count += 1;
    }
    count
}

/// Packets and bytes that the client sent on the second path.
fn sent_on_second(pair: &mut Pair) -> (u64, u64) {
    let stats = &pair.client.connection(0).path_stats()[1];
    (stats.packets_sent, stats.bytes_sent)
}

#[test]
fn an_idle_path_is_measured_again_while_data_wait_for_others() {
    let mut pair = second_was_slow(61);
    set_delay(&mut pair, 1, Duration::from_millis(5));
    // A PING leaves after a second, and its acknowledgement shows that the path is fast now.
    send_messages(&mut pair, Duration::from_secs(2));
    let (_, before) = sent_on_second(&mut pair);
    let count = send_messages(&mut pair, Duration::from_secs(1));
    let (_, after) = sent_on_second(&mut pair);
    assert!(after - before > count * MESSAGE_BYTES / 8, "{} bytes of {count} messages", after - before);
}

#[test]
fn a_path_that_stays_slow_carries_a_ping_a_second_and_none_without_data() {
    let mut pair = second_was_slow(62);
    send_messages(&mut pair, Duration::from_secs(1));
    let (before, _) = sent_on_second(&mut pair);
    send_messages(&mut pair, Duration::from_secs(10));
    let (after, _) = sent_on_second(&mut pair);
    assert!((5..=10).contains(&(after - before)), "{} packets", after - before);
    // The last one may be due still.
    pair.run_for(Duration::from_secs(2));
    let (before, _) = sent_on_second(&mut pair);
    pair.run_for(Duration::from_secs(5));
    assert_eq!(sent_on_second(&mut pair).0, before);
}

/// How many packets of each end and path are acknowledged in 20 s without data.
fn acknowledged_at_rest(keep_alive: Option<Duration>) -> Vec<u64> {
    let setup = Setup::new(63).over(&[link(20, 5), link(20, 40)]);
    let mut pair = connected_as(setup.with_config(|config| config.keep_alive = keep_alive));
    pair.run_for(Duration::from_secs(2));
    let acknowledged = |pair: &mut Pair| -> Vec<u64> {
        let [client, server] = [&mut pair.client, &mut pair.server].map(|node| node.connection(0).path_stats());
        client.iter().chain(&server).map(|path| path.packets_acked).collect()
    };
    let before = acknowledged(&mut pair);
    pair.run_for(Duration::from_secs(20));
    acknowledged(&mut pair).into_iter().zip(before).map(|(after, before)| after - before).collect()
}

#[test]
fn a_keep_alive_is_of_each_path() {
    let with = acknowledged_at_rest(Some(Duration::from_secs(2)));
    assert!(with.len() == 4 && with.iter().all(|count| (8..=11).contains(count)), "{with:?}");
    assert_eq!(acknowledged_at_rest(None), [0; 4]);
}
