//! BBR over a bottleneck: throughput and queueing under losses and rate changes.
//!
//! Most flows are measured from second 5 on, when Startup and its queue are over. A single flow
//! cannot use all of the link: a round-trip probe every 5 s halves the rate for 200 ms (2 %), and
//! pacing stays 1 % below the measured bandwidth.

use recovery::Algorithm;
use units::{Duration, Instant, Rate, Ratio};

use crate::model::{Link, SEGMENT, Simulation};
use crate::{at_ms, at_s, link, one_flow};

/// Returns the share of the link, in thousandths, of a single flow from second 5 to 25.
fn share_of_one(link: Link) -> u64 {
    let mut world = one_flow(link, Algorithm::Bbr);
    world.run_until(at_s(5));
    world.shares_until(at_s(25))[0]
}

fn phase(world: &Simulation) -> &'static str {
    world.flows[0].controller.snapshot().phase
}

fn pacing(world: &Simulation) -> Rate {
    world.flows[0].controller.pacing_rate(&world.flows[0].rtt)
}

/// Runs until the flow is in a phase, at most until `latest`.
fn run_until_phase(world: &mut Simulation, wanted: &str, latest: Instant) {
    while phase(world) != wanted {
        assert!(world.now() < latest, "never in {wanted}, still in {}", phase(world));
        world.run_until(world.now() + Duration::from_millis(1));
    }
}

/// At one percent loss 99 % can be delivered, and 3 % are lost to probes and pacing as above. The
/// rest is chance. With four losses per round on average, a round or a probe occasionally exceeds
/// the tolerated 2 % and lowers a bound for a few seconds; occasionally Startup ends on such a
/// round, below the link's rate. So single runs of 20 s may fall to 88 %, but the average must not
/// fall below nine tenths. The draft's rule for the short-term bounds gives 71 to 75 % here, and
/// CUBIC 4 %.
#[test]
fn bbr_reaches_nine_tenths_of_the_rate_at_one_percent_random_loss() {
    let shares = [1, 2, 3, 4].map(|seed| share_of_one(link(100, 40, 100).losing_at_random(Ratio::new(1, 100), seed)));
    let mean = shares.iter().sum::<u64>() / shares.len() as u64;
    assert!(mean >= 900 && shares.iter().all(|share| (850..=990).contains(share)), "{shares:?}");
    let mut cubic = one_flow(link(100, 40, 100).losing_at_random(Ratio::new(1, 100), 1), Algorithm::Cubic);
    cubic.run_until(at_s(5));
    let share = cubic.shares_until(at_s(15))[0];
    assert!(share < 100, "CUBIC got {share}/1000: the losses must be severe enough to matter");
}

/// The average queue found by packets. A probe in Up fills up to one bandwidth-delay product, Down
/// drains it, and there is no queue in the rest of the cycle. Startup may build the same amount
/// once.
#[test]
fn bbr_fills_the_link_without_a_standing_queue() {
    for (queue_percent, least) in [(50, 950), (500, 950)] {
        let mut world = one_flow(link(100, 40, queue_percent), Algorithm::Bbr);
        world.run_until(at_s(5));
        let in_startup = world.link.queue_bytes_peak;
        world.link.take_mean_queue();
        let share = world.shares_until(at_s(25))[0];
        let (mean, bdp) = (world.link.take_mean_queue(), world.link.bdp());
        assert!((least..=990).contains(&share), "{share}/1000 with a queue of {queue_percent} %");
        assert!(mean < bdp / 5, "{mean} bytes queued on average, of {bdp} in the path");
        // Two bandwidth-delay products of window, and the observed ACK aggregation.
        assert!(in_startup <= bdp * 5 / 4, "{in_startup} bytes queued by Startup, of {bdp} in the path");
    }
}

#[test]
fn startup_ends_when_the_rate_stops_growing_and_drain_when_the_queue_is_empty() {
    let mut world = one_flow(link(100, 40, 500), Algorithm::Bbr);
    assert_eq!(phase(&world), "startup");
    run_until_phase(&mut world, "drain", at_s(2));
    assert_eq!(world.link.overflowed, 0, "Startup ended without a loss");
    // 277 % doubles the rate each round: from 3 to 100 Mb/s in five or six rounds, and three more
    // to detect the plateau.
    assert!(world.now() < at_ms(40 * 18), "drain at {:?}", world.now());
    let drained_by = world.now() + Duration::from_millis(200);
    run_until_phase(&mut world, "probe_bw_cruise", drained_by);
    // Within 2 % of the link, minus the pacing margin (draft, section 10.1).
    assert!((Rate::from_mbps(97)..=Rate::from_mbps(101)).contains(&pacing(&world)), "{}", pacing(&world));
}

/// Startup far exceeds a queue of a tenth of the bandwidth-delay product; six gaps and 2 % lost
/// within a round end it.
#[test]
fn losses_end_startup_in_a_shallow_queue() {
    let mut world = one_flow(link(100, 40, 10), Algorithm::Bbr);
    run_until_phase(&mut world, "drain", at_s(2));
    assert!(world.link.overflowed > 6);
    world.run_until(at_s(5));
    let share = world.shares_until(at_s(20))[0];
    assert!(share > 900, "{share}/1000 with a queue of 10 %");
}

#[test]
fn the_round_trip_is_probed_every_five_seconds() {
    let mut world = one_flow(link(50, 40, 200), Algorithm::Bbr);
    run_until_phase(&mut world, "probe_rtt", at_s(6));
    let first = world.now();
    assert!((at_ms(5000)..at_ms(5200)).contains(&first), "the first probe at {first:?}");
    world.run_until(first + Duration::from_millis(100));
    // Half of the bandwidth-delay product, and the data in flight when the window fell.
    let window = world.flows[0].controller.window();
    assert!(window <= world.link.bdp() * 11 / 20, "{window} bytes of window");
    run_until_phase(&mut world, "probe_bw_cruise", first + Duration::from_millis(400));
    assert!(world.now() >= first + Duration::from_millis(200));
    run_until_phase(&mut world, "probe_rtt", at_s(12));
    let between = world.now() - first;
    assert!((Duration::from_millis(5200)..Duration::from_millis(5500)).contains(&between), "{between} between probes");
}

/// A probe in Up follows after at most 3 s, and each multiplies the rate by 1.25 per round until it
/// no longer grows.
#[test]
fn a_rate_that_doubles_is_found_within_a_few_seconds() {
    let changes = [(at_s(8), Rate::from_mbps(80))];
    let mut world = one_flow(link(40, 40, 200).changing_rate(&changes), Algorithm::Bbr);
    world.run_until(at_s(8));
    assert!(pacing(&world) < Rate::from_mbps(51), "{}", pacing(&world));
    world.run_until(at_s(14));
    assert_eq!(world.link.rate(), Rate::from_mbps(80));
    let share = world.shares_until(at_s(24))[0];
    assert!(share > 930, "{share}/1000 of the new rate, six seconds after");
}

/// The losses of an overflowing queue lower the short-term bound at once; the old rate expires with
/// the second probe.
#[test]
fn the_flow_adapts_to_a_rate_that_halves() {
    let changes = [(at_s(8), Rate::from_mbps(40))];
    let mut world = one_flow(link(80, 40, 100).changing_rate(&changes), Algorithm::Bbr);
    world.run_until(at_s(8));
    let lost_before = world.link.overflowed;
    world.run_until(at_s(16));
    assert!(world.link.overflowed > lost_before, "the queue never overflowed");
    let (lost, bdp) = (world.link.overflowed, world.link.bdp());
    world.link.take_mean_queue();
    let share = world.shares_until(at_s(26))[0];
    let (mean, lost) = (world.link.take_mean_queue(), world.link.overflowed - lost);
    assert!(share > 930, "{share}/1000 of the new rate");
    // The queue is two of the new path's bandwidth-delay products deep.
    assert!(mean < bdp, "{mean} bytes queued on average, of {bdp} in the path");
    let sent = Rate::from_mbps(40).bytes_in(Duration::from_secs(10)) / SEGMENT;
    assert!(lost * 100 < sent, "{lost} of {sent} packets lost after it was known");
}

#[test]
fn an_application_limited_flow_keeps_its_bandwidth_estimate() {
    let mut world = one_flow(link(100, 40, 100), Algorithm::Bbr);
    world.run_until(at_s(4));
    world.limit_application(0, Some(Rate::from_mbps(2)));
    let share = world.shares_until(at_s(24))[0];
    assert!((18..=21).contains(&share), "{share}/1000 while the application made 2 Mb/s");
    world.limit_application(0, None);
    world.run_until(world.now() + Duration::from_millis(200));
    let share = world.shares_until(world.now() + Duration::from_secs(2))[0];
    assert!(share > 930, "{share}/1000 as soon as there was more to send");
}

/// The application is limited from the first byte: Startup continues, and finds the link's rate
/// when there is data.
#[test]
fn an_application_that_starts_slowly_does_not_end_startup() {
    let mut world = one_flow(link(100, 40, 100), Algorithm::Bbr);
    world.limit_application(0, Some(Rate::from_mbps(1)));
    world.run_until(at_s(4));
    assert_eq!(phase(&world), "startup");
    world.limit_application(0, None);
    world.run_until(at_s(6));
    let share = world.shares_until(at_s(9))[0];
    assert!(share > 900, "{share}/1000 two seconds after there was data");
}

#[test]
fn two_flows_share_within_a_factor_of_two() {
    for (queue_percent, start_ms) in [(50, 3217), (100, 1500), (200, 7000)] {
        let mut world = Simulation::new(link(20, 40, queue_percent))
            .with_flow(Algorithm::Bbr, Instant::ZERO, None)
            .with_flow(Algorithm::Bbr, at_ms(start_ms), None);
        world.run_until(at_s(20));
        let shares = world.shares_until(at_s(60));
        let (least, most) = (shares.iter().min().copied(), shares.iter().max().copied());
        assert!(most < least.map(|least| 2 * least), "{shares:?} with a queue of {queue_percent} %");
        assert!(shares.iter().sum::<u64>() > 950, "{shares:?} with a queue of {queue_percent} %");
    }
}

/// Acknowledgements are held back and arrive all at once, half of each round trip later. A window
/// of only two bandwidth-delay products would leave gaps; the draft adds the aggregated amount.
#[test]
fn aggregated_acknowledgements_do_not_leave_the_link_idle() {
    let share = share_of_one(link(50, 20, 200).aggregating_acks(Duration::from_millis(25)));
    assert!(share > 930, "{share}/1000 with acknowledgements every 25 ms over a path of 20 ms");
}

/// A path that holds less than a packet: 100 kb/s times 20 ms is 250 bytes. A window of four
/// segments keeps it busy.
#[test]
fn a_path_below_a_packet_is_kept_busy() {
    let link = Link::new(Rate::from_bps(100_000), Duration::from_millis(20), 10_000);
    let mut world = one_flow(link, Algorithm::Bbr);
    world.run_until(at_s(10));
    let share = world.shares_until(at_s(60))[0];
    assert!(share > 930, "{share}/1000");
    assert!(world.flows[0].controller.window() >= 4 * SEGMENT);
}

#[test]
fn an_outage_reduces_the_window_and_the_flow_recovers() {
    let mut world = one_flow(link(50, 40, 100).with_outage(at_s(4), at_s(7)), Algorithm::Bbr);
    world.run_until(at_s(4));
    while world.flows[0].persistent_events == 0 {
        world.run_until(world.now() + Duration::from_millis(1));
        assert!(world.now() < at_s(15), "no persistent congestion after an outage of three seconds");
    }
    let window = world.flows[0].controller.window();
    assert!(window <= 8 * SEGMENT, "{window} bytes of window right after the outage");
    world.run_until(world.now() + Duration::from_secs(2));
    let share = world.shares_until(world.now() + Duration::from_secs(4))[0];
    assert!(share > 900, "{share}/1000 after the outage");
}

#[test]
fn the_same_seeds_give_the_same_run() {
    let run = |loss_seed| {
        let link = link(50, 40, 100).losing_at_random(Ratio::new(1, 100), loss_seed);
        let mut world = Simulation::new(link).with_flow(Algorithm::Bbr, Instant::ZERO, None).with_flow(
            Algorithm::Bbr,
            at_ms(1000),
            None,
        );
        world.run_until(at_s(12));
        let end = |flow: usize| {
            let flow = &world.flows[flow];
            (flow.delivered_bytes, flow.lost_packets, flow.controller.pacing_rate(&flow.rtt))
        };
        (end(0), end(1))
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
