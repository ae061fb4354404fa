//! Which processors run the protocol.

use std::fmt;
use std::str::FromStr;

use units::Duration;

/// Processors of one engine, at most: more than any machine this was measured on has.
pub const PROCESSORS_MAX: usize = 64;

/// A cipher that takes longer for a packet of 1440 bytes is worth the hand-over to another processor. AES-128-GCM with the
/// processor's own instructions takes 150 to 250 ns, ChaCha20-Poly1305 six times as long, AES without them more.
const DEAR: Duration = Duration::from_nanos(400);

/// What is serial of a packet, system calls included, roughly: more processors than this many times fit into it and the
/// cipher would wait.
const SERIAL_COST: Duration = Duration::from_nanos(250);

/// Which processor runs what. Never changes what is sent, so the two ends of a connection choose for themselves.
///
/// In words, as in `litz bench speedup`: `inline`, `thread`, `packet(4)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Placement {
    /// One engine thread.
    #[default]
    Thread,
    /// No thread: the application's threads run the protocol inside their calls, one at a time, and hand it over when they
    /// leave. Saves a change of threads on each side, costs the application its punctuality: while no call is made,
    /// nothing is sent, acknowledged or kept alive. Calls that never block do one turn; `async` calls are refused.
    Inline,
    /// Two processors: one has what is sent and what belongs to connections as a whole, the other what is received, from the
    /// system call to the application (document 002's split of a connection in a send and a receive half). Of use when much goes
    /// both ways. If the one that receives dies, so do the connections whose receive half it had; the others go on.
    Split,
    /// So many processors share the batches of all connections: what is serial runs on one of them, sealing and opening on
    /// all (document 000's packet-level parallelism). Of use when the cipher is dear or one core is not enough.
    Packet(usize),
    /// So many processors share the sockets, and with them the paths: each receives, opens, seals and sends for its own
    /// (document 004's replicated channels). One has what belongs to connections as a whole, and a share of the sockets if
    /// there are as many as processors. More processors than sockets and that one are not used.
    Path(usize),
    /// So many processors share the connections: each has all of its own and nothing of the others' (document 000's several
    /// connections, 004's classes of service). Each needs its own sockets: [`Engine::start`](crate::Engine::start) tells in
    /// which order. One that dies takes its connections along, and no others.
    Connection(usize),
    /// What suits this machine: see [`Placement::suited`]. Decided once, when the engine starts.
    Auto,
}

impl Placement {
    /// How many threads of its own an engine has.
    pub fn thread_count(self) -> usize {
        match self {
            Self::Inline => 0,
            Self::Thread | Self::Auto => 1,
            Self::Split => 2,
            Self::Packet(count) | Self::Path(count) | Self::Connection(count) => count,
        }
    }

    /// Drivers of an engine: processors that each have connections of their own.
    pub fn driver_count(self) -> usize {
        match self {
            Self::Connection(count) => count.max(1),
            _ => 1,
        }
    }

    /// What suits a machine that has so many processors for an endpoint with so many sockets, whose cipher takes so long for a
    /// packet of 1440 bytes, if that is known.
    ///
    /// One processor does all if there is no other. With several sockets each gets a processor, because system calls and cipher
    /// are most of the work and belong to a path. With one socket others help if the cipher is dear, as many as it takes
    /// until the serial part is what limits.
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
            Some(cost) if cost >= DEAR => {
                let parts = (SERIAL_COST + cost).as_nanos().div_ceil(SERIAL_COST.as_nanos());
                Self::Packet(processors.min(usize::try_from(parts).unwrap_or(PROCESSORS_MAX)))
            }
            _ => Self::Thread,
        }
    }

    /// The application's threads run the protocol.
    pub fn is_inline(self) -> bool {
        self == Self::Inline
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread => f.write_str("thread"),
            Self::Auto => f.write_str("auto"),
            Self::Split => f.write_str("split"),
            Self::Inline => f.write_str("inline"),
            Self::Packet(count) => write!(f, "packet({count})"),
            Self::Path(count) => write!(f, "path({count})"),
            Self::Connection(count) => write!(f, "connection({count})"),
        }
    }
}

/// Why words name no placement.
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
            "packet" => counted(Self::Packet),
            "path" => counted(Self::Path),
            "connection" => counted(Self::Connection),
            _ => Err(PlacementError(format!(
                "there is no placement {words:?}: auto, inline, thread, split, packet(N), path(N) or connection(N)"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_suits_a_machine_follows_from_processors_sockets_and_cipher() {
        let (cheap, dear) = (Some(Duration::from_nanos(200)), Some(Duration::from_nanos(1200)));
        assert_eq!(Placement::suited(1, 4, dear), Placement::Thread);
        assert_eq!(Placement::suited(2, 4, cheap), Placement::Path(2));
        assert_eq!(Placement::suited(16, 4, cheap), Placement::Path(4));
        assert_eq!(Placement::suited(16, 1, cheap), Placement::Thread);
        assert_eq!(Placement::suited(16, 1, None), Placement::Thread);
        assert_eq!(Placement::suited(2, 1, dear), Placement::Packet(2));
        assert_eq!(Placement::suited(16, 1, dear), Placement::Packet(6));
    }

    #[test]
    fn words_name_placements_and_placements_are_told_in_the_same_words() {
        for placement in [
            Placement::Inline,
            Placement::Thread,
            Placement::Split,
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
