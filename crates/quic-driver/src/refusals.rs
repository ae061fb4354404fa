//! The system's refusals to send, by path: which step to take, and when to report it.
//!
//! A filter of this host may refuse large datagrams alone, with any error. The datagrams that probe
//! a silent path are small, so the path seems to work again, and the next data is refused again. So
//! a refusal soon after another one, although something was sent in between, is attributed to the
//! size. A connection without another path sends nothing between two refusals: after several in a
//! row it tries smaller datagrams.

use quic::PathId;
use units::{Duration, Instant};

/// Time after which a refusal is unrelated to the previous one: a silent path is probed every
/// second.
const EPISODE_MAX: Duration = Duration::from_secs(5);

/// Number of refusals in a row, with nothing sent in between, after which smaller datagrams are
/// tried. The driver waits longer after each of them: together 155 ms, so that a brief route change
/// does not make the datagrams smaller.
const IN_A_ROW_MAX: u32 = 6;

/// Interval after which the same error on a path is reported again.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of paths whose refusals are remembered: as many as the commands allow. The oldest
/// is forgotten.
const PATHS_MAX: usize = 32;

/// Paths on which the system has recently refused to send.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    paths: Vec<RefusedPath>,
}

#[derive(Debug)]
struct RefusedPath {
    path: PathId,
    /// Time of the latest refusal.
    at: Instant,
    in_a_row: u32,
    /// Whether something was sent since.
    has_sent: bool,
    /// The reported error and the time of its report.
    reported: Option<(Instant, String)>,
}

/// Consequences of a refusal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Whether smaller datagrams may pass.
    pub(crate) tries_smaller: bool,
    /// Whether the application must be notified.
    pub(crate) is_news: bool,
}

impl Refusals {
    /// Records that a batch left on `path`.
    #[inline]
    pub(crate) fn on_emitted(&mut self, path: PathId) {
        if let Some(refused) = self.paths.iter_mut().find(|refused| refused.path == path) {
            (refused.has_sent, refused.in_a_row) = (true, 0);
        }
    }

    /// Records that the system refused a batch on `path` with this error.
    pub(crate) fn on_refused(&mut self, now: Instant, path: PathId, error: &str) -> Verdict {
        self.paths.retain(|refused| now.saturating_since(refused.at) < EPISODE_MAX.max(REPORT_INTERVAL));
        let at = self.paths.iter().position(|refused| refused.path == path).unwrap_or_else(|| {
            if self.paths.len() == PATHS_MAX {
                self.paths.remove(0);
            }
            self.paths.push(RefusedPath { path, at: now, in_a_row: 0, has_sent: false, reported: None });
            self.paths.len() - 1
        });
        let refused = &mut self.paths[at];
        refused.in_a_row += 1;
        let is_same_episode = now.saturating_since(refused.at) < EPISODE_MAX;
        let tries_smaller = (is_same_episode && refused.has_sent) || refused.in_a_row >= IN_A_ROW_MAX;
        if tries_smaller {
            refused.in_a_row = 0;
        }
        (refused.at, refused.has_sent) = (now, false);
        let is_known = |(at, known): &(Instant, String)| known == error && now.saturating_since(*at) < REPORT_INTERVAL;
        let is_news = !refused.reported.as_ref().is_some_and(is_known);
        if is_news {
            refused.reported = Some((now, error.to_owned()));
        }
        Verdict { tries_smaller, is_news }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: PathId = PathId(3);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_refusal_soon_after_something_was_sent_is_one_of_the_size() {
        let mut refusals = Refusals::default();
        assert!(!refusals.on_refused(at(0), PATH, "no").tries_smaller);
        refusals.on_emitted(PATH);
        assert!(refusals.on_refused(at(1000), PATH, "no").tries_smaller);
        assert!(!refusals.on_refused(at(1001), PATH, "no").tries_smaller, "nothing was sent");
        refusals.on_emitted(PATH);
        assert!(!refusals.on_refused(at(7000), PATH, "no").tries_smaller, "much later");
        refusals.on_emitted(PathId(4));
        assert!(!refusals.on_refused(at(7001), PATH, "no").tries_smaller, "on another path");
    }

    #[test]
    fn refusals_in_a_row_make_datagrams_smaller_now_and_then() {
        let mut refusals = Refusals::default();
        let smaller: Vec<u64> =
            (0..20).filter(|millis| refusals.on_refused(at(*millis), PATH, "no").tries_smaller).collect();
        assert_eq!(smaller, [5, 11, 17]);
    }

    #[test]
    fn each_error_of_a_path_is_reported_once_in_a_while() {
        let mut refusals = Refusals::default();
        let news: Vec<u64> =
            (0..30).filter(|second| refusals.on_refused(at(second * 1000), PATH, "no").is_news).collect();
        assert_eq!(news, [0, 10, 20]);
        assert!(refusals.on_refused(at(30_001), PATH, "another").is_news);
        for path in 0..1000 {
            refusals.on_refused(at(30_002), PathId(path), "no");
        }
        assert!(refusals.paths.len() <= PATHS_MAX);
    }
}
