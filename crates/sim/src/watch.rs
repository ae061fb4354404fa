//! How long something takes that is not one component's doing: an access over a bus to a memory, a call.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use units::Instant;

use crate::kernel::Sim;
use crate::observe::{Ledger, Observed, Report};

/// Counts and times what is done under it. Cheap to clone: all clones are the same.
#[derive(Clone)]
pub struct Watch {
    inner: Rc<Inner>,
}

struct Inner {
    sim: Sim,
    name: String,
    ledger: RefCell<Ledger>,
}

impl Watch {
    /// A watch called `name`, under which nothing was done yet.
    ///
    /// # Panics
    /// If the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str) -> Self {
        let inner = Rc::new(Inner { sim: sim.clone(), name: name.to_owned(), ledger: RefCell::default() });
        sim.register(name, Rc::clone(&inner) as Rc<dyn Observed>);
        Self { inner }
    }

    /// Does `work` and times it. It must be done to its end.
    pub async fn time<T>(&self, work: impl Future<Output = T>) -> T {
        let began = self.inner.sim.now();
        self.inner.ledger.borrow_mut().arrive(began);
        let value = work.await;
        self.inner.ledger.borrow_mut().depart(self.inner.sim.now(), began);
        value
    }

    /// What was done since the warm-up ended: `mean_sojourn` is the mean time.
    pub fn report(&self) -> Report {
        Observed::report(&*self.inner, self.inner.sim.now())
    }
}

impl Observed for Inner {
    fn reset(&self, now: Instant) {
        self.ledger.borrow_mut().reset(now);
    }

    fn report(&self, now: Instant) -> Report {
        self.ledger.borrow().report(&self.name, now, None, 0)
    }
}

#[cfg(test)]
mod tests {
    use units::Duration;

    use super::*;
    use crate::kernel::Simulation;

    #[test]
    fn times_are_from_the_beginning_to_the_end_whatever_lies_between() {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let watch = Watch::new(&sim, "watch");
        for span in [10, 30] {
            let (watch, sim) = (watch.clone(), sim.clone());
            simulation.spawn(async move {
                watch
                    .time(async {
                        sim.sleep(Duration::from_nanos(span)).await;
                        sim.sleep(Duration::from_nanos(span)).await;
                    })
                    .await;
            });
        }
        simulation.run();
        let report = watch.report();
        assert_eq!((report.served, report.mean_sojourn, report.max_number), (2, Duration::from_nanos(40), 2));
    }
}
