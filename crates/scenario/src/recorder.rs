//! Turns what applications get into a [`PartOutcome`] a part. Used by every world, so that all measure alike.

use std::collections::BTreeMap;

use units::{Duration, Instant};

use crate::content::Name;
use crate::model::{Part, Scenario, Work};
use crate::outcome::{BIN, Deliveries, GAP_MIN, Gap, PartOutcome};

/// Words of a bit set that knows which things have begun: the smallest chunks of the largest file.
const BEGUN_WORDS_MAX: usize = (crate::model::SIZE_MAX / 4096 / 64) as usize;

/// Nothing of this name is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign;

/// The measurements of one run.
#[derive(Debug)]
pub struct Recorder {
    parts: Vec<Record>,
    foreign_streams: u64,
}

#[derive(Debug)]
struct Record {
    part: Part,
    outcome: PartOutcome,
    /// When the last bytes came, or the part began.
    last_at: Instant,
    /// When things with a time were due.
    due: BTreeMap<u64, Instant>,
    /// The highest number that has arrived whole.
    highest: Option<u64>,
    /// The numbers of which something has arrived, a bit each; of requests, then of answers.
    begun: [Vec<u64>; 2],
}

impl Recorder {
    /// Nothing has happened yet.
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

    /// Of a scenario without work.
    pub(crate) const fn of_nothing() -> Self {
        Self { parts: Vec::new(), foreign_streams: 0 }
    }

    /// A part begins.
    pub fn on_started(&mut self, now: Instant, part: usize) {
        let record = &mut self.parts[part];
        record.outcome.started_at = Some(now);
        record.last_at = now;
    }

    /// The sending application gave bytes to the connection.
    pub fn on_sent(&mut self, part: usize, bytes: u64) {
        self.parts[part].outcome.sent_bytes += bytes;
    }

    /// A message or request is due now, or was at `at`, whether it can be sent or not.
    pub fn on_due(&mut self, part: usize, item: u64, at: Instant) {
        self.parts[part].due.insert(item, at);
    }

    /// A header has arrived: how long the thing is (`None` is without end), or an error if nothing of this name is to come
    /// (any more), so that it is foreign.
    pub fn on_begun(&mut self, name: Name) -> Result<Option<u64>, Foreign> {
        let record = self.parts.get_mut(usize::from(name.part));
        let len = record.and_then(|record| record.begin(name));
        if len.is_none() {
            self.foreign_streams += 1;
        }
        len.ok_or(Foreign)
    }

    /// Whether the delivery of a thing of this name counts: not that of requests, whose answers do.
    pub fn counts(&self, name: Name) -> bool {
        let asks = |record: &Record| matches!(record.part.work, Work::RequestResponse { .. });
        self.parts.get(usize::from(name.part)).is_some_and(|record| name.is_answer || !asks(record))
    }

    /// Bytes of a thing that does not count did not belong where they were.
    pub fn on_wrong(&mut self, part: usize, wrong: u64) {
        self.parts[part].outcome.misplaced_bytes += wrong;
    }

    /// The receiving application got bytes of a thing whose delivery counts, of which `wrong` did not belong there.
    pub fn on_bytes(&mut self, now: Instant, part: usize, bytes: u64, wrong: u64) {
        let record = &mut self.parts[part];
        record.outcome.misplaced_bytes += wrong;
        if bytes > 0 {
            record.on_bytes(now, bytes);
        }
    }

    /// Bytes came that should not have come.
    pub fn on_surplus(&mut self, part: usize, bytes: u64) {
        self.parts[part].outcome.surplus_bytes += bytes;
    }

    /// A stream that names nothing came.
    pub fn on_foreign(&mut self) {
        self.foreign_streams += 1;
    }

    /// A thing whose delivery counts has arrived whole.
    pub fn on_item(&mut self, now: Instant, name: Name) {
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

    /// Whether all that has an end has arrived. False if nothing has one: then time ends it.
    pub fn is_done(&self) -> bool {
        let ends = |record: &&Record| record.part.work.delivered_bytes().is_some();
        self.parts.iter().all(|record| ends(&record) && record.outcome.finished_at.is_some())
    }

    /// Bytes delivered so far, all parts together.
    pub fn delivered_bytes(&self) -> u64 {
        self.parts.iter().map(|record| record.outcome.delivered.bytes).sum()
    }

    /// The run is over, because the connection has failed or not: the parts' measurements, and the streams that named
    /// nothing.
    pub fn finish(self, now: Instant, has_failed: bool) -> (Vec<PartOutcome>, u64) {
        let parts = self.parts.into_iter().map(|record| record.finish(now, has_failed)).collect();
        (parts, self.foreign_streams)
    }
}

impl Record {
    /// The length of a thing that begins to arrive, if there is one of this name and it has not begun before.
    fn begin(&mut self, name: Name) -> Option<Option<u64>> {
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
        let bin = (now.as_nanos() / BIN.as_nanos()) as usize;
        if delivered.cumulative_bytes.len() <= bin {
            delivered.cumulative_bytes.resize(bin + 1, delivered.bytes);
        }
        delivered.bytes += bytes;
        delivered.cumulative_bytes[bin] = delivered.bytes;
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
            // What a dead connection has on the way never comes.
            None if has_failed => outcome.sent_bytes,
            // Nobody waits for the end of what has none: what is on the way when the run ends is not lost.
            None => outcome.delivered.bytes,
        };
        let is_endless = self.part.work.delivered_bytes().is_none();
        if is_endless && !has_failed && outcome.delivered.bytes > 0 {
            outcome.finished_at = Some(now);
        }
        outcome.delivered.shorten_gaps();
        self.outcome
    }
}

/// When things of a part are due, counted from its beginning: the sum of times between them, from the run's seed.
#[derive(Clone, Debug)]
pub struct DueTimes {
    times: crate::model::Times,
    rng: units::Rng,
    next: Duration,
    left: u64,
}

impl DueTimes {
    /// For this part, if its things have times.
    pub fn new(work: &Work, rng: units::Rng) -> Option<Self> {
        let times = *work.times()?;
        Some(Self { times, rng, next: Duration::ZERO, left: times.count })
    }

    /// The next one, if one is left.
    pub fn peek(&self) -> Option<Duration> {
        (self.left > 0).then_some(self.next)
    }

    /// Goes on to the one after.
    pub fn advance(&mut self) {
        self.left = self.left.saturating_sub(1);
        let every = self.times.every;
        self.next += match self.times.arrivals {
            crate::model::Arrivals::Even => every,
            crate::model::Arrivals::Poisson => {
                // -ln(1 - u) of a uniform draw; rounding of `ln` in the last place moves it by less than a nanosecond.
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

    fn recorder(workload: &str) -> Recorder {
        Recorder::new(&scenario(&format!("[[link]]\nname = 'a'\n[[workload]]\n{workload}\n")))
    }

    #[test]
    fn gaps_count_from_the_beginning_and_to_the_end() {
        let mut recorder = recorder("kind = 'stream'");
        recorder.on_started(at(100), 0);
        recorder.on_bytes(at(150), 0, 10, 0);
        recorder.on_bytes(at(152), 0, 10, 0);
        let (parts, _) = recorder.finish(at(252), false);
        let gaps: Vec<_> = parts[0].delivered.gaps.iter().map(|gap| (gap.from, gap.length.as_millis())).collect();
        assert_eq!(gaps, [(at(152), 100), (at(100), 50), (at(150), 2)]);
        assert_eq!(parts[0].finished_at, Some(at(252)));
    }

    #[test]
    fn work_without_end_is_done_when_the_run_is_unless_the_connection_failed_or_nothing_came() {
        for (bytes, has_failed, finished_at, missing) in
            [(30, false, Some(at(252)), 0), (30, true, None, 70), (0, false, None, 0), (0, true, None, 100)]
        {
            let mut recorder = recorder("kind = 'stream'");
            recorder.on_started(at(100), 0);
            recorder.on_sent(0, 100);
            recorder.on_bytes(at(152), 0, bytes, 0);
            let (parts, _) = recorder.finish(at(252), has_failed);
            assert_eq!(
                (parts[0].finished_at, parts[0].missing_bytes()),
                (finished_at, missing),
                "{bytes} {has_failed}"
            );
        }
    }

    #[test]
    fn the_longest_gap_of_a_window_is_known_though_a_thousand_longer_ones_are_outside() {
        let checks = "[[check]]\nkind = 'gap'\nat-most = '1s'\nuntil = '290ms'\n\
                      [[check]]\nkind = 'gap'\nat-most = '1s'\nfrom = '1s'";
        let mut recorder = recorder(&format!("kind = 'stream'\n{checks}"));
        recorder.on_started(at(0), 0);
        let mut now = at(0);
        for index in 0..3000 {
            now += Duration::from_millis(if index < 100 { 2 + index % 3 } else { 5 + index % 7 });
            recorder.on_bytes(now, 0, 1, 0);
        }
        let delivered = &recorder.finish(now, false).0[0].delivered;
        let longest = |from, until| {
            let millis = |at: Option<u64>| at.map(Duration::from_millis);
            delivered.longest_gap(Window { from: millis(from), until: millis(until) }).map(Duration::as_millis)
        };
        // The first hundred take 299 ms.
        assert!(delivered.gaps.iter().all(|gap| gap.length.as_millis() > 4));
        assert_eq!((longest(None, Some(290)), longest(Some(1000), None)), (Some(4), Some(11)));
        assert_eq!(longest(None, Some(500)), None, "nobody asked for it");
    }

    #[test]
    fn a_finished_part_has_no_gap_after_its_end() {
        let mut recorder = recorder("kind = 'stream'\nsize = '20B'");
        recorder.on_started(at(0), 0);
        recorder.on_bytes(at(0), 0, 20, 0);
        assert!(!recorder.is_done());
        recorder.on_item(at(0), Name { part: 0, is_answer: false, item: 0 });
        assert!(recorder.is_done());
        let (parts, _) = recorder.finish(at(900), false);
        assert_eq!(parts[0].delivered.gaps, []);
        assert_eq!((parts[0].missing_bytes(), parts[0].finished_at), (0, Some(at(0))));
    }

    #[test]
    fn what_did_not_come_is_missing_and_latency_counts_from_when_it_was_due() {
        let mut recorder = recorder("kind = 'messages'\nsize = '20B'\ncount = 3\nevery = '10ms'");
        recorder.on_started(at(0), 0);
        for item in [1, 0] {
            recorder.on_due(0, item, at(10 * item));
            recorder.on_bytes(at(50), 0, 20, 0);
            recorder.on_item(at(50), Name { part: 0, is_answer: false, item });
        }
        let (parts, _) = recorder.finish(at(100), false);
        assert_eq!(parts[0].latencies, [40, 50].map(Duration::from_millis));
        assert_eq!((parts[0].missing_bytes(), parts[0].items_overtaken, parts[0].finished_at), (20, 1, None));
    }

    #[test]
    fn only_the_longest_gaps_are_kept() {
        let mut recorder = recorder("kind = 'stream'");
        recorder.on_started(at(0), 0);
        let mut now = at(0);
        for index in 0..10_000_u64 {
            now += Duration::from_millis(1 + index % 977);
            recorder.on_bytes(now, 0, 1, 0);
        }
        let (parts, _) = recorder.finish(now, false);
        let gaps = &parts[0].delivered.gaps;
        assert_eq!((gaps.len(), gaps[0].length), (GAPS_MAX, Duration::from_millis(977)));
        assert!(gaps.windows(2).all(|pair| pair[0].length >= pair[1].length));
    }

    #[test]
    fn random_times_have_the_mean_that_was_asked_for() {
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
