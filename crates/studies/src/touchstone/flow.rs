//! Flow control: full queues stop generators, and queues that drain restart them.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::Poll;

use sim::kernel::TaskId;
use sim::{Level, Sim};

use super::setup::Stops;

/// The cause of a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stopped {
    /// The queue of this gateway, until it falls below LOW.
    By(usize),
    /// All queues, until any of them falls below LOW.
    ByAll,
}

/// The state of the generators.
pub(super) struct Flow {
    sim: Sim,
    /// Queue length in segments below which generators restart.
    low: usize,
    stops: Stops,
    generators: RefCell<Vec<Generator>>,
}

#[derive(Clone, Default)]
struct Generator {
    stopped: Option<Stopped>,
    /// The process that waits for the restart.
    waiting: Option<TaskId>,
    /// 1 while stopped.
    level: Level,
}

impl Flow {
    /// Creates `count` running generators.
    pub(super) fn new(sim: &Sim, count: usize, low: usize, stops: Stops) -> Self {
        let generators = RefCell::new(vec![Generator::default(); count]);
        Self { sim: sim.clone(), low, stops, generators }
    }

    /// Stops generators because the queue at gateway `at` is full, and no further queue can take
    /// the segment. Under the fixed scheduler no other queue is tried.
    pub(super) fn stop(&self, at: usize, is_fixed: bool) {
        let reason = if is_fixed { Stopped::By(at) } else { Stopped::ByAll };
        for (index, generator) in self.generators.borrow_mut().iter_mut().enumerate() {
            let is_meant = !is_fixed || self.stops == Stops::All || index == at;
            // A generator keeps the first cause of its stop.
            if is_meant && generator.stopped.is_none() {
                generator.stopped = Some(reason);
                generator.level.set(self.sim.now(), 1);
            }
        }
    }

    /// Restarts generators after a segment has left the queue at gateway `at`, which now has
    /// `waiting` segments.
    pub(super) fn drained(&self, at: usize, waiting: usize) {
        if waiting >= self.low {
            return;
        }
        for generator in self.generators.borrow_mut().iter_mut() {
            if matches!(generator.stopped, Some(Stopped::ByAll)) || generator.stopped == Some(Stopped::By(at)) {
                generator.stopped = None;
                generator.level.set(self.sim.now(), 0);
                if let Some(task) = generator.waiting.take() {
                    self.sim.wake(task);
                }
            }
        }
    }

    /// Returns true if generator `index` is stopped.
    pub(super) fn is_stopped(&self, index: usize) -> bool {
        self.generators.borrow()[index].stopped.is_some()
    }

    /// Waits until generator `index` may run.
    pub(super) async fn wait_until_running(&self, index: usize) {
        poll_fn(|_| {
            let generator = &mut self.generators.borrow_mut()[index];
            if generator.stopped.is_none() {
                return Poll::Ready(());
            }
            generator.waiting = Some(self.sim.current_task());
            Poll::Pending
        })
        .await;
    }

    /// Resets the statistics at the end of the warm-up.
    pub(super) fn reset(&self) {
        for generator in self.generators.borrow_mut().iter_mut() {
            generator.level.reset(self.sim.now());
        }
    }

    /// Returns the share of the time since the end of the warm-up in which generators were stopped,
    /// averaged over them.
    pub(super) fn stopped_share(&self) -> f64 {
        let generators = self.generators.borrow();
        generators.iter().map(|generator| generator.level.mean(self.sim.now())).sum::<f64>() / generators.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use sim::Simulation;

    use super::*;

    #[test]
    fn a_full_queue_stops_all_until_it_has_drained_itself() {
        let simulation = Simulation::new(1, 0);
        let flow = Flow::new(&simulation.sim(), 3, 2, Stops::All);
        flow.stop(1, true);
        assert!((0..3).all(|index| flow.is_stopped(index)));
        flow.drained(0, 0);
        flow.drained(1, 2);
        assert!(flow.is_stopped(0), "another queue is below LOW, but not its own");
        flow.drained(1, 1);
        assert!((0..3).all(|index| !flow.is_stopped(index)));
    }

    #[test]
    fn if_each_queue_stops_its_own_generator_the_others_continue() {
        let simulation = Simulation::new(1, 0);
        let flow = Flow::new(&simulation.sim(), 3, 2, Stops::Own);
        flow.stop(1, true);
        assert_eq!([0, 1, 2].map(|index| flow.is_stopped(index)), [false, true, false]);
    }

    #[test]
    fn after_all_queues_were_full_any_that_drains_restarts_all() {
        let simulation = Simulation::new(1, 0);
        let flow = Flow::new(&simulation.sim(), 3, 2, Stops::Own);
        flow.stop(2, false);
        assert!((0..3).all(|index| flow.is_stopped(index)));
        flow.drained(0, 1);
        assert!((0..3).all(|index| !flow.is_stopped(index)));
    }
}
