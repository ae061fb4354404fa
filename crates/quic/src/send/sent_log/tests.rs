use std::collections::BTreeMap;

use proptest::prelude::*;
use recovery::RttEstimator;
use units::{Duration, Rng};
use wire::quic::{Dir, Side};

use super::*;

fn stream() -> StreamId {
    StreamId::new(Side::Client, Dir::Uni, 3)
}

/// A packet of the reference model, which has one entry per packet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    sent_at: Instant,
    size: u16,
    eliciting: bool,
    bytes: Option<Range<u64>>,
}

fn packets_of(run: Run) -> Vec<(u64, Packet)> {
    (0..u64::from(run.count))
        .map(|index| {
            let bytes = match run.content {
                Content::Stream { offset, stride, .. } => {
                    let start = offset + index * u64::from(stride);
                    Some(start..start + u64::from(stride))
                }
                _ => None,
            };
            let packet = Packet { sent_at: run.sent_at, size: run.size, eliciting: run.eliciting, bytes };
            (run.first + index, packet)
        })
        .collect()
}

fn held(log: &SentLog) -> BTreeMap<u64, Packet> {
    log.iter().copied().flat_map(packets_of).collect()
}

/// Usually a full packet of the stream, sometimes one whose frames are in the side table.
fn random_packet(rng: &mut Rng, log: &mut SentLog, now: Instant, number: u64, offset: &mut u64) -> Run {
    let full = rng.below(8) > 0;
    let content = if full {
        *offset += 1400;
        Content::Stream { id: stream(), offset: *offset - 1400, stride: 1400 }
    } else {
        log.store_frames(&mut vec![SentFrame::Ping])
    };
    Run {
        first: number,
        count: 1,
        size: if full { 1440 } else { 60 },
        eliciting: true,
        sent_at: now,
        stamp: SendStamp::default(),
        moved: false,
        content,
    }
}

/// Random batches, acknowledgements and loss detection, compared with a log of one entry per
/// packet.
fn compare(seed: u64) {
    let mut rng = Rng::from_seed(seed);
    let (mut log, mut oracle) = (SentLog::default(), BTreeMap::new());
    let (mut next, mut offset, mut now) = (0u64, 0u64, Instant::ZERO);
    let mut rtt = RttEstimator::default();
    rtt.update(Duration::from_micros(2_000), Duration::ZERO);
    for _ in 0..200 {
        now += Duration::from_micros(rng.between(1, 400));
        match rng.below(4) {
            0 | 1 => {
                for _ in 0..rng.between(1, 44) {
                    next += u64::from(rng.below(20) == 0); // a skipped number
                    let run = random_packet(&mut rng, &mut log, now, next, &mut offset);
                    oracle.extend(packets_of(run));
                    log.push(run);
                    next += 1;
                }
            }
            2 if next > 0 => {
                let mut ranges = Vec::new();
                let mut at = next.saturating_sub(rng.between(1, 120));
                while at < next {
                    let end = (at + rng.below(30)).min(next - 1);
                    ranges.push((at, end));
                    at = end + rng.between(2, 9);
                }
                let mut acked = BTreeMap::new();
                log.acknowledge(&ranges, |run| acked.extend(packets_of(run)));
                let expected: BTreeMap<_, _> = oracle
                    .iter()
                    .filter(|(number, _)| ranges.iter().any(|range| (range.0..=range.1).contains(number)))
                    .map(|(number, packet)| (*number, packet.clone()))
                    .collect();
                assert_eq!(acked, expected, "seed {seed}");
                oracle.retain(|number, _| !expected.contains_key(number));
            }
            3 if next > 0 => {
                let largest = next - 1 - rng.below(next.min(40));
                let delay = rtt.loss_delay();
                let mut lost = BTreeMap::new();
                let detector = LossDetector::new(largest, now, &rtt);
                let due = log.detect_lost(&detector, largest, |run| lost.extend(packets_of(run)));
                let is_lost = |number: u64, packet: &Packet| {
                    number < largest && (number + 3 <= largest || packet.sent_at + delay <= now)
                };
                let expected: BTreeMap<_, _> = oracle
                    .iter()
                    .filter(|(number, packet)| is_lost(**number, packet))
                    .map(|(number, packet)| (*number, packet.clone()))
                    .collect();
                assert_eq!(lost, expected, "seed {seed}");
                oracle.retain(|number, _| !expected.contains_key(number));
                let first_waiting = oracle.iter().find(|(number, _)| **number < largest);
                assert_eq!(due, first_waiting.map(|(_, packet)| packet.sent_at + delay), "seed {seed}");
            }
            _ => {}
        }
        assert_eq!(held(&log), oracle, "seed {seed}");
        assert_eq!(log.has_eliciting(), !oracle.is_empty(), "seed {seed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_log_of_runs_equals_a_log_of_single_packets(seed: u64) {
        compare(seed);
    }
}

#[test]
fn a_full_batch_is_one_run() {
    let mut log = SentLog::default();
    for index in 0..44 {
        log.push(Run {
            first: index,
            count: 1,
            size: 1472,
            eliciting: true,
            sent_at: Instant::ZERO,
            stamp: SendStamp::default(),
            moved: false,
            content: Content::Stream { id: stream(), offset: index * 1440, stride: 1440 },
        });
    }
    assert_eq!(log.run_count(), 1);
    let mut acked = Vec::new();
    log.acknowledge(&[(0, 43)], |run| acked.push(run.stream_range()));
    assert_eq!(acked, [Some((stream(), 0..44 * 1440))]);
    assert_eq!(log.run_count(), 0);
}

#[test]
fn an_acknowledgement_in_the_middle_splits_a_run() {
    let mut log = SentLog::default();
    let content = Content::Stream { id: stream(), offset: 0, stride: 100 };
    let (sent_at, stamp) = (Instant::ZERO, SendStamp::default());
    log.push(Run { first: 10, count: 40, size: 140, eliciting: true, sent_at, stamp, moved: false, content });
    let mut acked = Vec::new();
    log.acknowledge(&[(20, 24), (30, 30)], |run| acked.push((run.first, run.count, run.stream_range())));
    assert_eq!(acked, [(20, 5, Some((stream(), 1000..1500))), (30, 1, Some((stream(), 2000..2100)))]);
    assert_eq!(log.iter().map(|run| (run.first, run.count)).collect::<Vec<_>>(), [(10, 10), (25, 5), (31, 19)]);
}

#[test]
fn slots_of_the_side_table_are_reused() {
    let mut log = SentLog::default();
    let mut frames = vec![SentFrame::Ping];
    let Content::Side(first) = log.store_frames(&mut frames) else { panic!("frames were stored") };
    log.take_frames(first, &mut frames);
    assert_eq!(log.store_frames(&mut frames), Content::Side(first));
}
