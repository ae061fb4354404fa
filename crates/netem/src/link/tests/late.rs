//! The calling contract under random settings: late and spurious calls change no arrival, and the
//! same seed gives the same run.

use super::*;
use crate::bursts::BurstLoss;
use crate::codel::CoDel;
use crate::config::Discipline;
use crate::jitter::{Distribution, Jitter};
use crate::schedule::{Change, LineState, Schedule};
use crate::trace::Trace;

/// A packet with a number that supports marking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tagged {
    number: usize,
    bytes: usize,
    faults: u64,
    marked: bool,
}

impl Packet for Tagged {
    fn len_bytes(&self) -> usize {
        self.bytes
    }

    fn duplicate(&self) -> Self {
        *self
    }

    fn corrupt(&mut self, rng: &mut Rng) {
        self.faults = rng.next_u64();
    }

    fn mark_ce(&mut self) -> bool {
        self.marked |= self.number.is_multiple_of(2);
        self.marked
    }
}

fn ratio() -> impl Strategy<Value = Ratio> {
    prop_oneof![Just(Ratio::ZERO), (1..300_000_u64).prop_map(Ratio::from_millionths)]
}

fn jitter() -> impl Strategy<Value = Option<Jitter>> {
    let distribution = (1..8_000_u64).prop_map(Duration::from_micros).prop_flat_map(|width| {
        prop_oneof![
            Just(Distribution::Uniform { max: width }),
            Just(Distribution::Normal { deviation: width }),
            Just(Distribution::Pareto { scale: width, shape_hundredths: 130, cap: width * 5 }),
        ]
    });
    prop::option::of(
        (distribution, any::<bool>()).prop_map(|(distribution, reorders)| Jitter { distribution, reorders }),
    )
}

fn bursts() -> impl Strategy<Value = Option<BurstLoss>> {
    let ratios = prop::array::uniform4(100_000..900_000_u64);
    prop::option::of(ratios.prop_map(|ratios| {
        let [good_to_bad, bad_to_good, loss_good, loss_bad] = ratios.map(Ratio::from_millionths);
        BurstLoss { good_to_bad, bad_to_good, loss_good, loss_bad }
    }))
}

fn line_state() -> impl Strategy<Value = LineState> {
    prop_oneof![2 => Just(LineState::Up), 1 => Just(LineState::Silent), 1 => Just(LineState::Held)]
}

fn delay() -> impl Strategy<Value = Duration> {
    (0..20_000_u64).prop_map(Duration::from_micros)
}

/// Returns rates from one packet in 120 ms to one in 1.2 us, so that changes occur both during
/// transmission and during propagation.
fn rate() -> impl Strategy<Value = Rate> {
    (5..10_u32, 1..10_u64).prop_map(|(exponent, factor)| Rate::from_bps(10_u64.pow(exponent) * factor))
}

/// Changes that are valid with a rate, or with a trace.
fn change(has_rate: bool) -> impl Strategy<Value = Change> {
    let speed = if has_rate {
        rate().prop_map(|rate| Change::Rate(Some(rate))).boxed()
    } else {
        line_state().prop_map(Change::State).boxed()
    };
    prop_oneof![
        4 => line_state().prop_map(Change::State),
        2 => speed,
        2 => delay().prop_map(Change::Delay),
        1 => jitter().prop_map(Change::Jitter),
        1 => bursts().prop_map(Change::BurstLoss),
        1 => ratio().prop_map(Change::Loss),
        1 => ratio().prop_map(Change::Duplicate),
        1 => ratio().prop_map(Change::Corrupt),
        1 => ratio().prop_map(|share| Change::Reorder(share, Duration::from_millis(3))),
    ]
}

fn schedule(has_rate: bool) -> impl Strategy<Value = Option<Schedule>> {
    // On the grid of the sends and of traces, so that many events share a nanosecond.
    let changes = prop::collection::vec((0..60_u64, change(has_rate)), 0..12);
    prop::option::of((changes, any::<bool>()).prop_map(|(mut changes, repeats)| {
        changes.sort_by_key(|(millis, _)| *millis);
        let changes = changes.into_iter().map(|(millis, change)| (Duration::from_millis(millis), change));
        match repeats {
            true => Schedule::repeating(Duration::from_millis(60), changes),
            false => Schedule::once(changes),
        }
        .unwrap()
    }))
}

fn trace() -> impl Strategy<Value = Trace> {
    prop::collection::vec(0..30_u32, 1..20).prop_map(|mut offsets_ms| {
        offsets_ms.sort_unstable();
        offsets_ms.push(30);
        Trace::from_millis(offsets_ms).unwrap()
    })
}

/// Returns a rate or trace and a schedule that is valid with it.
fn capacity() -> impl Strategy<Value = (Option<Rate>, Option<Trace>, Option<Schedule>)> {
    prop_oneof![
        (rate(), schedule(true)).prop_map(|(rate, schedule)| (Some(rate), None, schedule)),
        (trace(), schedule(false)).prop_map(|(trace, schedule)| (None, Some(trace), schedule)),
        schedule(false).prop_map(|schedule| (None, None, schedule)),
    ]
}

fn discipline() -> impl Strategy<Value = Discipline> {
    let (target, interval) = (Duration::from_millis(1), Duration::from_millis(7));
    prop_oneof![
        Just(Discipline::DropTail),
        any::<bool>().prop_map(move |ecn| Discipline::CoDel(CoDel { target, interval, ecn })),
    ]
}

fn config() -> impl Strategy<Value = LinkConfig> {
    let queue = (0..40_000_u64, prop::option::of(10..40_u64), discipline());
    let faults = (ratio(), bursts(), ratio(), ratio(), ratio());
    (capacity(), queue, faults, (delay(), jitter()), line_state()).prop_map(
        |(capacity, queue, faults, delays, state)| {
            let (rate, trace, schedule) = capacity;
            let (queue_bytes, queue_millis, discipline) = queue;
            let (loss, burst_loss, reorder, duplicate, corrupt) = faults;
            let queue_millis = queue_millis.filter(|_| rate.is_some() || trace.is_some());
            LinkConfig {
                rate,
                trace,
                delay: delays.0,
                jitter: delays.1,
                loss,
                burst_loss,
                reorder,
                reorder_by: Duration::from_millis(2),
                duplicate,
                corrupt,
                queue_bytes,
                queue_delay: queue_millis.map(Duration::from_millis),
                discipline,
                overhead_bytes: 28,
                state,
                schedule,
            }
        },
    )
}

/// Returns the send time of each packet, its length, and the settings applied before it, if any.
fn offers() -> impl Strategy<Value = Vec<(u64, usize, Option<LinkConfig>)>> {
    let wait_us = prop_oneof![2 => Just(0_u64), 1 => Just(1000_u64), 1 => 0..15_000_u64];
    let settings = prop_oneof![20 => Just(None), 1 => config().prop_map(Some)];
    prop::collection::vec((wait_us, 0..3000_usize, settings), 1..150)
}

const END: Instant = Instant::from_nanos(2_000_000_000);

/// Sends the packets; `visit` is called with the time before each, and with the end.
fn run<V>(config: LinkConfig, offers: &[(u64, usize, Option<LinkConfig>)], mut visit: V) -> Link<Tagged>
where
    V: FnMut(&mut Link<Tagged>, Instant),
{
    let mut link = Link::new(config, Rng::from_seed(4));
    let mut now = Instant::ZERO;
    for (number, (wait_us, bytes, settings)) in offers.iter().enumerate() {
        now += Duration::from_micros(*wait_us);
        visit(&mut link, now);
        if let Some(settings) = settings {
            link.set_config(now, settings.clone());
        }
        link.send(now, Tagged { number, bytes: *bytes, faults: 0, marked: false });
        assert_conserved(&link);
    }
    visit(&mut link, END);
    assert_conserved(&link);
    link
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn late_and_spurious_calls_change_no_arrival(config in config(), offers in offers(), grid_us in 1..3000_u64) {
        let mut prompt = Vec::new();
        let asked = run(config.clone(), &offers, |link, now| prompt.extend(drain(link, now)));

        // Polls once, at the end of each period without sends.
        let mut late = Vec::new();
        let silent = run(config.clone(), &offers, |link, now| {
            late.extend(core::iter::from_fn(|| link.poll_deliver(now)));
        });
        prop_assert!(late.iter().eq(prompt.iter().map(|(_, packet)| packet)), "{prompt:?}\n{late:?}");
        prop_assert_eq!(silent.stats(), asked.stats());

        // Polling at every tick delivers each packet at the first tick after the time given by
        // `poll_timeout`.
        let (mut ticked, mut tick) = (Vec::new(), Instant::ZERO);
        let grid = Duration::from_micros(grid_us);
        run(config, &offers, |link, now| {
            while tick <= now {
                ticked.extend(core::iter::from_fn(|| link.poll_deliver(tick)).map(|packet| (tick, packet)));
                tick += grid;
            }
        });
        for (asked, ticked) in prompt.iter().zip(&ticked) {
            let expected = asked.0.as_nanos().div_ceil(grid.as_nanos()) * grid.as_nanos();
            prop_assert_eq!((at(expected), asked.1), *ticked);
        }
        prop_assert!(prompt.len() - ticked.len() <= prompt.iter().filter(|(time, _)| *time + grid > END).count());
    }
}

#[test]
fn the_random_configs_exercise_every_fault() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut sum = LinkStats::default();
    for _ in 0..200 {
        let (config, offers) = (config(), offers()).new_tree(&mut runner).unwrap().current();
        let stats = *run(config, &offers, |link, now| drop(drain(link, now))).stats();
        sum.lost += stats.lost;
        sum.lost_in_bursts += stats.lost_in_bursts;
        sum.vanished += stats.vanished;
        sum.overflowed += stats.overflowed;
        sum.dropped_by_codel += stats.dropped_by_codel;
        sum.marked += stats.marked;
        sum.delivered += stats.delivered;
        sum.queue_delay_max = sum.queue_delay_max.max(stats.queue_delay_max);
    }
    let least = [sum.lost, sum.lost_in_bursts, sum.vanished, sum.overflowed, sum.delivered].into_iter().min().unwrap();
    assert!(least > 200 && sum.dropped_by_codel > 50 && sum.marked > 20, "{sum:?}");
    assert!(sum.queue_delay_max > Duration::from_millis(50), "{sum:?}");
}
