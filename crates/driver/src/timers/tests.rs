mod oracle;

use proptest::prelude::*;
use units::{Duration, Instant, Rng};

use super::wheel::{DIGIT_BITS, NIL, SLOTS, Timers};
use oracle::Sorted;

/// The wheel and the sorted set, with the deadlines that a caller stores.
struct Pair {
    wheel: Timers,
    /// Deadlines in order, equal ones in the order of arming.
    sorted: Sorted<(u64, u32)>,
    armed: Vec<Option<Armed>>,
    armings: u64,
    now: Instant,
    /// Time before which all deadlines have fired. It replaces an earlier deadline.
    floor: Instant,
    /// Number of wake-ups at which nothing was due.
    early_wakes: usize,
}

#[derive(Clone, Copy)]
struct Armed {
    asked: Instant,
    counted: Instant,
    arming: u64,
}

impl Pair {
    fn new() -> Self {
        Self {
            wheel: Timers::default(),
            sorted: Sorted::new(),
            armed: Vec::new(),
            armings: 0,
            now: Instant::ZERO,
            floor: Instant::ZERO,
            early_wakes: 0,
        }
    }

    fn set(&mut self, key: u32, new: Option<Instant>) {
        if self.armed.len() <= key as usize {
            self.armed.resize(key as usize + 1, None);
        }
        let slot = &mut self.armed[key as usize];
        let old = slot.map(|armed| armed.asked);
        self.wheel.replace(key, old, new);
        if old == new {
            return;
        }
        if let Some(armed) = slot.take() {
            self.sorted.replace((armed.arming, key), Some(armed.counted), None);
        }
        if let Some(asked) = new.filter(|at| *at != Instant::FAR_FUTURE) {
            self.armings += 1;
            let armed = Armed { asked, counted: asked.max(self.floor), arming: self.armings };
            self.sorted.replace((armed.arming, key), None, Some(armed.counted));
            *slot = Some(armed);
        }
    }

    /// Removes the next due key from both.
    fn pop(&mut self) -> Option<u32> {
        let expected = self.sorted.pop_due(self.now).map(|(_, key)| key);
        assert_eq!(self.wheel.pop_due(self.now), expected, "at {:?}", self.now);
        match expected {
            Some(key) => {
                let armed = self.armed[key as usize].take().expect("it was armed");
                assert!(armed.asked <= self.now, "{key} fired early");
                self.floor = armed.counted;
            }
            None => self.floor = self.floor.max(self.now),
        }
        self.check_next(expected.is_none());
        expected
    }

    fn drain(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.pop()).collect()
    }

    fn check_next(&self, is_drained: bool) {
        let (wheel, exact) = (self.wheel.next(), self.sorted.next());
        assert_eq!(wheel.is_some(), exact.is_some());
        assert!(wheel <= exact, "would sleep until {wheel:?}, past {exact:?}");
        assert!(!is_drained || wheel.is_none_or(|next| next > self.now), "would spin at {wheel:?}");
    }

    /// Sleeps as the driver does, and removes the first due key. `None` if nothing is armed.
    fn sleep(&mut self) -> Option<u32> {
        self.now = self.now.max(self.wheel.next()?);
        if let Some(key) = self.pop() {
            return Some(key);
        }
        self.early_wakes += 1;
        // The second wake-up is exact.
        assert_eq!(self.wheel.next(), self.sorted.next());
        self.now = self.wheel.next()?;
        let key = self.pop();
        assert!(key.is_some(), "woke twice for nothing");
        key
    }

    /// Checks the invariants of the wheel's fields.
    fn check_structure(&self) {
        let wheel = &self.wheel;
        assert!(wheel.pivot <= wheel.floor);
        let mut found = 0;
        for (index, slot) in wheel.slots.iter().enumerate() {
            let (level, digit) = (index / SLOTS, index % SLOTS);
            assert_eq!(wheel.used[level] & (1 << digit) != 0, slot.head != NIL);
            let (mut prev, mut key, mut earliest) = (NIL, slot.head, u64::MAX);
            while key != NIL {
                let entry = wheel.entries[key as usize];
                assert_eq!((entry.prev, entry.place as usize), (prev, index));
                let armed = self.armed[key as usize].expect("the wheel holds what was armed");
                assert_eq!(entry.deadline, armed.counted.as_nanos());
                let shift = level as u32 * DIGIT_BITS;
                assert_eq!((entry.deadline >> shift) as usize % SLOTS, digit);
                assert_eq!((entry.deadline ^ wheel.pivot).checked_shr(shift + DIGIT_BITS).unwrap_or(0), 0);
                assert!(level == 0 || (wheel.pivot >> shift) as usize % SLOTS < digit, "the pivot is in a used slot");
                earliest = earliest.min(entry.deadline);
                (prev, key) = (key, entry.next);
                found += 1;
            }
            assert_eq!(slot.tail, prev);
            let is_exact = level == 0 || slot.head == slot.tail;
            assert!(slot.head == NIL || slot.bound == earliest || (slot.bound < earliest && !is_exact));
        }
        for (level, used) in wheel.used.iter().enumerate() {
            assert_eq!(wheel.levels & (1 << level) != 0, *used != 0);
        }
        assert_eq!(found, self.armed.iter().flatten().count());
    }
}

fn at(nanos: u64) -> Option<Instant> {
    Some(Instant::from_nanos(nanos))
}

#[test]
fn deadlines_fire_in_order_and_only_the_last_one_set() {
    let at = |ms| Instant::ZERO + Duration::from_millis(ms);
    let mut timers = Timers::default();
    timers.replace(1, None, Some(at(30)));
    timers.replace(2, None, Some(at(20)));
    timers.replace(3, None, Some(at(20)));
    timers.replace(1, Some(at(30)), Some(at(10)));
    timers.replace(3, Some(at(20)), None);
    assert_eq!((timers.next(), timers.pop_due(at(9))), (Some(at(10)), None));
    assert_eq!(timers.pop_due(at(25)), Some(1));
    assert_eq!(timers.pop_due(at(25)), Some(2));
    assert_eq!((timers.pop_due(at(99)), timers.next()), (None, None));
}

#[test]
fn equal_deadlines_fire_in_order_of_arming_wherever_they_were_armed() {
    let mut pair = Pair::new();
    // One is armed early, one after a spread, and one is moved away and back: all are in one slot.
    let far = 40_000_000_123;
    for key in [5, 1, 3] {
        pair.set(key, at(far));
    }
    pair.set(9, at(far - 70_000));
    pair.set(8, at(far - 70_001));
    pair.now = Instant::from_nanos(far - 70_000);
    assert_eq!(pair.drain(), [8, 9]);
    pair.set(0, at(far));
    pair.set(1, at(far + 1));
    pair.set(1, at(far));
    pair.set(3, at(far));
    pair.check_structure();
    pair.now = Instant::from_nanos(far);
    assert_eq!(pair.drain(), [5, 3, 0, 1]);
}

#[test]
fn a_deadline_that_has_passed_is_due_at_once_and_takes_its_turn() {
    let mut pair = Pair::new();
    pair.now = Instant::from_nanos(1_000_000);
    assert_eq!(pair.drain(), []);
    pair.set(1, at(900));
    pair.set(2, at(0));
    pair.set(3, at(1_000_000));
    assert!(pair.wheel.next() <= Some(pair.now));
    assert_eq!(pair.drain(), [1, 2, 3]);
    // Also in the middle of a sequence.
    pair.set(4, at(1_000_100));
    pair.set(5, at(1_000_200));
    pair.now = Instant::from_nanos(2_000_000);
    assert_eq!(pair.pop(), Some(4));
    pair.set(4, at(1_000_000));
    assert_eq!(pair.drain(), [4, 5]);
}

#[test]
fn never_is_no_deadline() {
    let mut timers = Timers::default();
    timers.replace(0, None, Some(Instant::FAR_FUTURE));
    assert_eq!(timers.next(), None);
    let last = Instant::from_nanos(u64::MAX - 1);
    timers.replace(0, Some(Instant::FAR_FUTURE), Some(last));
    assert_eq!((timers.next(), timers.pop_due(Instant::from_nanos(u64::MAX - 2))), (Some(last), None));
    timers.replace(0, Some(last), Some(Instant::FAR_FUTURE));
    assert_eq!((timers.next(), timers.pop_due(Instant::FAR_FUTURE)), (None, None));
}

#[test]
fn deadlines_of_every_distance_fire_to_the_nanosecond() {
    let mut pair = Pair::new();
    for key in 0..64 {
        for (copy, offset) in [0, 1, 63].into_iter().enumerate() {
            pair.set(key * 3 + copy as u32, at((1 << key) + offset));
        }
    }
    pair.check_structure();
    let mut fired = 0;
    while pair.sleep().is_some() {
        fired += 1;
    }
    // Nothing was moved, so each wake-up had a due deadline.
    assert_eq!((fired, pair.early_wakes), (64 * 3, 0));
}

#[test]
fn ten_thousand_keys_agree_with_the_sorted_set_over_hours() {
    const KEYS: u32 = 10_000;
    let mut rng = Rng::from_seed(41);
    let mut pair = Pair::new();
    let mut fired = 0;
    for round in 0..40 {
        for key in 0..KEYS {
            // Some spans are equal, some short, some long, some infinite, some in the past.
            let spans = [Duration::from_micros(50), Duration::from_millis(25), Duration::from_secs(30)];
            let span = spans[rng.below(3) as usize];
            let later = pair.now + Duration::from_nanos(rng.below(span.as_nanos()));
            match rng.below(8) {
                0 => pair.set(key, Some(pair.now + Duration::from_secs(30))),
                1 => pair.set(key, None),
                2 => pair.set(key, Some(pair.now.saturating_sub(Duration::from_nanos(rng.below(1 << 30))))),
                3 => {}
                _ => pair.set(key, Some(later)),
            }
        }
        pair.check_structure();
        pair.now += match round % 4 {
            0 => Duration::from_micros(20),
            1 => Duration::from_millis(30),
            2 => Duration::from_secs(11),
            _ => Duration::from_secs(5 * 3600),
        };
        fired += pair.drain().len();
        pair.check_structure();
    }
    assert_eq!(pair.wheel.entries.len(), KEYS as usize, "memory follows the keys, not the operations");
    assert!(fired > 100_000, "only {fired} fired");
}

#[test]
fn moving_the_earliest_of_many_wakes_for_nothing_rarely() {
    // Two hundred connections whose loss timers are moved by each acknowledgement, one every 10 us.
    let mut pair = Pair::new();
    let mut rng = Rng::from_seed(7);
    let mut wakes = 0u32;
    for visit in 0..100_000 {
        pair.set(rng.below(200) as u32, Some(pair.now + Duration::from_millis(25)));
        let until = Instant::from_nanos((visit + 1) * 10_000);
        while pair.wheel.next().is_some_and(|next| next <= until) {
            pair.sleep();
            wakes += 1;
        }
        pair.now = pair.now.max(until);
    }
    // In one second: at most one early wake-up for each slot of 17 ms.
    assert!(pair.early_wakes <= 60, "{} of {wakes} wake-ups were early", pair.early_wakes);
}

#[derive(Clone, Debug)]
enum Action {
    /// Arms `key` for this time after the clock, or before it.
    Set {
        key: u32,
        span: u64,
        is_late: bool,
    },
    Clear {
        key: u32,
    },
    /// Arms many keys from `key` on, `stride` apart.
    Herd {
        key: u32,
        span: u64,
        stride: u64,
        count: u32,
    },
    /// Advances the clock, so that many deadlines may fire.
    Jump {
        span: u64,
        fired_max: usize,
    },
    /// Advances the clock to the next deadline.
    Sleep,
}

/// Times of every magnitude below `bits` bits, equally distributed.
fn span(bits: u32) -> impl Strategy<Value = u64> {
    (0..bits, any::<u64>()).prop_map(|(bits, value)| value & ((1 << bits) - 1))
}

fn action() -> impl Strategy<Value = Action> {
    // 2^45 ns are ten hours, 2^63 ns three centuries.
    prop_oneof![
        6 => (any::<u32>(), span(40), any::<u8>())
            .prop_map(|(key, span, late)| Action::Set { key, span, is_late: late < 24 }),
        1 => (any::<u32>(), span(64)).prop_map(|(key, span)| Action::Set { key, span, is_late: false }),
        2 => any::<u32>().prop_map(|key| Action::Clear { key }),
        1 => (any::<u32>(), span(40), span(20), 0..200u32)
            .prop_map(|(key, span, stride, count)| Action::Herd { key, span, stride, count }),
        3 => (span(45), prop_oneof![0..4usize, Just(usize::MAX)])
            .prop_map(|(span, fired_max)| Action::Jump { span, fired_max }),
        3 => Just(Action::Sleep),
    ]
}

fn apply(pair: &mut Pair, keys: u32, action: Action) {
    match action {
        Action::Set { key, span, is_late } => {
            let span = Duration::from_nanos(span);
            let deadline = if is_late { pair.now.saturating_sub(span) } else { pair.now + span };
            pair.set(key % keys, Some(deadline));
        }
        Action::Clear { key } => pair.set(key % keys, None),
        Action::Herd { key, span, stride, count } => {
            for index in 0..count {
                let deadline = pair.now + Duration::from_nanos(span) + Duration::from_nanos(stride) * u64::from(index);
                pair.set(key.wrapping_add(index) % keys, Some(deadline));
            }
        }
        Action::Jump { span, fired_max } => {
            pair.now += Duration::from_nanos(span);
            let mut fired = 0;
            while fired < fired_max && pair.pop().is_some() {
                fired += 1;
            }
        }
        Action::Sleep => drop(pair.sleep()),
    }
    pair.check_next(false);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_wheel_agrees_with_the_sorted_set(
        keys in prop_oneof![Just(1u32), Just(3), Just(50), Just(10_000)],
        actions in proptest::collection::vec(action(), 1..200),
    ) {
        let mut pair = Pair::new();
        for action in actions {
            apply(&mut pair, keys, action);
        }
        pair.check_structure();
        pair.now = Instant::from_nanos(u64::MAX - 1);
        pair.drain();
        pair.check_structure();
        prop_assert_eq!(pair.wheel.next(), None);
    }
}
