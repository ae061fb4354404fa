//! Measures the deliveries of a run, one [`PartOutcome`] for each workload part. All worlds use
//! this module, so their measurements are comparable.

use std::collections::BTreeMap;

use units::{Duration, Instant};

use crate::content::ItemName;
use crate::model::{Part, Scenario, Work};
use crate::outcome::{Deliveries, GAP_MIN, Gap, PartOutcome};

/// Words of the bit set of items that have begun: enough for the smallest chunks of the largest
/// file.
const BEGUN_WORDS_MAX: usize = (crate::model::SIZE_MAX / 4096 / 64) as usize;

/// Error: no item of this name is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign;

/// The measurements of one run.
#[derive(Debug)]
pub struct Measurements {
    parts: Vec<Record>,
    foreign_streams: u64,
}

#[derive(Debug)]
struct Record {
    part: Part,
    outcome: PartOutcome,
    /// Time of the last arrival, or of the beginning of the part.
    last_at: Instant,
    /// Due time of each timed item.
    due: BTreeMap<u64, Instant>,
    /// The highest item number that has arrived completely.
    highest: Option<u64>,
    /// One bit for each item of which bytes have arrived: requests, then responses.
    begun: [Vec<u64>; 2],
}

impl Measurements {
    /// Creates empty measurements of this scenario's parts.
    pub fn new(scenario: &Scenario) -> Self {
        let record = |(index, part): (usize, &Part)| Record {
            part: part.clone(),
            outcome: PartOutcome { delivered: Deliveries::new(scenario, index), ..PartOutcome::default() },
            last_at: Instant::ZERO,
            due: BTreeMap::new(),
            highest: None,
            begun: [Vec::new(), Vec::new()],
        };
        Self { parts: scenario.parts.iter().enumerate().map(record).collect(), foreign_streams: 0 }
    }

    /// Records that a part begins.
    pub fn on_started(&mut self, now: Instant, part: usize) {
        let record = &mut self.parts[part];
        record.outcome.started_at = Some(now);
        record.last_at = now;
    }

    /// Records bytes that the sending application wrote to the connection.
    pub fn on_sent(&mut self, part: usize, bytes: u64) {
        self.parts[part].outcome.sent_bytes += bytes;
    }

    /// Records that a message or request is due at `at`, whether or not it can be sent.
    pub fn on_due(&mut self, part: usize, item: u64, at: Instant) {
        self.parts[part].due.insert(item, at);
    }

    /// Records that a header has arrived. Returns the item's length (`None` has no end), or an
    /// error if no item of this name is expected, or not again: then the stream is foreign.
    pub fn on_begun(&mut self, name: ItemName) -> Result<Option<u64>, Foreign> {
        let record = self.parts.get_mut(usize::from(name.part));
        let len = record.and_then(|record| record.begin(name));
        if len.is_none() {
            self.foreign_streams += 1;
        }
        len.ok_or(Foreign)
    }

    /// Returns whether deliveries of this item are measured. For requests, the responses are
    /// measured instead.
    pub fn counts(&self, name: ItemName) -> bool {
        let asks = |record: &Record| matches!(record.part.work, Work::RequestResponse { .. });
        self.parts.get(usize::from(name.part)).is_some_and(|record| name.is_answer || !asks(record))
    }

    /// Records wrong bytes of an item whose delivery is not measured.
    pub fn on_wrong(&mut self, part: usize, wrong: u64) {
        self.parts[part].outcome.misplaced_bytes += wrong;
    }

    /// Records delivered bytes of a measured item; `wrong` of them had the wrong content.
    pub fn on_bytes(&mut self, now: Instant, part: usize, bytes: u64, wrong: u64) {
        let record = &mut self.parts[part];
        record.outcome.misplaced_bytes += wrong;
        if bytes > 0 {
            record.on_bytes(now, bytes);
        }
    }

    /// Records bytes beyond the end of an item.
    pub fn on_surplus(&mut self, part: usize, bytes: u64) {
        self.parts[part].outcome.surplus_bytes += bytes;
    }

    /// Records a stream without a valid header.
    pub fn on_foreign(&mut self) {
        self.foreign_streams += 1;
    }

    /// Records that a measured item has arrived completely.
    pub fn on_item(&mut self, now: Instant, name: ItemName) {
        let Some(record) = self.parts.get_mut(usize::from(name.part)) else { return };
        record.outcome.items_delivered += 1;
        if record.highest.is_some_and(|highest| highest > name.item) {
            record.outcome.items_overtaken += 1;
        }
        record.highest = record.highest.max(Some(name.item));
        if let Some(due) = record.due.remove(&name.item) {
            record.outcome.latencies.push(now.saturating_since(due));
        }
        let is_last = record.part.work.item_count() == Some(record.outcome.items_delivered);
        if is_last && record.part.work.delivered_bytes().is_some() {
            record.outcome.finished_at = Some(now);
        }
    }

    /// Returns whether every part has arrived completely. A part without end never has: then the
    /// run ends by its duration.
    pub fn is_done(&self) -> bool {
        let ends = |record: &&Record| record.part.work.delivered_bytes().is_some();
        self.parts.iter().all(|record| ends(&record) && record.outcome.finished_at.is_some())
    }

    /// Returns the number of bytes delivered so far, over all parts.
    pub fn delivered_bytes(&self) -> u64 {
        self.parts.iter().map(|record| record.outcome.delivered.timeline.bytes).sum()
    }

    /// Ends the run. Returns the measurements of each part and the number of foreign streams.
    pub fn finish(self, now: Instant, has_failed: bool) -> (Vec<PartOutcome>, u64) {
        let parts = self.parts.into_iter().map(|record| record.finish(now, has_failed)).collect();
        (parts, self.foreign_streams)
    }
}

impl Record {
    /// Returns the length of an item that begins to arrive, if the item exists and has not begun
    /// before.
    fn begin(&mut self, name: ItemName) -> Option<Option<u64>> {
        let is_request = matches!(self.part.work, Work::RequestResponse { .. });
        let exists = self.part.work.item_count().is_none_or(|count| name.item < count);
        if !exists || (name.is_answer && !is_request) {
            return None;
        }
        let begun = &mut self.begun[usize::from(name.is_answer)];
        let (word, bit) = ((name.item / 64) as usize, 1 << (name.item % 64));
        if word >= BEGUN_WORDS_MAX {
            return None;
        }
        begun.resize(begun.len().max(word + 1), 0);
        if begun[word] & bit != 0 {
            return None;
        }
        begun[word] |= bit;
        Some(match &self.part.work {
            Work::RequestResponse { response, .. } if name.is_answer => Some(*response),
            work => work.item_len(name.item),
        })
    }

    fn on_bytes(&mut self, now: Instant, bytes: u64) {
        self.note_gap(now);
        let delivered = &mut self.outcome.delivered;
        self.last_at = now;
        delivered.last_at = Some(now);
        delivered.timeline.add(now, bytes);
    }

    fn note_gap(&mut self, now: Instant) {
        let length = now.saturating_since(self.last_at);
        if length >= GAP_MIN && self.outcome.started_at.is_some() {
            self.outcome.delivered.note_gap(Gap { from: self.last_at, length });
        }
    }

    fn finish(mut self, now: Instant, has_failed: bool) -> PartOutcome {
        if self.outcome.finished_at.is_none() {
            self.note_gap(now);
        }
        let outcome = &mut self.outcome;
        outcome.due_bytes = match self.part.work.delivered_bytes() {
            Some(bytes) => bytes,
            // Bytes in flight on a failed connection are lost.
            None if has_failed => outcome.sent_bytes,
            // A part without end has bytes in flight when the run ends. They do not count as lost.
            None => outcome.delivered.timeline.bytes,
        };
        let is_endless = self.part.work.delivered_bytes().is_none();
        if is_endless && !has_failed && outcome.delivered.timeline.bytes > 0 {
            outcome.finished_at = Some(now);
        }
        outcome.delivered.keep_longest_gaps();
        self.outcome
    }
}

/// The due times of a part's items, counted from the part's beginning. Random intervals are drawn
/// from the run's seed.
#[derive(Clone, Debug)]
pub struct DueTimes {
    times: crate::model::Times,
    rng: units::Rng,
    next: Duration,
    left: u64,
}

impl DueTimes {
    /// Returns the due times of this work; `None` if it has no timed items.
    pub fn new(work: &Work, rng: units::Rng) -> Option<Self> {
        let times = *work.times()?;
        Some(Self { times, rng, next: Duration::ZERO, left: times.count })
    }

    /// Returns the next due time, if an item is left.
    pub fn peek(&self) -> Option<Duration> {
        (self.left > 0).then_some(self.next)
    }

    /// Advances to the next item.
    pub fn advance(&mut self) {
        self.left = self.left.saturating_sub(1);
        let every = self.times.every;
        self.next += match self.times.arrivals {
            crate::model::Arrivals::Even => every,
            crate::model::Arrivals::Poisson => {
                // -ln(1 - u) of a uniform draw. A rounding error in the last place of `ln` changes
                // the result by less than a nanosecond.
                let uniform = (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                Duration::from_nanos((-(1.0 - uniform).ln() * every.as_nanos() as f64) as u64)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Window;
    use crate::outcome::GAPS_MAX;
    use crate::testing::scenario;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn measurements(workload: &str) -> Measurements {
        Measurements::new(&scenario(&format!("[[link]]\nname = 'a'\n[[workload]]\n{workload}\n")))
    }

    #[test]
    fn gaps_include_those_at_the_beginning_and_the_end() {
        let mut measurements = measurements("kind = 'stream'");
        measurements.on_started(at(100), 0);
        measurements.on_bytes(at(150), 0, 10, 0);
        measurements.on_bytes(at(152), 0, 10, 0);
        let (parts, _) = measurements.finish(at(252), false);
        let gaps: Vec<_> = parts[0].delivered.gaps.iter().map(|gap| (gap.from, gap.length.as_millis())).collect();
        assert_eq!(gaps, [(at(152), 100), (at(100), 50), (at(150), 2)]);
        assert_eq!(parts[0].finished_at, Some(at(252)));
    }

    #[test]
    fn work_without_end_completes_with_the_run_unless_the_connection_failed_or_nothing_arrived() {
        for (bytes, has_failed, finished_at, missing) in
            [(30, false, Some(at(252)), 0), (30, true, None, 70), (0, false, None, 0), (0, true, None, 100)]
        {
            let mut measurements = measurements("kind = 'stream'");
            measurements.on_started(at(100), 0);
            measurements.on_sent(0, 100);
            measurements.on_bytes(at(152), 0, bytes, 0);
            let (parts, _) = measurements.finish(at(252), has_failed);
            assert_eq!(
                (parts[0].finished_at, parts[0].missing_bytes()),
                (finished_at, missing),
                "{bytes} {has_failed}"
            );
        }
    }

    #[test]
    fn the_longest_gap_of_a_window_is_kept_beside_a_thousand_longer_gaps_outside() {
        let checks = "[[check]]\nkind = 'gap'\nat-most = '1s'\nuntil = '290ms'\n\
                      [[check]]\nkind = 'gap'\nat-most = '1s'\nfrom = '1s'";
        let mut measurements = measurements(&format!("kind = 'stream'\n{checks}"));
        measurements.on_started(at(0), 0);
        let mut now = at(0);
        for index in 0..3000 {
            now += Duration::from_millis(if index < 100 { 2 + index % 3 } else { 5 + index % 7 });
            measurements.on_bytes(now, 0, 1, 0);
        }
        let delivered = &measurements.finish(now, false).0[0].delivered;
        let longest = |from, until| {
            let millis = |at: Option<u64>| at.map(Duration::from_millis);
            delivered.longest_gap(Window { from: millis(from), until: millis(until) }).map(Duration::as_millis)
        };
        // The first hundred take 299 ms.
        assert!(delivered.gaps.iter().all(|gap| gap.length.as_millis() > 4));
        assert_eq!((longest(None, Some(290)), longest(Some(1000), None)), (Some(4), Some(11)));
        assert_eq!(longest(None, Some(500)), None, "no check has this window");
    }

    #[test]
    fn a_completed_part_has_no_gap_after_its_end() {
        let mut measurements = measurements("kind = 'stream'\nsize = '20B'");
        measurements.on_started(at(0), 0);
        measurements.on_bytes(at(0), 0, 20, 0);
        assert!(!measurements.is_done());
        measurements.on_item(at(0), ItemName { part: 0, is_answer: false, item: 0 });
        assert!(measurements.is_done());
        let (parts, _) = measurements.finish(at(900), false);
        assert_eq!(parts[0].delivered.gaps, []);
        assert_eq!((parts[0].missing_bytes(), parts[0].finished_at), (0, Some(at(0))));
    }

    #[test]
    fn undelivered_bytes_are_missing_and_latency_counts_from_the_due_time() {
        let mut measurements = measurements("kind = 'messages'\nsize = '20B'\ncount = 3\nevery = '10ms'");
        measurements.on_started(at(0), 0);
        for item in [1, 0] {
            measurements.on_due(0, item, at(10 * item));
            measurements.on_bytes(at(50), 0, 20, 0);
            measurements.on_item(at(50), ItemName { part: 0, is_answer: false, item });
        }
        let (parts, _) = measurements.finish(at(100), false);
        assert_eq!(parts[0].latencies, [40, 50].map(Duration::from_millis));
        assert_eq!((parts[0].missing_bytes(), parts[0].items_overtaken, parts[0].finished_at), (20, 1, None));
    }

    #[test]
    fn only_the_longest_gaps_are_kept() {
        let mut measurements = measurements("kind = 'stream'");
        measurements.on_started(at(0), 0);
        let mut now = at(0);
        for index in 0..10_000_u64 {
            now += Duration::from_millis(1 + index % 977);
            measurements.on_bytes(now, 0, 1, 0);
        }
        let (parts, _) = measurements.finish(now, false);
        let gaps = &parts[0].delivered.gaps;
        assert_eq!((gaps.len(), gaps[0].length), (GAPS_MAX, Duration::from_millis(977)));
        assert!(gaps.windows(2).all(|pair| pair[0].length >= pair[1].length));
    }

    #[test]
    fn random_intervals_have_the_requested_mean() {
        let work = Work::Messages {
            size: 20,
            times: crate::model::Times {
                every: Duration::from_millis(5),
                count: 20_000,
                arrivals: crate::model::Arrivals::Poisson,
            },
        };
        let mut due = DueTimes::new(&work, units::Rng::from_seed(1)).unwrap();
        let mut last = Duration::ZERO;
        let mut count = 0;
        while let Some(next) = due.peek() {
            assert!(next >= last);
            (last, count) = (next, count + 1);
            due.advance();
        }
        assert_eq!(count, 20_000);
        assert!((98..102).contains(&last.as_nanos().div_euclid(1_000_000_000)), "{last}");
    }
}
