//! A packet costs a link no allocation once its queues have grown to what they need. Counted by the allocator, so all
//! of it is one test in a process of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use netem::{
    BurstLoss, Change, CoDel, Discipline, Jitter, LengthOnly, LineState, Link, LinkConfig, Schedule, Spread, Trace,
};
use units::{Duration, Instant, Rate, Ratio, Rng};

/// The system's allocator, with a count of its allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged; the counter touches no memory that it hands out. `realloc`
// is the trait's own, which calls `alloc`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same one.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above with this layout, so from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Everything at once, a little more than the line carries.
fn everything() -> LinkConfig {
    let millis = Duration::from_millis;
    let changes = [
        (millis(0), Change::State(LineState::Up)),
        (millis(80), Change::State(LineState::Held)),
        (millis(85), Change::State(LineState::Up)),
        (millis(90), Change::State(LineState::Silent)),
        (millis(93), Change::Delay(millis(21))),
        (millis(95), Change::Delay(millis(20))),
    ];
    LinkConfig {
        rate: Some(Rate::from_mbps(95)),
        delay: millis(20),
        jitter: Some(Jitter { spread: Spread::Normal { deviation: millis(2) }, reorders: true }),
        loss: Ratio::new(1, 100),
        burst_loss: Some(BurstLoss {
            good_to_bad: Ratio::new(1, 200),
            bad_to_good: Ratio::new(1, 5),
            loss_good: Ratio::ZERO,
            loss_bad: Ratio::new(1, 2),
        }),
        reorder: Ratio::new(1, 50),
        reorder_by: millis(1),
        duplicate: Ratio::new(1, 50),
        corrupt: Ratio::new(1, 50),
        queue_delay: Some(millis(30)),
        discipline: Discipline::CoDel(CoDel { ecn: true, ..CoDel::default() }),
        schedule: Some(Schedule::repeating(millis(100), changes).unwrap()),
        ..LinkConfig::default()
    }
}

/// A packet of 1250 bytes each 100 us: 100 Mb/s. Allocations in the second half.
fn allocations_at_rest(config: LinkConfig) -> u64 {
    let mut link = Link::new(config, Rng::from_seed(3));
    let mut now = Instant::ZERO;
    let mut before = 0;
    for index in 0..200_000_u32 {
        if index == 100_000 {
            before = ALLOCATIONS.load(Ordering::Relaxed);
        }
        link.send(now, if index % 2 == 0 { LengthOnly::new(1250) } else { LengthOnly::ecn_capable(1250) });
        now += Duration::from_micros(100);
        while link.poll_timeout().is_some_and(|at| at <= now) {
            while link.poll_deliver(now).is_some() {}
        }
    }
    let stats = link.stats();
    assert!(stats.delivered > 100_000 && stats.gone() > 1000, "{stats:?}");
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[test]
fn packets_cost_no_allocation() {
    let by_rate = everything();
    // Eight opportunities a millisecond: 96 Mb/s.
    let trace = Trace::from_millis((0..800).map(|number| number / 8 + 1)).unwrap();
    let by_trace = LinkConfig { rate: None, trace: Some(trace), ..by_rate.clone() };
    let first = ALLOCATIONS.load(Ordering::Relaxed);
    assert!(first > 0, "the counter counts");
    assert_eq!(allocations_at_rest(by_rate), 0);
    assert_eq!(allocations_at_rest(by_trace), 0);
}
