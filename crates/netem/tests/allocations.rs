//! A link allocates nothing per packet once its queues have grown to their size. A counting
//! allocator checks this, so all checks are one test in its own process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use netem::{
    BurstLoss, Change, CoDel, Discipline, Distribution, Jitter, LengthOnly, LineState, Link, LinkConfig, Schedule,
    Trace,
};
use units::{Duration, Instant, Rate, Ratio, Rng};

/// The system's allocator with a counter of allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed to the system's allocator unchanged; the counter touches no
// allocated memory. `realloc` is the trait's own, which calls `alloc`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above with this layout, and therefore from the
        // system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns settings with all faults at once, with slightly more load than the line carries.
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
        jitter: Some(Jitter { distribution: Distribution::Normal { deviation: millis(2) }, reorders: true }),
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

/// Sends a packet of 1250 bytes every 100 us (100 Mb/s) and returns the allocations in the second
/// half.
fn allocations_in_steady_state(config: LinkConfig) -> u64 {
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
    assert!(stats.delivered > 100_000 && stats.undelivered() > 1000, "{stats:?}");
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[test]
fn packets_need_no_allocation() {
    let by_rate = everything();
    // Eight opportunities per millisecond: 96 Mb/s.
    let trace = Trace::from_millis((0..800).map(|number| number / 8 + 1)).unwrap();
    let by_trace = LinkConfig { rate: None, trace: Some(trace), ..by_rate.clone() };
    let first = ALLOCATIONS.load(Ordering::Relaxed);
    assert!(first > 0, "the counter works");
    assert_eq!(allocations_in_steady_state(by_rate), 0);
    assert_eq!(allocations_in_steady_state(by_trace), 0);
}
