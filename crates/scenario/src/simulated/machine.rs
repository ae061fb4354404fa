//! Simulated machines: processors, the threads on them, and which thread does what.

use core::fmt;
use core::str::FromStr;

use serde_json::{Value as Json, json};

use super::costs::{Costs, End, Task};

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

/// Threads are numbered within a host: the application's, the one of what is serial, the others.
pub(crate) const APPLICATION: usize = 0;
const DRIVER: usize = 1;

/// What a thread of this number is, for people.
pub(crate) const fn thread_role(number: usize) -> &'static str {
    match number {
        APPLICATION => "application",
        DRIVER => "driver",
        _ => "worker",
    }
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

    /// The threads of which any may do this task for a packet of this path.
    pub(crate) fn threads_of(self, end: End, task: Task, path: usize) -> core::ops::Range<usize> {
        let thread = match (self, task) {
            (Self::Inline, _) | (_, Task::Application) => APPLICATION,
            (Self::Packet(count), Task::Stage) => return DRIVER..DRIVER + count.max(1),
            (Self::Path(count), Task::Stage | Task::Call) => DRIVER + path % count.max(1),
            // Data that arrive, and acknowledgements that do.
            (Self::Split, Task::Serial | Task::Stage | Task::Call) if end == End::Receiving => DRIVER + 1,
            (Self::Split, Task::Answer) if end == End::Sending => DRIVER + 1,
            _ => DRIVER,
        };
        thread..thread + 1
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

/// The machines that a scenario's hosts are.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// What the tasks cost.
    pub costs: Costs,
    /// The sending host's, and the receiving one's.
    pub placements: [Placement; 2],
    /// Processors of the sending host, and of the receiving one.
    pub processors: [usize; 2],
    /// Both hosts have the first's together.
    pub is_shared: bool,
}

impl Machine {
    /// All of its parameters, as results have them. Placements are those of the sending host and of the receiving one.
    pub fn json(&self) -> Json {
        json!({
            "processors": self.processors,
            "is_shared": self.is_shared,
            "placements": self.placements.map(|placement| placement.to_string()),
            "hand_over_ns": self.costs.hand_over_ns,
            "costs": self.costs,
        })
    }

    /// Whether it can be.
    ///
    /// # Errors
    /// In words, naming the value.
    pub fn validate(&self) -> Result<(), String> {
        if let Some(count) = self.processors.iter().find(|count| !(1..=PROCESSORS_MAX).contains(*count)) {
            return Err(format!("processors is {count}: from 1 to {PROCESSORS_MAX}"));
        }
        for placement in self.placements {
            let (Placement::Packet(count) | Placement::Path(count) | Placement::Connection(count)) = placement else {
                continue;
            };
            if !(1..=PROCESSORS_MAX).contains(&count) {
                return Err(format!("the placement {placement} has no number from 1 to {PROCESSORS_MAX}"));
            }
        }
        if !(0.0..1e9).contains(&self.costs.hand_over_ns) {
            return Err(format!("hand_over_ns is {}: from 0 to a second", self.costs.hand_over_ns));
        }
        Ok(())
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

    #[test]
    fn every_task_has_threads_that_exist() {
        for placement in [
            Placement::Inline,
            Placement::Thread,
            Placement::Split,
            Placement::Packet(3),
            Placement::Path(2),
            Placement::Connection(4),
        ] {
            for (end, task, path) in [End::Sending, End::Receiving]
                .into_iter()
                .flat_map(|end| Task::ALL.map(|task| (end, task)))
                .flat_map(|(end, task)| [0, 1, 2].map(|path| (end, task, path)))
            {
                let threads = placement.threads_of(end, task, path);
                assert!(!threads.is_empty() && threads.end <= placement.thread_count(), "{placement} {task:?}");
            }
        }
    }
}
