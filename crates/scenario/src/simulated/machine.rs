//! Simulated machines: processors, the threads on them, and which thread does what.

use serde_json::{Value as Json, json};

use super::costs::{Costs, End, Task};
use crate::placement::{PROCESSORS_MAX, Placement};

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
