//! The cost of timers for each turn in nanoseconds: the wheel compared with a sorted set, in the
//! patterns of real connections.
//!
//! A turn is the driver's use of timers: it replaces the deadline of a connection, removes due
//! deadlines, and reads the next one. `cargo bench -p litz-driver --bench timers` measures. `cargo
//! test -p litz-driver --benches` only runs each case briefly.
#![expect(clippy::print_stdout, reason = "the table is the result")]

use driver::timers::Timers;
use net::MonotonicClock;
use units::{Duration, Instant, Rng};

#[path = "../src/timers/tests/oracle.rs"]
mod oracle;

use oracle::Sorted;

/// The time between two visits of a busy connection.
const BUSY: Duration = Duration::from_micros(50);

/// The time until the deadline of an idle connection.
const IDLE: Duration = Duration::from_secs(30);

/// The number of runs of each arm and case, in turn with the others. The fastest run counts.
const RUNS: usize = 7;

trait Deadlines {
    fn replace(&mut self, key: u32, old: Option<Instant>, new: Option<Instant>);
    fn next(&self) -> Option<Instant>;
    fn pop_due(&mut self, now: Instant) -> Option<u32>;
}

macro_rules! deadlines {
    ($($name:ty),*) => {$(
        impl Deadlines for $name {
            fn replace(&mut self, key: u32, old: Option<Instant>, new: Option<Instant>) {
                self.replace(key, old, new);
            }
            fn next(&self) -> Option<Instant> {
                self.next()
            }
            fn pop_due(&mut self, now: Instant) -> Option<u32> {
                self.pop_due(now)
            }
        }
    )*};
}

deadlines!(Sorted<u32>, Timers);

/// The behaviour of the connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern {
    /// The first is busy and moves its deadline before it comes. The others are idle.
    OneBusy,
    /// All are busy in turn, and move their deadlines before they come.
    AllBusy,
    /// All are busy, and their deadlines come, as with pacing.
    AllPaced,
    /// All are idle. From time to time one receives a packet.
    AllIdle,
}

const PATTERNS: [(Pattern, &str); 4] = [
    (Pattern::OneBusy, "one busy, the rest idle"),
    (Pattern::AllBusy, "all busy, moved in time"),
    (Pattern::AllPaced, "all paced, each fires"),
    (Pattern::AllIdle, "all idle, one receives"),
];

impl Pattern {
    /// The time until the deadlines of `key`.
    fn ahead(self, key: u32) -> Duration {
        match self {
            Self::OneBusy if key == 0 => BUSY * 2,
            // Visits are random, so only connections that wait sixteen times as long as the average
            // fire.
            Self::AllBusy => BUSY * 16,
            Self::AllPaced => BUSY,
            Self::OneBusy | Self::AllIdle => IDLE,
        }
    }

    /// The time between two visits.
    fn step(self, keys: u32) -> Duration {
        match self {
            Self::OneBusy => BUSY,
            Self::AllBusy | Self::AllPaced => Duration::from_nanos(BUSY.as_nanos() / u64::from(keys)),
            Self::AllIdle => Duration::from_nanos(IDLE.as_nanos() / 16 / u64::from(keys)),
        }
    }

    /// The connection that is visited. `None`: those whose deadline has come.
    fn visited(self, rng: &mut Rng, keys: u32) -> Option<u32> {
        match self {
            Self::OneBusy => Some(0),
            Self::AllBusy | Self::AllIdle => Some(rng.below(u64::from(keys)) as u32),
            Self::AllPaced => None,
        }
    }
}

/// The timers of a driver's connections.
struct Driver<D> {
    deadlines: D,
    pattern: Pattern,
    remembered: Vec<Option<Instant>>,
    rng: Rng,
    now: Instant,
    /// The number of fired deadlines, which is the same for both arms.
    fired: u64,
}

impl<D: Deadlines> Driver<D> {
    fn new(deadlines: D, pattern: Pattern, keys: u32) -> Self {
        let remembered = vec![None; keys as usize];
        let mut driver = Self { deadlines, pattern, remembered, rng: Rng::from_seed(3), now: Instant::ZERO, fired: 0 };
        for key in 0..keys {
            let share = pattern.ahead(key).mul_ratio(u64::from(key) + 1, u64::from(keys));
            driver.set(key, driver.now + share);
        }
        driver
    }

    fn set(&mut self, key: u32, at: Instant) {
        let old = self.remembered[key as usize].replace(at);
        self.deadlines.replace(key, old, Some(at));
    }

    /// A turn with one visit. This is the worst case: in reality many visits share a turn.
    fn turn(&mut self) {
        let keys = self.remembered.len() as u32;
        self.now += self.pattern.step(keys);
        if let Some(key) = self.pattern.visited(&mut self.rng, keys) {
            self.set(key, self.now + self.pattern.ahead(key));
        }
        while let Some(key) = self.deadlines.pop_due(self.now) {
            self.remembered[key as usize] = None;
            self.fired += 1;
            self.set(key, self.now + self.pattern.ahead(key));
        }
        assert!(self.deadlines.next().is_some_and(|next| next > self.now), "sleeping would spin");
    }
}

/// The cost of a turn in nanoseconds, and the number of fired deadlines.
fn measure(clock: &MonotonicClock, deadlines: impl Deadlines, pattern: Pattern, keys: u32, turns: u64) -> (f64, u64) {
    let mut driver = Driver::new(deadlines, pattern, keys);
    // Run until the timers are in the steady state of the pattern.
    for _ in 0..keys * 4 {
        driver.turn();
    }
    driver.fired = 0;
    let start = clock.now();
    for _ in 0..turns {
        driver.turn();
    }
    let span = clock.now() - start;
    (span.as_nanos() as f64 / turns as f64, driver.fired)
}

fn main() {
    // Cargo passes this argument for `cargo bench` and not for `cargo test`.
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let (turns, runs) = if measuring { (2_000_000, RUNS) } else { (1_000, 1) };
    let clock = MonotonicClock::start();
    println!(
        "{:<26} {:>7} {:>12} {:>12} {:>8} {:>14}",
        "pattern", "keys", "sorted/ns", "wheel/ns", "ratio", "fired a turn"
    );
    for (pattern, name) in PATTERNS {
        for keys in [1, 100, 10_000] {
            let (mut sorted, mut wheel) = (f64::INFINITY, f64::INFINITY);
            let mut share = 0.0;
            for _ in 0..runs {
                let (ns, expected) = measure(&clock, Sorted::new(), pattern, keys, turns);
                sorted = sorted.min(ns);
                let (ns, fired) = measure(&clock, Timers::default(), pattern, keys, turns);
                wheel = wheel.min(ns);
                assert_eq!(fired, expected, "{name}: the arms fired different numbers of deadlines");
                share = fired as f64 / turns as f64;
            }
            println!("{name:<26} {keys:>7} {sorted:>12.1} {wheel:>12.1} {:>8.1} {share:>14.2}", sorted / wheel);
        }
    }
}
