use proptest::prelude::*;
use units::{Duration, Rate, Ratio, Rng};

use super::*;
use crate::packet::LengthOnly;

mod codel;
mod faults;
mod late;
mod schedule;
mod trace;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// Returns all arrivals up to `end`, each polled at the time given by `poll_timeout`.
fn drain<P: Packet>(link: &mut Link<P>, end: Instant) -> Vec<(Instant, P)> {
    let mut arrivals = Vec::new();
    while let Some(now) = link.poll_timeout().filter(|&now| now <= end) {
        while let Some(packet) = link.poll_deliver(now) {
            arrivals.push((now, packet));
        }
        assert!(link.poll_timeout() > Some(now) || link.poll_timeout().is_none(), "poll_timeout must be in the future");
    }
    arrivals
}

fn assert_conserved<P: Packet>(link: &Link<P>) {
    let stats = link.stats();
    assert_eq!(
        stats.offered + stats.duplicated,
        stats.delivered + stats.undelivered() + link.held() as u64,
        "{stats:?}, {} held",
        link.held()
    );
}

fn ms(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// Returns a packet that contains its number.
fn numbered(number: u32, bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; bytes.max(4)];
    packet[..4].copy_from_slice(&number.to_le_bytes());
    packet
}

fn number(packet: &[u8]) -> u32 {
    u32::from_le_bytes(packet[..4].try_into().unwrap())
}

fn all_faults() -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::from_mbps(100)),
        delay: Duration::from_millis(20),
        loss: Ratio::new(1, 50),
        reorder: Ratio::new(1, 25),
        reorder_by: Duration::from_millis(3),
        duplicate: Ratio::new(1, 40),
        corrupt: Ratio::new(1, 30),
        queue_bytes: 30_000,
        overhead_bytes: 28,
        ..LinkConfig::default()
    }
}

/// Sends `count` packets of 1000 bytes in bursts of 40 every 3 ms, slightly more than the line
/// carries.
fn run_bursts(config: LinkConfig, seed: u64, count: u32) -> (Vec<(Instant, Vec<u8>)>, LinkStats) {
    let mut link = Link::new(config, Rng::from_seed(seed));
    let mut arrivals = Vec::new();
    for index in 0..count {
        let now = at(u64::from(index / 40) * 3_000_000);
        arrivals.extend(drain(&mut link, now));
        link.send(now, numbered(index, 1000));
        assert_conserved(&link);
    }
    arrivals.extend(drain(&mut link, Instant::FAR_FUTURE));
    assert_conserved(&link);
    assert_eq!((link.held(), link.queue_bytes()), (0, 0));
    (arrivals, *link.stats())
}

#[test]
fn equal_seeds_give_equal_arrivals_and_different_seeds_do_not() {
    let first = run_bursts(all_faults(), 11, 4000);
    assert_eq!(first, run_bursts(all_faults(), 11, 4000));
    assert_ne!(first, run_bursts(all_faults(), 12, 4000));
}

#[test]
fn every_fault_occurs_near_its_probability_and_is_counted() {
    let (arrivals, stats) = run_bursts(all_faults(), 5, 40_000);
    assert!(stats.overflowed > 100, "{stats:?}");
    let passed = stats.offered - stats.overflowed;
    let near = |count: u64, share: u64| (passed / share * 8 / 10..=passed / share * 12 / 10).contains(&count);
    assert!(near(stats.lost, 50) && near(stats.reordered, 25), "{stats:?}");
    assert!(near(stats.duplicated, 40) && near(stats.corrupted, 30), "{stats:?}");
    assert_eq!(stats.delivered, arrivals.len() as u64);
    assert_eq!(stats.delivered_bytes, stats.delivered * 1000);
    assert_eq!(stats.offered_bytes, 40_000_000);
    assert!((29_000 - 1028..=30_000).contains(&stats.queue_bytes_max), "{stats:?}");

    // Compares the counters with the received packets: in an intact packet all bytes but the number
    // are zero.
    let damaged = arrivals.iter().filter(|(_, packet)| packet[4..].iter().any(|&byte| byte != 0)).count() as u64;
    assert!(damaged <= stats.corrupted && damaged * 100 >= stats.corrupted * 97, "{damaged} of {stats:?}");
    let backward = arrivals.windows(2).filter(|pair| number(&pair[0].1) > number(&pair[1].1)).count() as u64;
    assert!(backward * 2 > stats.reordered, "{backward} steps back, {stats:?}");
}

#[test]
fn one_fault_does_not_shift_the_draws_of_another() {
    let numbers = |config: LinkConfig| -> Vec<u32> {
        run_bursts(config, 9, 2000).0.iter().map(|(_, packet)| number(packet)).collect()
    };
    let lossy = LinkConfig { loss: Ratio::new(1, 10), ..LinkConfig::default() };
    let lossy_and_late = LinkConfig {
        reorder: Ratio::new(1, 3),
        reorder_by: Duration::from_micros(1),
        corrupt: Ratio::ZERO,
        ..lossy.clone()
    };
    let mut late = numbers(lossy_and_late);
    late.sort_unstable();
    assert_eq!(numbers(lossy), late);
}

#[test]
fn catch_up_updates_counters_without_delivering() {
    let rate = Some(Rate::from_mbps(8));
    let config = LinkConfig { rate, loss: Ratio::new(1, 2), delay: Duration::from_millis(5), ..LinkConfig::default() };
    let mut link = Link::new(config, Rng::from_seed(7));
    (0..20).for_each(|number| link.send(Instant::ZERO, numbered(number, 1000)));
    assert_eq!(link.stats().lost, 0);
    link.catch_up(ms(30));
    let lost = link.stats().lost;
    assert!((1..20).contains(&lost) && link.held() as u64 == 20 - lost, "{lost} lost");
    assert_eq!(link.stats().delivered, 0);
    assert_eq!(std::iter::from_fn(|| link.poll_deliver(ms(30))).count() as u64, 20 - lost);
}

#[test]
fn the_rate_is_exact_over_a_second() {
    // (bits per second, bytes per packet): at 100 Gb/s a packet of 9001 bytes takes 720.08 ns.
    for (rate_bps, bytes) in [(100_000_000_000_u64, 9001_usize), (3_000_000, 1000), (1_000_000, 1499)] {
        let config = LinkConfig { rate: Some(Rate::from_bps(rate_bps)), ..LinkConfig::default() };
        let mut link = Link::new(config, Rng::from_seed(0));
        let end = at(1_000_000_000);
        // Two packets are in the link at any time, so the line is never idle.
        link.send(Instant::ZERO, LengthOnly::new(bytes));
        link.send(Instant::ZERO, LengthOnly::new(bytes));
        let mut delivered = 0_u64;
        while let Some(now) = link.poll_timeout().filter(|&now| now <= end) {
            while link.poll_deliver(now).is_some() {
                delivered += 1;
                link.send(now, LengthOnly::new(bytes));
            }
        }
        let expected = rate_bps / (bytes as u64 * 8);
        assert!(delivered == expected, "{delivered} of {expected} packets at {rate_bps} b/s");
    }
}

#[test]
fn overhead_counts_on_the_line_and_in_the_queue() {
    let config = LinkConfig {
        rate: Some(Rate::from_mbps(8)),
        overhead_bytes: 28,
        queue_bytes: 2 * 1028,
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, Rng::from_seed(0));
    for _ in 0..5 {
        link.send(Instant::ZERO, LengthOnly::new(1000));
    }
    // One in transmission, two in the queue, two too many.
    assert_eq!((link.queue_bytes(), link.held(), link.stats().overflowed), (2056, 3, 2));
    let times: Vec<u64> = drain(&mut link, Instant::FAR_FUTURE).iter().map(|(time, _)| time.as_nanos()).collect();
    assert_eq!(times, [1_028_000, 2_056_000, 3_084_000]);
    assert_eq!(link.stats().queue_bytes_max, 2056);
}

#[test]
fn without_a_queue_one_packet_may_wait() {
    let config = LinkConfig { rate: Some(Rate::from_mbps(8)), queue_bytes: 0, ..LinkConfig::default() };
    let mut link = Link::new(config, Rng::from_seed(0));
    link.send(at(0), LengthOnly::new(1000));
    link.send(at(999_999), LengthOnly::new(1000));
    link.send(at(1_000_000), LengthOnly::new(1000));
    assert_eq!(link.stats().overflowed, 1);
    assert_eq!(drain(&mut link, Instant::FAR_FUTURE).len(), 2);
}

#[test]
fn packets_arrive_in_order_without_reordering() {
    let config = LinkConfig { reorder: Ratio::ZERO, ..all_faults() };
    let (arrivals, stats) = run_bursts(config, 3, 8000);
    // A flipped bit in the number itself would look like a step back.
    let numbers: Vec<u32> = arrivals.iter().map(|(_, packet)| number(packet)).filter(|&number| number < 8000).collect();
    let backward = numbers.windows(2).filter(|pair| pair[0] > pair[1]).count() as u64;
    assert!(stats.reordered == 0 && backward <= stats.corrupted / 100, "{backward} steps back");

    let clean = LinkConfig { corrupt: Ratio::ZERO, duplicate: Ratio::ZERO, reorder: Ratio::ZERO, ..all_faults() };
    let (arrivals, _) = run_bursts(clean, 3, 8000);
    assert!(arrivals.windows(2).all(|pair| number(&pair[0].1) < number(&pair[1].1) && pair[0].0 <= pair[1].0));
}

#[test]
fn a_reordered_packet_arrives_later_by_reorder_by() {
    let config = LinkConfig {
        delay: Duration::from_millis(10),
        reorder: Ratio::ONE,
        reorder_by: Duration::from_millis(5),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config.clone(), Rng::from_seed(0));
    link.send(at(0), numbered(0, 4));
    link.set_config(at(1), LinkConfig { reorder: Ratio::ZERO, ..config });
    link.send(at(1), numbered(1, 4));
    let order: Vec<(u64, u32)> =
        drain(&mut link, Instant::FAR_FUTURE).iter().map(|(time, packet)| (time.as_nanos(), number(packet))).collect();
    assert_eq!(order, [(10_000_001, 1), (15_000_000, 0)]);
}

#[test]
fn a_new_rate_applies_to_waiting_packets_but_not_to_the_one_in_transmission() {
    let slow = LinkConfig { rate: Some(Rate::from_mbps(8)), ..LinkConfig::default() };
    let mut link = Link::new(slow.clone(), Rng::from_seed(0));
    for _ in 0..3 {
        link.send(Instant::ZERO, LengthOnly::new(1000));
    }
    link.set_config(at(500_000), LinkConfig { rate: Some(Rate::from_mbps(80)), ..slow.clone() });
    let times: Vec<u64> = drain(&mut link, at(1_100_000)).iter().map(|(time, _)| time.as_nanos()).collect();
    assert_eq!(times, [1_000_000, 1_100_000]);
    link.set_config(at(1_100_000), LinkConfig { rate: None, ..slow });
    link.send(at(1_100_001), LengthOnly::new(1000));
    let times: Vec<u64> = drain(&mut link, Instant::FAR_FUTURE).iter().map(|(time, _)| time.as_nanos()).collect();
    assert_eq!(
        times,
        [1_200_000, 1_200_000],
        "the last one waits for the line although its transmission takes no time"
    );
}

#[test]
fn a_late_poll_changes_no_arrival() {
    let mut prompt = Link::new(all_faults(), Rng::from_seed(2));
    let mut late = prompt.clone();
    let mut arrivals = Vec::new();
    for index in 0..200 {
        let now = at(u64::from(index) * 70_000);
        arrivals.extend(drain(&mut prompt, now).into_iter().map(|(_, packet)| packet));
        prompt.send(now, numbered(index, 1000));
        late.send(now, numbered(index, 1000));
    }
    arrivals.extend(drain(&mut prompt, Instant::FAR_FUTURE).into_iter().map(|(_, packet)| packet));
    let at_once: Vec<_> = core::iter::from_fn(|| late.poll_deliver(at(10_000_000_000))).collect();
    assert_eq!(at_once, arrivals);
    assert_eq!(late.stats(), prompt.stats());
}

#[test]
fn a_link_without_a_rate_holds_a_bounded_number_of_packets() {
    let config = LinkConfig { delay: Duration::from_secs(1), duplicate: Ratio::ONE, ..LinkConfig::default() };
    let mut link = Link::new(config, Rng::from_seed(0));
    for _ in 0..PACKETS_HELD_MAX {
        link.send(Instant::ZERO, LengthOnly::new(1));
        assert!(link.held() <= PACKETS_HELD_MAX);
    }
    assert_conserved(&link);
    assert!(link.held() >= PACKETS_HELD_MAX - 1 && link.stats().overflowed > 0);
    assert_eq!(link.poll_timeout(), Some(at(1_000_000_000)));
}

#[test]
#[should_panic(expected = "the rate of a link must exceed zero")]
fn a_link_with_rate_zero_is_rejected() {
    let _ = Link::<LengthOnly>::new(LinkConfig { rate: Some(Rate::ZERO), ..LinkConfig::default() }, Rng::from_seed(0));
}

#[derive(Clone, Debug)]
enum Step {
    Send { bytes: usize },
    Wait { nanos: u64 },
    Deliver,
    Reconfigure { rate_kbps: Option<u64>, delay_us: u64, queue_bytes: u64, faults: [u64; 4] },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3000_usize).prop_map(|bytes| Step::Send { bytes }),
        4 => (0..5_000_000_u64).prop_map(|nanos| Step::Wait { nanos }),
        4 => Just(Step::Deliver),
        1 => (prop::option::of(1..1_000_000_u64), 0..30_000_u64, 0..20_000_u64, prop::array::uniform4(0..500_000_u64))
            .prop_map(|(rate_kbps, delay_us, queue_bytes, faults)| Step::Reconfigure { rate_kbps, delay_us, queue_bytes, faults }),
    ]
}

proptest! {
    #[test]
    fn packets_are_conserved(seed: u64, steps in prop::collection::vec(step(), 0..300)) {
        let mut link = Link::new(LinkConfig::default(), Rng::from_seed(seed));
        let mut now = Instant::ZERO;
        for step in steps {
            match step {
                Step::Send { bytes } => {
                    let (before, overflowed) = (link.queue_bytes(), link.stats().overflowed);
                    link.send(now, LengthOnly::new(bytes));
                    let grown = link.queue_bytes() > before && link.stats().overflowed == overflowed;
                    prop_assert!(!grown || link.queue_bytes() <= link.config().queue_bytes);
                }
                Step::Wait { nanos } => now += Duration::from_nanos(nanos),
                Step::Deliver => while link.poll_deliver(now).is_some() {},
                Step::Reconfigure { rate_kbps, delay_us, queue_bytes, faults: [loss, reorder, duplicate, corrupt] } => {
                    let config = LinkConfig {
                        rate: rate_kbps.map(|kbps| Rate::from_bps(kbps * 1000)),
                        delay: Duration::from_micros(delay_us),
                        loss: Ratio::from_millionths(loss),
                        reorder: Ratio::from_millionths(reorder),
                        reorder_by: Duration::from_millis(2),
                        duplicate: Ratio::from_millionths(duplicate),
                        corrupt: Ratio::from_millionths(corrupt),
                        queue_bytes,
                        overhead_bytes: 28,
                        ..LinkConfig::default()
                    };
                    link.set_config(now, config);
                }
            }
            assert_conserved(&link);
            prop_assert_eq!(link.poll_timeout().is_none(), link.held() == 0);
        }
        drain(&mut link, Instant::FAR_FUTURE);
        prop_assert_eq!(link.held(), 0);
        assert_conserved(&link);
    }
}
