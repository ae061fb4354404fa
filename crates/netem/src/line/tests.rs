use proptest::prelude::*;
use units::Duration;

use super::*;
use crate::trace::OPPORTUNITY_BYTES;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn ms(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn with_rate(rate: Rate) -> Line<()> {
    Line::new(Some(rate), None)
}

fn with_trace(offsets_ms: &[u32]) -> Line<()> {
    Line::new(None, Some(&Trace::from_millis(offsets_ms.iter().copied()).unwrap()))
}

/// Sends a packet as soon as the line accepts it, and returns its departure time.
fn pass(line: &mut Line<()>, since: Instant, line_bytes: u64) -> Instant {
    let start = line.ready_at(since).unwrap();
    line.start(since, start, line_bytes, ());
    let departure = line.departure().unwrap();
    assert!(since <= start && start <= departure);
    line.finish();
    departure
}

proptest! {
    #[test]
    fn consecutive_packets_take_as_long_as_one_packet_of_their_sum(
        rate_bps in 1..=400_000_000_000_u64,
        lengths in prop::collection::vec(0..100_000_u64, 1..100),
    ) {
        let mut line = with_rate(Rate::from_bps(rate_bps));
        let mut sum = 0;
        for line_bytes in lengths {
            sum += line_bytes;
            let whole = Rate::from_bps(rate_bps).time_for(sum);
            prop_assert_eq!(pass(&mut line, Instant::ZERO, line_bytes), Instant::ZERO + whole);
        }
    }

    #[test]
    fn stops_delay_the_packet_by_exactly_their_duration(
        rate_bps in 1_000..=400_000_000_000_u64,
        line_bytes in 1..100_000_u64,
        stops in prop::collection::vec((1..50_u64, 0..1_000_000_u64), 0..5),
    ) {
        let mut line = with_rate(Rate::from_bps(rate_bps));
        line.start(Instant::ZERO, Instant::ZERO, line_bytes, ());
        let mut expected = Rate::from_bps(rate_bps).time_for(line_bytes);
        let mut now = Instant::ZERO;
        for (share, still) in stops {
            // The stop is during the transmission: the packet must not have departed.
            let rest = line.departure().unwrap() - now;
            now += rest.mul_ratio(share, 100);
            line.stop(now);
            prop_assert_eq!((line.departure(), line.ready_at(now)), (None, None));
            now += Duration::from_nanos(still);
            line.resume(now);
            expected += Duration::from_nanos(still);
        }
        prop_assert_eq!(line.departure(), Some(Instant::ZERO + expected));
    }

    /// Compared with a reference that iterates over the opportunities one by one.
    #[test]
    fn a_trace_matches_the_reference_implementation(
        mut offsets in prop::collection::vec(0..40_u32, 1..12),
        packets in prop::collection::vec((0..30_000_000_u64, 0..5000_u64), 1..40),
    ) {
        offsets.sort_unstable();
        offsets.push(offsets[offsets.len() - 1].max(1));
        let trace = Trace::from_millis(offsets).unwrap();
        let mut line = Line::new(None, Some(&trace));
        let (mut since, mut number, mut left) = (Instant::ZERO, 0, OPPORTUNITY_BYTES);
        for (wait, line_bytes) in packets {
            since += Duration::from_nanos(wait);
            let mut rest = line_bytes.max(1);
            let departure = loop {
                if trace.time_of(number) <= since || left == 0 {
                    (number, left) = (number + 1, OPPORTUNITY_BYTES);
                    continue;
                }
                let carried = rest.min(left);
                (rest, left) = (rest - carried, left - carried);
                if rest == 0 {
                    break trace.time_of(number);
                }
            };
            prop_assert_eq!(pass(&mut line, since, line_bytes), departure);
        }
    }
}

#[test]
fn an_idle_line_drops_its_fraction() {
    let mut line = with_rate(Rate::from_mbps(100_000));
    assert_eq!(pass(&mut line, Instant::ZERO, 1499), at(120));
    // 119.92 ns, then a start at 130, not at 129.92.
    assert_eq!(pass(&mut line, at(130), 1499), at(250));
}

#[test]
fn times_saturate_at_the_maximum() {
    assert_eq!(pass(&mut with_rate(Rate::from_bps(1)), at(5), u64::MAX), Instant::FAR_FUTURE);
    assert_eq!(pass(&mut with_trace(&[1000]), at(5), u64::MAX), Instant::FAR_FUTURE);
}

#[test]
fn small_packets_share_an_opportunity_and_large_ones_take_several() {
    let mut line = with_trace(&[5, 10, 10, 20]);
    let mut departures = [500, 1000, 1, 4000, 499].map(|line_bytes| pass(&mut line, Instant::ZERO, line_bytes));
    // The third finds no capacity left at 5; the fourth takes the rest of the first opportunity at
    // 10, the second, and a part of the one at 20.
    assert_eq!(departures, [5, 5, 10, 20, 20].map(ms));
    // The second round begins at 20, the end of the first.
    departures = [1500, 1500, 1, 1500, 1].map(|line_bytes| pass(&mut line, Instant::ZERO, line_bytes));
    assert_eq!(departures, [25, 30, 30, 40, 40].map(ms));
}

#[test]
fn unused_opportunities_are_lost() {
    let mut line = with_trace(&[1, 2, 3, 100]);
    assert_eq!(pass(&mut line, ms(50), 1500), ms(100));
    // A packet offered at the time of an opportunity is too late for it; one just before is not.
    assert_eq!(pass(&mut line, ms(101), 1500), ms(102));
    assert_eq!(pass(&mut line, at(102_999_999), 1500), ms(103));
    assert_eq!(pass(&mut line, ms(103), 1000), ms(200));
    // The rest of an opportunity is not available to packets offered at that time, only to packets
    // offered before.
    let mut shared = line.clone();
    assert_eq!(pass(&mut line, ms(200), 500), ms(201));
    assert_eq!(pass(&mut shared, at(199_999_999), 500), ms(200));
}

#[test]
fn a_stopped_trace_loses_opportunities_and_keeps_progress() {
    let mut line = with_trace(&[10, 20, 30, 40, 50]);
    line.start(Instant::ZERO, ms(10), 3 * 1500 - 100, ());
    assert_eq!(line.departure(), Some(ms(30)));
    // One of three opportunities is used; the one at the time of the stop is not.
    line.stop(ms(20));
    line.resume(ms(45));
    assert_eq!(line.departure(), Some(ms(60)));
    line.finish();
    // The idle line is stopped: the rest of the last opportunity is lost and not available after
    // the stop.
    line.stop(ms(60));
    line.resume(ms(71));
    assert_eq!(pass(&mut line, ms(1), 1), ms(80));
}

#[test]
fn a_new_capacity_does_not_change_the_departure_of_the_packet_in_transmission() {
    let trace = Trace::from_millis([10]).unwrap();
    let mut line = with_rate(Rate::from_mbps(8));
    line.start(Instant::ZERO, Instant::ZERO, 12_500, ());
    line.set_capacity(ms(1), None, Some(&trace));
    assert_eq!(line.departure(), Some(at(12_500_000)));
    line.stop(ms(2));
    line.resume(ms(7));
    assert_eq!(line.departure(), Some(at(17_500_000)), "also across a stop");
    line.finish();
    assert_eq!(pass(&mut line, ms(2), 1500), ms(20));

    line.start(ms(2), ms(30), 3000, ());
    line.set_capacity(ms(31), Some(Rate::from_mbps(8)), None);
    assert_eq!(line.departure(), Some(ms(40)));
    line.finish();
    assert_eq!(pass(&mut line, ms(2), 1000), ms(41));
    line.set_capacity(ms(60), None, None);
    assert_eq!(pass(&mut line, ms(2), 1000), ms(60), "never in the past");
}
