//! One side is suspended: it does nothing while its clock, the network and the other side continue;
//! then it resumes.

use quic::{ConnectionError, Event, Side};
use units::{Duration, Instant};

use super::flow::Flow;
use crate::support::{CLIENT, Node, Pair, SERVER, Setup};

const IDLE: Duration = Duration::from_secs(30);

/// Datagrams that the resuming side may send at once.
const BURST_MAX: u64 = 120;

fn node(pair: &mut Pair, side: Side) -> &mut Node {
    match side {
        Side::Client => &mut pair.client,
        Side::Server => &mut pair.server,
    }
}

/// Runs everything except `frozen` for `span`. Datagrams sent to it wait on the link, as they would
/// in a socket. Returns when the other side's connection ended, if it did.
fn run_without(pair: &mut Pair, frozen: Side, span: Duration) -> Option<Instant> {
    let until = pair.now + span;
    let awake = if frozen == Side::Client { Side::Server } else { Side::Client };
    let (towards_awake, away) = if awake == Side::Server { (0, 1) } else { (1, 0) };
    let source = if awake == Side::Server { CLIENT } else { SERVER };
    let mut ended_at = None;
    loop {
        let now = pair.now;
        node(pair, awake).flush(now);
        for (_, datagram) in std::mem::take(&mut node(pair, awake).outbox) {
            pair.links[away].send(now, datagram);
        }
        if node(pair, awake).connections[0].is_none() {
            ended_at.get_or_insert(now);
        }
        let due = [pair.links[towards_awake].poll_timeout(), node(pair, awake).timeout()].into_iter().flatten().min();
        let Some(next) = due.filter(|due| *due <= until) else { break };
        pair.now = now.max(next);
        let now = pair.now;
        while let Some(datagram) = pair.links[towards_awake].poll_deliver(now) {
            node(pair, awake).receive(now, &datagram, source);
        }
        node(pair, awake).handle_timeouts(now);
    }
    pair.now = until;
    ended_at
}

/// A transfer from the client that is in progress.
fn under_way(seed: u64) -> (Pair, Flow) {
    let mut pair = Setup::new(seed).build();
    pair.connect();
    let mut flow = Flow::open(&mut pair.client, 0, 6_000_000);
    let begun = pair.run_until(Duration::from_secs(20), |pair| go_on(pair, &mut flow) > 2_000_000 + seed * 100_000);
    assert!(begun);
    (pair, flow)
}

/// Both applications read and write; returns the bytes read.
fn go_on(pair: &mut Pair, flow: &mut Flow) -> u64 {
    flow.write(&mut pair.client, 0);
    flow.read(pair.now, &mut pair.server, 0);
    flow.reader.read
}

#[test]
fn a_side_suspended_for_less_than_the_idle_timeout_continues() {
    for seed in 0..3 {
        for side in [Side::Client, Side::Server] {
            for seconds in [1, 10, 25] {
                let (mut pair, mut flow) = under_way(seed);
                let span = Duration::from_secs(seconds);
                let before = pair.client.connection(0).stats().send.probe_timeouts;
                assert_eq!(run_without(&mut pair, side, span), None, "{side:?} was suspended for {span}");
                let direction = usize::from(side == Side::Server);
                let offered = pair.link_stats()[direction].offered;
                let woken = pair.now;
                while pair.step(woken) {}
                let burst = pair.link_stats()[direction].offered - offered;
                assert!(burst <= BURST_MAX, "{side:?} sent {burst} datagrams when it resumed after {span}");
                let done = pair.run_until(Duration::from_secs(60), |pair| {
                    go_on(pair, &mut flow);
                    flow.is_done()
                });
                let took = pair.now - woken;
                assert!(done && took < Duration::from_secs(10), "seed {seed}: {side:?} suspended for {span}: {took}");
                // The other side has detected the silence.
                let probes = pair.client.connection(0).stats().send.probe_timeouts - before;
                assert!(probes > 0 || side == Side::Client, "seed {seed}: {span} of silence without a probe");
            }
        }
    }
}

#[test]
fn a_side_suspended_for_longer_times_out_on_both_sides() {
    for seed in 0..3 {
        for side in [Side::Client, Side::Server] {
            for seconds in [35, 120, 7_200] {
                let (mut pair, _) = under_way(seed);
                let (asleep, span) = (pair.now, Duration::from_secs(seconds));
                let given_up = run_without(&mut pair, side, span).expect("the other side timed out") - asleep;
                let least = IDLE.saturating_sub(Duration::from_millis(100));
                assert!((least..IDLE + Duration::from_secs(3)).contains(&given_up), "timed out after {given_up}");
                let woken = pair.now;
                let ended = pair.run_until(span * 8 + IDLE * 2, |pair| {
                    let ended = node(pair, side).connections[0].is_none();
                    assert!(node(pair, side).events[0].iter().all(|event| !matches!(event, Event::Closed(_))) || ended);
                    ended
                });
                assert!(
                    ended,
                    "seed {seed}: {side:?} was suspended for {span} and has not ended {} later",
                    pair.now - woken
                );
                let last = node(&mut pair, side).events[0].back().cloned();
                assert_eq!(last, Some(Event::Closed(ConnectionError::TimedOut)), "seed {seed}");
            }
        }
    }
}

/// Datagrams in a socket buffer were sent long ago, and both sides know from their clocks that the
/// connection is over (RFC 9000, section 10.1). A side that resumes and reads them first must not
/// restart its idle timer: it would wait for a whole idle timeout for a peer that is gone.
#[test]
fn a_side_suspended_for_too_long_times_out_at_once() {
    for side in [Side::Client, Side::Server] {
        let (mut pair, _) = under_way(1);
        run_without(&mut pair, side, Duration::from_secs(35)).expect("the other side timed out");
        let woken = pair.now;
        let ended = pair.run_until(Duration::from_secs(300), |pair| node(pair, side).connections[0].is_none());
        let took = pair.now - woken;
        assert!(ended && took < Duration::from_secs(5), "{side:?} resumed, and timed out {took} later");
    }
}
