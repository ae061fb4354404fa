use units::Duration;

use super::run::Span;
use super::test_bed::TestBed;
use super::*;

const SHORT: Span = Span { warm_up: Duration::from_millis(20), time: Duration::from_millis(60) };

/// A run that is long enough to measure something, even on a busy machine.
fn run_with_retries(side: Side, settings: &Settings, placement: Placement, metered: bool) -> Outcome {
    run_until(side, settings, placement, metered, |outcome| outcome.packets > 500.0)
}

/// A run that is long enough for `is_enough`, or the longest.
fn run_until(
    side: Side,
    settings: &Settings,
    placement: Placement,
    metered: bool,
    is_enough: impl Fn(&Outcome) -> bool,
) -> Outcome {
    let cancel = CancelToken::new();
    let span = |times: u64| Span { warm_up: SHORT.warm_up * times, time: SHORT.time * times };
    let short = [1, 4, 16]
        .into_iter()
        .find_map(|times| run_once(side, settings, placement, metered, span(times), &cancel).ok().filter(&is_enough));
    short.unwrap_or_else(|| run_once(side, settings, placement, metered, span(64), &cancel).unwrap())
}

fn settings() -> Settings {
    Settings {
        sides: vec![Side::Send, Side::Receive],
        stack: None,
        kind: Kind::Packet,
        paths: 1,
        processors: vec![1, 2],
        beside: vec![Placement::Thread],
        cores: net::processors::allowed(),
        app_core: AppCore::Last,
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
    let ciphers = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];
    let placements = [Placement::Packet(1), Placement::Packet(2), Placement::Thread, Placement::Inline];
    for (index, placement) in placements.into_iter().enumerate() {
        for side in [Side::Send, Side::Receive] {
            let mut settings = settings();
            settings.cipher = ciphers[index % ciphers.len()];
            // Missing or unauthentic bytes, and acknowledgements of skipped packet numbers, are
            // errors.
            let outcome = run_with_retries(side, &settings, placement, true);
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
    // As many processors as paths, one more, fewer, and only the driver's.
    for (processors, paths) in [(1, 2), (2, 2), (2, 1), (2, 3), (1, 1)] {
        for side in [Side::Send, Side::Receive] {
            let cipher = if paths == 2 { Cipher::Aes128Gcm } else { Cipher::ChaCha20Poly1305 };
            let settings = Settings { kind: Kind::Path, paths, cipher, ..settings() };
            let placement = Placement::Path(processors);
            let outcome = run_with_retries(side, &settings, placement, true);
            assert!(outcome.packets > 500.0, "{placement} of {paths} {side:?}: {outcome:?}");
            assert!(outcome.time >= SHORT.time && !outcome.costs.is_empty(), "{placement} of {paths} {side:?}");
        }
    }
}

#[test]
fn every_path_carries_its_share() {
    let settings = Settings { kind: Kind::Path, paths: 3, ..settings() };
    for placement in [Placement::Path(1), Placement::Path(2)] {
        let test_bed = TestBed::new(&settings.setup(placement, false), &CancelToken::new()).unwrap();
        let mut stream = test_bed.connection.open_uni().unwrap();
        let chunk = bytes::Bytes::from(vec![7; run::CHUNK_LEN]);
        // A thousand chunks would suffice on an idle machine.
        let is_shared = || {
            let sent = test_bed.link.channels.iter().all(|channel| channel.packets_sent() > 3000);
            let paths = test_bed.connection.stats().paths;
            sent && paths.len() == 3 && paths.iter().all(|path| path.packets_acked > 1000)
        };
        let enough = (0..50_000).find(|_| {
            stream.write_chunk(chunk.clone()).unwrap();
            is_shared()
        });
        let shares: Vec<_> = test_bed.link.channels.iter().map(|channel| channel.packets_sent()).collect();
        assert!(enough.is_some(), "{placement}: {shares:?}, {:?}", test_bed.connection.stats().paths);
        test_bed.check().unwrap();
    }
}

#[test]
fn large_datagrams_work_too() {
    let settings = Settings { datagram_size: 8972, ..settings() };
    for side in [Side::Send, Side::Receive] {
        let outcome = run_with_retries(side, &settings, Placement::Packet(2), false);
        assert!(outcome.packets > 100.0 && outcome.costs.is_empty());
    }
}

#[test]
fn both_directions_deliver_every_byte_under_every_placement() {
    let placements = [
        (Kind::Split, Placement::Thread, Cipher::Aes128Gcm),
        (Kind::Split, Placement::Split, Cipher::Aes128Gcm),
        (Kind::Split, Placement::Split, Cipher::ChaCha20Poly1305),
        (Kind::Packet, Placement::Packet(1), Cipher::Aes128Gcm),
        (Kind::Packet, Placement::Packet(2), Cipher::Aes256Gcm),
    ];
    for (kind, placement, cipher) in placements {
        for (app_core, datagram_size) in [(AppCore::Separate, 1472), (AppCore::Last, 8972)] {
            let settings = Settings { kind, cipher, app_core, datagram_size, ..settings() };
            // The first round compares every byte with the pattern; a wrong byte is an error.
            let outcome = run_with_retries(Side::Duplex, &settings, placement, true);
            let case = format!("{placement} {cipher} {datagram_size}: {outcome:?}");
            let directions = outcome.directions.expect("data was sent in both directions");
            assert!((directions.sent_bytes / directions.received_bytes - 1.0).abs() < 0.01, "{case}");
            assert!((outcome.bytes - directions.sent_bytes - directions.received_bytes).abs() < 1.0, "{case}");
            let packets = outcome.bytes / run::payload_len(datagram_size) as f64;
            assert!((outcome.packets / packets - 1.0).abs() < 0.1 && packets > 1000.0, "{packets} {case}");
            assert!(outcome.time >= SHORT.time && directions.one_way < outcome.time, "{case}");
            assert!(
                !outcome.costs.is_empty() && !directions.writing.is_zero() && !directions.reading.is_zero(),
                "{case}"
            );
        }
    }
}

#[test]
fn both_directions_continue_through_key_updates() {
    let test_bed = Settings { kind: Kind::Split, ..settings() };
    // Enough rounds for several updates if one is due after each.
    let outcome =
        duplex::run_updating(&test_bed.setup(Placement::Split, false), SHORT, 1, &CancelToken::new()).unwrap();
    assert!(outcome.packets > 1000.0 && outcome.packets_lost == 0, "{outcome:?}");
}

#[test]
fn a_byte_that_was_not_written_is_found() {
    let settings = Settings { kind: Kind::Split, ..settings() };
    let test_bed = TestBed::new(&settings.setup(Placement::Thread, false), &CancelToken::new()).unwrap();
    let channel = &test_bed.link.channels[0];
    channel.begin_check(&scripted_peer::pattern::Pattern::new()).unwrap();
    let mut stream = test_bed.connection.open_uni().unwrap();
    let mut chunk = scripted_peer::pattern::Pattern::new().bytes().to_vec();
    stream.write_chunk(chunk.clone().into()).unwrap();
    chunk[1000] ^= 1;
    stream.write_chunk(chunk.into()).unwrap();
    stream.finish().unwrap();
    stream.wait_finished().unwrap();
    let failure = channel.failure().expect("one byte is wrong");
    assert!(failure.contains("is not what was written"), "{failure}");
    assert!(test_bed.check().is_err());
}

#[test]
fn an_interrupted_measurement_returns_the_interrupt() {
    let cancel = CancelToken::new();
    cancel.cancel();
    for side in [Side::Send, Side::Receive, Side::Duplex] {
        let run = run_once(side, &settings(), Placement::Thread, false, SHORT, &cancel);
        assert!(matches!(run, Err(Failure::Interrupted)));
    }
}

#[test]
fn costs_are_divided_into_serial_and_parallel_work() {
    let report = measure(&Settings { runs: 1, ..settings() }, &CancelToken::new(), &|_| {}).unwrap();
    for side in &report.sides {
        let shares = &side.shares;
        // The rest of what was measured apart: none, if something else took the processor meanwhile.
        assert!(shares.serial_ns > 0.0 && shares.parallel_ns >= 0.0 && shares.application_ns > 0.0, "{side:?}");
        assert!((shares.stages_ns.values().sum::<f64>() - shares.serial_ns - shares.parallel_ns).abs() < 1e-3);
        let [one, two] = &side.points[..] else { panic!("{side:?}") };
        assert!((one.speedup.mean - 1.0).abs() < 1e-9 && one.speedup.plus_minus.is_none());
        assert!(two.bound.is_some_and(|bound| (1.0..=2.0).contains(&bound)), "{two:?}");
        assert_eq!(side.beside[0].placement, "thread");
    }
    let picture = plot(&report);
    assert_eq!((picture.matches("<g ").count(), picture.matches("<circle").count()), (2, 4), "{picture}");
}

#[test]
fn a_split_connection_is_relative_to_one_thread_and_bounded_by_its_longer_half() {
    let sides = vec![Side::Duplex];
    let settings =
        Settings { kind: Kind::Split, sides, app_core: AppCore::Separate, beside: Vec::new(), runs: 1, ..settings() };
    let report = measure(&settings, &CancelToken::new(), &|_| {}).unwrap();
    let [side] = &report.sides[..] else { panic!("{report:?}") };
    let [thread, split] = &side.points[..] else { panic!("{side:?}") };
    assert_eq!((thread.placement.as_str(), split.placement.as_str(), side.side), ("thread", "split", "duplex"));
    let halves = side.shares.halves.expect("halves are what is shared");
    assert!(halves.send_ns > 0.0 && halves.receive_ns > 0.0);
    assert!((halves.send_ns + halves.receive_ns - side.total_ns).abs() < side.total_ns * 1e-3, "{side:?}");
    let bound = side.total_ns / halves.send_ns.max(halves.receive_ns);
    assert!(split.bound.is_some_and(|found| (found - bound).abs() < 1e-9), "{bound} {split:?}");
    assert_eq!(side.gain_printed, Some(1.7));
    let directions = split.directions.as_ref().expect("data was sent in both directions");
    let sum = directions.sent_bps + directions.received_bps;
    assert!((sum / split.throughput_bps.mean - 1.0).abs() < 1e-6 && directions.one_way_share < 1.0, "{split:?}");
    assert!(plot(&report).contains("both sides: speedup by processors"));
}

fn stack_settings(stack: &str) -> Settings {
    let measured = MeasuredStack { stack: stack.parse().unwrap(), payload: 4096 };
    Settings { stack: Some(measured), ..settings() }
}

#[test]
fn both_sides_of_every_stack_work_under_every_placement() {
    for stack in ["tcp/ip", "tcp/md5/ip", "des/tcp/md5/ip", "3des/tcp/md5/ip", "chacha20/tcp/blake3/ip"] {
        for placement in [Placement::Packet(1), Placement::Packet(2), Placement::Thread, Placement::Inline] {
            for side in [Side::Send, Side::Receive] {
                // Sending, every segment is the next one, or the script has failed. Receiving, every byte
                // arrives, or the run does not end.
                let outcome = run_with_retries(side, &stack_settings(stack), placement, true);
                assert!(outcome.packets > 500.0, "{stack} {placement} {side:?}: {outcome:?}");
                assert!(outcome.time >= SHORT.time && !outcome.costs.is_empty(), "{stack} {placement} {side:?}");
                let expected = if let Placement::Packet(count) = placement { Some(count - 1) } else { None };
                assert_eq!(outcome.stage.map(|stage| stage.workers.len()), expected, "{stack} {placement} {side:?}");
            }
        }
    }
}

#[test]
fn both_directions_of_a_stack_transfer_the_same_at_once() {
    // Out of step, the plain stack sends three times what it receives, however long. In step, the lead of a
    // direction, what is in flight and what the reader has not taken are less than a quarter of a round. A busy
    // machine may stop one of the threads for most of a short run, and for little of a long one.
    let is_in_step = |outcome: &Outcome| {
        let both = outcome.directions.as_ref();
        both.is_some_and(|both| (0.8..1.25).contains(&(both.sent_bytes / both.received_bytes)))
    };
    let is_enough = |outcome: &Outcome| outcome.packets > 500.0 && is_in_step(outcome);
    for stack in ["tcp/ip", "tcp/md5/ip"] {
        for placement in [Placement::Thread, Placement::Split, Placement::Pipeline, Placement::Packet(2)] {
            let outcome = run_until(Side::Duplex, &stack_settings(stack), placement, true, is_enough);
            assert!(is_in_step(&outcome), "{stack} {placement}: {:?}", outcome.directions);
            let directions = outcome.directions.expect("both directions were measured");
            assert!(outcome.packets > directions.received_packets, "{stack} {placement}: {outcome:?}");
            let has_receiver = matches!(placement, Placement::Split | Placement::Pipeline);
            assert_eq!(!directions.receiver.is_zero(), has_receiver, "{stack} {placement}");
            let others = if placement == Placement::Pipeline { 2 } else { 0 };
            assert!(outcome.busy.len() >= others && outcome.busy.iter().all(|busy| !busy.is_zero()), "{outcome:?}");
        }
    }
}

#[test]
fn a_stack_is_reported_with_its_layers_and_the_paper() {
    let report_of = |times: u64| {
        let (warm_up, time) = (SHORT.warm_up * times, SHORT.time * times);
        let settings = Settings { runs: 1, warm_up, time, ..stack_settings("des/tcp/md5/ip") };
        let is_busy = |reason: &str| reason.contains("too short") || reason.contains("stop other programs");
        match measure(&settings, &CancelToken::new(), &|_| {}) {
            Err(Failure::Error(reason)) if is_busy(&reason) => None,
            result => Some(result.expect("nothing else fails")),
        }
    };
    // On a busy machine a short run may see no packet, or lose its worker; it says so.
    let report = [1, 16, 64].into_iter().find_map(report_of).expect("a run of seconds sees packets");
    let stack = report.stack.as_ref().expect("a stack was measured");
    assert_eq!((report.cipher, report.payload_bytes), (None, 4096));
    // IPv4, the digest, TCP, and a record of 4096 bytes with its padding.
    assert_eq!(report.datagram_bytes, 20 + 24 + 20 + 4 + 8 + 4104);
    assert_eq!(stack.layers, "des/tcp/md5/ip");
    assert_eq!(stack.primitives.iter().map(|primitive| primitive.layer).collect::<Vec<_>>(), ["des", "md5"]);
    let paper = stack.paper.as_ref().expect("the paper has this stack");
    assert_eq!((paper.throughput_bps, paper.speedup, paper.processors), (4.6e6, Some([11.0, 12.0]), 12));
    assert_eq!(report.sides.iter().map(|side| side.side).collect::<Vec<_>>(), ["send", "receive"]);
    for side in &report.sides {
        assert!(side.shares.parallel_ns > side.shares.serial_ns, "a cipher is most of the work: {side:?}");
        let busiest = side.busiest.as_ref().expect("two processors");
        assert_eq!(busiest.busy_shares.len(), 2);
        assert!(busiest.busy_shares.iter().all(|share| *share > 0.0), "{busiest:?}");
    }
    assert!(plot(&report).contains("des/tcp/md5/ip"));
}
