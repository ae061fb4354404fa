//! CoDel compared with drop-tail, for a source that reduces its window as TCP does.

use super::*;
use crate::codel::CoDel;
use crate::config::Discipline;
use crate::packet::Ecn;

/// One second of transmission at the link's rate: the upper bound of the window.
const WINDOW_MAX: f64 = 1000.0;

/// Runs a source whose window halves once per round trip with a lost or marked packet, and
/// otherwise grows by one packet per round trip. It runs over 8 Mb/s with a round trip of 40 ms for
/// one minute. Returns the link's counters of the last 50 s.
fn run_responsive(discipline: Discipline, packet: LengthOnly) -> LinkStats {
    let config = LinkConfig {
        rate: Some(Rate::from_mbps(8)),
        delay: Duration::from_millis(20),
        queue_delay: Some(Duration::from_millis(250)),
        discipline,
        ..LinkConfig::default()
    };
    let mut forward = Link::new(config, Rng::from_seed(0));
    let back = LinkConfig { delay: Duration::from_millis(20), queue_bytes: u64::MAX, ..LinkConfig::default() };
    let mut backward = Link::new(back, Rng::from_seed(0));
    let (mut now, mut window, mut in_flight, mut undelivered, mut marks) = (Instant::ZERO, 10.0_f64, 0_u64, 0, 0);
    let mut backed_off = Instant::ZERO;
    let mut at_ten_seconds = None;
    while now < ms(60_000) {
        while (in_flight as f64) < window {
            forward.send(now, packet);
            in_flight += 1;
        }
        now = forward.poll_timeout().into_iter().chain(backward.poll_timeout()).min().unwrap();
        let mut signalled = false;
        while let Some(packet) = forward.poll_deliver(now) {
            marks += u64::from(packet.ecn == Ecn::Marked);
            signalled |= packet.ecn == Ecn::Marked;
            backward.send(now, LengthOnly::new(1));
        }
        while backward.poll_deliver(now).is_some() {
            in_flight -= 1;
            window = (window + 1.0 / window).min(WINDOW_MAX);
        }
        let newly_gone = forward.stats().undelivered() - undelivered;
        undelivered += newly_gone;
        in_flight -= newly_gone;
        if (newly_gone > 0 || signalled) && now.saturating_since(backed_off) > Duration::from_millis(60) {
            (window, backed_off) = ((window / 2.0).max(1.0), now);
        }
        if now >= ms(10_000) {
            at_ten_seconds.get_or_insert(*forward.stats());
        }
    }
    assert_conserved(&forward);
    let (before, after) = (at_ten_seconds.unwrap(), *forward.stats());
    assert!(marks <= after.marked);
    LinkStats {
        delivered_bytes: after.delivered_bytes - before.delivered_bytes,
        carried: after.carried - before.carried,
        queue_delay_sum: after.queue_delay_sum - before.queue_delay_sum,
        ..after
    }
}

#[test]
fn codel_keeps_the_queue_near_its_target_and_the_line_busy() {
    let bytes = LengthOnly::new(1000);
    let tail = run_responsive(Discipline::DropTail, bytes);
    let codel = run_responsive(Discipline::CoDel(CoDel::default()), bytes);
    let marking = CoDel { ecn: true, ..CoDel::default() };
    let marked = run_responsive(Discipline::CoDel(marking), LengthOnly::ecn_capable(1000));

    assert!(tail.overflowed > 0 && tail.dropped_by_codel == 0, "{tail:?}");
    assert!(codel.overflowed == 0 && codel.dropped_by_codel > 10, "{codel:?}");
    assert!(marked.undelivered() == 0 && marked.marked > 10, "{marked:?}");
    // 50 s at 1 MB/s is 50 MB.
    for (stats, bytes_least) in [(&tail, 49_000_000), (&codel, 40_000_000), (&marked, 40_000_000)] {
        assert!(stats.delivered_bytes > bytes_least, "{stats:?}");
    }
    let [tail, codel, marked] = [tail, codel, marked].map(|stats| stats.queue_delay_mean());
    assert!(tail > Duration::from_millis(120), "{tail}");
    assert!(codel < Duration::from_millis(15) && marked < Duration::from_millis(15), "{codel} and {marked}");
}

#[test]
fn the_byte_limit_holds_under_codel() {
    let config = LinkConfig {
        rate: Some(Rate::from_mbps(8)),
        queue_bytes: 5000,
        discipline: Discipline::CoDel(CoDel::default()),
        ..LinkConfig::default()
    };
    let (_, stats) = run_bursts(config, 1, 4000);
    assert!(stats.overflowed > 1000 && stats.queue_bytes_max == 5000, "{stats:?}");
}

#[test]
fn a_queue_limited_in_time_bounds_the_wait() {
    let config = LinkConfig {
        rate: Some(Rate::from_mbps(8)),
        queue_delay: Some(Duration::from_millis(30)),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, Rng::from_seed(0));
    for _ in 0..40 {
        link.send(Instant::ZERO, LengthOnly::new(1000));
    }
    // One in transmission, 30 ms in the queue.
    assert_eq!((link.held(), link.stats().overflowed), (31, 9));
    drain(&mut link, Instant::FAR_FUTURE);
    let stats = *link.stats();
    assert_eq!(stats.queue_delay_max, Duration::from_millis(30));
    assert_eq!((stats.carried, stats.queue_delay_sum), (31, Duration::from_millis(30 * 31 / 2)));
    assert_eq!(stats.queue_delay_mean(), Duration::from_millis(15));
}

#[test]
fn setting_codel_again_resets_its_state() {
    let with = |interval| LinkConfig {
        rate: Some(Rate::from_mbps(8)),
        discipline: Discipline::CoDel(CoDel { interval: Duration::from_millis(interval), ..CoDel::default() }),
        ..LinkConfig::default()
    };
    let mut link = Link::new(with(100), Rng::from_seed(0));
    for _ in 0..900 {
        link.send(Instant::ZERO, LengthOnly::new(1000));
    }
    drain(&mut link, ms(300));
    let before = link.stats().dropped_by_codel;
    assert!(before > 1, "{before}");
    link.set_config(ms(300), with(50));
    // The first wait seen by the new state is that of the packet that starts at 301.
    drain(&mut link, ms(350));
    assert_eq!(link.stats().dropped_by_codel, before);
    drain(&mut link, ms(351));
    assert_eq!(link.stats().dropped_by_codel, before + 1);
}
