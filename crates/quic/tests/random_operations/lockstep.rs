//! The executor of the stages never changes the wire bytes: the same seed gives the same datagrams
//! at the same times under every placement, over several paths, with faults, key updates in flight
//! and each policy.
//!
//! In lock-step the results of one instant are available before the next input. These must be
//! identical:
//!
//! | world | must equal | why |
//! |---|---|---|
//! | each datagram in three steps, inline or on workers | `handle_datagrams` | it consists of the same three steps |
//! | datagrams of an instant gathered in batches, in steps | the same batches by `handle_datagrams` | likewise |
//! | all of an instant begun first, opened in any order, absorbed in the order begun | the same | below |
//! | the receive half detached, each datagram by itself or gathered in batches | the same by one connection | it is the same half |
//!
//! In the third row a batch is begun before earlier ones are absorbed, so it is opened with older
//! values, which must not matter:
//!
//! - the largest number received: any value not older than the last acknowledgement sent decodes
//!   the same (RFC 9000, appendix A.3), except for packets late by more than the window of their
//!   truncated number, which are lost with the newest value and may open with an older one;
//! - the keys: a batch also gets the keys of the next phase (RFC 9001, section 6.3), and packets
//!   are absorbed by phase, not by order;
//! - received bytes are counted earlier, but all of them before anything is sent.
//!
//! One case is left out because it does differ: batches of paths that are not open, not validated,
//! or about to migrate. The path to which bytes are credited is decided when a batch begins, so a
//! batch that begins before the packet that creates its path is absorbed earns less credit (section
//! 8.1), or is misrouted. That is equivalent to a loss, and never exceeds what is allowed. Such
//! batches are processed one by one here (`Stages::is_next_alone`). Absorbing batches of different
//! paths in another order than they were begun is a different input, as if the network had
//! delivered them in that order.

use std::rc::Rc;

use quic::{Policy, Side};
use units::{Duration, Instant, Rng};

use super::paths::{PATH_OPERATIONS, path_setup};
use super::{OPERATIONS, Occurrences, Operation, Run, check_share, finish_after, node, number_from, share_of};
use crate::support::stages::{By, Done, Staging, WorkerPool};

/// Seeds in all.
const SEEDS: u64 = 200;

/// Operations for each seed.
const STEPS: u64 = 400;

/// How long arrivals wait before they are processed: datagrams within that time are one instant for
/// the receiver.
const TURNS: [Duration; 3] = [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(4)];

/// Threads of a worker pool.
const WORKERS: usize = 3;

/// The result of one world.
struct Outcome {
    /// The datagrams that both sides sent, with times.
    record: Vec<(Instant, usize, Vec<u8>)>,
    /// The statistics of both sides.
    counts: String,
    happened: Occurrences,
    /// Paths opened besides the first.
    paths: u64,
    done: Done,
}

fn world_of(seed: u64, policy: Policy, staging: Staging) -> Outcome {
    let mut rng = Rng::from_seed(seed).split("lock-step");
    let mut setup = path_setup(seed, &mut rng);
    setup.staging = staging;
    for config in [&mut setup.client, &mut setup.server] {
        config.policy = policy;
        config.max_paths = config.max_paths.max(2);
    }
    // On links without a rate many datagrams arrive at one instant.
    if seed.is_multiple_of(2) {
        setup.links.iter_mut().chain(setup.more_links.iter_mut().flatten()).for_each(|link| link.rate = None);
    }
    let operations = OPERATIONS.into_iter().chain(PATH_OPERATIONS.map(Operation::Path)).collect();
    let mut run = Run::with(seed, rng, setup, operations);
    run.pair.record = Some(Vec::new());
    let happened = finish_after(&mut run, STEPS);
    let (mut done, mut paths) = (Done::default(), 0);
    let counts = [Side::Client, Side::Server].map(|side| {
        let node = node(&mut run.pair, side);
        done = done.plus(&node.stages.done);
        let stats = node.connection(0).path_stats();
        paths = stats.last().map_or(0, |path| u64::from(path.id.0));
        format!("{:?} {stats:?}", node.connection(0).stats())
    });
    let record = run.pair.record.take().expect("recording");
    Outcome { record, counts: counts.join("\n"), happened, paths, done }
}

/// Checks that both worlds sent the same.
fn compare(seed: u64, policy: Policy, what: &str, one: &Outcome, other: &Outcome) {
    let common = one.record.iter().zip(&other.record).take_while(|(one, other)| one == other).count();
    if common < one.record.len().max(other.record.len()) {
        let [one, other] = [one, other].map(|outcome| {
            let next = outcome.record.get(common).map(|(now, direction, data)| (*now, *direction, data.len()));
            format!("{next:?}\n{}", outcome.counts)
        });
        panic!("seed {seed}, {policy}: {what} differs from datagram {common} on:\n{one}\n{other}");
    }
    assert_eq!(one.counts, other.counts, "seed {seed}, {policy}: {what} counts otherwise");
}

/// Totals over the worlds of many seeds.
#[derive(Default)]
struct Sums {
    happened: Occurrences,
    vanished: u64,
    paths: u64,
    policies: [u64; 4],
    done: [Done; 8],
}

impl Sums {
    /// Checks that the conditions the worlds were made for occurred often.
    fn check(&mut self, seeds: u64) {
        let Self { vanished, paths, policies, done, .. } = *self;
        let rare = self.happened.fields().into_iter().any(|sum| *sum < seeds / 4);
        let text = format!("{:?}, {vanished} vanished, {paths} paths opened, {policies:?} {done:#?}", self.happened);
        assert!(!rare && vanished >= seeds && paths >= seeds, "some condition was too rare in {seeds} seeds: {text}");
        assert!(policies.iter().all(|count| *count >= seeds / 4), "{text}");
        for done in &done[6..] {
            assert!(done.detached_batches >= 20 * seeds && done.unrecognised >= seeds / 10, "{text}");
        }
        for (index, done) in done[..6].iter().enumerate() {
            assert!(done.opened >= 20 * seeds && done.sealed >= 20 * seeds, "world {index}: {text}");
            let (is_gathered, is_together) = (index >= 3, matches!(index, 2 | 4 | 5));
            assert_eq!(is_gathered, done.opened_many >= 2 * seeds, "world {index}: {text}");
            assert_eq!(is_together, done.overtook >= seeds, "world {index}: {text}");
            assert_eq!(is_together, done.stale >= seeds / 10, "world {index}: {text}");
        }
    }
}

fn run_part(part: u64, parts: u64) {
    let pool = WorkerPool::start(WORKERS);
    let from = number_from("LITZ_SEED_FROM", 0);
    let (seeds, is_all) = share_of(SEEDS);
    let mut sums = Sums::default();
    for seed in (from..from + seeds).filter(|seed| seed % parts == part) {
        let (policy, turn) = ((seed / parts % 4) as usize, (seed / parts / 4) as usize % TURNS.len());
        sums.policies[policy] += 1;
        let (policy, turn) = (Policy::ALL[policy], TURNS[turn]);
        let world = |by: By, gathers, together| {
            world_of(seed, policy, Staging { by, gathers, together, turn, ..Staging::default() })
        };
        let detached =
            |gathers| world_of(seed, policy, Staging { gathers, turn, detached: true, ..Staging::default() });
        let workers = || By::Workers(Rc::clone(&pool));
        let single = world(By::Caller, false, false);
        let batches = world(By::Caller, true, false);
        let worlds = [
            ("datagrams in steps", world(By::Steps, false, false), &single),
            ("datagrams on workers", world(workers(), false, false), &single),
            ("datagrams in any order", world(By::Steps, false, true), &single),
            ("batches in steps", world(By::Steps, true, false), &batches),
            ("batches in any order", world(By::Steps, true, true), &batches),
            ("batches on workers in any order", world(workers(), true, true), &batches),
            ("datagrams with the receive half detached", detached(false), &single),
            ("batches with the receive half detached", detached(true), &batches),
        ];
        for (index, (what, outcome, reference)) in worlds.iter().enumerate() {
            compare(seed, policy, what, reference, outcome);
            sums.done[index] = sums.done[index].plus(&outcome.done);
        }
        let mut happened = single.happened;
        sums.happened.fields().into_iter().zip(happened.fields()).for_each(|(sum, more)| *sum += *more);
        sums.vanished += happened.vanished;
        sums.paths += single.paths;
    }
    check_share(seeds, SEEDS, &mut sums.happened);
    if is_all {
        sums.check(seeds / parts);
    }
}

#[test]
fn the_wire_bytes_do_not_depend_on_the_executor_first_half() {
    run_part(0, 2);
}

#[test]
fn the_wire_bytes_do_not_depend_on_the_executor_second_half() {
    run_part(1, 2);
}
