//! Placements: which thread of a host does what.

use core::fmt;
use core::str::FromStr;

/// Processors of a machine, and threads of a host, at most.
pub const PROCESSORS_MAX: usize = 64;

/// Which thread of a host does what: the placements of the engine, by their names there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The application's own thread does everything.
    Inline,
    /// One thread beside the application's.
    #[default]
    Thread,
    /// One for what is sent and what is serial, one for what is received.
    Split,
    /// One for what is serial; sealing and opening on so many.
    Packet(usize),
    /// So many, each with the calls and stages of its paths; what is serial on the first.
    Path(usize),
    /// So many, each with connections of its own. The one connection of a scenario has one of them.
    Connection(usize),
}

impl Placement {
    /// Threads of a host, the application's included.
    pub fn thread_count(self) -> usize {
        match self {
            Self::Inline => 1,
            Self::Thread | Self::Connection(_) => 2,
            Self::Split => 3,
            Self::Packet(count) | Self::Path(count) => 1 + count.max(1),
        }
    }

    /// Endpoints behind one address, which share out the connection IDs.
    pub(crate) fn shard_count(self) -> usize {
        match self {
            Self::Connection(count) => count.max(1),
            _ => 1,
        }
    }

    /// Threads of which any may seal what the driver plans, itself included: those of paths help it if it has a path of its own.
    pub(crate) fn helping_count(self, paths: usize) -> usize {
        match self {
            Self::Packet(count) => count.max(1),
            Self::Path(count) if (1..=paths).contains(&count) => count,
            _ => 1,
        }
    }

    /// Threads that seal and open.
    pub(crate) fn stage_count(self) -> usize {
        match self {
            Self::Packet(count) | Self::Path(count) => count.max(1),
            _ => 1,
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline => f.write_str("inline"),
            Self::Thread => f.write_str("thread"),
            Self::Split => f.write_str("split"),
            Self::Packet(count) => write!(f, "packet({count})"),
            Self::Path(count) => write!(f, "path({count})"),
            Self::Connection(count) => write!(f, "connection({count})"),
        }
    }
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let of = |name: &str| {
            let count = text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?;
            count.parse().ok().filter(|count| (1..=PROCESSORS_MAX).contains(count))
        };
        match text {
            "inline" => Ok(Self::Inline),
            "thread" => Ok(Self::Thread),
            "split" => Ok(Self::Split),
            _ => of("packet")
                .map(Self::Packet)
                .or_else(|| of("path").map(Self::Path))
                .or_else(|| of("connection").map(Self::Connection))
                .ok_or_else(|| {
                    format!("{text:?} is no placement: inline, thread, split, packet(N), path(N) or connection(N), N from 1 to {PROCESSORS_MAX}")
                }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_are_read_as_they_are_written() {
        for text in ["inline", "thread", "split", "packet(4)", "path(2)", "connection(64)"] {
            assert_eq!(text.parse::<Placement>().map(|placement| placement.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "packet", "packet(0)", "path(65)", "split(2)", "packet(4"] {
            assert!(text.parse::<Placement>().is_err(), "{text}");
        }
    }
}
