//! A link whose line follows a trace.

use super::*;
use crate::trace::Trace;

fn traced(offsets_ms: &[u32]) -> LinkConfig {
    LinkConfig {
        trace: Trace::from_millis(offsets_ms.iter().copied()).ok(),
        delay: Duration::from_millis(3),
        ..LinkConfig::default()
    }
}

fn arrivals_ms(link: &mut Link<LengthOnly>) -> Vec<f64> {
    drain(link, Instant::FAR_FUTURE).iter().map(|(time, _)| time.as_nanos() as f64 / 1e6).collect()
}

#[test]
fn packets_depart_at_opportunities() {
    let mut link = Link::new(traced(&[10, 20, 100]), Rng::from_seed(0));
    for _ in 0..5 {
        link.send(ms(1), LengthOnly::new(750));
    }
    assert_eq!((link.held(), link.queue_bytes()), (5, 5 * 750));
    assert_eq!(link.poll_timeout(), Some(ms(13)));
    assert_eq!(arrivals_ms(&mut link), [13.0, 13.0, 23.0, 23.0, 103.0]);
    // The rest of the opportunity at 100 is not available to later packets.
    link.send(ms(103), LengthOnly::new(10));
    assert_eq!(arrivals_ms(&mut link), [113.0]);
    let waits = [9, 9, 19, 19, 99, 7];
    assert_eq!(link.stats().queue_delay_sum, Duration::from_millis(waits.iter().sum()));
    assert_eq!((link.stats().carried, link.stats().queue_delay_max), (6, Duration::from_millis(99)));
    assert_eq!(link.stats().carried_bytes, 5 * 750 + 10);
}

#[test]
fn a_full_queue_carries_the_mean_rate() {
    let config = LinkConfig { queue_delay: Some(Duration::from_millis(50)), ..traced(&[1, 1, 2, 7, 7, 7, 30]) };
    let rate = config.trace.as_ref().unwrap().mean_rate();
    let mut link = Link::new(config, Rng::from_seed(0));
    let mut arrived = 0;
    for millis in 0..30_000 {
        for _ in 0..2 {
            link.send(ms(millis), LengthOnly::new(1200));
        }
        arrived += drain(&mut link, ms(millis)).len() as u64 * 1200;
    }
    assert_conserved(&link);
    let carried = rate.bytes_in(Duration::from_secs(30));
    assert!(arrived <= carried && arrived * 1000 > carried * 995, "{arrived} of {carried} bytes");
    assert!(link.stats().queue_bytes_max <= rate.bytes_in(Duration::from_millis(50)));
}

#[test]
fn one_packet_may_wait_even_without_a_queue() {
    let mut link = Link::new(LinkConfig { queue_bytes: 0, ..traced(&[10]) }, Rng::from_seed(0));
    link.send(ms(1), LengthOnly::new(1000));
    link.send(ms(2), LengthOnly::new(1000));
    assert_eq!((link.held(), link.stats().overflowed), (1, 1));
    assert_eq!(arrivals_ms(&mut link), [13.0]);
}

#[test]
fn switching_between_trace_and_rate_starts_nothing_in_the_past() {
    let mut link = Link::new(traced(&[100]), Rng::from_seed(0));
    link.send(ms(1), LengthOnly::new(1000));
    link.send(ms(1), LengthOnly::new(1000));
    link.set_config(ms(40), LinkConfig { rate: Some(Rate::from_mbps(8)), trace: None, ..traced(&[1]) });
    // Both restart at 40; the second is still waiting when the trace is restored.
    link.set_config(ms(40), LinkConfig { ..traced(&[7]) });
    assert_eq!(arrivals_ms(&mut link), [44.0, 45.0]);
}
