use super::*;
use proptest::prelude::*;

const SEGMENT: u64 = 1000;

fn at_ms(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn rtt_of(span: Duration) -> RttEstimator {
    let mut rtt = RttEstimator::default();
    rtt.update(span, Duration::ZERO);
    rtt
}

fn mbps(bytes: u64, span: Duration) -> Option<Rate> {
    Rate::from_transfer(bytes, span)
}

#[test]
fn a_send_stamp_fits_48_bytes() {
    assert_eq!(size_of::<SendStamp>(), 40);
}

#[test]
fn the_first_flight_is_measured_from_sending_to_acknowledgement() {
    let mut path = DeliveryRate::new();
    let stamp = path.on_sent(at_ms(5), 10 * SEGMENT, 10 * SEGMENT);
    path.on_acked(at_ms(45), &stamp, at_ms(5), 9, 10 * SEGMENT);
    let sample = path.take_sample(&rtt_of(ms(40))).expect("something was acknowledged");
    assert_eq!(sample.rate, mbps(10 * SEGMENT, ms(40)));
    assert_eq!((sample.delivered, sample.prior_delivered, sample.delivered_total), (10_000, 0, 10_000));
    assert_eq!((sample.in_flight_when_sent, sample.lost, sample.app_limited, sample.rtt), (10_000, 0, false, ms(40)));
    assert_eq!(path.take_sample(&rtt_of(ms(40))), None, "nothing was acknowledged since");
}

/// Packets are sent every 10 ms from 0 on and arrive 40 ms later; all acknowledgements are held
/// back until 100 ms. By the acknowledgements alone, four packets were delivered in no time.
#[test]
fn ack_compression_does_not_raise_the_rate_above_the_send_rate() {
    let mut path = DeliveryRate::new();
    let sent: Vec<_> =
        (0..4).map(|i| (at_ms(i * 10), path.on_sent(at_ms(i * 10), SEGMENT, (i + 1) * SEGMENT))).collect();
    path.on_acked(at_ms(40), &sent[0].1, sent[0].0, 0, SEGMENT);
    let _ = path.take_sample(&rtt_of(ms(40)));
    // Sent at 45 ms, after the first acknowledgement: its send interval starts at packet 0, its ack
    // interval at 40 ms.
    let late = path.on_sent(at_ms(45), SEGMENT, 4 * SEGMENT);
    for (number, (sent_at, stamp)) in sent.iter().enumerate().skip(1) {
        path.on_acked(at_ms(85), stamp, *sent_at, number as u64, SEGMENT);
    }
    path.on_acked(at_ms(85), &late, at_ms(45), 4, SEGMENT);
    let sample = path.take_sample(&rtt_of(ms(40))).expect("acknowledged");
    // Four packets; 45 ms by acknowledgements, 45 ms by send times.
    assert_eq!(sample.rate, mbps(4 * SEGMENT, ms(45)));
    assert_eq!((sample.prior_delivered, sample.delivered), (SEGMENT, 4 * SEGMENT));
}

#[test]
fn the_longer_interval_counts() {
    for (acked_ms, span_ms) in [(60, 60), (140, 100)] {
        let mut path = DeliveryRate::new();
        let first = path.on_sent(at_ms(0), SEGMENT, SEGMENT);
        let second = path.on_sent(at_ms(1), SEGMENT, 2 * SEGMENT);
        path.on_acked(at_ms(40), &first, at_ms(0), 0, SEGMENT);
        let _ = path.take_sample(&rtt_of(ms(1)));
        let third = path.on_sent(at_ms(60), SEGMENT, 2 * SEGMENT);
        path.on_acked(at_ms(acked_ms), &second, at_ms(1), 1, SEGMENT);
        path.on_acked(at_ms(acked_ms), &third, at_ms(60), 2, SEGMENT);
        let sample = path.take_sample(&rtt_of(ms(1))).expect("acknowledged");
        assert_eq!(sample.rate, mbps(2 * SEGMENT, ms(span_ms)), "acknowledged at {acked_ms} ms");
    }
}

#[test]
fn idle_time_does_not_count_as_delivery_time() {
    let mut path = DeliveryRate::new();
    let stamp = path.on_sent(at_ms(0), SEGMENT, SEGMENT);
    path.on_acked(at_ms(40), &stamp, at_ms(0), 0, SEGMENT);
    let _ = path.take_sample(&rtt_of(ms(40)));
    let stamp = path.on_sent(at_ms(10_000), 4 * SEGMENT, 4 * SEGMENT);
    path.on_acked(at_ms(10_040), &stamp, at_ms(10_000), 4, 4 * SEGMENT);
    assert_eq!(path.take_sample(&rtt_of(ms(40))).and_then(|sample| sample.rate), mbps(4 * SEGMENT, ms(40)));
}

#[test]
fn an_interval_below_the_minimum_round_trip_gives_no_rate() {
    let mut path = DeliveryRate::new();
    let stamp = path.on_sent(at_ms(0), SEGMENT, SEGMENT);
    path.on_acked(at_ms(39), &stamp, at_ms(0), 0, SEGMENT);
    let sample = path.take_sample(&rtt_of(ms(40))).expect("the rest of the sample holds");
    assert_eq!((sample.rate, sample.delivered), (None, SEGMENT));
}

#[test]
fn the_sample_is_for_the_newest_packet_in_any_order() {
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let mut path = DeliveryRate::new();
        let stamps = [SEGMENT, 2 * SEGMENT, 3 * SEGMENT].map(|in_flight| path.on_sent(at_ms(0), SEGMENT, in_flight));
        for index in order {
            path.on_acked(at_ms(40), &stamps[index], at_ms(0), index as u64, SEGMENT);
        }
        let sample = path.take_sample(&rtt_of(ms(40))).expect("acknowledged");
        assert_eq!(sample.in_flight_when_sent, 3 * SEGMENT, "{order:?}");
    }
}

#[test]
fn samples_are_marked_until_data_sent_after_the_pause_is_acknowledged() {
    let mut path = DeliveryRate::new();
    let before = path.on_sent(at_ms(0), SEGMENT, SEGMENT);
    path.on_app_limited(SEGMENT);
    assert!(path.is_app_limited());
    let during = path.on_sent(at_ms(20), SEGMENT, 2 * SEGMENT);
    let sample = |path: &mut DeliveryRate, at, stamp: &SendStamp, sent, number| {
        path.on_acked(at_ms(at), stamp, at_ms(sent), number, SEGMENT);
        path.take_sample(&rtt_of(ms(1))).expect("acknowledged").app_limited
    };
    assert!(!sample(&mut path, 40, &before, 0, 0), "sent before the pause");
    assert!(sample(&mut path, 60, &during, 20, 1));
    // 2000 bytes are delivered, and the mark ended at 1000.
    assert!(!path.is_app_limited());
    let after = path.on_sent(at_ms(61), SEGMENT, SEGMENT);
    assert!(!sample(&mut path, 101, &after, 61, 2));
}

#[test]
fn losses_are_counted_since_the_run_was_sent_and_adjacent_runs_are_one_gap() {
    let mut path = DeliveryRate::new();
    let first = path.on_sent(at_ms(0), 10 * SEGMENT, 10 * SEGMENT);
    let loss = path.on_lost(&first, 2..4, 2 * SEGMENT);
    assert_eq!((loss.bytes, loss.lost, loss.in_flight_when_sent, loss.new_gap), (2000, 2000, 10_000, true));
    let second = path.on_sent(at_ms(10), SEGMENT, 9 * SEGMENT);
    let loss = path.on_lost(&first, 4..5, SEGMENT);
    assert_eq!((loss.lost, loss.new_gap), (3000, false), "numbers 2 to 4 are one gap");
    let loss = path.on_lost(&second, 10..11, SEGMENT);
    assert_eq!((loss.lost, loss.new_gap), (2000, true), "losses before it was sent do not count");
    path.on_acked(at_ms(50), &second, at_ms(10), 12, SEGMENT);
    assert_eq!(path.take_sample(&rtt_of(ms(1))).map(|sample| sample.lost), Some(2000));
}

proptest! {
    /// A sender keeps a full window over a path that passes one packet every `gap`, with aggregated
    /// acknowledgements: no sample may exceed the path's rate.
    #[test]
    fn no_sample_exceeds_the_rate_of_the_path(gap in 1u64..5, window in 1u64..60, aggregate_ms in 1u64..40) {
        let (mut path, one_way) = (DeliveryRate::new(), 20);
        let (mut sent, mut acked, mut free_at) = (Vec::new(), 0, 0);
        for now in 0..2000 {
            let mut any = false;
            while let Some(&(sent_at, stamp, acked_at)) = sent.get(acked)
                && acked_at <= now
            {
                path.on_acked(at_ms(now), &stamp, at_ms(sent_at), acked as u64, SEGMENT);
                (acked, any) = (acked + 1, true);
            }
            if any {
                let sample = path.take_sample(&RttEstimator::default()).expect("acknowledged");
                let rate = sample.rate.expect("a millisecond at least");
                // An aggregate may include packets that the path passed up to one aggregate before
                // the interval began.
                let most = mbps(SEGMENT * (sample.rtt.as_millis() + aggregate_ms) / gap + SEGMENT, sample.rtt);
                prop_assert!(Some(rate) <= most, "{rate} with {sample:?}");
            }
            while (sent.len() - acked) < window as usize {
                let in_flight = (sent.len() - acked + 1) as u64 * SEGMENT;
                let stamp = path.on_sent(at_ms(now), SEGMENT, in_flight);
                free_at = (now + one_way).max(free_at) + gap;
                sent.push((now, stamp, (free_at + one_way).next_multiple_of(aggregate_ms)));
            }
        }
        prop_assert!(acked > 10);
    }
}
