//! Plans that the system refuses to send.

use quic::Event;
use units::{Duration, Ratio};

use crate::support::{Setup, apps};

#[test]
fn refused_plans_are_sent_again_and_count_as_no_loss() {
    for (seed, percent) in [(0, 10), (1, 50), (2, 90)] {
        let mut pair = Setup::new(seed).build();
        pair.connect();
        pair.client.refuse = Ratio::new(percent, 100);
        pair.server.refuse = Ratio::new(percent, 100);
        apps::transfer(&mut pair, 1_000_000, Duration::from_secs(600));
        assert!(pair.client.refused > 5 && pair.server.refused > 5, "seed {seed}");
        let stats = pair.client.connection(0).stats();
        assert_eq!(stats.send.plans_not_sent, pair.client.refused);
        // Slow start may overflow the queue; nothing else is lost here.
        let overflowed = pair.link_stats()[0].overflowed;
        assert_eq!(stats.send.packets_lost, overflowed, "seed {seed}: refusals are no losses: {stats:?}");
    }
}

#[test]
fn refusals_and_losses_together_lose_no_bytes() {
    for seed in 0..10 {
        let mut pair =
            Setup::new(seed).with_loss(seed * 2).with_config(|config| config.key_update_interval = 100).build();
        pair.client.refuse = Ratio::new(30, 100);
        pair.server.refuse = Ratio::new(30, 100);
        // From the first packet on.
        pair.connect();
        apps::transfer(&mut pair, 200_000, Duration::from_secs(600));
        assert!(pair.client.refused > 0 && pair.server.refused > 0);
    }
}

#[test]
fn a_refused_acknowledgement_is_sent_again_before_the_peer_probes() {
    let mut pair = Setup::new(1).build();
    pair.connect();
    pair.run_for(Duration::from_secs(1));
    let id = pair.client.connection(0).open(quic::Dir::Uni).expect("allowed");
    apps::Writer::new(id, 100).pump(pair.client.connection(0));
    // Everything the server sends while the packet arrives and its acknowledgement is due is
    // refused.
    pair.server.refuse = Ratio::ONE;
    let refused = pair.run_until(Duration::from_secs(1), |pair| pair.server.refused > 0);
    assert!(refused);
    pair.server.refuse = Ratio::ZERO;
    let sent_at = pair.now;
    assert!(pair.run_until(Duration::from_secs(5), |pair| {
        pair.client.take_event(0, |event| *event == Event::Finished(id)).is_some()
    }));
    let probes = pair.client.connection(0).stats().send.probe_timeouts;
    assert_eq!(probes, 0, "the acknowledgement came {} after its refusal", pair.now - sent_at);
}
