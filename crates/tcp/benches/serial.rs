//! Nanoseconds of the serial step of TCP: what must be done in order for each arrival and each plan.
//! Sealing, checksums and copies are not in it: any processor can do them.
//!
//! `cargo bench -p litz-tcp --bench serial`
#![expect(clippy::print_stdout, reason = "a benchmark reports")]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a benchmark reads the clock")]

use std::time::Instant as Clock;

use bytes::Bytes;
use tcp::{Arrival, Connection, Plan, Read, SuperPacket, TcpConfig, Tuple};
use units::{Duration, Instant, Seq32};

const ROUNDS: usize = 300_000;
const RUNS: usize = 7;

/// The steps that are timed.
const STEPS: [&str; 4] = ["plan of data", "arrival of data", "plan of an acknowledgement", "its arrival"];

struct Pair {
    now: Instant,
    sender: Connection,
    receiver: Connection,
    plan: Plan,
    packet: SuperPacket,
    ns: [u64; 4],
}

/// Carries a plan to the other side as a device with offloads does.
fn carry(plan: &Plan, packet: &mut SuperPacket) -> Arrival {
    plan.seal(packet);
    let segment = (!packet.is_single()).then_some(packet.segment);
    Arrival::open(&Bytes::copy_from_slice(&packet.bytes), segment, true).expect("a valid segment")
}

impl Pair {
    fn connected() -> Self {
        let tuple = Tuple { local: ([10, 0, 0, 1], 1000).into(), remote: ([10, 0, 0, 2], 80).into() };
        let config = TcpConfig { nagle: tcp::Nagle::Off, ..TcpConfig::default() };
        let (mut now, mut plan, mut packet) = (Instant::ZERO, Plan::default(), SuperPacket::default());
        let mut sender = Connection::connect(now, config.clone(), tuple, Seq32::new(1), 1);
        assert!(sender.poll_plan(now, 1, &mut plan));
        let syn = carry(&plan, &mut packet);
        let mut receiver = Connection::accept(now, config, &syn, Seq32::new(2), 2);
        for _ in 0..4 {
            now += Duration::from_micros(20);
            while receiver.poll_plan(now, 64, &mut plan) {
                sender.handle_segment(now, carry(&plan, &mut packet));
            }
            while sender.poll_plan(now, 64, &mut plan) {
                receiver.handle_segment(now, carry(&plan, &mut packet));
            }
        }
        Self { now, sender, receiver, plan, packet, ns: [0; 4] }
    }

    /// Sends `len` bytes, which are acknowledged and read.
    fn round(&mut self, chunk: &Bytes, cost: u64) {
        let timed = |ns: &mut u64, from: Clock| *ns += (from.elapsed().as_nanos() as u64).saturating_sub(cost);
        self.now += Duration::from_micros(20);
        self.sender.write(&mut chunk.clone()).expect("there is space");
        loop {
            let start = Clock::now();
            let has_plan = self.sender.poll_plan(self.now, 64, &mut self.plan);
            timed(&mut self.ns[0], start);
            if !has_plan {
                break;
            }
            let arrival = carry(&self.plan, &mut self.packet);
            let start = Clock::now();
            self.receiver.handle_segment(self.now, arrival);
            while let Read::Bytes(_) = self.receiver.read(usize::MAX) {}
            while self.receiver.poll_event().is_some() {}
            timed(&mut self.ns[1], start);
        }
        self.now += Duration::from_micros(20);
        loop {
            let start = Clock::now();
            let has_plan = self.receiver.poll_plan(self.now, 64, &mut self.plan);
            timed(&mut self.ns[2], start);
            if !has_plan {
                break;
            }
            let arrival = carry(&self.plan, &mut self.packet);
            let start = Clock::now();
            self.sender.handle_segment(self.now, arrival);
            while self.sender.poll_event().is_some() {}
            timed(&mut self.ns[3], start);
        }
        let due = |connection: &Connection, now| connection.poll_timeout().is_some_and(|at| at <= now);
        if due(&self.receiver, self.now) {
            self.receiver.handle_timeout(self.now);
        }
        if due(&self.sender, self.now) {
            self.sender.handle_timeout(self.now);
        }
    }
}

fn measure(name: &str, len: usize, segments_a_round: usize) {
    let chunk = Bytes::from(vec![7; len]);
    let cost = clock_cost();
    let mut best = [u64::MAX; 4];
    for _ in 0..RUNS {
        let mut pair = Pair::connected();
        (0..1000).for_each(|_| pair.round(&chunk, cost));
        pair.ns = [0; 4];
        (0..ROUNDS / segments_a_round).for_each(|_| pair.round(&chunk, cost));
        for (best, ns) in best.iter_mut().zip(pair.ns) {
            *best = (*best).min(ns);
        }
    }
    println!("{name}: nanoseconds, the least of {RUNS} runs, clock readings ({cost} ns) taken off");
    for (step, ns) in STEPS.iter().zip(best) {
        println!("  {step}: {:.0}", ns as f64 / (ROUNDS / segments_a_round) as f64);
    }
}

/// Nanoseconds between two readings of the clock.
fn clock_cost() -> u64 {
    (0..10_000).map(|_| Clock::now().elapsed().as_nanos() as u64).min().unwrap_or(0)
}

fn main() {
    measure("a lone segment of 1448 bytes", 1448, 1);
    measure("a super-segment of 63,712 bytes", 44 * 1448, 4);
}
