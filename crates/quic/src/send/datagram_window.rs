//! How many bytes of datagrams wait for the paths: as many as leave within 2 ms.
//!
//! ```text
//!  after a plan   [#####..........]  these bytes wait: how long until all of them have left?
//!  some plans later               [..............]  that long: the window is what leaves in the time wanted
//! ```
//!
//! The rate of the paths is measured here by what leaves, and not taken from a congestion controller. A
//! controller's estimate is the most that was delivered in a short time, and a link that lets bursts pass
//! delivers much more in such a time than it carries: datagrams would wait ten times as long as meant.

use units::{Duration, Instant};

/// How long the datagrams in the queue should take to leave: longer than the driver needs to fetch more, and
/// the application to bring more. As many wait outside the connection.
const WAIT: Duration = Duration::from_millis(2);

/// The least bytes of datagrams that should wait: about ten full ones.
pub(super) const WINDOW_MIN: u64 = 16 << 10;

/// Before anything has been measured.
pub(super) const WINDOW_FIRST: u64 = WINDOW_MIN;

/// The most, whatever leaves: 2 ms at 50 Gb/s.
const WINDOW_MAX: u64 = 12 << 20;

/// A shorter time says little: plans are bursts.
const MEASURED_MIN: Duration = Duration::from_micros(500);

/// If a plan takes all datagrams, more could have left: so many times as many may wait from then on, but not
/// more than twice as many as before. On a slow link a plan after a pause takes a burst that says little about
/// what leaves in 2 ms.
const GROWTH: u64 = 4;

/// The bytes of datagrams that should wait.
#[derive(Debug)]
pub(super) struct DatagramWindow {
    bytes: u64,
    mark: Option<Mark>,
}

/// A time after a plan at which datagrams waited, and some have since.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Instant,
    /// Those that waited then and have not left.
    left: u64,
    /// Those that have left since.
    taken: u64,
}

impl Default for DatagramWindow {
    fn default() -> Self {
        Self { bytes: WINDOW_FIRST, mark: None }
    }
}

impl DatagramWindow {
    /// The bytes that should wait.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A plan was made at `now`, with `taken` bytes of datagrams; `waiting` bytes wait still.
    pub(super) fn on_planned(&mut self, now: Instant, taken: u64, waiting: u64) {
        if let Some(mark) = &mut self.mark {
            mark.left = mark.left.saturating_sub(taken);
            mark.taken = mark.taken.saturating_add(taken);
            let took = now.saturating_since(mark.at);
            if mark.left == 0 && took >= MEASURED_MIN {
                let sample = mark.taken.saturating_mul(WAIT.as_nanos()) / took.as_nanos();
                self.set(u64::midpoint(self.bytes, sample.min(WINDOW_MAX)));
                self.mark = None;
            }
        }
        if waiting == 0 {
            self.mark = None;
            let grown = taken.saturating_mul(GROWTH).min(self.bytes.saturating_mul(2));
            self.set(self.bytes.max(grown));
        } else if self.mark.is_none() {
            self.mark = Some(Mark { at: now, left: waiting, taken: 0 });
        }
    }

    fn set(&mut self, bytes: u64) {
        self.bytes = bytes.clamp(WINDOW_MIN, WINDOW_MAX);
    }
}

#[cfg(test)]
mod tests {
    use units::Rate;

    use super::*;

    const PLAN: u64 = 12_000;

    /// An application fills the window after each plan; a plan leaves as often as `rate` permits.
    fn drain(window: &mut DatagramWindow, from: Instant, rate: Rate, span: Duration) -> Instant {
        let (mut now, mut waiting) = (from, window.bytes());
        while now < from + span {
            now += rate.time_for(PLAN);
            let taken = PLAN.min(waiting);
            waiting -= taken;
            window.on_planned(now, taken, waiting);
            waiting = waiting.max(window.bytes());
        }
        now
    }

    #[test]
    fn it_is_what_leaves_in_the_time_wanted() {
        for mbps in [100, 400, 5000] {
            let (mut window, rate) = (DatagramWindow::default(), Rate::from_mbps(mbps));
            drain(&mut window, Instant::ZERO, rate, Duration::from_millis(200));
            let wanted = rate.bytes_in(WAIT);
            assert!(window.bytes().abs_diff(wanted) < wanted / 4, "{} bytes at {rate}", window.bytes());
        }
    }

    #[test]
    fn it_follows_a_path_that_becomes_slower_and_faster() {
        let mut window = DatagramWindow::default();
        let (slow, fast) = (Rate::from_mbps(100), Rate::from_mbps(4000));
        let now = drain(&mut window, Instant::ZERO, fast, Duration::from_millis(100));
        let now = drain(&mut window, now, slow, Duration::from_millis(200));
        assert!(window.bytes() < 2 * slow.bytes_in(WAIT), "{} bytes", window.bytes());
        drain(&mut window, now, fast, Duration::from_millis(50));
        assert!(window.bytes() > fast.bytes_in(WAIT) / 2, "{} bytes", window.bytes());
    }

    #[test]
    fn it_grows_if_plans_take_all_and_stays_within_its_bounds() {
        let mut window = DatagramWindow::default();
        window.on_planned(Instant::ZERO, 1 << 20, 0);
        assert_eq!(window.bytes(), 2 * WINDOW_FIRST, "a burst alone says little");
        (0..10).for_each(|_| window.on_planned(Instant::ZERO, 100 << 10, 0));
        assert_eq!(window.bytes(), 400 << 10);
        (0..10).for_each(|_| window.on_planned(Instant::ZERO, u64::MAX, 0));
        assert_eq!(window.bytes(), WINDOW_MAX);
        // An outage: nothing leaves for a minute.
        let mut now = Instant::ZERO;
        for _ in 0..20 {
            window.on_planned(now, 0, 1 << 20);
            now += Duration::from_secs(60);
            window.on_planned(now, 1 << 20, 1000);
        }
        assert_eq!(window.bytes(), WINDOW_MIN);
    }
}
