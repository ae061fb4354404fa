//! First-come, first-served servers: a bus, a memory port, a processor without interrupts, a line.
//!
//! The service time of a customer is known when it arrives, so its departure time is known as well.
//! Each customer costs one event, however long the queue is.

use std::cell::RefCell;
use std::rc::Rc;

use units::{Duration, Instant};

use crate::kernel::Sim;
use crate::observe::{Accounting, ComponentReport, Observed};

/// One or more identical servers with one queue. Cheap to clone: all clones are the same facility.
#[derive(Clone)]
pub struct Facility {
    inner: Rc<Inner>,
}

struct Inner {
    sim: Sim,
    name: String,
    state: RefCell<FacilityState>,
}

struct FacilityState {
    /// When each server will have finished all accepted work.
    free_at: Vec<Instant>,
    accounting: Accounting,
    /// Accepted work since the last reset. Reports subtract the part that lies after the present
    /// time.
    busy_ns: u128,
}

impl Facility {
    /// Creates a facility called `name` with `servers` servers.
    ///
    /// # Panics
    /// Panics if `servers` is zero or the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, servers: usize) -> Self {
        assert!(servers > 0, "{name} needs at least one server");
        let state =
            FacilityState { free_at: vec![Instant::default(); servers], accounting: Accounting::default(), busy_ns: 0 };
        let inner = Rc::new(Inner { sim: sim.clone(), name: name.to_owned(), state: RefCell::new(state) });
        sim.register(name, Rc::clone(&inner) as Rc<dyn Observed>);
        Self { inner }
    }

    /// Waits for a server and occupies it for `service`. Returns the waiting time.
    pub async fn serve(&self, service: Duration) -> Duration {
        let sim = &self.inner.sim;
        let arrived = sim.now();
        let (server, start, end) = self.inner.state.borrow_mut().admit(arrived, service);
        sim.trace(|trace| trace.span(&format!("{} {server}", self.inner.name), "busy", start, end));
        sim.sleep_until(end).await;
        self.inner.state.borrow_mut().accounting.depart(end, arrived);
        start.saturating_since(arrived)
    }

    /// Returns the number of customers present, including those in service.
    pub fn present(&self) -> u64 {
        self.inner.state.borrow().accounting.present()
    }

    /// Returns how long a customer that arrives now would wait.
    pub fn backlog(&self) -> Duration {
        let state = self.inner.state.borrow();
        let earliest = state.free_at.iter().min().expect("there is a server");
        earliest.saturating_since(self.inner.sim.now())
    }

    /// Returns the statistics since the end of the warm-up.
    pub fn report(&self) -> ComponentReport {
        Observed::report(&*self.inner, self.inner.sim.now())
    }
}

impl FacilityState {
    /// Accepts a customer that arrives at `now`. Returns its server and the start and end of its
    /// service.
    fn admit(&mut self, now: Instant, service: Duration) -> (usize, Instant, Instant) {
        let server = (0..self.free_at.len()).min_by_key(|&server| self.free_at[server]).expect("there is a server");
        let start = self.free_at[server].max(now);
        let end = start + service;
        self.free_at[server] = end;
        self.busy_ns += u128::from(service.as_nanos());
        self.accounting.arrive(now);
        self.accounting.begin(start.saturating_since(now));
        (server, start, end)
    }

    /// Returns the accepted work that is not done yet, over all servers.
    fn remaining_ns(&self, now: Instant) -> u128 {
        self.free_at.iter().map(|free_at| u128::from(free_at.saturating_since(now).as_nanos())).sum()
    }
}

impl Observed for Inner {
    fn reset(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        state.accounting.reset(now);
        state.busy_ns = state.remaining_ns(now);
    }

    fn report(&self, now: Instant) -> ComponentReport {
        let state = self.state.borrow();
        let done_ns = state.busy_ns - state.remaining_ns(now);
        state.accounting.report(&self.name, now, Some(state.free_at.len() as u64), done_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Simulation;

    #[test]
    fn customers_are_served_in_order_of_arrival() {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let server = Facility::new(&sim, "desk", 2);
        let waits = Rc::new(RefCell::new(Vec::new()));
        for index in 0..5_u64 {
            let (sim, server, waits) = (sim.clone(), server.clone(), Rc::clone(&waits));
            simulation.spawn(async move {
                sim.sleep(Duration::from_nanos(index)).await;
                let wait = server.serve(Duration::from_nanos(10)).await;
                waits.borrow_mut().push((index, wait.as_nanos(), sim.now().as_nanos()));
            });
        }
        simulation.run();
        assert_eq!(*waits.borrow(), [(0, 0, 10), (1, 0, 11), (2, 8, 20), (3, 8, 21), (4, 16, 30)]);
        let report = server.report();
        assert_eq!((report.served, report.max_number, report.capacity), (5, 5, Some(2)));
        assert!((report.utilisation - 50.0 / 60.0).abs() < 1e-12);
    }

    #[test]
    fn work_during_the_warm_up_is_not_counted() {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let server = Facility::new(&sim, "desk", 1);
        let customer = server.clone();
        simulation.spawn(async move {
            customer.serve(Duration::from_nanos(100)).await;
        });
        simulation.run_until(Instant::from_nanos(60));
        simulation.reset_statistics();
        simulation.run_until(Instant::from_nanos(140));
        let report = server.report();
        assert!((report.utilisation - 0.5).abs() < 1e-12, "{report:?}");
        assert_eq!(report.served, 1);
    }
}
