//! Message channels as in transputers: synchronous and unbuffered.
//!
//! The sender waits until a process receives, and both wait until the last byte is transferred. A
//! channel between processes of one processor is modelled with no cost of its own; its cost is part
//! of the work of its processes.

use units::Duration;

use crate::facility::Facility;
use crate::kernel::Sim;
use crate::store::Store;

/// A one-way channel for messages of type `T`. Cheap to clone: all clones are the same channel.
pub struct Channel<T> {
    offers: Store<(T, u64)>,
    /// One token per transferred message, for its sender.
    across: Store<()>,
    wire: Facility,
    byte: Duration,
}

impl<T> Clone for Channel<T> {
    fn clone(&self) -> Self {
        let (offers, across) = (self.offers.clone(), self.across.clone());
        Self { offers, across, wire: self.wire.clone(), byte: self.byte }
    }
}

impl<T: 'static> Channel<T> {
    /// Creates a channel called `name` that takes `byte` per byte of a message.
    ///
    /// # Panics
    /// Panics if the model already has a channel of this name.
    pub fn new(sim: &Sim, name: &str, byte: Duration) -> Self {
        Self {
            offers: Store::new(sim, &format!("{name}, offers"), 1),
            across: Store::new(sim, &format!("{name}, across"), 1),
            wire: Facility::new(sim, &format!("{name}, wire"), 1),
            byte,
        }
    }

    /// Sends `message` with a length of `bytes` and waits until it is transferred. Senders are
    /// served in order.
    pub async fn send(&self, message: T, bytes: u64) {
        self.offers.put((message, bytes)).await;
        self.across.take().await;
    }

    /// Waits for a message and its transfer.
    pub async fn receive(&self) -> T {
        let (message, bytes) = self.offers.take().await;
        let time = self.byte.saturating_mul(bytes);
        if !time.is_zero() {
            self.wire.serve(time).await;
        }
        self.across.put(()).await;
        message
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::kernel::Simulation;

    #[test]
    fn sender_and_receiver_synchronise() {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let channel = Channel::new(&sim, "link", Duration::from_nanos(5));
        let log = Rc::new(RefCell::new(Vec::new()));
        for (sender, at_ns) in [("first", 0), ("second", 1)] {
            let (sim, channel, log) = (sim.clone(), channel.clone(), Rc::clone(&log));
            simulation.spawn(async move {
                sim.sleep(Duration::from_nanos(at_ns)).await;
                channel.send(sender, 4).await;
                log.borrow_mut().push((sender, sim.now().as_nanos()));
            });
        }
        let (reader, seen) = (channel.clone(), Rc::clone(&log));
        simulation.spawn(async move {
            sim.sleep(Duration::from_nanos(100)).await;
            for name in ["first", "second"] {
                assert_eq!(reader.receive().await, name);
                seen.borrow_mut().push(("reader", sim.now().as_nanos()));
            }
        });
        simulation.run();
        let mut log = log.borrow().clone();
        log.sort_by_key(|&(name, at)| (at, name));
        assert_eq!(log, [("first", 120), ("reader", 120), ("reader", 140), ("second", 140)]);
    }

    #[test]
    fn senders_wait_while_nothing_is_received() {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let channel = Channel::new(&sim, "link", Duration::ZERO);
        let sent = Rc::new(RefCell::new(0));
        let (sender, count) = (channel.clone(), Rc::clone(&sent));
        simulation.spawn(async move {
            loop {
                sender.send((), 1).await;
                *count.borrow_mut() += 1;
            }
        });
        let reader = channel.clone();
        simulation.spawn(async move {
            reader.receive().await;
            sim.sleep(Duration::from_secs(1)).await;
            reader.receive().await;
        });
        simulation.run_until(units::Instant::from_nanos(1000));
        assert_eq!(*sent.borrow(), 1);
        simulation.run();
        assert_eq!(*sent.borrow(), 2);
    }
}
