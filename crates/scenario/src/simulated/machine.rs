//! Simulated machines: processors, threads, and the assignment of tasks to threads.

use serde_json::{Value as Json, json};

use super::costs::{Costs, End, Task};
use driver::placement::{PROCESSORS_MAX, Placement};

/// Threads are numbered within a host: the application's, the driver's (serial work), then workers.
pub(crate) const APPLICATION: usize = 0;
const DRIVER: usize = 1;

/// Returns the role of a thread, for display.
pub(crate) const fn thread_role(number: usize) -> &'static str {
    match number {
        APPLICATION => "application",
        DRIVER => "driver",
        _ => "worker",
    }
}

/// Returns the threads that may do this task for a packet of this path, under this placement.
pub(crate) fn threads_of(placement: Placement, end: End, task: Task, path: usize) -> core::ops::Range<usize> {
    let thread = match (placement, task) {
        (Placement::Inline, _) | (_, Task::Application) => APPLICATION,
        (Placement::Packet(count), Task::Stage) => return DRIVER..DRIVER + count.max(1),
        (Placement::Path(count), Task::Stage | Task::Call) => DRIVER + path % count.max(1),
        // Incoming data and incoming acknowledgements.
        (Placement::Split, Task::Serial | Task::Stage | Task::Call) if end == End::Receiving => DRIVER + 1,
        (Placement::Split, Task::Answer) if end == End::Sending => DRIVER + 1,
        _ => DRIVER,
    };
    thread..thread + 1
}

/// The machines of a scenario's hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The costs of the tasks.
    pub costs: Costs,
    /// The placements of the sending host and of the receiving host.
    pub placements: [Placement; 2],
    /// The numbers of processors of the sending host and of the receiving host.
    pub processors: [usize; 2],
    /// Whether both hosts share the processors of the first.
    pub is_shared: bool,
}

impl Machine {
    /// Returns all parameters, as the JSON object in results.
    pub fn json(&self) -> Json {
        json!({
            "processors": self.processors,
            "is_shared": self.is_shared,
            "placements": self.placements.map(|placement| placement.to_string()),
            "hand_over_ns": self.costs.wake_ns,
            "costs": self.costs,
        })
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// Returns a message that names the invalid value.
    pub fn validate(&self) -> Result<(), String> {
        if let Some(count) = self.processors.iter().find(|count| !(1..=PROCESSORS_MAX).contains(*count)) {
            return Err(format!("processors is {count}: must be between 1 and {PROCESSORS_MAX}"));
        }
        for placement in self.placements {
            if placement == Placement::Auto {
                return Err("auto depends on the real machine: choose a placement for a simulated host".to_owned());
            }
            if placement == Placement::Pipeline {
                return Err("pipeline is for TCP, and simulated hosts run QUIC: choose split".to_owned());
            }
            let (Placement::Packet(count) | Placement::Path(count) | Placement::Connection(count)) = placement else {
                continue;
            };
            if !(1..=PROCESSORS_MAX).contains(&count) {
                return Err(format!("the number of placement {placement} must be between 1 and {PROCESSORS_MAX}"));
            }
        }
        if !(0.0..1e9).contains(&self.costs.wake_ns) {
            return Err(format!("hand_over_ns is {}: must be between 0 and 1 s", self.costs.wake_ns));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::ThreadCounts;

    #[test]
    fn every_task_is_assigned_to_existing_threads() {
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
                let threads = threads_of(placement, end, task, path);
                assert!(!threads.is_empty() && threads.end <= placement.host_thread_count(), "{placement} {task:?}");
            }
        }
    }
}
