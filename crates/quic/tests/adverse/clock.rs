//! The clock jumps forward between any two calls: a virtual machine migrated, or a laptop was
//! suspended while its clock ran. Time never goes backwards; the driver guarantees that.

use quic::{ConnectionError, Event};
use recovery::RateCap;
use units::{Duration, Rate, Rng};

use super::flow::Flow;
use crate::support::{CLIENT, Node, Pair, SERVER, Setup};

const IDLE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

/// Datagrams that one side may send at once after a jump: two pacing batches on this link, the
/// probes, and acknowledgements.
const BURST_MAX: u64 = 120;

/// The first action of the driver after a jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Timers,
    Datagrams,
    Sending,
}

const FIRST_CHOICES: [First; 3] = [First::Timers, First::Datagrams, First::Sending];

/// A transfer in each direction.
struct Both {
    pair: Pair,
    flows: [Flow; 2],
}

impl Both {
    fn new(setup: Setup, total: u64) -> Self {
        let mut pair = setup.build();
        pair.connect();
        let flows = [Flow::open(&mut pair.client, 0, total), Flow::open(&mut pair.server, 0, total)];
        Self { pair, flows }
    }

    fn nodes(&mut self) -> [&mut Node; 2] {
        [&mut self.pair.client, &mut self.pair.server]
    }

    /// The applications of live connections read and write.
    fn pump(&mut self) {
        let now = self.pair.now;
        for (side, node) in [&mut self.pair.client, &mut self.pair.server].into_iter().enumerate() {
            self.flows[side].write(node, 0);
            self.flows[1 - side].read(now, node, 0);
        }
    }

    fn is_done(&self) -> bool {
        self.flows.iter().all(Flow::is_done)
    }

    /// Runs to the next event, for at most `limit`.
    fn step(&mut self, limit: Duration) {
        self.pump();
        let limit = self.pair.now + limit;
        self.pair.step(limit);
    }

    /// Advances the clock. Returns how many datagrams each side sent at the moment after the jump.
    fn jump(&mut self, span: Duration, first: First) -> [u64; 2] {
        let before = self.pair.link_stats().map(|stats| stats.offered);
        self.pair.now += span;
        let now = self.pair.now;
        match first {
            First::Timers => {
                self.pair.client.handle_timeouts(now);
                self.pair.server.handle_timeouts(now);
            }
            First::Datagrams => deliver_all(&mut self.pair),
            First::Sending => self.pair.flush(),
        }
        while self.pair.step(now) {
            self.pump();
        }
        let after = self.pair.link_stats().map(|stats| stats.offered);
        [after[0] - before[0], after[1] - before[1]]
    }
}

/// Delivers everything in flight.
fn deliver_all(pair: &mut Pair) {
    while let Some(datagram) = pair.links[0].poll_deliver(pair.now) {
        pair.server.receive(pair.now, &datagram, CLIENT);
    }
    while let Some(datagram) = pair.links[1].poll_deliver(pair.now) {
        pair.client.receive(pair.now, &datagram, SERVER);
    }
}

#[test]
fn clock_jumps_shorter_than_the_idle_timeout_lose_no_data() {
    let mut jumps_made = 0;
    for seed in 0..24 {
        let mut rng = Rng::from_seed(seed).split("jumps");
        let setup = Setup::new(seed).with_loss(seed % 3).with_config(|config| config.key_update_interval = 700);
        let mut both = Both::new(setup, 2_000_000);
        let mut steps_left = rng.between(1, 300);
        while !both.is_done() {
            both.step(Duration::from_secs(60));
            let idle = both.pair.now.since_start() > Duration::from_secs(600);
            assert!(!idle, "seed {seed}: {} and {} bytes", both.flows[0].reader.read, both.flows[1].reader.read);
            steps_left -= 1;
            if steps_left == 0 {
                // Far enough apart that packets arrive in between.
                steps_left = rng.between(200, 1_000);
                let span = Duration::from_millis(rng.between(1, 20_000));
                let first = FIRST_CHOICES[rng.below(3) as usize];
                let sent = both.jump(span, first);
                jumps_made += 1;
                let storm = sent.iter().any(|count| *count > BURST_MAX);
                assert!(!storm, "seed {seed}: {sent:?} datagrams at once after {span}, {first:?} first");
            }
        }
        let sum = both.pair.link_stats().iter().map(|stats| stats.lost).sum::<u64>();
        assert!(sum > 0 || seed % 3 == 0, "seed {seed}: the link lost nothing");
    }
    assert!(jumps_made > 100, "{jumps_made} jumps");
}

/// The number of timeout events; checks that no other event ended the connection.
fn timed_out(both: &mut Both, side: usize) -> usize {
    let nodes = both.nodes();
    let ends = nodes[side].events[0].iter().filter(|event| matches!(event, Event::Closed(_)));
    let count = ends.clone().count();
    let silent = ends.filter(|event| **event == Event::Closed(ConnectionError::TimedOut)).count();
    assert_eq!(count, silent, "only the idle timeout ended it");
    silent
}

/// RFC 9000, section 10.1: a connection that was idle for longer than its timeout is closed
/// silently and its state discarded.
#[test]
fn clock_jumps_of_hours_and_a_century_time_out_both_sides_once() {
    let century = HOUR * 24 * 36_525;
    for seed in 0..30 {
        let mut rng = Rng::from_seed(seed).split("jumps");
        let mut setup = Setup::new(seed);
        setup.client.keep_alive = (seed % 2 == 0).then_some(Duration::from_secs(10));
        let mut both = Both::new(setup, 3_000_000);
        for _ in 0..rng.between(1, 2_000) {
            both.step(Duration::from_secs(1));
        }
        assert!(!both.is_done(), "seed {seed}: a transfer was in progress");
        let span = if seed % 5 == 0 { century } else { HOUR * rng.between(1, 10) };
        let sent = both.jump(span, First::Timers);
        assert_eq!(sent, [0, 0], "seed {seed}: a connection that timed out sends nothing more");
        both.pair.run_for(IDLE * 4);
        assert_eq!([timed_out(&mut both, 0), timed_out(&mut both, 1)], [1, 1], "seed {seed} after {span}");
        let Both { pair, .. } = &both;
        assert!(pair.client.connections[0].is_none() && pair.server.connections[0].is_none(), "seed {seed}");
        assert_eq!([pair.client.endpoint.route_count(), pair.server.endpoint.route_count()], [0, 0], "seed {seed}");
    }
}

/// A driver that reads its sockets before its timers run finds datagrams that arrived hours ago.
/// They must not restart the idle timer (RFC 9000, section 10.1). The connection must not stay half
/// open, and must not send a burst.
#[test]
fn datagrams_found_after_a_jump_of_hours_do_not_prevent_the_idle_timeout() {
    for seed in 0..30 {
        let mut rng = Rng::from_seed(seed).split("jumps");
        let mut both = Both::new(Setup::new(seed), 3_000_000);
        for _ in 0..rng.between(1, 2_000) {
            both.step(Duration::from_secs(1));
        }
        let span = HOUR * rng.between(1, 10);
        let sent = both.jump(span, if seed % 2 == 0 { First::Datagrams } else { First::Sending });
        assert!(sent.iter().all(|count| *count <= BURST_MAX), "seed {seed}: {sent:?} datagrams at once");
        // A round trip of hours was measured, so probes may be as rare.
        let limit = both.pair.now + HOUR * 400;
        while !both.is_done() && both.pair.now < limit && both.pair.client.connections[0].is_some() {
            both.step(HOUR * 400);
        }
        let ended = [timed_out(&mut both, 0), timed_out(&mut both, 1)];
        assert!(!both.is_done() && ended[0] + ended[1] > 0, "seed {seed}: not ended after {span}");
    }
}

#[test]
fn hours_of_idleness_allow_no_burst() {
    let never_idle = |setup: Setup| setup.with_config(|config| config.idle_timeout = Duration::ZERO);
    let mut rested = Both::new(never_idle(Setup::new(1)), 5_000_000);
    rested.pair.run_for(HOUR * 5);
    let begun = rested.pair.now;
    rested.pair.record = Some(Vec::new());
    rested.pump();
    rested.pair.run_for(Duration::from_secs(2));
    let record = rested.pair.record.take().expect("the limit was set");
    let at_once = record.iter().filter(|(at, direction, _)| *at == begun && *direction == 0).count() as u64;
    assert!((1..=BURST_MAX).contains(&at_once), "{at_once} datagrams at once after five idle hours");

    // A configured rate limit holds over any interval.
    let cap = RateCap { rate: Rate::from_mbps(10), burst: 20_000 };
    let mut capped = Both::new(never_idle(Setup::new(2)).with_config(|config| config.rate_cap = Some(cap)), 5_000_000);
    capped.pair.run_for(HOUR * 5);
    let begun = capped.pair.now;
    let before = capped.pair.link_stats()[0].offered_bytes;
    for _ in 0..1_000 {
        capped.step(Duration::from_secs(1));
        let span = capped.pair.now - begun;
        let sent = capped.pair.link_stats()[0].offered_bytes - before;
        assert!(sent <= cap.rate.bytes_in(span) + cap.burst, "{sent} bytes in {span} after five idle hours");
    }
    assert!(capped.pair.now > begun && capped.pair.link_stats()[0].offered_bytes > before + 50_000);
}

#[test]
fn missed_keep_alives_are_not_sent_later() {
    let setup = Setup::new(3).with_config(|config| {
        config.idle_timeout = Duration::ZERO;
        config.keep_alive = Some(Duration::from_secs(10));
    });
    let mut pair = setup.build();
    pair.connect();
    pair.run_for(Duration::from_secs(60));
    let before = pair.link_stats().map(|stats| stats.offered);
    pair.now += HOUR * 10;
    pair.run_for(Duration::from_secs(9));
    let after = pair.link_stats().map(|stats| stats.offered);
    // A PING in each direction and its acknowledgement, of 3600 that were missed.
    for direction in 0..2 {
        let sent = after[direction] - before[direction];
        assert!((1..=4).contains(&sent), "{sent} datagrams in nine seconds");
    }
}
