//! The cases: links, workload, and targets.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::contender::Contender;

/// A set of links with a workload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// Bulk over four links of 500 Mb/s
    Equal4,
    /// Bulk over links of 1000, 500, 200 and 100 Mb/s
    Unlike4,
    /// Bulk over sixteen links of 100 Mb/s
    Sixteen,
    /// Bulk over links that differ in rate, delay, loss and jitter
    Emulator,
    /// Four links of 200 Mb/s and a round trip of 5 ms: the first fails silently and recovers
    Failover5,
    /// The same with a round trip of 20 ms
    Failover20,
    /// The same with a round trip of 100 ms
    Failover100,
    /// Requests and responses of 200 bytes over links with different delays
    Messages,
    /// Bulk over one link without a limit, with multipath negotiated and without
    Cost,
}

/// The workload of the two sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// One side sends for a time, as fast as possible
    Bulk,
    /// 200 bytes in each direction, one exchange at a time
    Exchanges,
}

/// One link, the same in both directions. The delay is one-way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Line {
    /// `None`: as fast as the machine.
    pub rate_mbps: Option<u32>,
    pub queue_ms: u32,
    pub delay_us: u32,
    /// Packets lost per million.
    pub loss_millionths: u32,
    /// Standard deviation of a normal distribution around the delay; the order is kept.
    pub jitter_us: u32,
}

/// When the first link fails silently, and when it recovers, counted from the start of sending.
pub const CUT_AT_S: f64 = 4.0;
pub const RESTORE_AT_S: f64 = 8.0;
/// When sending ends where a link is cut.
pub const FAILOVER_TIME_S: f64 = 14.0;

/// Target shares of the capacity for a contender.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub contender: Contender,
    pub share: f64,
}

const QUEUE_MS: u32 = 30;

const fn plain(rate_mbps: u32) -> Line {
    Line { rate_mbps: Some(rate_mbps), queue_ms: QUEUE_MS, delay_us: 0, loss_millionths: 0, jitter_us: 0 }
}

const fn far(rate_mbps: u32, delay_ms: u32) -> Line {
    Line { delay_us: delay_ms * 1000, ..plain(rate_mbps) }
}

impl Case {
    /// The links, the best one first.
    pub fn lines(self) -> Vec<Line> {
        match self {
            Self::Equal4 => vec![plain(500); 4],
            Self::Unlike4 => [1000, 500, 200, 100].map(plain).to_vec(),
            Self::Sixteen => vec![plain(100); 16],
            Self::Emulator => vec![
                far(200, 10),
                Line { loss_millionths: 1000, ..far(100, 40) },
                Line { loss_millionths: 10_000, ..far(50, 80) },
                Line { jitter_us: 30_000, ..far(20, 150) },
            ],
            Self::Failover5 => vec![Line { delay_us: 2500, ..plain(200) }; 4],
            Self::Failover20 => vec![far(200, 10); 4],
            Self::Failover100 => vec![far(200, 50); 4],
            Self::Messages => vec![far(100, 5), far(100, 20), far(100, 60)],
            Self::Cost => vec![Line::default()],
        }
    }

    pub const fn workload(self) -> Workload {
        match self {
            Self::Messages => Workload::Exchanges,
            _ => Workload::Bulk,
        }
    }

    /// Whether the links need the emulator: the kernel here has token buckets and no delays.
    pub fn is_emulated(self) -> bool {
        self.lines().iter().any(|line| line.delay_us > 0 || line.loss_millionths > 0 || line.jitter_us > 0)
    }

    pub const fn is_failover(self) -> bool {
        matches!(self, Self::Failover5 | Self::Failover20 | Self::Failover100)
    }

    /// Seconds of sending, if the case itself sets them.
    pub fn time_s(self) -> Option<f64> {
        self.is_failover().then_some(FAILOVER_TIME_S)
    }

    /// The round trip of the first link when its queue is empty.
    pub fn round_trip_s(self) -> f64 {
        self.lines().first().map_or(0.0, |line| 2.0 * f64::from(line.delay_us) / 1e6)
    }

    /// The contenders, unless the command line names others.
    pub fn contenders(self) -> Vec<Contender> {
        use Contender::{LitzBest, LitzFile, LitzMessage, LitzMessageBest, LitzPlain, LitzStream, Mptcp, TcpBest};
        match self {
            Self::Messages => {
                Contender::with_noq(vec![LitzMessage, LitzMessageBest, LitzStream, LitzBest, Mptcp, TcpBest])
            }
            Self::Cost => vec![LitzStream, LitzPlain],
            _ if self.is_failover() => Contender::with_noq(vec![LitzStream, Mptcp]),
            _ => Contender::with_noq(vec![LitzFile, LitzStream, LitzBest, Mptcp, TcpBest]),
        }
    }

    /// Bits per second that Ethernet frames of 1514 bytes leave for 1448 bytes of payload each;
    /// `None` without a limit.
    pub fn capacity_bps(self) -> Option<f64> {
        let rates: Option<Vec<u32>> = self.lines().iter().map(|line| line.rate_mbps).collect();
        Some(rates?.iter().map(|&rate| f64::from(rate) * 1e6 * 1448.0 / 1514.0).sum())
    }

    /// The target shares.
    pub fn wanted(self) -> Vec<Wanted> {
        let of = |file, stream| {
            vec![
                Wanted { contender: Contender::LitzFile, share: file },
                Wanted { contender: Contender::LitzStream, share: stream },
            ]
        };
        match self {
            Self::Equal4 => of(0.96, 0.94),
            Self::Unlike4 => of(0.94, 0.88),
            Self::Sixteen => of(0.90, 0.90),
            Self::Emulator => of(0.90, 0.80),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_count_what_frames_carry() {
        let share = 1448.0 / 1514.0;
        let close = |case: Case, mbps: f64| {
            let capacity = case.capacity_bps().expect("it has rates");
            assert!((capacity - mbps * 1e6 * share).abs() < 1.0, "{case:?}: {capacity}");
        };
        close(Case::Equal4, 2000.0);
        close(Case::Unlike4, 1800.0);
        close(Case::Sixteen, 1600.0);
        close(Case::Emulator, 370.0);
        assert_eq!(Case::Cost.capacity_bps(), None);
    }

    #[test]
    fn the_best_link_stands_first() {
        for &case in Case::value_variants() {
            let lines = case.lines();
            let first = lines.first().expect("a case has a link");
            assert!(lines.iter().all(|line| line.rate_mbps <= first.rate_mbps && line.delay_us >= first.delay_us));
        }
    }
}
