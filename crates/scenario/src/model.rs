//! The contents of a valid scenario file.

use netem::{Change, LinkConfig};
use quic::{Policy, Strategy};
use recovery::Algorithm;
use units::{Duration, Rate};

/// Maximum number of links, and of paths, of a scenario.
pub const LINKS_MAX: usize = 32;
/// Maximum number of workload parts.
pub const PARTS_MAX: usize = 16;
/// Maximum number of faults; a repeating fault counts once.
pub const FAULTS_MAX: usize = 256;
/// Maximum number of occurrences of one repeating fault.
pub const OCCURRENCES_MAX: u64 = 10_000;
/// Maximum number of changes by all faults to all links: one for each setting and direction, at
/// each beginning and each end. They take some tens of megabytes.
pub const CHANGES_MAX: u64 = 1 << 18;
/// Maximum number of checks.
pub const CHECKS_MAX: usize = 64;
/// Maximum number of subsets of paths.
pub const SUBSETS_MAX: usize = 64;
/// Maximum number of seeds that a file may request.
pub const SEEDS_MAX: u32 = 1000;
/// The longest run, in virtual time.
pub const DURATION_MAX: Duration = Duration::from_secs(3600);
/// Maximum number of messages or requests of one part.
pub const COUNT_MAX: u64 = 1_000_000;
/// Maximum size of one file or stream, in bytes.
pub const SIZE_MAX: u64 = 1 << 40;

/// The share of an Ethernet frame that is application payload: 1448 of 1514 bytes, as for TCP with
/// timestamps over IPv4 and an MTU of 1500. Capacity is this share of the line rates for every
/// protocol, so that protocols can be compared.
pub const PAYLOAD_SHARE: (u64, u64) = (1448, 1514);

/// Default overhead of each UDP payload on a line: 14 bytes of Ethernet, 20 of IPv4, 8 of UDP.
pub const OVERHEAD_BYTES: u64 = 42;

/// Default size of QUIC datagrams: the UDP payload of an IPv4 packet of 1500 bytes.
pub const DATAGRAM_SIZE: usize = 1472;

/// A scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Name of letters, digits, `-` and `_`.
    pub name: String,
    /// A description in one or a few sentences.
    pub about: String,
    /// The maximum duration of a run. A run ends earlier if its work is complete.
    pub duration: Duration,
    /// The number of seeds of a check, from 1.
    pub seeds: u32,
    /// The sending host and the receiving host.
    pub hosts: [Host; 2],
    /// Links in the order of the file. Not empty.
    pub links: Vec<Link>,
    /// Paths in the order of the file. Not empty. The connection begins on the first path that is
    /// not a backup.
    pub paths: Vec<Path>,
    /// The transport settings.
    pub transport: Transport,
    /// The parts of the workload, which run concurrently. Not empty.
    pub parts: Vec<Part>,
    /// The faults of the links.
    pub faults: Vec<Fault>,
    /// The conditions that runs must meet.
    pub checks: Vec<Check>,
    /// Sets of paths for [`CheckKind::AgainstBestPath`], in addition to that of all paths; each in
    /// ascending order.
    pub subsets: Vec<Vec<usize>>,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The name in results, traces and captures.
    pub name: String,
    /// The maximum receive window of the connection, in bytes.
    pub receive_window: u64,
    /// The send buffer for unacknowledged bytes over all streams.
    pub send_buffer: u64,
    /// Interrupt moderation: how long the first datagram of a batch waits for more before the host
    /// processes them. Applies in virtual time; a real host has its own setting.
    pub coalesce: Duration,
}

/// A physical channel between the two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Name of letters, digits, `-` and `_`; unique.
    pub name: String,
    /// Settings towards the receiving host. Faults are not included: see [`crate::faults`].
    pub forward: LinkConfig,
    /// Settings towards the sending host.
    pub back: LinkConfig,
    /// The line in the file.
    pub line: usize,
}

/// A pair of addresses over a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Name; unique.
    pub name: String,
    /// The index of the link.
    pub link: usize,
    /// Whether it is used only if no other path works.
    pub is_backup: bool,
}

/// The transport settings, which both hosts share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Strategy that chooses the path of the next packets.
    pub scheduler: Strategy,
    /// The congestion controller of each path.
    pub congestion: Algorithm,
    /// Division of decisions into those for each path and those for all paths.
    pub policy: Policy,
    /// Size of a datagram in bytes of UDP payload.
    pub datagram_size: usize,
    /// Time without a packet from the peer after which the connection ends.
    pub idle_timeout: Duration,
}

/// One part of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name; unique.
    pub name: String,
    /// The kind of work.
    pub work: Work,
    /// The delay between the end of the handshake and the beginning of this part.
    pub start: Duration,
    /// The priority of its streams. Streams with higher priority are sent first.
    pub priority: i32,
    /// The line in the file.
    pub line: usize,
}

/// The work of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Bulk data by offset: each chunk has its own stream and is placed at its offset on arrival.
    File {
        /// Size in bytes; `None` continues until the run ends.
        size: Option<u64>,
        /// Bytes of each stream.
        chunk: u64,
        /// Number of streams that are written concurrently.
        parallel: usize,
    },
    /// Bulk data in order, on one stream.
    Stream {
        /// Size in bytes; `None` continues until the run ends.
        size: Option<u64>,
    },
    /// Messages from the sending host, each on its own stream, sent at their due times (open loop).
    Messages {
        /// Size of each message in bytes.
        size: u64,
        /// The due times.
        times: Times,
    },
    /// Requests from the sending host. The receiving host answers each as soon as it has arrived
    /// completely.
    RequestResponse {
        /// Size of a request in bytes.
        request: u64,
        /// Size of a response in bytes.
        response: u64,
        /// The due times.
        times: Times,
    },
}

/// The due times of messages, independent of deliveries (open loop).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The mean interval.
    pub every: Duration,
    /// The number of messages or requests.
    pub count: u64,
    /// The distribution of the intervals.
    pub arrivals: Arrivals,
}

/// The distribution of intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Constant intervals.
    Even,
    /// Exponentially distributed intervals, drawn from the run's seed.
    Poisson,
}

/// A temporary or permanent change of a link's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The time of the first occurrence since the beginning of the run.
    pub at: Duration,
    /// Time at which the settings are restored. Without it, the fault lasts until another fault
    /// changes the same settings.
    pub until: Option<Duration>,
    /// The interval between occurrences, if the fault repeats.
    pub every: Option<Duration>,
    /// The index of the link.
    pub link: usize,
    /// Directions: towards the receiving host, and back.
    pub directions: [bool; 2],
    /// The changed settings. Not empty; each setting at most once.
    pub changes: Vec<Change>,
    /// The line in the file.
    pub line: usize,
}

/// A condition that the runs must meet.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The kind of check.
    pub kind: CheckKind,
    /// The workload part; `None` is every part to which the check applies.
    pub of: Option<usize>,
    /// The line in the file.
    pub line: usize,
}

/// A time window of a run. A missing bound is that of the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The beginning, since the beginning of the run.
    pub from: Option<Duration>,
    /// The end, since the beginning of the run.
    pub until: Option<Duration>,
}

/// The kinds of checks.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckKind {
    /// Delivered application bytes divided by the capacity of the links in use.
    ShareOfCapacity {
        /// The minimum.
        at_least: f64,
        /// The window of measurement.
        window: Window,
    },
    /// Delivered application bytes divided by time.
    Goodput {
        /// The minimum.
        at_least: Rate,
        /// The window of measurement.
        window: Window,
    },
    /// The longest time without a delivery while the part was incomplete.
    Gap {
        /// The maximum.
        at_most: Duration,
        /// The window; a gap counts if it overlaps the window.
        window: Window,
    },
    /// The time from when a message or request was due until it, or the response, had arrived
    /// completely.
    Latency {
        /// Percentile in hundredths: 9950 is the 99.5th percentile. From 1 to 10,000.
        percentile_hundredths: u32,
        /// The maximum.
        at_most: Duration,
    },
    /// Every byte of a part that has an end was delivered.
    NothingLost,
    /// A stream was delivered in order, each byte exactly once.
    OrderKept,
    /// A part that has an end completes within this time of its beginning.
    Complete {
        /// The maximum.
        within: Duration,
    },
    /// A path's share of the bytes sent towards the receiving host.
    PathShare {
        /// The index of the path.
        path: usize,
        /// The minimum.
        at_least: f64,
        /// The maximum.
        at_most: f64,
    },
    /// A counter of a link, summed over both directions: proof that a permanent fault had an
    /// effect.
    Happened {
        /// The index of the link.
        link: usize,
        /// The counter.
        counter: Counter,
        /// The minimum.
        at_least: u64,
    },
    /// All paths, and each subset, compared with the best single path: the ratio of goodputs, or
    /// the inverse ratio of latencies.
    AgainstBestPath {
        /// The minimum.
        at_least: f64,
        /// The percentile of the compared latency, in hundredths.
        percentile_hundredths: u32,
    },
}

/// A counter of [`netem::LinkStats`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Lost by `loss`.
    Lost,
    /// Lost by `bursts`.
    LostInBursts,
    /// Dropped by a silent link.
    Vanished,
    /// Dropped because the queue was full.
    Overflowed,
    /// Dropped by CoDel.
    DroppedByCodel,
    /// Delivered out of order.
    Reordered,
    /// Delivered twice.
    Duplicated,
    /// Delivered with a flipped bit.
    Corrupted,
}

impl Counter {
    /// All counters, with their names in files.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Lost, "lost"),
        (Self::LostInBursts, "lost-in-bursts"),
        (Self::Vanished, "vanished"),
        (Self::Overflowed, "overflowed"),
        (Self::DroppedByCodel, "dropped-by-codel"),
        (Self::Reordered, "reordered"),
        (Self::Duplicated, "duplicated"),
        (Self::Corrupted, "corrupted"),
    ];

    /// Returns the name in files.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(counter, _)| *counter == self).map_or("", |(_, name)| name)
    }

    /// Returns the value in these statistics.
    pub const fn of(self, stats: &netem::LinkStats) -> u64 {
        match self {
            Self::Lost => stats.lost,
            Self::LostInBursts => stats.lost_in_bursts,
            Self::Vanished => stats.vanished,
            Self::Overflowed => stats.overflowed,
            Self::DroppedByCodel => stats.dropped_by_codel,
            Self::Reordered => stats.reordered,
            Self::Duplicated => stats.duplicated,
            Self::Corrupted => stats.corrupted,
        }
    }
}

impl Work {
    /// Returns the name in files.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::File { .. } => "file",
            Self::Stream { .. } => "stream",
            Self::Messages { .. } => "messages",
            Self::RequestResponse { .. } => "request-response",
        }
    }

    /// Returns whether the work is bulk data, as opposed to timed messages.
    pub const fn is_bulk(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Stream { .. })
    }

    /// Returns the number of delivered items: chunks, one stream, messages or responses; `None`
    /// without end.
    pub fn item_count(&self) -> Option<u64> {
        match self {
            Self::File { size, chunk, .. } => size.map(|size| size.div_ceil(*chunk)),
            Self::Stream { .. } => Some(1),
            Self::Messages { times, .. } | Self::RequestResponse { times, .. } => Some(times.count),
        }
    }

    /// Returns the length of item number `item` in the direction from the sending host; `None`
    /// without end.
    pub fn item_len(&self, item: u64) -> Option<u64> {
        match self {
            Self::File { size, chunk, .. } => {
                Some(size.map_or(*chunk, |size| (size.saturating_sub(item * chunk)).min(*chunk)))
            }
            Self::Stream { size } => *size,
            Self::Messages { size, .. } => Some(*size),
            Self::RequestResponse { request, .. } => Some(*request),
        }
    }

    /// Returns the number of bytes that are delivered by the complete work; `None` without end. For
    /// requests, it is that of the responses.
    pub const fn delivered_bytes(&self) -> Option<u64> {
        match self {
            Self::File { size, .. } | Self::Stream { size } => *size,
            Self::Messages { size, times } => Some(*size * times.count),
            Self::RequestResponse { response, times, .. } => Some(*response * times.count),
        }
    }

    /// Returns whether the work can complete before the run ends.
    pub const fn has_end(&self) -> bool {
        self.delivered_bytes().is_some()
    }

    /// Returns the due times of messages or requests, if the work has any.
    pub const fn times(&self) -> Option<&Times> {
        match self {
            Self::Messages { times, .. } | Self::RequestResponse { times, .. } => Some(times),
            _ => None,
        }
    }
}

impl Scenario {
    /// Returns the indices of the paths with these names, ascending.
    ///
    /// # Errors
    /// Returns a message that lists the existing names.
    pub fn paths_named<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<Vec<usize>, String> {
        let mut found = Vec::new();
        for name in names {
            let Some(index) = self.paths.iter().position(|path| path.name == name) else {
                let known: Vec<_> = self.paths.iter().map(|path| path.name.as_str()).collect();
                return Err(format!("there is no path {name:?}; the scenario has {}", known.join(", ")));
            };
            if found.contains(&index) {
                return Err(format!("path {name:?} is named twice"));
            }
            found.push(index);
        }
        if found.is_empty() {
            return Err("name at least one path".to_owned());
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Returns the names of these paths.
    pub fn path_names(&self, paths: &[usize]) -> Vec<String> {
        paths.iter().filter_map(|&path| self.paths.get(path)).map(|path| path.name.clone()).collect()
    }

    /// Returns the indices of the links under these paths, ascending, without duplicates.
    pub fn links_under(&self, paths: &[usize]) -> Vec<usize> {
        let mut links: Vec<_> = paths.iter().map(|&path| self.paths[path].link).collect();
        links.sort_unstable();
        links.dedup();
        links
    }

    /// Returns the indices of all paths.
    pub fn all_paths(&self) -> Vec<usize> {
        (0..self.paths.len()).collect()
    }
}
