//! Network schedulers, which choose an outlet per packet, and a device that all packets pass.

use units::Duration;

use crate::facility::Facility;
use crate::kernel::Sim;
use crate::observe::ComponentReport;

/// A scheduling policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// Each outlet in turn.
    RoundRobin,
    /// The shortest queue; round-robin among equals.
    FirstFree,
    /// The shortest queue; among equals, the one with the fastest token rotation.
    QueueThenRotation,
    /// The outlet with the earliest expected departure: packets in the queue times the packet time,
    /// plus one token rotation.
    Adaptive,
    /// The outlet with the smallest product of rotation time and packets, including this one.
    AdaptiveProduct,
}

/// State of an outlet as seen by a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlet {
    /// False if it has failed; it is then never chosen.
    pub works: bool,
    /// Packets that wait there or are in transmission.
    pub queue: u64,
    /// The latest token rotation time.
    pub last_rotation: Duration,
}

/// A scheduling policy and its state.
#[derive(Clone, Debug)]
pub struct Chooser {
    schedule: Schedule,
    /// Transmission time of a packet.
    packet_time: Duration,
    next: usize,
}

impl Chooser {
    /// Creates a scheduler that starts with outlet `first`; `packet_time` is the transmission time
    /// of a packet.
    pub const fn new(schedule: Schedule, packet_time: Duration, first: usize) -> Self {
        Self { schedule, packet_time, next: first }
    }

    /// Returns the outlet of the next packet; `None` if all have failed.
    pub fn choose(&mut self, outlets: &[Outlet]) -> Option<usize> {
        let count = outlets.len();
        // In round-robin order, so that equal outlets take turns.
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

/// A device that all packets of a machine pass, one at a time. Cheap to clone: all clones are the
/// same device.
#[derive(Clone)]
pub struct Mux {
    unit: Facility,
    service: Duration,
}

impl Mux {
    /// Creates a device called `name` that takes `service` per packet.
    ///
    /// # Panics
    /// Panics if the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, service: Duration) -> Self {
        Self { unit: Facility::new(sim, name, 1), service }
    }

    /// Waits for the device and passes a packet through it.
    pub async fn pass(&self) {
        self.unit.serve(self.service).await;
    }

    /// Returns the statistics since the end of the warm-up.
    pub fn report(&self) -> ComponentReport {
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
    fn round_robin_depends_only_on_working_outlets() {
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
        // One packet more, but a rotation that is 500 us shorter: 360 + 100 < 0 + 600.
        let states = outlets(&[(0, 600), (1, 100)]);
        assert_eq!(Chooser::new(Schedule::Adaptive, Duration::from_micros(360), 0).choose(&states), Some(1));
        assert_eq!(Chooser::new(Schedule::AdaptiveProduct, Duration::from_micros(360), 0).choose(&states), Some(1));
        assert_eq!(Chooser::new(Schedule::FirstFree, Duration::from_micros(360), 0).choose(&states), Some(0));
        assert_eq!(Chooser::new(Schedule::QueueThenRotation, Duration::ZERO, 0).choose(&states), Some(0));
        let same_queues = outlets(&[(1, 600), (1, 100), (2, 50)]);
        assert_eq!(Chooser::new(Schedule::QueueThenRotation, Duration::ZERO, 0).choose(&same_queues), Some(1));
        // Equal outlets take turns.
        let equal = outlets(&[(1, 100), (1, 100), (1, 100)]);
        let mut chooser = Chooser::new(Schedule::Adaptive, Duration::from_micros(360), 2);
        let chosen: Vec<_> = (0..4).map(|_| chooser.choose(&equal).unwrap()).collect();
        assert_eq!(chosen, [2, 0, 1, 2]);
    }
}
