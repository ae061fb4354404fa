//! [`Placement`]: the assignment of protocol work to processors.

use std::fmt;
use std::str::FromStr;

use units::Duration;

/// Maximum number of processors of an engine: more than any machine on which this was measured has.
pub const PROCESSORS_MAX: usize = 64;

/// Time for a packet of 1440 bytes above which offloading a cipher is worthwhile. AES-128-GCM takes
/// 150 to 250 ns with AES instructions, and more without them. ChaCha20-Poly1305 takes six times as
/// long.
const OFFLOAD_COST_MIN: Duration = Duration::from_nanos(400);

/// The approximate serial cost of a packet, including system calls. The whole cost of a packet
/// divided by this is the number of processors that can be kept busy.
const SERIAL_COST: Duration = Duration::from_nanos(250);

/// The placement of an engine. It does not change the packets that are sent, so the two ends of a
/// connection choose independently.
///
/// Its text form is `inline`, `thread` or `packet(4)`, for example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Placement {
    /// One thread of the engine.
    #[default]
    Thread,
    /// No thread: the application's threads run the protocol during their calls, one at a time.
    /// This placement saves a thread switch on each side. Between calls nothing is sent or
    /// acknowledged, and the connection is not kept alive. A call that does not block runs one
    /// turn. `async` calls are refused.
    Inline,
    /// Two processors: one sends and runs everything that concerns connections as a whole, the
    /// other receives, from the system call to the application (the send and receive halves of
    /// Ruetsche and Kaiserswerth 1992). This placement is useful for bulk transfers in both
    /// directions. If the receiving processor fails, the connections end whose receive half ran
    /// there; others continue.
    Split,
    /// Four processors, each of which does a part of the work for all connections (the pipeline of
    /// Ruetsche and Kaiserswerth 1992): as under [`Split`](Self::Split), with an additional
    /// processor on each side that seals and sends, or receives and verifies. It is available for
    /// TCP, over one device.
    Pipeline,
    /// This many processors share the batches of all connections: the serial part runs on one of
    /// them, encryption and decryption on all (the packet-level parallelism of Nahum et al. 1996).
    /// Useful if the cipher is expensive or one core is not enough.
    Packet(usize),
    /// This many processors share the sockets and thereby the paths: each receives, decrypts,
    /// encrypts and sends for its own (replicated channels, ODU report). One of them runs
    /// everything that concerns connections as a whole; it serves sockets only if there are at
    /// least as many as processors. At most one more processor than sockets is used.
    Path(usize),
    /// This many processors share the connections: each runs its connections completely and needs
    /// its own sockets. If a processor fails, only its connections end.
    Connection(usize),
    /// Chosen for this machine when the engine starts: see [`Placement::suited`].
    Auto,
}

impl Placement {
    /// Returns the number of threads of an engine, including those of workers.
    pub fn thread_count(self) -> usize {
        match self {
            Self::Inline => 0,
            Self::Thread | Self::Auto => 1,
            Self::Split => 2,
            Self::Pipeline => 4,
            Self::Packet(count) | Self::Path(count) | Self::Connection(count) => count,
        }
    }

    /// Returns the number of drivers of an engine: processors that each have their own connections.
    pub fn driver_count(self) -> usize {
        match self {
            Self::Connection(count) => count.max(1),
            _ => 1,
        }
    }

    /// Returns the placement for a machine with this many processors and an endpoint with this many
    /// sockets, whose cipher takes `seal_cost` for a packet of 1440 bytes, if that is known.
    ///
    /// A single processor does all work. With several sockets each gets a processor, because system
    /// calls and the cipher are most of the work and belong to a path. With one socket, other
    /// processors help if the cipher is expensive, up to the limit of the serial part.
    #[must_use]
    pub fn suited(processors: usize, sockets: usize, seal_cost: Option<Duration>) -> Self {
        let processors = processors.min(PROCESSORS_MAX);
        if processors < 2 {
            return Self::Thread;
        }
        if sockets > 1 {
            return Self::Path(sockets.min(processors));
        }
        match seal_cost {
            Some(cost) if cost >= OFFLOAD_COST_MIN => {
                let parts = (SERIAL_COST + cost).as_nanos().div_ceil(SERIAL_COST.as_nanos());
                Self::Packet(processors.min(usize::try_from(parts).unwrap_or(PROCESSORS_MAX)))
            }
            _ => Self::Thread,
        }
    }

    /// Returns whether the application's threads run the protocol.
    pub fn is_inline(self) -> bool {
        self == Self::Inline
    }
}

/// Returns the worker that serves each of `sockets` sockets when this many processors share them,
/// as under [`Placement::Path`]. `None` is the driver. It serves sockets only if there are at least
/// as many as processors. Every worker serves at least one.
#[must_use]
pub fn socket_workers(processors: usize, sockets: usize) -> Vec<Option<usize>> {
    let processors = processors.clamp(1, sockets + 1);
    let first = usize::from(processors > sockets);
    (first..first + sockets).map(|number| (number % processors).checked_sub(1)).collect()
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread => f.write_str("thread"),
            Self::Auto => f.write_str("auto"),
            Self::Split => f.write_str("split"),
            Self::Inline => f.write_str("inline"),
            Self::Pipeline => f.write_str("pipeline"),
            Self::Packet(count) => write!(f, "packet({count})"),
            Self::Path(count) => write!(f, "path({count})"),
            Self::Connection(count) => write!(f, "connection({count})"),
        }
    }
}

/// Error: the text is not the name of a placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementError(String);

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlacementError {}

impl FromStr for Placement {
    type Err = PlacementError;

    fn from_str(words: &str) -> Result<Self, PlacementError> {
        let (name, count) = match words.split_once('(') {
            Some((name, rest)) => (name, rest.strip_suffix(')')),
            None => (words, None),
        };
        let counted = |make: fn(usize) -> Self| {
            let count = count.and_then(|count| count.trim().parse().ok());
            let count = count.filter(|count| (1..=PROCESSORS_MAX).contains(count));
            count.map(make).ok_or_else(|| {
                PlacementError(format!("{name} needs a number of processors from 1 to {PROCESSORS_MAX}: {name}(2)"))
            })
        };
        match name {
            "inline" if words == name => Ok(Self::Inline),
            "thread" if words == name => Ok(Self::Thread),
            "auto" if words == name => Ok(Self::Auto),
            "split" if words == name => Ok(Self::Split),
            "pipeline" if words == name => Ok(Self::Pipeline),
            "packet" => counted(Self::Packet),
            "path" => counted(Self::Path),
            "connection" => counted(Self::Connection),
            _ => Err(PlacementError(format!(
                "there is no placement {words:?}: auto, inline, thread, split, pipeline, packet(N), path(N) or connection(N)"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suited_placement_follows_from_processors_sockets_and_cipher() {
        let (cheap, expensive) = (Some(Duration::from_nanos(200)), Some(Duration::from_nanos(1200)));
        assert_eq!(Placement::suited(1, 4, expensive), Placement::Thread);
        assert_eq!(Placement::suited(2, 4, cheap), Placement::Path(2));
        assert_eq!(Placement::suited(16, 4, cheap), Placement::Path(4));
        assert_eq!(Placement::suited(16, 1, cheap), Placement::Thread);
        assert_eq!(Placement::suited(16, 1, None), Placement::Thread);
        assert_eq!(Placement::suited(2, 1, expensive), Placement::Packet(2));
        assert_eq!(Placement::suited(16, 1, expensive), Placement::Packet(6));
    }

    #[test]
    fn every_worker_gets_a_socket_and_the_driver_one_if_there_are_enough() {
        assert_eq!(socket_workers(1, 2), [None, None]);
        assert_eq!(socket_workers(2, 4), [None, Some(0), None, Some(0)]);
        assert_eq!(socket_workers(3, 3), [None, Some(0), Some(1)]);
        assert_eq!(socket_workers(3, 2), [Some(0), Some(1)]);
        assert_eq!(socket_workers(8, 2), [Some(0), Some(1)], "a worker needs a socket");
        assert_eq!(socket_workers(0, 1), [None]);
    }

    #[test]
    fn placements_are_parsed_as_they_are_displayed() {
        for placement in [
            Placement::Inline,
            Placement::Thread,
            Placement::Split,
            Placement::Pipeline,
            Placement::Packet(1),
            Placement::Packet(64),
            Placement::Path(3),
            Placement::Connection(2),
        ] {
            assert_eq!(placement.to_string().parse(), Ok(placement));
        }
        for words in [
            "",
            "threads",
            "thread(2)",
            "split(2)",
            "packet",
            "packet()",
            "packet(0)",
            "packet(65)",
            "packet(2",
            "packet(-1)",
        ] {
            assert!(words.parse::<Placement>().is_err(), "{words:?}");
        }
        let error = "packet".parse::<Placement>().unwrap_err();
        assert_eq!(error.to_string(), "packet needs a number of processors from 1 to 64: packet(2)");
    }
}
