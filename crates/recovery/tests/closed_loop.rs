//! Complete senders over a bottleneck in simulated time: the parts of this crate working together.

mod bbr;
mod model;

use model::{Link, SEGMENT, Simulation};
use recovery::{Algorithm, RateCap, minimum_window};
use units::{Duration, Instant, Rate};

const LOSS_BASED: [Algorithm; 2] = [Algorithm::NewReno, Algorithm::Cubic];

fn at_ms(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn at_s(seconds: u64) -> Instant {
    at_ms(seconds * 1000)
}

fn link(megabits: u64, round_trip_ms: u64, queue_percent: u64) -> Link {
    Link::new(Rate::from_mbps(megabits), Duration::from_millis(round_trip_ms), queue_percent)
}

fn one_flow(link: Link, algorithm: Algorithm) -> Simulation {
    Simulation::new(link).with_flow(algorithm, Instant::ZERO, None)
}

/// Jain's fairness index in thousandths, `(sum x)^2 / (n * sum x^2)`: 1000 if all shares are equal,
/// 1000/n if one flow has everything (Jain, 1984).
fn jain(shares: &[u64]) -> u64 {
    let (sum, squares) = shares.iter().fold((0, 0), |(sum, squares), x| (sum + x, squares + x * x));
    sum * sum * 1000 / (shares.len() as u64 * squares)
}

/// Shares of the link's rate in thousandths, from second 5 to 35, by rate, round trip and queue (in
/// % of the bandwidth-delay product). Halving the window needs a queue of 100 % to keep the link
/// busy, so NewReno cannot fill the link below that.
#[test]
fn loss_based_algorithms_fill_the_link() {
    for (megabits, round_trip_ms, queue_percent, newreno, cubic) in
        [(20, 20, 100, 985, 985), (50, 40, 100, 985, 985), (50, 40, 50, 900, 970), (10, 100, 150, 985, 985)]
    {
        for (algorithm, least) in [(Algorithm::NewReno, newreno), (Algorithm::Cubic, cubic)] {
            let mut world = one_flow(link(megabits, round_trip_ms, queue_percent), algorithm);
            world.run_until(at_s(5));
            let share = world.shares_until(at_s(35))[0];
            assert!(
                (least..=1000).contains(&share),
                "{algorithm} got {share}/1000 of {megabits} Mb/s, {round_trip_ms} ms, queue {queue_percent} %"
            );
            assert!(world.link.overflowed > 0, "the link must overflow for the test to be meaningful");
        }
    }
}

/// Returns the result of the first slow start: packets lost before conservative slow start began,
/// and all packets lost.
fn first_slow_start(link: Link, round_trip_ms: u64, algorithm: Algorithm) -> (Option<u64>, u64) {
    let mut world = one_flow(link, algorithm);
    while world.flows[0].window_after_slow_start.is_none() {
        world.run_until(world.now() + Duration::from_millis(10));
        assert!(world.now() < at_s(20), "slow start never ended");
    }
    // Data in flight at that time may still overflow the queue. No later congestion event follows
    // that soon.
    world.run_until(world.now() + Duration::from_millis(round_trip_ms * 12));
    (world.flows[0].lost_before_conservative, world.link.overflowed)
}

/// HyStart++ detects a queue one round late and then still grows by 5/4 for five rounds (RFC 9406,
/// section 4.2). In a queue of a few round trips it loses a quarter of the packets that plain slow
/// start loses, and in a deep queue none.
#[test]
fn hystart_leaves_slow_start_before_the_queue_overflows() {
    for (megabits, round_trip_ms, queue_percent) in [(50, 50, 400), (100, 100, 400), (20, 30, 300), (50, 50, 1000)] {
        let run = |algorithm| first_slow_start(link(megabits, round_trip_ms, queue_percent), round_trip_ms, algorithm);
        let ((before, cubic), (none, newreno)) = (run(Algorithm::Cubic), run(Algorithm::NewReno));
        let path = format!("{megabits} Mb/s, {round_trip_ms} ms, queue {queue_percent} %");
        assert_eq!(before, Some(0), "losses before conservative slow start on {path}");
        assert!(none.is_none() && newreno > 100, "plain slow start lost {newreno} packets on {path}");
        let most = if queue_percent == 1000 { 0 } else { newreno * 3 / 10 };
        assert!(cubic <= most, "{cubic} packets lost, and {newreno} without HyStart++, on {path}");
    }
}

#[test]
fn cubic_beats_newreno_on_a_long_fat_path_after_a_loss() {
    let share_after_loss = |algorithm| {
        let mut world = one_flow(link(200, 100, 20).losing_one_packet_at(&[at_s(5)]), algorithm);
        world.run_until(at_s(5));
        let share = world.shares_until(at_s(35))[0];
        assert_eq!(world.link.dropped_on_purpose, 1);
        share
    };
    let (newreno, cubic) = (share_after_loss(Algorithm::NewReno), share_after_loss(Algorithm::Cubic));
    assert!(cubic > 900, "cubic got {cubic}/1000");
    assert!(newreno < 750, "newreno got {newreno}/1000");
}

/// Two flows of one algorithm, and one of each: RFC 9438, section 5.1, requires that CUBIC leaves
/// Reno its share on short paths.
#[test]
fn two_flows_share_fairly() {
    for (algorithms, least) in [([Algorithm::NewReno; 2], 980), ([Algorithm::Cubic; 2], 950), (LOSS_BASED, 900)] {
        for (megabits, round_trip_ms, queue_percent) in [(30, 20, 100), (20, 50, 100), (30, 10, 200)] {
            let mut world = Simulation::new(link(megabits, round_trip_ms, queue_percent))
                .with_flow(algorithms[0], Instant::ZERO, None)
                .with_flow(algorithms[1], at_ms(3217), None);
            world.run_until(at_s(20));
            let shares = world.shares_until(at_s(80));
            let (fairness, sum) = (jain(&shares), shares.iter().sum::<u64>());
            assert!(fairness >= least, "{algorithms:?} at {megabits} Mb/s, {round_trip_ms} ms: {shares:?}");
            assert!(sum >= 985, "{algorithms:?} at {megabits} Mb/s, {round_trip_ms} ms leave {sum}/1000 in use");
        }
    }
}

#[test]
fn an_outage_collapses_the_window_and_the_flow_recovers() {
    for algorithm in LOSS_BASED {
        let mut world = one_flow(link(50, 40, 100).with_outage(at_s(5), at_s(8)), algorithm);
        world.run_until(at_s(5));
        let before = world.flows[0].controller.window();
        assert_eq!(world.flows[0].persistent_events, 0);
        while world.flows[0].persistent_events == 0 {
            world.run_until(world.now() + Duration::from_millis(1));
            assert!(world.now() < at_s(15), "no persistent congestion after an outage of three seconds");
        }
        let (window, probes) = (world.flows[0].controller.window(), world.flows[0].probes);
        // The acknowledgement that revealed the outage has already grown the window by a segment.
        assert_eq!(window, minimum_window(SEGMENT) + SEGMENT, "{algorithm}, from {before}");
        assert!(world.flows[0].controller.in_slow_start());
        // Backoff: 80 ms doubled about six times covers three seconds; without backoff there would
        // be forty probes.
        assert!((3..10).contains(&probes), "{probes} probes");
        world.run_until(world.now() + Duration::from_secs(3));
        let share = world.shares_until(world.now() + Duration::from_secs(5))[0];
        assert!(share > 950, "{algorithm} got {share}/1000 after the outage");
    }
}

#[test]
fn a_short_interruption_is_not_an_outage() {
    let mut world = one_flow(link(50, 40, 100).with_outage(at_ms(5000), at_ms(5060)), Algorithm::Cubic);
    world.run_until(at_s(8));
    assert!(world.link.dropped_on_purpose > 10, "the interruption did not happen");
    assert_eq!(world.flows[0].persistent_events, 0);
}

#[test]
fn a_capped_flow_keeps_its_rate_and_no_queue() {
    let cap = RateCap { rate: Rate::from_mbps(40), burst: 20 * SEGMENT };
    let mut world = Simulation::new(link(50, 40, 100)).with_flow(Algorithm::Cubic, Instant::ZERO, Some(cap));
    world.run_until(at_s(2));
    let share = world.shares_until(at_s(12))[0];
    assert!((795..=800).contains(&share), "{share}/1000 instead of 800");
    assert!(world.link.queue_bytes_peak <= cap.burst, "{} bytes queued", world.link.queue_bytes_peak);
    assert_eq!(world.link.overflowed, 0);
}
