use super::run::{Span, run};
use super::world::World;
use super::*;

const SHORT: Span = Span { warm_up: Duration::from_millis(20), time: Duration::from_millis(60) };

fn settings() -> Settings {
    Settings {
        sides: vec![Side::Send, Side::Receive],
        kind: Kind::Packet,
        paths: 1,
        processors: vec![1, 2],
        beside: vec![Placement::Thread],
        cores: net::processors::allowed(),
        seat: Seat::Last,
        cipher: Cipher::Aes128Gcm,
        datagram_size: 1472,
        runs: 2,
        warm_up: SHORT.warm_up,
        time: SHORT.time,
        confidence: 0.9,
    }
}

#[test]
fn both_sides_work_under_every_placement_and_cipher() {
    let cancel = CancelToken::new();
    let ciphers = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];
    let placements = [Placement::Packet(1), Placement::Packet(2), Placement::Thread, Placement::Inline];
    for (index, placement) in placements.into_iter().enumerate() {
        for side in [Side::Send, Side::Receive] {
            let mut settings = settings();
            settings.cipher = ciphers[index % ciphers.len()];
            let stand = settings.stand(placement, true);
            // Bytes that do not arrive or authenticate, and acknowledgements of numbers that were left out, are errors.
            let outcome = run(side, &stand, SHORT, &cancel).unwrap();
            assert!(outcome.packets > 500.0, "{placement} {side:?}: {outcome:?}");
            assert!(outcome.time >= SHORT.time && outcome.throughput_bps() > 0.0, "{placement} {side:?}");
            assert!(!outcome.costs.is_empty(), "{placement} {side:?}");
            let workers = outcome.stage.map(|stage| stage.workers.len());
            let expected = if let Placement::Packet(count) = placement { Some(count - 1) } else { None };
            assert_eq!(workers, expected, "{placement} {side:?}");
        }
    }
}

#[test]
fn both_sides_work_with_the_paths_of_a_connection_shared() {
    let cancel = CancelToken::new();
    // As many processors as paths, one more, fewer, and none but the driver.
    for (processors, paths) in [(1, 2), (2, 2), (2, 1), (2, 3), (1, 1)] {
        for side in [Side::Send, Side::Receive] {
            let cipher = if paths == 2 { Cipher::Aes128Gcm } else { Cipher::ChaCha20Poly1305 };
            let settings = Settings { kind: Kind::Path, paths, cipher, ..settings() };
            let placement = Placement::Path(processors);
            let outcome = run(side, &settings.stand(placement, true), SHORT, &cancel).unwrap();
            assert!(outcome.packets > 500.0, "{placement} of {paths} {side:?}: {outcome:?}");
            assert!(outcome.time >= SHORT.time && !outcome.costs.is_empty(), "{placement} of {paths} {side:?}");
        }
    }
}

#[test]
fn every_path_carries_its_share() {
    let settings = Settings { kind: Kind::Path, paths: 3, ..settings() };
    for placement in [Placement::Path(1), Placement::Path(2)] {
        let world = World::new(&settings.stand(placement, false), &CancelToken::new()).unwrap();
        let mut stream = world.connection.open_uni().unwrap();
        let chunk = bytes::Bytes::from(vec![7; run::CHUNK_LEN]);
        for _ in 0..1000 {
            stream.write_chunk(chunk.clone()).unwrap();
        }
        let shares: Vec<_> = world.link.channels.iter().map(|channel| channel.packets_sent()).collect();
        let all: u64 = shares.iter().sum();
        assert!(all > 10_000 && shares.iter().all(|share| *share > all / 10), "{placement}: {shares:?}");
        let stats = world.connection.stats();
        assert_eq!(stats.paths.len(), 3, "{placement}");
        assert!(stats.paths.iter().all(|path| path.packets_acked > 1000), "{placement}: {:?}", stats.paths);
        world.check().unwrap();
    }
}

#[test]
fn large_datagrams_work_too() {
    let settings = Settings { datagram_size: 8972, ..settings() };
    for side in [Side::Send, Side::Receive] {
        let stand = settings.stand(Placement::Packet(2), false);
        let outcome = run(side, &stand, SHORT, &CancelToken::new()).unwrap();
        assert!(outcome.packets > 100.0 && outcome.costs.is_empty());
    }
}

#[test]
fn an_interrupted_measurement_says_so() {
    let cancel = CancelToken::new();
    cancel.cancel();
    for side in [Side::Send, Side::Receive] {
        let stand = settings().stand(Placement::Thread, false);
        assert!(matches!(run(side, &stand, SHORT, &cancel), Err(Failure::Interrupted)));
    }
}

#[test]
fn shares_are_divided_by_who_may_do_the_work() {
    let report = measure(&Settings { runs: 1, ..settings() }, &CancelToken::new(), &|_| {}).unwrap();
    for side in &report.sides {
        let shares = &side.shares;
        assert!(shares.serial_ns > 0.0 && shares.parallel_ns > 0.0 && shares.application_ns > 0.0, "{side:?}");
        assert!((shares.stages_ns.values().sum::<f64>() - shares.serial_ns - shares.parallel_ns).abs() < 1e-3);
        let [one, two] = &side.points[..] else { panic!("{side:?}") };
        assert!((one.speedup.mean - 1.0).abs() < 1e-9 && one.speedup.plus_minus.is_none());
        assert!(two.bound.is_some_and(|bound| (1.0..=2.0).contains(&bound)), "{two:?}");
        assert_eq!(side.beside[0].placement, "thread");
    }
    let picture = plot(&report);
    assert_eq!((picture.matches("<g ").count(), picture.matches("<circle").count()), (2, 4), "{picture}");
}
