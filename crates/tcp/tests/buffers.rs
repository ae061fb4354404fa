//! Buffers grow with use, and only then.

use std::sync::Arc;

use netem::LinkConfig;
use tcp::{BufferBudget, TcpConfig};
use units::Duration;

use crate::support::peer::{Peer, offer};
use crate::support::{Pair, link, pattern};

const MINUTE: Duration = Duration::from_secs(60);
const INITIAL: u64 = 64 << 10;

fn sizes(pair: &mut Pair, host: usize) -> (u64, u64) {
    pair.hosts[host].connection().buffer_sizes()
}

fn pair_with(link: &LinkConfig, config: &TcpConfig) -> Pair {
    let mut pair = Pair::with(1, [link.clone(), link.clone()], [config.clone(), config.clone()]);
    pair.connect();
    pair
}

#[test]
fn a_long_fast_link_is_filled_from_small_buffers() {
    // 100 ms at 1 Gb/s: 12.5 MB are in flight.
    let long = link(1000, 50);
    let largest = TcpConfig { send_buffer: 32 << 20, receive_buffer: 32 << 20, ..TcpConfig::default() };
    let fixed = TcpConfig { buffers_initial: usize::MAX, ..largest.clone() };
    let len = 100_000_000;
    let [spent, best] = [largest, fixed].map(|config| {
        let is_fixed = config.buffers_initial == usize::MAX;
        let mut pair = pair_with(&long, &config);
        let before = sizes(&mut pair, 1);
        assert_eq!(before == (32 << 20, 32 << 20), is_fixed);
        let spent = pair.transfer(0, len, MINUTE);
        let (_, after) = sizes(&mut pair, 1);
        assert!((20_000_000..=32 << 20).contains(&after), "{after}");
        assert_eq!(pair.hosts[0].connection().stats().send.timeouts, 0);
        spent
    });
    assert!(spent < best.mul_ratio(105, 100), "{spent}, not {best}");
    // 0.83 s at the link's rate, and ten round trips of slow start.
    assert!(spent < Duration::from_millis(2200), "{spent}");
}

#[test]
fn requests_and_answers_leave_the_buffers_small() {
    let config = TcpConfig::default();
    let mut pair = pair_with(&link(100, 10), &config);
    for _ in 0..100 {
        pair.transfer_part(0, 300);
        pair.transfer_part(1, 9_000);
    }
    assert_eq!((sizes(&mut pair, 0), sizes(&mut pair, 1)), ((INITIAL, INITIAL), (INITIAL, INITIAL)));
    assert_eq!(config.budget.taken(), 0);
}

#[test]
fn an_application_that_does_not_read_gets_no_larger_buffer() {
    let mut pair = pair_with(&link(100, 10), &TcpConfig::default());
    pair.hosts[1].reads = false;
    pair.hosts[0].send(pattern(1_000_000, 3), false);
    pair.run_for(MINUTE);
    assert_eq!(sizes(&mut pair, 1).1, INITIAL);
    assert!(pair.hosts[1].connection().readable() as u64 <= INITIAL);
    // It reads in the end.
    pair.hosts[1].reads = true;
    assert!(pair.run_until(MINUTE * 3, |pair| pair.hosts[1].received.len() == 1_000_000));
}

#[test]
fn the_send_buffer_follows_the_window_and_an_idle_one_is_small_again() {
    let config = TcpConfig::default();
    let mut pair = pair_with(&link(100, 20), &config);
    pair.hosts[0].send(pattern(5_000_000, 3), false);
    assert!(pair.run_until(MINUTE, |pair| pair.hosts[1].received.len() > 2_000_000));
    let ((size, _), (window, _)) = (sizes(&mut pair, 0), pair.hosts[0].connection().congestion());
    assert!(size > window && size > 4 * INITIAL, "{size} for a window of {window}");
    assert!(pair.run_until(MINUTE, |pair| pair.hosts[0].connection().buffered() == 0));
    assert_eq!(sizes(&mut pair, 0).0, INITIAL);
    let grown = sizes(&mut pair, 1).1 - INITIAL;
    assert_eq!(config.budget.taken(), grown, "the receive buffer of the other side is left");
    drop(pair);
    assert_eq!(config.budget.taken(), 0);
}

#[test]
fn connections_share_a_budget_and_work_without_it() {
    let budget = Arc::new(BufferBudget::new(300_000));
    let config = TcpConfig { budget: Arc::clone(&budget), ..TcpConfig::default() };
    let mut pairs: Vec<_> = (0..4).map(|_| pair_with(&link(100, 20), &config)).collect();
    for pair in &mut pairs {
        pair.hosts[0].send(pattern(1_000_000, 9), true);
        pair.run_for(Duration::from_millis(500));
        assert!(budget.taken() <= 300_000);
    }
    assert!(budget.taken() > 200_000, "it is used up");
    for pair in &mut pairs {
        assert!(pair.run_until(MINUTE, |pair| pair.hosts[1].has_ended));
        assert_eq!(pair.hosts[1].received.len(), 1_000_000);
    }
    drop(pairs);
    assert_eq!(budget.taken(), 0);
}

#[test]
fn repeated_data_and_holes_let_no_buffer_grow() {
    let config = TcpConfig { buffers_initial: 50_000, ..TcpConfig::default() };
    let mut peer = Peer::opens(&config, offer());
    peer.send_data(1000);
    for round in 0..1000 {
        peer.now += Duration::from_millis(20);
        peer.send(peer.segment().seq(1).len(1000));
        peer.send(peer.segment().seq(peer.nxt + 1000).len(1000 + round));
        peer.read();
        peer.sent();
    }
    assert_eq!((peer.connection.buffer_sizes().1, config.budget.taken()), (50_000, 0));
}
