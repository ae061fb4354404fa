//! Random operations on a pair, by seed: each seed turns some faults and operations off and others far
//! up. After every operation the bytes read so far must be correct, and a connection with something to
//! send must have a timer; at the end the links recover, and everything must arrive. Every fourth pair is
//! recorded, and its journals must replay.
//!
//! `LITZ_TEST_SHARE=100` runs all seeds, as `make test-long` does. `LITZ_SEEDS=5000 cargo test
//! --release -p litz-tcp --test all random_operations` runs that many; `LITZ_SEED_FROM` sets the
//! first. A failure prints the seed and its whole configuration.

use journal::memory::MemoryJournals;
use netem::{LineState, LinkConfig};
use recovery::Algorithm;
use tcp::{
    AckPolicy, AckThreshold, AckTimer, CloseReason, KeepAlive, LossRecovery, Nagle, RtoFormula, State, TcpConfig,
};
use units::{Duration, Ratio, Rng};

use crate::support::journals::replay_all;
use crate::support::{Host, Pair, link};

/// Total number of seeds.
const SEEDS: u64 = 2000;

/// Percentage of the seeds that are run by default.
const SHARE: u64 = 15;

/// Time limit for a pair to come to rest after its links have recovered. A timeout may have been
/// doubled to a minute, a few times in a row.
const LIVENESS: Duration = Duration::from_secs(1200);

fn number_from(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Returns a number of random magnitude below `2^bits`.
fn magnitude(rng: &mut Rng, bits: u64) -> u64 {
    let bits = rng.below(bits + 1);
    rng.below(1 << bits)
}

/// Returns zero in half of the cases: a fault that does not happen.
fn share(rng: &mut Rng, per_mille: u64) -> Ratio {
    Ratio::new(if rng.below(2) == 0 { 0 } else { rng.below(per_mille) }, 1000)
}

fn links(rng: &mut Rng) -> [LinkConfig; 2] {
    [(); 2].map(|()| LinkConfig {
        loss: share(rng, 250),
        reorder: share(rng, 300),
        reorder_by: Duration::from_millis(rng.between(1, 60)),
        duplicate: share(rng, 200),
        corrupt: share(rng, 100),
        ..link(rng.between(1, 200), rng.between(1, 100))
    })
}

fn config(rng: &mut Rng) -> TcpConfig {
    let threshold = match rng.below(5) {
        1 => AckThreshold::Read,
        0 => AckThreshold::BufferPercent(rng.below(101) as u32),
        _ => AckThreshold::Segments(rng.below(9) as u32),
    };
    TcpConfig {
        congestion: [Some(Algorithm::NewReno), Some(Algorithm::Cubic), Some(Algorithm::Bbr), None]
            [rng.below(4) as usize],
        mtu: [68, 576, 1280, 1500, 9000][rng.below(5) as usize],
        send_buffer: 1000 + magnitude(rng, 19) as usize,
        receive_buffer: 500 + magnitude(rng, 19) as usize,
        timestamps: rng.below(3) > 0,
        sack: rng.below(3) > 0,
        window_scaling: rng.below(3) > 0,
        ecn: rng.below(2) > 0,
        accurate_ecn: rng.below(2) > 0,
        nagle: [Nagle::Off, Nagle::Rfc896, Nagle::Minshall][rng.below(3) as usize],
        recovery: [LossRecovery::Selective, LossRecovery::Selective, LossRecovery::GoBackN][rng.below(3) as usize],
        rto_formula: match rng.below(3) {
            0 => RtoFormula::Rfc793 {
                alpha_percent: rng.between(50, 90) as u32,
                beta_percent: rng.between(130, 300) as u32,
            },
            _ => RtoFormula::Rfc6298,
        },
        acks: AckPolicy {
            threshold,
            delay_max: Duration::from_millis(magnitude(rng, 9)),
            timer: [AckTimer::FromSegment, AckTimer::Periodic][rng.below(2) as usize],
        },
        // Longer than a doubled timeout, after which the last FIN may come.
        time_wait: Duration::from_secs(rng.between(130, 200)),
        keep_alive: (rng.below(3) == 0).then(|| KeepAlive {
            after: Duration::from_secs(rng.between(1, 20)),
            interval: Duration::from_secs(rng.between(5, 20)),
            probes_max: 30,
        }),
        ..TcpConfig::default()
    }
}

/// Operations, with the weights that this seed gives them.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Write,
    Read,
    Wait,
    Cut,
    Nagle,
    Finish,
    Abort,
    Detach,
}

struct Run {
    pair: Pair,
    links: [LinkConfig; 2],
    rng: Rng,
    written: [Vec<u8>; 2],
    finished: [bool; 2],
    /// Whether the application has gone, or has reset the connection.
    left: [bool; 2],
    text: String,
    journals: Option<MemoryJournals>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed);
        let (links, mut configs) = (links(&mut rng), [config(&mut rng), config(&mut rng)]);
        let journals = seed.is_multiple_of(4).then(MemoryJournals::default);
        configs.iter_mut().for_each(|config| config.journal = journals.as_ref().map(MemoryJournals::source));
        let opens_both = rng.below(3) == 0;
        let text = format!("seed {seed}, both open: {opens_both}, {links:?}, {configs:?}");
        let mut pair = Pair::with(seed, links.clone(), configs);
        pair.hosts.iter_mut().for_each(|host| host.split.is_wanted = rng.below(2) > 0);
        if opens_both {
            pair.open_both()
        } else {
            pair.open()
        }
        Self { pair, links, rng, written: Default::default(), finished: [false; 2], left: [false; 2], text, journals }
    }

    fn go(mut self) {
        let mut weights = [0; 8];
        for (index, weight) in weights.iter_mut().enumerate() {
            // Operations that end a connection are rare.
            *weight = match index {
                0..=2 => self.rng.between(1, 20),
                3 | 4 => self.rng.below(4),
                _ => u64::from(self.rng.below(4) == 0),
            };
        }
        let steps = 10 + self.rng.below(150);
        for _ in 0..steps {
            let operation = self.choose(&weights);
            self.perform(operation);
            self.check();
        }
        self.heal();
    }

    fn choose(&mut self, weights: &[u64; 8]) -> Operation {
        use Operation::{Abort, Cut, Detach, Finish, Nagle, Read, Wait, Write};
        let mut at = self.rng.below(weights.iter().sum());
        for (operation, weight) in [Write, Read, Wait, Cut, Nagle, Finish, Abort, Detach].into_iter().zip(weights) {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return operation,
            }
        }
        unreachable!()
    }

    fn perform(&mut self, operation: Operation) {
        let side = self.rng.below(2) as usize;
        let span = Duration::from_micros(magnitude(&mut self.rng, 22));
        match operation {
            Operation::Write if !self.finished[side] && !self.left[side] => {
                let mut bytes = vec![0; magnitude(&mut self.rng, 16) as usize];
                self.rng.fill(&mut bytes);
                self.written[side].extend_from_slice(&bytes);
                self.pair.hosts[side].send(bytes, false);
            }
            Operation::Read if !self.left[side] => self.pair.hosts[side].reads ^= true,
            Operation::Cut => {
                let link = self.rng.below(2) as usize;
                let (config, now) = (self.links[link].clone(), self.pair.now);
                self.pair.links[link].set_config(now, LinkConfig { state: LineState::Silent, ..config.clone() });
                self.pair.run_for(span);
                let now = self.pair.now;
                self.pair.links[link].set_config(now, config);
            }
            Operation::Nagle => {
                let nagle = self.rng.below(2) == 0;
                if let Some(connection) = &mut self.pair.hosts[side].connection {
                    connection.set_nagle(nagle);
                }
            }
            Operation::Finish if !self.left[side] => {
                self.pair.hosts[side].send(Vec::new(), true);
                self.finished[side] = true;
            }
            Operation::Abort | Operation::Detach if !self.left[side] => {
                let now = self.pair.now;
                let host = &mut self.pair.hosts[side];
                if let Some(connection) = &mut host.connection {
                    host.split.release(now, connection);
                    if matches!(operation, Operation::Abort) {
                        connection.abort()
                    } else {
                        connection.orphan()
                    }
                    host.leave();
                    self.left[side] = true;
                }
            }
            _ => self.pair.run_for(span),
        }
        self.pair.run_for(Duration::ZERO);
    }

    /// Checks the invariants.
    fn check(&mut self) {
        for side in 0..2 {
            let received = &self.pair.hosts[side].received;
            assert!(self.written[1 - side].starts_with(received), "{side} got other bytes\n{}", self.text);
            let Some(connection) = &self.pair.hosts[side].connection else { continue };
            let must_go_on = match connection.state() {
                State::Closed => false,
                State::Established | State::CloseWait => connection.buffered() > 0,
                State::FinWait2 => self.left[side],
                _ => true,
            };
            let is_idle = must_go_on && connection.poll_timeout().is_none();
            assert!(!is_idle, "{side} has no timer: {connection:#?}\n{}", self.text);
            assert!(connection.readable() <= self.pair.hosts[side].config.receive_buffer, "{}", self.text);
            assert!(connection.buffered() <= self.pair.hosts[side].config.send_buffer, "{}", self.text);
        }
    }

    /// Lets the links recover, and the applications read everything and finish.
    fn heal(mut self) {
        self.pair.refused = Ratio::ZERO;
        for (link, config) in self.pair.links.iter_mut().zip(&self.links) {
            let none = Ratio::new(0, 1);
            let config = LinkConfig { loss: none, reorder: none, duplicate: none, corrupt: none, ..config.clone() };
            link.set_config(self.pair.now, config);
        }
        for side in 0..2 {
            if !self.left[side] {
                self.pair.hosts[side].reads = true;
                self.pair.hosts[side].send(Vec::new(), true);
            }
        }
        let is_over = |host: &Host| host.state().is_none_or(|state| matches!(state, State::Closed | State::TimeWait));
        let has_left = self.left.contains(&true);
        let done = self.pair.run_until(LIVENESS, |pair| {
            pair.hosts.iter().all(|host| is_over(host) || (has_left && host.state() == Some(State::FinWait2)))
        });
        // Reads the data that arrived last.
        self.pair.run_for(Duration::ZERO);
        self.check();
        let states = self.pair.hosts.each_ref().map(Host::state);
        assert!(
            done,
            "no end: {states:?}\n{:#?}\n{}",
            self.pair.hosts.each_ref().map(|host| &host.connection),
            self.text
        );
        let reasons = self.pair.hosts.each_ref().map(|host| host.connection.as_ref()?.close_reason());
        if has_left {
            return;
        }
        if self.pair.hosts.iter().any(|host| !host.has_connected()) {
            // Too many SYNs were lost.
            assert!(reasons.contains(&Some(CloseReason::TimedOut)), "{reasons:?}\n{}", self.text);
            return;
        }
        for side in 0..2 {
            let host = &self.pair.hosts[side];
            assert_eq!(reasons[side], Some(CloseReason::Finished), "{side} of {reasons:?} {states:?}\n{}", self.text);
            assert!(host.has_ended && host.received == self.written[1 - side], "{side} lacks bytes\n{}", self.text);
        }
    }
}

#[test]
fn every_byte_arrives_in_order_and_once_or_the_connection_reports_why_not() {
    let from = number_from("LITZ_SEED_FROM", 0);
    let count = number_from("LITZ_SEEDS", SEEDS * number_from("LITZ_TEST_SHARE", SHARE) / 100);
    for seed in from..from + count {
        let run = Run::new(seed);
        let (text, journals) = (run.text.clone(), run.journals.clone());
        let go = || {
            run.go();
            if let Some(journals) = journals {
                replay_all(&journals);
            }
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(go));
        assert!(result.is_ok(), "{text}");
    }
}
