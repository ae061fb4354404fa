//! Which way out: the network scheduler, and the device that holds it if there is one for all.

use units::Duration;

use crate::{Facility, Report, Sim};

/// A rule for choosing among outlets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// Each in turn.
    RoundRobin,
    /// The one that is free first: the shortest queue, in turn among equals.
    FirstFree,
    /// The shortest queue, and among equals where the token came round fastest.
    QueueThenRotation,
    /// The one where the packet is expected to leave first: packets before it times the time of one, and a rotation of the token.
    Adaptive,
    /// The one with the least product of rotation time and packets, this one included.
    AdaptiveProduct,
}

/// What a scheduler knows of an outlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlet {
    /// False if it has failed: it is never chosen.
    pub works: bool,
    /// Packets that wait there or are being sent.
    pub queue: u64,
    /// How long the token took for its last rotation.
    pub last_rotation: Duration,
}

/// A rule and where it stands.
#[derive(Clone, Debug)]
pub struct Chooser {
    schedule: Schedule,
    /// Time of one packet at an outlet.
    packet_time: Duration,
    next: usize,
}

impl Chooser {
    /// Begins at outlet `first`; a packet takes `packet_time` at an outlet.
    pub const fn new(schedule: Schedule, packet_time: Duration, first: usize) -> Self {
        Self { schedule, packet_time, next: first }
    }

    /// The outlet of the next packet; `None` if none works.
    pub fn choose(&mut self, outlets: &[Outlet]) -> Option<usize> {
        let count = outlets.len();
        // From the next in turn on, so that equals are taken in turn.
        let in_turn = (0..count).map(|offset| (self.next + offset) % count).filter(|&index| outlets[index].works);
        let chosen = match self.schedule {
            Schedule::RoundRobin => in_turn.into_iter().next(),
            Schedule::FirstFree => in_turn.min_by_key(|&index| outlets[index].queue),
            Schedule::QueueThenRotation => {
                in_turn.min_by_key(|&index| (outlets[index].queue, outlets[index].last_rotation))
            }
            Schedule::Adaptive => in_turn.min_by_key(|&index| {
                let outlet = outlets[index];
                self.packet_time * outlet.queue + outlet.last_rotation
            }),
            Schedule::AdaptiveProduct => {
                in_turn.min_by_key(|&index| outlets[index].last_rotation * (outlets[index].queue + 1))
            }
        }?;
        self.next = (chosen + 1) % count;
        Some(chosen)
    }
}

/// The device through which all packets of a machine go, one at a time. Cheap to clone: all clones are the same device.
#[derive(Clone)]
pub struct Mux {
    unit: Facility,
    service: Duration,
}

impl Mux {
    /// A device called `name` that takes `service` for each packet.
    ///
    /// # Panics
    /// If the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, service: Duration) -> Self {
        Self { unit: Facility::new(sim, name, 1), service }
    }

    /// Lets a packet through, in turn.
    pub async fn pass(&self) {
        self.unit.serve(self.service).await;
    }

    /// What was done since the warm-up ended.
    pub fn report(&self) -> Report {
        self.unit.report()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outlets(states: &[(u64, u64)]) -> Vec<Outlet> {
        let outlet = |&(queue, micros)| Outlet { works: true, queue, last_rotation: Duration::from_micros(micros) };
        states.iter().map(outlet).collect()
    }

    #[test]
    fn round_robin_asks_nothing_but_whether_an_outlet_works() {
        let mut chooser = Chooser::new(Schedule::RoundRobin, Duration::from_micros(360), 1);
        let mut outlets = outlets(&[(0, 100), (9, 900), (0, 100)]);
        let chosen: Vec<_> = (0..4).map(|_| chooser.choose(&outlets).unwrap()).collect();
        assert_eq!(chosen, [1, 2, 0, 1]);
        outlets[2].works = false;
        let chosen: Vec<_> = (0..3).map(|_| chooser.choose(&outlets).unwrap()).collect();
        assert_eq!(chosen, [0, 1, 0]);
        outlets.iter_mut().for_each(|outlet| outlet.works = false);
        assert_eq!(chooser.choose(&outlets), None);
    }

    #[test]
    fn adaptive_rules_weigh_queue_against_rotation() {
        // One packet more, but a token that comes 500 us earlier: 360 + 100 < 0 + 600.
        let states = outlets(&[(0, 600), (1, 100)]);
        assert_eq!(Chooser::new(Schedule::Adaptive, Duration::from_micros(360), 0).choose(&states), Some(1));
        assert_eq!(Chooser::new(Schedule::AdaptiveProduct, Duration::from_micros(360), 0).choose(&states), Some(1));
        assert_eq!(Chooser::new(Schedule::FirstFree, Duration::from_micros(360), 0).choose(&states), Some(0));
        assert_eq!(Chooser::new(Schedule::QueueThenRotation, Duration::ZERO, 0).choose(&states), Some(0));
        let same_queues = outlets(&[(1, 600), (1, 100), (2, 50)]);
        assert_eq!(Chooser::new(Schedule::QueueThenRotation, Duration::ZERO, 0).choose(&same_queues), Some(1));
        // Equal ones are taken in turn.
        let equal = outlets(&[(1, 100), (1, 100), (1, 100)]);
        let mut chooser = Chooser::new(Schedule::Adaptive, Duration::from_micros(360), 2);
        let chosen: Vec<_> = (0..4).map(|_| chooser.choose(&equal).unwrap()).collect();
        assert_eq!(chosen, [2, 0, 1, 2]);
    }
}
