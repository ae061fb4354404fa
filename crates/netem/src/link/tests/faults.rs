//! Jitter and burst loss, observed at the receiver.

use super::*;
use crate::bursts::BurstLoss;
use crate::jitter::{Distribution, Jitter};

fn jittery(distribution: Distribution, reorders: bool) -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::from_mbps(100)),
        delay: Duration::from_millis(20),
        jitter: Some(Jitter { distribution, reorders }),
        ..LinkConfig::default()
    }
}

const TAIL: Distribution =
    Distribution::Pareto { scale: Duration::from_millis(1), shape_hundredths: 120, cap: Duration::from_millis(60) };

/// Sends one packet per millisecond; each departs 80 us later.
fn run_spaced(config: LinkConfig, count: u32) -> Vec<(Duration, u32)> {
    let mut link = Link::new(config, Rng::from_seed(6));
    let mut arrivals = Vec::new();
    for index in 0..count {
        arrivals.extend(drain(&mut link, ms(index.into())));
        link.send(ms(index.into()), numbered(index, 1000));
    }
    arrivals.extend(drain(&mut link, Instant::FAR_FUTURE));
    assert_conserved(&link);
    let delay = |time: Instant, number: u32| time - ms(number.into()) - Duration::from_micros(80);
    arrivals.iter().map(|(time, packet)| (delay(*time, number(packet)), number(packet))).collect()
}

#[test]
fn jitter_keeps_the_order_unless_reordering_is_set() {
    for distribution in [
        TAIL,
        Distribution::Uniform { max: Duration::from_millis(9) },
        Distribution::Normal { deviation: Duration::from_millis(9) },
    ] {
        let kept = run_spaced(jittery(distribution, false), 5000);
        assert!(kept.iter().map(|arrival| arrival.1).eq(0..5000), "{distribution:?}");
        let free = run_spaced(jittery(distribution, true), 5000);
        let backward = free.windows(2).filter(|pair| pair[0].1 > pair[1].1).count();
        assert!(backward > 500, "{backward} steps back: {distribution:?}");

        // The same draws: with order kept, a packet arrives with the latest of those before it.
        let mut drawn = free.clone();
        drawn.sort_unstable_by_key(|arrival| arrival.1);
        let mut latest = Instant::ZERO;
        for (own, kept) in drawn.iter().zip(&kept) {
            latest = latest.max(ms(own.1.into()) + own.0);
            assert_eq!(ms(kept.1.into()) + kept.0, latest, "{distribution:?}");
        }
    }
}

#[test]
fn jitter_adds_to_the_delay() {
    let delays = run_spaced(jittery(Distribution::Uniform { max: Duration::from_millis(9) }, true), 20_000);
    let mean_us = delays.iter().map(|arrival| arrival.0.as_micros()).sum::<u64>() / 20_000;
    // 24.5 ms; five standard errors of 9 ms / sqrt(12 * 20,000) are 92 us.
    assert!((24_400..24_600).contains(&mean_us), "{mean_us} us");
    let (least, most) = (delays.iter().min().unwrap().0, delays.iter().max().unwrap().0);
    assert!(least >= Duration::from_millis(20) && most <= Duration::from_millis(29), "{least} to {most}");
}

#[test]
fn a_shorter_delay_overtakes_even_under_order_keeping_jitter() {
    let config = jittery(Distribution::Uniform { max: Duration::from_millis(1) }, false);
    let mut link = Link::new(config.clone(), Rng::from_seed(0));
    link.send(ms(0), numbered(0, 1000));
    link.set_config(ms(1), LinkConfig { delay: Duration::from_millis(2), ..config });
    link.send(ms(1), numbered(1, 1000));
    let order: Vec<u32> = drain(&mut link, Instant::FAR_FUTURE).iter().map(|(_, packet)| number(packet)).collect();
    assert_eq!(order, [1, 0]);
}

#[test]
fn jitter_and_burst_loss_do_not_shift_draws_of_other_faults() {
    let lossy = LinkConfig { loss: Ratio::new(1, 10), delay: Duration::from_millis(5), ..LinkConfig::default() };
    let numbers = |config: LinkConfig| -> Vec<u32> {
        let mut numbers: Vec<u32> = run_spaced(config, 3000).into_iter().map(|arrival| arrival.1).collect();
        numbers.sort_unstable();
        numbers
    };
    let plain = numbers(lossy.clone());
    let jitter = Some(Jitter { distribution: TAIL, reorders: true });
    assert_eq!(numbers(LinkConfig { jitter, ..lossy.clone() }), plain);

    let bursty = LinkConfig { burst_loss: Some(BURSTS), ..lossy.clone() };
    let both = numbers(bursty.clone());
    let only_bursts = numbers(LinkConfig { loss: Ratio::ZERO, ..bursty });
    // The packets that arrive with both are those that arrive with each alone.
    let through_each: Vec<u32> =
        plain.iter().copied().filter(|number| only_bursts.binary_search(number).is_ok()).collect();
    assert_eq!(both, through_each);
    assert!(both.len() < plain.len() && both.len() < only_bursts.len());
}

const BURSTS: BurstLoss = BurstLoss {
    good_to_bad: Ratio::new(1, 50),
    bad_to_good: Ratio::new(1, 6),
    loss_good: Ratio::ZERO,
    loss_bad: Ratio::new(4, 5),
};

#[test]
fn burst_loss_matches_its_mean_loss_and_burst_length() {
    let config = LinkConfig { burst_loss: Some(BURSTS), ..LinkConfig::default() };
    let mut link = Link::new(config, Rng::from_seed(21));
    let (mut runs, mut was_lost) = (0_u64, false);
    for index in 0..400_000 {
        let before = link.stats().lost_in_bursts;
        link.send(at(index), LengthOnly::new(100));
        let is_lost = link.stats().lost_in_bursts > before;
        assert_eq!(link.poll_deliver(at(index)).is_none(), is_lost);
        runs += u64::from(is_lost && !was_lost);
        was_lost = is_lost;
    }
    let stats = *link.stats();
    assert_conserved(&link);
    assert_eq!((stats.lost, stats.delivered + stats.lost_in_bursts), (0, 400_000));
    let loss = stats.lost_in_bursts as f64 / stats.offered as f64;
    // 7,000 stays in the bad state: five standard errors are about 6 % of the loss; the seed is
    // fixed.
    assert!((loss / BURSTS.mean_loss() - 1.0).abs() < 0.05, "{loss} for {}", BURSTS.mean_loss());
    let burst = stats.lost_in_bursts as f64 / runs as f64;
    assert!((burst / BURSTS.mean_burst_packets() - 1.0).abs() < 0.05, "{burst} for {}", BURSTS.mean_burst_packets());
}

#[test]
fn re_enabled_burst_loss_begins_in_the_good_state() {
    // A long stay in the bad state, then a long one in the good state.
    let rare = Ratio::from_millionths(1);
    let bad = BurstLoss { good_to_bad: Ratio::ONE, bad_to_good: rare, loss_good: Ratio::ZERO, loss_bad: Ratio::ONE };
    let with = |burst_loss| LinkConfig { burst_loss, ..LinkConfig::default() };
    let mut link = Link::new(with(Some(bad)), Rng::from_seed(0));
    link.send(at(0), LengthOnly::new(1));
    link.set_config(at(1), with(Some(BurstLoss { good_to_bad: rare, ..bad })));
    link.send(at(1), LengthOnly::new(1));
    assert_eq!(link.stats().lost_in_bursts, 2, "other settings do not reset the chain");
    link.set_config(at(2), with(None));
    link.set_config(at(3), with(Some(BurstLoss { good_to_bad: rare, ..bad })));
    link.send(at(3), LengthOnly::new(1));
    assert_eq!(link.stats().lost_in_bursts, 2);
}
