//! Classes of service: priority, rate and paths of a stream that shares its connection with others.
//!
//! A class is not on the wire. It says in which order streams are sent, how fast a stream may be,
//! and which paths it may take. `send/streams/classes.rs` enforces it.

use std::fmt;
use std::sync::Arc;

use recovery::{Pacer, RateCap};
use units::Rate;
use wire::quic::PathId;

/// The most paths one set may name. Path IDs are never used twice in a connection, so a set may
/// have to name more paths than there can be at a time. But each plan searches it, so it must be
/// short.
pub const PATH_SET_MAX: usize = 32;

/// The smallest burst, in bytes: that of a small datagram. A smaller one would cut streams into
/// tiny packets, whose overhead is a hundred times their content, and a peer closes the connection
/// if it must hold too many of them out of order.
pub const BURST_MIN: u64 = 1200;

/// The smallest burst that [`RateLimit::at`] gives, in bytes: some packets of 1500 bytes, so that
/// slow streams fill theirs.
const DEFAULT_BURST_MIN: u64 = 16 << 10;

/// The burst that [`RateLimit::at`] gives, in milliseconds at its rate: long enough that a timer
/// that fires a millisecond late costs no throughput, and short enough that the queue it fills at
/// the bottleneck stays short.
const DEFAULT_BURST_MS: u64 = 4;

/// How fast something may be sent: over any interval of length T at most `rate * T + burst_bytes`
/// bytes of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    cap: RateCap,
}

impl RateLimit {
    /// At most `rate` in the long run, and `burst_bytes` at once. A burst of less than two
    /// milliseconds at `rate` costs throughput when timers are late.
    ///
    /// A stream waits until it may send up to 1200 bytes together. If that takes longer than the
    /// idle timeout (below 320 bit/s with a timeout of 30 s), a connection that sends nothing else
    /// times out in between: set
    /// [`TransportConfig::keep_alive`](crate::TransportConfig::keep_alive).
    ///
    /// # Errors
    /// If the rate is zero: nothing could ever leave. If the burst is less than [`BURST_MIN`].
    pub fn new(rate: Rate, burst_bytes: u64) -> Result<Self, RateLimitError> {
        if rate.is_zero() {
            return Err(RateLimitError::ZeroRate);
        }
        if burst_bytes < BURST_MIN {
            return Err(RateLimitError::SmallBurst { bytes: burst_bytes });
        }
        Ok(Self { cap: RateCap { rate, burst: burst_bytes } })
    }

    /// At most `rate`, with a burst that suits it: 4 ms of it, and 16 KiB at least.
    ///
    /// # Errors
    /// If the rate is zero.
    pub fn at(rate: Rate) -> Result<Self, RateLimitError> {
        Self::new(rate, (Pacer::batch_bytes(rate).saturating_mul(DEFAULT_BURST_MS)).max(DEFAULT_BURST_MIN))
    }

    /// The rate in the long run.
    pub const fn rate(&self) -> Rate {
        self.cap.rate
    }

    /// The bytes that may leave at once.
    pub const fn burst_bytes(&self) -> u64 {
        self.cap.burst
    }

    pub(crate) const fn cap(self) -> RateCap {
        self.cap
    }
}

/// Why a rate and a burst are no valid limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateLimitError {
    /// A rate of zero.
    ZeroRate,
    /// A burst that is too small.
    SmallBurst {
        /// Its size.
        bytes: u64,
    },
}

impl fmt::Display for RateLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroRate => f.write_str(
                "a rate of zero would never let anything leave: give at least 1 bit/s, or set no limit to send freely",
            ),
            Self::SmallBurst { bytes } => write!(
                f,
                "a burst of {bytes} bytes fills no datagram: give at least {BURST_MIN}, better what the rate carries in 2 ms"
            ),
        }
    }
}

impl std::error::Error for RateLimitError {}

/// The paths that data may take.
///
/// A set is strict: no byte is sent on a path that it does not name, not even as a retransmission.
/// If none of its paths works, the data waits until one does, or until the application sets
/// [another set](Self::ALL).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathSet {
    /// Ascending; none if every path is allowed.
    named: Option<Arc<[PathId]>>,
}

impl PathSet {
    /// Every path.
    pub const ALL: Self = Self { named: None };

    /// These paths and no others. A path that is not open yet may be named: the data waits for it.
    ///
    /// # Errors
    /// If there is none, or more than [`PATH_SET_MAX`].
    pub fn only(paths: &[PathId]) -> Result<Self, PathSetError> {
        let mut named = paths.to_vec();
        named.sort_unstable();
        named.dedup();
        match named.len() {
            0 => Err(PathSetError::Empty),
            1..=PATH_SET_MAX => Ok(Self { named: Some(named.into()) }),
            count => Err(PathSetError::TooMany { count }),
        }
    }

    /// Whether `path` is in the set.
    pub fn allows(&self, path: PathId) -> bool {
        self.named.as_ref().is_none_or(|named| named.contains(&path))
    }

    /// The named paths, ascending; none if every path is allowed.
    pub(crate) fn named(&self) -> &[PathId] {
        self.named.as_deref().unwrap_or_default()
    }

    /// Whether every path is allowed, including those opened later.
    pub const fn is_all(&self) -> bool {
        self.named.is_none()
    }
}

/// Why paths are no valid set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathSetError {
    /// No path was named.
    Empty,
    /// More than [`PATH_SET_MAX`] were.
    TooMany {
        /// Different ones.
        count: usize,
    },
}

impl fmt::Display for PathSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a set without paths carries nothing: name a path, or use PathSet::ALL"),
            Self::TooMany { count } => {
                write!(f, "{count} paths are too many for one set: name at most {PATH_SET_MAX}, or use PathSet::ALL")
            }
        }
    }
}

impl std::error::Error for PathSetError {}

/// The class of service of a stream. The default has no limits and no privileges.
///
/// More fields may be added: begin with [`default`](Self::default) or
/// [`of_priority`](Self::of_priority), and set others with the `with_` methods or by assignment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Class {
    /// Streams of higher priority are sent first; those of equal priority take turns.
    pub priority: i32,
    /// The limit for bytes that are sent for the first time; none for no limit.
    pub rate: Option<RateLimit>,
    /// The paths it may take.
    pub paths: PathSet,
    /// Bulk data that yields to all other traffic (less than best effort, RFC 6817). It keeps the
    /// queue at the bottleneck short: other traffic on the path takes about half a round trip
    /// longer than on an empty path. It uses the capacity that others leave, and gets less than a
    /// fair share where others fill the queue themselves.
    pub background: bool,
}

impl Class {
    /// The default class with this priority.
    pub fn of_priority(priority: i32) -> Self {
        Self { priority, ..Self::default() }
    }

    /// Sets [`priority`](Self::priority).
    #[must_use]
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets [`rate`](Self::rate).
    #[must_use]
    pub fn with_rate(mut self, rate: impl Into<Option<RateLimit>>) -> Self {
        self.rate = rate.into();
        self
    }

    /// Sets [`paths`](Self::paths).
    #[must_use]
    pub fn with_paths(mut self, paths: PathSet) -> Self {
        self.paths = paths;
        self
    }

    /// Sets [`background`](Self::background).
    #[must_use]
    pub fn with_background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_permit_no_packet_are_refused_with_advice() {
        for (rate, burst, advice) in
            [(0, 1200, "at least 1 bit/s"), (1, 0, "at least 1200"), (1, 1199, "at least 1200"), (0, 0, "set no limit")]
        {
            let error = RateLimit::new(Rate::from_bps(rate), burst).expect_err("nothing could leave").to_string();
            assert!(error.contains(advice), "{error}");
        }
        assert_eq!(RateLimit::at(Rate::ZERO), Err(RateLimitError::ZeroRate));
        assert!(RateLimit::new(Rate::from_bps(1), 1200).is_ok());
    }

    #[test]
    fn a_rate_alone_gets_a_burst_of_four_milliseconds() {
        let burst = |mbps| RateLimit::at(Rate::from_mbps(mbps)).expect("a rate").burst_bytes();
        assert_eq!((burst(1), burst(200), burst(10_000)), (DEFAULT_BURST_MIN, 100_000, 5_000_000));
    }

    #[test]
    fn a_set_of_paths_names_some_and_not_too_many() {
        let ids = |count: u32| (0..count).map(PathId).collect::<Vec<_>>();
        assert_eq!(PathSet::only(&[]), Err(PathSetError::Empty));
        assert_eq!(PathSet::only(&ids(33)), Err(PathSetError::TooMany { count: 33 }));
        let set = PathSet::only(&[PathId(5), PathId(2), PathId(5)]).expect("two paths");
        assert!(set.allows(PathId(2)) && set.allows(PathId(5)) && !set.allows(PathId(0)) && !set.is_all());
        assert_eq!(PathSet::only(&[PathId(2), PathId(5)]), Ok(set));
        assert!(PathSet::ALL.is_all() && PathSet::ALL.allows(PathId(77)));
        for error in [PathSetError::Empty, PathSetError::TooMany { count: 33 }] {
            assert!(error.to_string().contains("PathSet::ALL"), "{error}");
        }
    }
}
