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
fn a_stamp_is_small() {
    assert_eq!(size_of::<SendStamp>(), 40);
}

#[test]
fn the_first_flight_is_measured_from_its_sending_to_its_acknowledgement() {
    let mut path = DeliveryRate::new();
    let stamp = path.on_sent(at_ms(5), 10 * SEGMENT, 10 * SEGMENT);
    path.on_acked(at_ms(45), &stamp, at_ms(5), 9, 10 * SEGMENT);
    let sample = path.take_sample(&rtt_of(ms(40))).expect("something was acknowledged");
    assert_eq!(sample.rate, mbps(10 * SEGMENT, ms(40)));
    assert_eq!((sample.delivered, sample.prior_delivered, sample.delivered_total), (10_000, 0, 10_000));
    assert_eq!((sample.in_flight_when_sent, sample.lost, sample.app_limited, sample.rtt), (10_000, 0, false, ms(40)));
    assert_eq!(path.take_sample(&rtt_of(ms(40))), None, "nothing since");
}

/// Packets leave every 10 ms from 0 on and arrive 40 ms later; all acknowledgements are held up until 100 ms. By the clock
/// of acknowledgements, four packets came in no time.
#[test]
fn compressed_acknowledgements_do_not_make_the_path_faster_than_it_was_sent_to() {
    let mut path = DeliveryRate::new();
    let sent: Vec<_> =
        (0..4).map(|i| (at_ms(i * 10), path.on_sent(at_ms(i * 10), SEGMENT, (i + 1) * SEGMENT))).collect();
    path.on_acked(at_ms(40), &sent[0].1, sent[0].0, 0, SEGMENT);
    let _ = path.take_sample(&rtt_of(ms(40)));
    // Sent at 45 ms, after the first acknowledgement: its send span runs from packet 0, its other from 40 ms.
    let late = path.on_sent(at_ms(45), SEGMENT, 4 * SEGMENT);
    for (number, (sent_at, stamp)) in sent.iter().enumerate().skip(1) {
        path.on_acked(at_ms(85), stamp, *sent_at, number as u64, SEGMENT);
    }
    path.on_acked(at_ms(85), &late, at_ms(45), 4, SEGMENT);
    let sample = path.take_sample(&rtt_of(ms(40))).expect("acknowledged");
    // Four packets; 45 ms by acknowledgements, 45 ms by sending.
    assert_eq!(sample.rate, mbps(4 * SEGMENT, ms(45)));
    assert_eq!((sample.prior_delivered, sample.delivered), (SEGMENT, 4 * SEGMENT));
}

#[test]
fn the_longer_span_counts() {
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
fn a_rest_does_not_count_as_time_of_delivery() {
    let mut path = DeliveryRate::new();
    let stamp = path.on_sent(at_ms(0), SEGMENT, SEGMENT);
    path.on_acked(at_ms(40), &stamp, at_ms(0), 0, SEGMENT);
    let _ = path.take_sample(&rtt_of(ms(40)));
    let stamp = path.on_sent(at_ms(10_000), 4 * SEGMENT, 4 * SEGMENT);
    path.on_acked(at_ms(10_040), &stamp, at_ms(10_000), 4, 4 * SEGMENT);
    assert_eq!(path.take_sample(&rtt_of(ms(40))).and_then(|sample| sample.rate), mbps(4 * SEGMENT, ms(40)));
}

#[test]
fn a_span_below_the_shortest_round_trip_gives_no_rate() {
    let mut path = DeliveryRate::new();
    let stamp = path.on_sent(at_ms(0), SEGMENT, SEGMENT);
    path.on_acked(at_ms(39), &stamp, at_ms(0), 0, SEGMENT);
    let sample = path.take_sample(&rtt_of(ms(40))).expect("the rest of the sample holds");
    assert_eq!((sample.rate, sample.delivered), (None, SEGMENT));
}

#[test]
fn the_newest_packet_speaks_for_the_acknowledgement_in_whatever_order_they_come() {
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
fn samples_are_marked_until_what_followed_the_pause_is_acknowledged() {
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
    // 2000 bytes are delivered and the mark ended with 1000.
    assert!(!path.is_app_limited());
    let after = path.on_sent(at_ms(61), SEGMENT, SEGMENT);
    assert!(!sample(&mut path, 101, &after, 61, 2));
}

#[test]
fn a_loss_is_counted_from_the_sending_of_its_row_and_neighbours_are_one_gap() {
    let mut path = DeliveryRate::new();
    let first = path.on_sent(at_ms(0), 10 * SEGMENT, 10 * SEGMENT);
    let loss = path.on_lost(&first, 2..4, 2 * SEGMENT);
    assert_eq!((loss.bytes, loss.lost, loss.in_flight_when_sent, loss.new_gap), (2000, 2000, 10_000, true));
    let second = path.on_sent(at_ms(10), SEGMENT, 9 * SEGMENT);
    let loss = path.on_lost(&first, 4..5, SEGMENT);
    assert_eq!((loss.lost, loss.new_gap), (3000, false), "numbers 2 to 4 are one gap");
    let loss = path.on_lost(&second, 10..11, SEGMENT);
    assert_eq!((loss.lost, loss.new_gap), (2000, true), "what was lost before it was sent does not count");
    path.on_acked(at_ms(50), &second, at_ms(10), 12, SEGMENT);
    assert_eq!(path.take_sample(&rtt_of(ms(1))).map(|sample| sample.lost), Some(2000));
}

proptest! {
    /// A sender that keeps a window under way over a path that passes one packet each `gap`, whose acknowledgements come in
    /// bunches: no sample may say more than the path's rate.
    #[test]
    fn no_sample_exceeds_the_rate_of_the_path(gap in 1u64..5, window in 1u64..60, bunch in 1u64..40) {
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
                // A bunch may hold what the path passed up to one bunch before the span began.
                let most = mbps(SEGMENT * (sample.rtt.as_millis() + bunch) / gap + SEGMENT, sample.rtt);
                prop_assert!(Some(rate) <= most, "{rate} with {sample:?}");
            }
            while (sent.len() - acked) < window as usize {
                let in_flight = (sent.len() - acked + 1) as u64 * SEGMENT;
                let stamp = path.on_sent(at_ms(now), SEGMENT, in_flight);
                free_at = (now + one_way).max(free_at) + gap;
                sent.push((now, stamp, (free_at + one_way).next_multiple_of(bunch)));
            }
        }
        prop_assert!(acked > 10);
    }
}
