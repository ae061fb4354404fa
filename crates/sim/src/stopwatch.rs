//! Timing of operations that involve several components, such as a call or a memory access over a
//! bus.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use units::Instant;

use crate::kernel::Sim;
use crate::observe::{Accounting, ComponentReport, Observed};

/// Counts and times operations. Cheap to clone: all clones are the same stopwatch.
#[derive(Clone)]
pub struct Stopwatch {
    inner: Rc<Inner>,
}

struct Inner {
    sim: Sim,
    name: String,
    accounting: RefCell<Accounting>,
}

impl Stopwatch {
    /// Creates a stopwatch called `name` without measurements.
    ///
    /// # Panics
    /// Panics if the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str) -> Self {
        let inner = Rc::new(Inner { sim: sim.clone(), name: name.to_owned(), accounting: RefCell::default() });
        sim.register(name, Rc::clone(&inner) as Rc<dyn Observed>);
        Self { inner }
    }

    /// Runs `work` and times it. The future must not be dropped before it completes.
    pub async fn time<T>(&self, work: impl Future<Output = T>) -> T {
        let began = self.inner.sim.now();
        self.inner.accounting.borrow_mut().arrive(began);
        let value = work.await;
        self.inner.accounting.borrow_mut().depart(self.inner.sim.now(), began);
        value
    }

    /// Returns the statistics since the end of the warm-up: `mean_sojourn` is the mean duration.
    pub fn report(&self) -> ComponentReport {
        Observed::report(&*self.inner, self.inner.sim.now())
    }
}

impl Observed for Inner {
    fn reset(&self, now: Instant) {
        self.accounting.borrow_mut().reset(now);
    }

    fn report(&self, now: Instant) -> ComponentReport {
        self.accounting.borrow().report(&self.name, now, None, 0)
    }
}

#[cfg(test)]
mod tests {
    use units::Duration;

    use super::*;
    use crate::kernel::Simulation;

    #[test]
    fn a_duration_covers_all_waits_of_the_operation() {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let stopwatch = Stopwatch::new(&sim, "stopwatch");
        for span in [10, 30] {
            let (stopwatch, sim) = (stopwatch.clone(), sim.clone());
            simulation.spawn(async move {
                stopwatch
                    .time(async {
                        sim.sleep(Duration::from_nanos(span)).await;
                        sim.sleep(Duration::from_nanos(span)).await;
                    })
                    .await;
            });
        }
        simulation.run();
        let report = stopwatch.report();
        assert_eq!((report.served, report.mean_sojourn, report.max_number), (2, Duration::from_nanos(40), 2));
    }
}
