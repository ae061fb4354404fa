//! Combinations of faults: each seed turns some off and others far up.

use units::{Duration, Rate, Ratio, Rng};

use crate::support::{Pair, Setup, apps};

const KILOBYTE: u64 = 1000;

fn draw(rng: &mut Rng, most: u64) -> Ratio {
    // Half of all faults are off; the others are anything up to `most` percent.
    if rng.below(2) == 0 { Ratio::ZERO } else { Ratio::new(rng.between(1, most), 100) }
}

fn random_faults(seed: u64) -> Setup {
    let mut rng = Rng::from_seed(seed).split("faults");
    let mut setup = Setup::new(seed);
    for link in &mut setup.links {
        link.loss = draw(&mut rng, 30);
        link.duplicate = draw(&mut rng, 50);
        link.corrupt = draw(&mut rng, 20);
        link.reorder = draw(&mut rng, 50);
        link.reorder_by = Duration::from_micros(rng.between(1, 100_000));
        link.delay = Duration::from_micros(rng.between(10, 100_000));
        link.rate = (rng.below(3) > 0).then(|| Rate::from_mbps(rng.between(1, 1000)));
        link.queue_bytes = rng.between(4_000, 100_000);
    }
    setup
}

#[test]
fn no_combination_of_faults_loses_a_byte() {
    let mut fired = [0_u64; 5];
    for seed in 0..60 {
        let mut pair = random_faults(seed).build();
        pair.connect();
        apps::transfer(&mut pair, 200 * KILOBYTE, Duration::from_secs(3600));
        for stats in pair.link_stats() {
            let counts = [stats.lost, stats.duplicated, stats.corrupted, stats.reordered, stats.overflowed];
            fired.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
    }
    assert!(fired.iter().all(|count| *count > 0), "{fired:?}");
}

#[test]
fn a_link_that_recovers_is_used_again() {
    for seed in 0..4 {
        let mut pair = Setup::new(seed).build();
        pair.connect();
        apps::transfer(&mut pair, 500 * KILOBYTE, Duration::from_secs(10));
        let id = pair.client.connection(0).open(quic::Dir::Uni).expect("streams are allowed");
        let mut writer = apps::Writer::new(id, 2000 * KILOBYTE);
        writer.pump(pair.client.connection(0));
        pair.set_links(|link| link.loss = Ratio::ONE);
        pair.run_for(Duration::from_secs(10));
        let lost = pair.link_stats()[0].lost;
        assert!(lost > 2, "seed {seed}: nothing was sent into the dead link");
        assert!(pair.client.connection(0).stats().send.probe_timeouts > 2, "seed {seed}");
        pair.set_links(|link| link.loss = Ratio::ZERO);
        let mut reader = None;
        let recovered = pair.now;
        let done = pair.run_until(Duration::from_secs(60), |pair: &mut Pair| {
            writer.pump(pair.client.connection(0));
            reader = reader.take().or_else(|| pair.server.connection(0).accept(quic::Dir::Uni).map(apps::Reader::new));
            let Some(reader) = &mut reader else { return false };
            reader.pump(pair.now, pair.server.connection(0));
            reader.ended
        });
        // The probe timer has backed off to several seconds; after the next probe the rate recovers
        // quickly.
        assert!(done && pair.now - recovered < Duration::from_secs(20), "seed {seed}: {}", pair.now - recovered);
    }
}

#[test]
fn a_bottleneck_with_a_shallow_queue_drops_and_recovers() {
    for (queue, least_mbps) in [(6_000, 1), (30_000, 4), (200_000, 8)] {
        let mut pair = Setup::new(5)
            .with_links(|link| {
                link.rate = Some(Rate::from_mbps(10));
                link.queue_bytes = queue;
            })
            .build();
        pair.connect();
        let bytes = 3000 * KILOBYTE;
        let took = apps::transfer(&mut pair, bytes, Duration::from_secs(60));
        assert!(pair.link_stats()[0].overflowed > 0, "the queue of {queue} bytes never overflowed");
        let goodput = Rate::from_transfer(bytes, took).expect("time passed");
        assert!(goodput > Rate::from_mbps(least_mbps), "{goodput} of 10 Mb/s with a queue of {queue} bytes");
    }
}
