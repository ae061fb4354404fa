//! What a scenario file says, once it is known to be right.

use netem::{Change, LinkConfig};
use quic::{Policy, Strategy};
use recovery::Algorithm;
use units::{Duration, Rate};

/// Links, and paths, of one scenario at most.
pub const LINKS_MAX: usize = 32;
/// Workload parts at most.
pub const PARTS_MAX: usize = 16;
/// Faults at most; a repeating one counts once.
pub const FAULTS_MAX: usize = 256;
/// Times that one repeating fault happens, at most.
pub const OCCURRENCES_MAX: u64 = 10_000;
/// Changes of all links that all faults make at most: one for each setting and direction, at each beginning and each end.
/// They take some tens of megabytes.
pub const CHANGES_MAX: u64 = 1 << 18;
/// Checks at most.
pub const CHECKS_MAX: usize = 64;
/// Subsets of paths at most.
pub const SUBSETS_MAX: usize = 64;
/// Seeds that a file may ask for.
pub const SEEDS_MAX: u32 = 1000;
/// The longest run, in virtual time.
pub const DURATION_MAX: Duration = Duration::from_secs(3600);
/// Messages or requests of one part at most.
pub const COUNT_MAX: u64 = 1_000_000;
/// Bytes of one file or stream at most.
pub const SIZE_MAX: u64 = 1 << 40;

/// Share of an Ethernet frame that can be an application's: 1448 of 1514 bytes, what TCP with time stamps over IPv4 leaves
/// of 1500. Capacity means this share of the line rates, whatever carries the bytes, so that protocols can be compared.
pub const PAYLOAD_SHARE: (u64, u64) = (1448, 1514);

/// What each UDP payload costs on a line, if a link does not say: 14 bytes of Ethernet, 20 of IPv4, 8 of UDP.
pub const OVERHEAD_BYTES: u64 = 42;

/// The size of QUIC's datagrams, if the file does not say: what 1500 bytes of IPv4 carry.
pub const DATAGRAM_SIZE: usize = 1472;

/// A scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Letters, digits, `-` and `_`.
    pub name: String,
    /// One or a few sentences.
    pub about: String,
    /// A run ends here, if its work is not done before.
    pub duration: Duration,
    /// How many seeds a check takes, from one.
    pub seeds: u32,
    /// The host that sends, then the one that receives.
    pub hosts: [Host; 2],
    /// In the order of the file. Not empty.
    pub links: Vec<Link>,
    /// In the order of the file. Not empty. The first one makes the connection.
    pub paths: Vec<Path>,
    /// How the connection behaves.
    pub transport: Transport,
    /// What the application does: all of it at the same time. Not empty.
    pub parts: Vec<Part>,
    /// What goes wrong, and when.
    pub faults: Vec<Fault>,
    /// What must hold.
    pub checks: Vec<Check>,
    /// Sets of paths for [`CheckKind::AgainstBestPath`], beside that of all paths; each in ascending order.
    pub subsets: Vec<Vec<usize>>,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// For people: in results, traces and captures.
    pub name: String,
    /// Bytes that it lets its peer have on the way, over all streams.
    pub receive_window: u64,
    /// Bytes that it holds until they are acknowledged, over all streams.
    pub send_buffer: u64,
    /// How long the first datagram of a batch waits for others before the host looks at them: an interrupt's moderation. In virtual
    /// time; a real host has its own.
    pub coalesce: Duration,
}

/// A physical channel between the two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Letters, digits, `-` and `_`; unique.
    pub name: String,
    /// Towards the receiving host. Without a schedule: see [`crate::faults`].
    pub forward: LinkConfig,
    /// Back.
    pub back: LinkConfig,
    /// Where the file says so.
    pub line: usize,
}

/// A pair of addresses over a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Unique.
    pub name: String,
    /// Which link.
    pub link: usize,
    /// To be used only if no other path works.
    pub is_backup: bool,
}

/// How the connection behaves; the same at both hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Which path the next packets take.
    pub scheduler: Strategy,
    /// The congestion controller of each path.
    pub congestion: Algorithm,
    /// What is decided path by path, and what once for all paths.
    pub policy: Policy,
    /// Bytes of UDP payload.
    pub datagram_size: usize,
    /// The connection ends after so long without a word from the peer.
    pub idle_timeout: Duration,
}

/// One thing the application does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Unique.
    pub name: String,
    /// What.
    pub work: Work,
    /// How long after the connection is there.
    pub start: Duration,
    /// Its streams go before those of a lower number.
    pub priority: i32,
    /// Where the file says so.
    pub line: usize,
}

/// What an application does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Bulk by offset: chunks on streams of their own, placed where they belong as they arrive.
    File {
        /// Bytes; `None` goes on until the run ends.
        size: Option<u64>,
        /// Bytes of each stream.
        chunk: u64,
        /// Streams being written at a time.
        parallel: usize,
    },
    /// Bulk in order: one stream.
    Stream {
        /// Bytes; `None` goes on until the run ends.
        size: Option<u64>,
    },
    /// Messages from the sending host, each on a stream of its own, whether the last one has arrived or not.
    Messages {
        /// Bytes of each.
        size: u64,
        /// When.
        times: Times,
    },
    /// Requests from the sending host, each answered by the other as soon as it is there whole.
    RequestResponse {
        /// Bytes of a request.
        request: u64,
        /// Bytes of an answer.
        response: u64,
        /// When.
        times: Times,
    },
}

/// Moments at which messages are due, open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The mean time from one to the next.
    pub every: Duration,
    /// How many.
    pub count: u64,
    /// How they are spread.
    pub arrivals: Arrivals,
}

/// How moments are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Always the same time from one to the next.
    Even,
    /// Times from an exponential distribution, from the run's seed.
    Poisson,
}

/// Something that happens to a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// When it first happens, since the run began.
    pub at: Duration,
    /// When everything is again as it was before; `None` lasts until another fault sets the same.
    pub until: Option<Duration>,
    /// It happens again and again, each so much later.
    pub every: Option<Duration>,
    /// Which link.
    pub link: usize,
    /// Towards the receiving host, and back.
    pub directions: [bool; 2],
    /// What changes. Not empty; no two of a kind.
    pub changes: Vec<Change>,
    /// Where the file says so.
    pub line: usize,
}

/// Something that must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What.
    pub kind: CheckKind,
    /// Which part of the workload; `None` is each to which it applies.
    pub of: Option<usize>,
    /// Where the file says so.
    pub line: usize,
}

/// A span of a run, from its beginning; an end that is missing is that of the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Not before.
    pub from: Option<Duration>,
    /// Not after.
    pub until: Option<Duration>,
}

/// What must hold.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckKind {
    /// Application bytes delivered, of what the links in use could carry.
    ShareOfCapacity {
        /// Bound.
        at_least: f64,
        /// When.
        window: Window,
    },
    /// Application bytes delivered in a time.
    Goodput {
        /// Bound.
        at_least: Rate,
        /// When.
        window: Window,
    },
    /// The longest time in which nothing was delivered although the part was not done.
    Gap {
        /// Bound.
        at_most: Duration,
        /// When; a gap counts if it overlaps.
        window: Window,
    },
    /// From the moment a message or request was due until it, or its answer, was there whole.
    Latency {
        /// In hundredths: 9950 is the 99.5th percentile. From 1 to 10,000.
        percentile_hundredths: u32,
        /// Bound.
        at_most: Duration,
    },
    /// Everything has arrived, of parts that have an end.
    NothingLost,
    /// A stream was delivered in order, each byte once and where it belongs.
    OrderKept,
    /// The part, which has an end, is done this long after it began at the latest.
    Complete {
        /// Bound.
        within: Duration,
    },
    /// Share of the bytes towards the receiving host that took a path.
    PathShare {
        /// Which path.
        path: usize,
        /// Bound.
        at_least: f64,
        /// Bound.
        at_most: f64,
    },
    /// What a link counted, both directions together: proof that a permanent fault was there.
    Happened {
        /// Which link.
        link: usize,
        /// Which counter.
        counter: Counter,
        /// Bound.
        at_least: u64,
    },
    /// All paths, and each subset, against the best of their paths alone: goodput over goodput, or the inverse of latencies.
    AgainstBestPath {
        /// Bound.
        at_least: f64,
        /// Which latency is compared, in hundredths.
        percentile_hundredths: u32,
    },
}

/// A counter of [`netem::LinkStats`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// By `loss`.
    Lost,
    /// By `bursts`.
    LostInBursts,
    /// In a silent link.
    Vanished,
    /// Found the queue full.
    Overflowed,
    /// By CoDel.
    DroppedByCodel,
    /// Later than their turn.
    Reordered,
    /// Twice.
    Duplicated,
    /// With a fault in them.
    Corrupted,
}

impl Counter {
    /// All, with their names in files.
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

    /// Its name in files.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(counter, _)| *counter == self).map_or("", |(_, name)| name)
    }

    /// Its value.
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
    /// Its name in files.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::File { .. } => "file",
            Self::Stream { .. } => "stream",
            Self::Messages { .. } => "messages",
            Self::RequestResponse { .. } => "request-response",
        }
    }

    /// Many bytes, as opposed to many small things with a time each.
    pub const fn is_bulk(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Stream { .. })
    }

    /// How many things are delivered: chunks, one stream, messages, answers; `None` without end.
    pub fn item_count(&self) -> Option<u64> {
        match self {
            Self::File { size, chunk, .. } => size.map(|size| size.div_ceil(*chunk)),
            Self::Stream { .. } => Some(1),
            Self::Messages { times, .. } | Self::RequestResponse { times, .. } => Some(times.count),
        }
    }

    /// Bytes of thing number `item` on the way from the sending host; `None` without end.
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

    /// Bytes that are delivered when all is done; `None` without end. Of requests, those of the answers.
    pub const fn delivered_bytes(&self) -> Option<u64> {
        match self {
            Self::File { size, .. } | Self::Stream { size } => *size,
            Self::Messages { size, times } => Some(*size * times.count),
            Self::RequestResponse { response, times, .. } => Some(*response * times.count),
        }
    }

    /// Whether it can be done before the run ends.
    pub const fn has_end(&self) -> bool {
        self.delivered_bytes().is_some()
    }

    /// When messages are due, if it has any.
    pub const fn times(&self) -> Option<&Times> {
        match self {
            Self::Messages { times, .. } | Self::RequestResponse { times, .. } => Some(times),
            _ => None,
        }
    }
}

impl Scenario {
    /// The paths of these names, ascending.
    ///
    /// # Errors
    /// In words, naming those that exist.
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

    /// The names of these paths.
    pub fn path_names(&self, paths: &[usize]) -> Vec<String> {
        paths.iter().filter_map(|&path| self.paths.get(path)).map(|path| path.name.clone()).collect()
    }

    /// The links under these paths, ascending, each once.
    pub fn links_under(&self, paths: &[usize]) -> Vec<usize> {
        let mut links: Vec<_> = paths.iter().map(|&path| self.paths[path].link).collect();
        links.sort_unstable();
        links.dedup();
        links
    }

    /// All paths.
    pub fn all_paths(&self) -> Vec<usize> {
        (0..self.paths.len()).collect()
    }
}
