//! Bytes arrive complete and in order whatever the link does to packets.

use bytes::Bytes;
use quic::Event;
use recovery::Algorithm;
use units::{Duration, Rate, Ratio};

use crate::support::{Pair, Setup, apps};

const MEGABYTE: u64 = 1_000_000;

#[test]
fn a_handshake_takes_about_one_round_trip() {
    let mut pair = Setup::new(1).build();
    pair.connect();
    let stats = pair.client.connection(0).stats();
    let time = stats.handshake_time.expect("the handshake is complete");
    assert!((Duration::from_millis(20)..Duration::from_millis(25)).contains(&time), "{time}");
    assert!(pair.client.take_event(0, |event| *event == Event::Connected).is_some());
}

#[test]
fn a_clean_link_is_filled() {
    let mut pair = Setup::new(2).build();
    pair.connect();
    let bytes = 20 * MEGABYTE;
    let time = apps::transfer(&mut pair, bytes, Duration::from_secs(10));
    let goodput = Rate::from_transfer(bytes, time).expect("time passed");
    assert!(goodput > Rate::from_mbps(85), "{goodput} of 100 Mb/s, {:?}", pair.client.connection(0).stats());
}

#[test]
fn a_large_window_is_acknowledged_a_few_times_per_round_trip() {
    let mut pair = Setup::new(3).build();
    pair.connect();
    apps::transfer(&mut pair, 20 * MEGABYTE, Duration::from_secs(10));
    let data = pair.client.connection(0).stats().send.packets_sent;
    let acknowledgements = pair.server.connection(0).stats().send.packets_sent;
    // The default of one for every two packets would be half as many; the path holds some 200
    // packets.
    assert!((data / 64..data / 6).contains(&acknowledgements), "{acknowledgements} acknowledgements to {data} packets");
}

#[test]
fn losses_delay_a_transfer_and_lose_no_bytes() {
    for percent in [1, 3, 10, 20, 30] {
        for seed in 0..3 {
            let mut pair = Setup::new(seed).with_loss(percent).build();
            pair.connect();
            apps::transfer(&mut pair, MEGABYTE / 2, Duration::from_secs(600));
            let [forward, backward] = pair.link_stats();
            // Acknowledgements are few, so at low rates none may be lost.
            let hit = forward.lost > 0 && (backward.lost > 0 || percent < 10);
            assert!(hit, "seed {seed}: no packet was lost at {percent} %");
            assert!(pair.client.connection(0).stats().send.packets_lost > 0, "seed {seed} at {percent} %");
        }
    }
}

#[test]
fn reordering_duplication_and_corruption_lose_no_bytes() {
    for seed in 0..8 {
        let mut pair = Setup::new(seed)
            .with_links(|link| {
                link.reorder = Ratio::new(10, 100);
                link.reorder_by = Duration::from_millis(7);
                link.duplicate = Ratio::new(5, 100);
                link.corrupt = Ratio::new(3, 100);
            })
            .build();
        pair.connect();
        apps::transfer(&mut pair, MEGABYTE, Duration::from_secs(120));
        let [forward, _] = pair.link_stats();
        assert!(forward.reordered > 0 && forward.duplicated > 0 && forward.corrupted > 0, "{forward:?}");
        let receive = pair.server.connection(0).stats().receive;
        assert!(receive.packets_duplicate > 0 && receive.packets_unauthentic > 0, "{receive:?}");
    }
}

fn goodput(algorithm: Algorithm, seed: u64, lost_percent: u64) -> Rate {
    let setup = Setup::new(seed).with_loss(lost_percent).with_config(|config| config.congestion = algorithm);
    let mut pair = setup.build();
    pair.connect();
    let bytes = 60 * MEGABYTE;
    let time = apps::transfer(&mut pair, bytes, Duration::from_secs(600));
    Rate::from_transfer(bytes, time).expect("time passed")
}

#[test]
fn bbr_fills_a_clean_link() {
    let bbr = goodput(Algorithm::Bbr, 4, 0);
    assert!(bbr > Rate::from_mbps(85), "{bbr} of 100 Mb/s");
}

/// To a window, randomly lost packets look like congestion; a model of the path is unaffected.
#[test]
fn bbr_fills_a_link_that_loses_at_random() {
    for seed in 0..3 {
        let [bbr, cubic] = [Algorithm::Bbr, Algorithm::Cubic].map(|algorithm| goodput(algorithm, seed, 1));
        assert!(bbr > Rate::from_mbps(60) && cubic < Rate::from_mbps(30), "seed {seed}: {bbr}, CUBIC {cubic}");
    }
}

#[test]
fn persistent_congestion_makes_the_connection_forget_its_smallest_round_trip() {
    let mut pair = Setup::new(5).build();
    pair.connect();
    apps::transfer(&mut pair, 1 << 20, Duration::from_secs(30));
    let smallest = |pair: &mut Pair| pair.client.connection(0).path_stats()[0].round_trip_min;
    let before = smallest(&mut pair);
    // Nothing passes, while the client goes on sending: then another route, with a longer delay.
    (0..2).for_each(|direction| pair.tap(direction, |_, _| false));
    for _ in 0..5 {
        pair.client.connection(0).send_datagram(Bytes::from_static(b"anyone there?")).expect("datagrams are allowed");
        pair.run_for(Duration::from_secs(1));
    }
    assert!(pair.tapped[0] > 0, "packets were lost");
    pair.set_links(|link| link.delay += Duration::from_millis(100));
    pair.taps = [None, None];
    apps::transfer(&mut pair, 1 << 20, Duration::from_secs(60));
    let after = smallest(&mut pair);
    assert!(after >= before + Duration::from_millis(200), "{before} {after}");
}
