//! Same inputs, same bytes: whatever happens to a connection, and whichever executor opens and
//! seals its packets, its journal replays.
//!
//! Every world records both sides, a third of them with the receive half detached, over several
//! paths, with faults, key updates, refusals and each policy, and ends by closing. Then each
//! journal is replayed alone, without the other side, the links, the payload and the keys.

use std::rc::Rc;

use quic::{Policy, Side};
use units::{Duration, Rng};

use super::paths::{PATH_OPERATIONS, path_setup};
use super::{OPERATIONS, Occurrences, Operation, Run, check_share, finish_after, node, number_from, share_of};
use crate::support::journals::{Journals, Replayed};
use crate::support::stages::{By, Done, Staging, WorkerPool};

/// Seeds in all.
const SEEDS: u64 = 240;

/// Operations for each seed.
const STEPS: u64 = 300;

/// Datagrams that arrive within this time are opened together, on workers, in any order.
const TURN: Duration = Duration::from_micros(300);

/// The executor of the stages: all three of these in turn, with each policy.
fn staging_of(kind: u64, pool: &Rc<WorkerPool>) -> Staging {
    match kind {
        0 => Staging {
            by: By::Workers(Rc::clone(pool)),
            gathers: true,
            together: true,
            turn: TURN,
            ..Staging::default()
        },
        1 => Staging { detached: true, gathers: true, turn: TURN, ..Staging::default() },
        _ => Staging::default(),
    }
}

fn world(seed: u64, kind: u64, policy: Policy, pool: &Rc<WorkerPool>) -> (Occurrences, Done, Replayed) {
    let mut rng = Rng::from_seed(seed).split("replays");
    let mut setup = path_setup(seed, &mut rng);
    let journals = Journals::default();
    setup.staging = staging_of(kind, pool);
    for config in [&mut setup.client, &mut setup.server] {
        config.policy = policy;
        config.max_paths = config.max_paths.max(2);
        config.journal = Some(journals.source());
        // A third of the connections are parked during the run.
        config.park_after = seed.is_multiple_of(3).then(|| Duration::from_secs(1));
    }
    let operations = OPERATIONS.into_iter().chain(PATH_OPERATIONS.map(Operation::Path)).collect();
    let mut run = Run::with(seed, rng, setup, operations);
    let happened = finish_after(&mut run, STEPS);
    let now = run.pair.now;
    let side = if seed.is_multiple_of(4) { Side::Client } else { Side::Server };
    node(&mut run.pair, side).connection(0).close(now, 7, "end of test");
    run.pair.run_for(Duration::from_secs(30));
    let done = run.pair.client.stages.done.plus(&run.pair.server.stages.done);
    drop(run);
    (happened, done, journals.replay())
}

fn run_part(part: u64, parts: u64) {
    let pool = WorkerPool::start(2);
    let from = number_from("LITZ_SEED_FROM", 0);
    let (seeds, is_all) = share_of(SEEDS);
    let (mut sums, mut all, mut detached) = (Occurrences::default(), Replayed::default(), Done::default());
    for seed in (from..from + seeds).filter(|seed| seed % parts == part) {
        let policy = Policy::ALL[(seed / parts % 4) as usize];
        let (mut happened, done, replayed) = world(seed, seed / parts / 4 % 3, policy, &pool);
        detached = detached.plus(&done);
        sums.fields().into_iter().zip(happened.fields()).for_each(|(sum, more)| *sum += *more);
        assert_eq!(replayed.logs, 2, "seed {seed}: both sides are recorded");
        all.plans += replayed.plans;
        all.bytes += replayed.bytes;
        all.log_bytes += replayed.log_bytes;
    }
    check_share(seeds, SEEDS, &mut sums);
    if is_all {
        let rare = sums.fields().into_iter().any(|sum| *sum < seeds / parts / 8);
        assert!(!rare, "some condition was too rare in {seeds} seeds: {sums:?}");
        assert!(detached.detached_batches > 20 * seeds && detached.unrecognised > seeds / 20, "{detached:?}");
        assert!(all.plans > 100 * seeds && all.bytes > 100_000 * seeds, "{all:?}");
    }
    if std::env::var_os("LITZ_SEEDS").is_some() {
        show(&all, &detached);
    }
}

#[expect(clippy::print_stdout, reason = "run on request")]
fn show(all: &Replayed, done: &Done) {
    println!("{all:?} {done:?}");
}

#[test]
fn the_journals_of_both_sides_replay_whatever_happened_first_half() {
    run_part(0, 2);
}

#[test]
fn the_journals_of_both_sides_replay_whatever_happened_second_half() {
    run_part(1, 2);
}
