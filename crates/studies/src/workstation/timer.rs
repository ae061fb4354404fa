//! RFC 793's retransmission timer: each packet has one, set when it is sent to a multiple of the smoothed round trip.

use std::cell::Cell;
use std::rc::Rc;

use units::{Duration, Instant};

use super::config::{Again, Timer};
use super::model::World;
use super::network::Data;
use super::sender;

/// The timeout of a connection that has measured nothing yet. Longer than any round trip here.
const FIRST_TIMEOUT: Duration = Duration::from_millis(100);

/// What a connection knows of its round trips.
#[derive(Default)]
pub(super) struct RoundTrip {
    smoothed_us: Cell<Option<f64>>,
}

impl RoundTrip {
    /// Takes in a round trip, from the first sending of a packet: the RFC does not ask which sending was acknowledged.
    pub(super) fn measure(&self, round_trip_us: f64, alpha: f64) {
        let smoothed = |old: f64| (1.0 - alpha) * round_trip_us + alpha * old;
        self.smoothed_us.set(Some(self.smoothed_us.get().map_or(round_trip_us, smoothed)));
    }

    /// How long a packet that is sent now may take, in microseconds. `None`: nothing is known.
    pub(super) fn timeout_us(&self, beta: f64) -> Option<f64> {
        self.smoothed_us.get().map(|smoothed| beta * smoothed)
    }

    fn timeout(&self, timer: Timer) -> Duration {
        let of_us = |timeout_us: f64| Duration::from_nanos((timeout_us * 1e3).round() as u64);
        self.timeout_us(timer.beta).map_or(FIRST_TIMEOUT, of_us).max(timer.least)
    }
}

/// When a packet that `connection` sends now is to be sent again; never without a timer.
pub(super) fn deadline(world: &World, connection: usize) -> Option<Instant> {
    let timer = world.config.choices.timer?;
    Some(world.sim.now() + world.connections[connection].round_trip.timeout(timer))
}

/// Sends a packet of `connection` again, and what follows it, each time that it is late, until it is acknowledged.
pub(super) async fn watch(world: Rc<World>, data: Data, timer: Timer) {
    let Data { connection, sequence, .. } = data;
    let state = &world.connections[connection];
    while let Some(deadline) = state.deadline_of(sequence) {
        if deadline > world.sim.now() {
            world.sim.sleep_until(deadline).await;
            continue;
        }
        let end = if timer.again == Again::Late { sequence + 1 } else { u64::MAX };
        if timer.again == Again::FromLateTogether {
            state.postpone(sequence, self::deadline(&world, connection));
        }
        sender::send_again(&world, connection, sequence..end).await;
    }
}

#[cfg(test)]
mod tests {
    use sim::Simulation;

    use super::super::config::Config;
    use super::super::network::{Ack, Packet};
    use super::super::paper::Kind;
    use super::super::receiver;
    use super::*;

    /// A machine with one processor and one interface, four packets in its window, and nothing started.
    fn still(again: Option<Again>) -> (Simulation, Rc<World>) {
        let mut config = Config::new(Kind::OneBus);
        (config.protocol_processors, config.interfaces) = (1, 1);
        config.window_bits = 4 * config.packet_bits;
        config.choices.timer = again.map(|again| Timer { again, ..Timer::of_paper() });
        let simulation = Simulation::new(1, 0);
        let world = Rc::new(World::new(&simulation.sim(), &config).unwrap());
        (simulation, world)
    }

    /// The same with a sender that works, before rings that bring nothing: what it has sent is in its outbox, and nobody acknowledges.
    fn alone(again: Option<Again>) -> (Simulation, Rc<World>) {
        let (simulation, world) = still(again);
        sender::start(&world);
        (simulation, world)
    }

    /// Runs until so many milliseconds, and takes what was sent.
    fn sent_until(simulation: &mut Simulation, world: &World, millis: u64) -> Vec<u64> {
        simulation.run_until(Instant::ZERO + Duration::from_millis(millis));
        let parcels = std::iter::from_fn(|| world.sender.outboxes[0].try_take());
        let sequence =
            |packet| if let Packet::Data(data) = packet { data.sequence } else { panic!("a sender of data") };
        parcels.map(|parcel| sequence(parcel.packet)).collect()
    }

    #[test]
    fn the_timeout_is_a_multiple_of_what_round_trips_were_lately() {
        let (round_trip, least) = (RoundTrip::default(), Duration::from_micros(150));
        let timer = Timer { alpha: 0.2, beta: 2.0, least, again: Again::FromLate };
        assert_eq!(round_trip.timeout(timer), FIRST_TIMEOUT);
        round_trip.measure(50.0, 0.2);
        assert_eq!(round_trip.timeout(timer), least);
        let round_trip = RoundTrip::default();
        round_trip.measure(100.0, 0.2);
        assert_eq!(round_trip.timeout(timer), Duration::from_micros(200));
        // A fifth of the old estimate, the rest is new.
        round_trip.measure(300.0, 0.2);
        assert_eq!(round_trip.timeout(timer), Duration::from_micros(520));
    }

    #[test]
    fn without_a_timer_nothing_is_sent_again_however_long_acknowledgements_take() {
        let (mut simulation, world) = alone(None);
        assert_eq!(sent_until(&mut simulation, &world, 1_000), [0, 1, 2, 3]);
    }

    #[test]
    fn what_is_late_is_sent_again_in_order_and_not_before() {
        for again in [Again::Late, Again::FromLateTogether] {
            let (mut simulation, world) = alone(Some(again));
            assert_eq!(sent_until(&mut simulation, &world, 100), [0, 1, 2, 3]);
            assert_eq!(sent_until(&mut simulation, &world, 110), [0, 1, 2, 3], "{again:?}");
            assert_eq!(sent_until(&mut simulation, &world, 200), [0; 0]);
        }
    }

    #[test]
    fn packets_that_are_late_while_others_are_sent_again_have_all_after_them_sent_once_more() {
        let (mut simulation, world) = alone(Some(Again::FromLate));
        assert_eq!(sent_until(&mut simulation, &world, 100), [0, 1, 2, 3]);
        let again = sent_until(&mut simulation, &world, 110);
        assert!(again.starts_with(&[0]) && again.len() > 4, "{again:?}");
        // The first goes once, whatever the others do.
        assert_eq!(again.iter().filter(|&&sequence| sequence == 0).count(), 1, "{again:?}");
    }

    #[test]
    fn a_timer_goes_by_the_last_round_trips_and_ends_with_the_acknowledgement() {
        let (mut simulation, world) = alone(Some(Again::Late));
        assert_eq!(sent_until(&mut simulation, &world, 10), [0, 1, 2, 3]);
        let told = Rc::clone(&world);
        let ack = Ack { connection: 0, next: 1, only: None, bad: None };
        world.sim.spawn(async move { sender::take_acknowledgement(&told, ack).await });
        // Packet 4 takes the place of packet 0, whose round trip was nearly 10 ms.
        assert_eq!(sent_until(&mut simulation, &world, 29), [4]);
        assert_eq!(sent_until(&mut simulation, &world, 31), [4]);
        let later = sent_until(&mut simulation, &world, 110);
        assert!([1, 2, 3].iter().all(|sequence| later.contains(sequence)) && !later.contains(&0), "{later:?}");
    }

    #[test]
    fn the_timers_of_a_processor_that_has_failed_send_nothing() {
        let (mut simulation, world) = alone(Some(Again::FromLate));
        // In the middle of its first packet.
        simulation.run_until(Instant::ZERO + Duration::from_micros(30));
        sender::fail(&world, 0);
        assert_eq!(sent_until(&mut simulation, &world, 500), [0]);
    }

    #[test]
    fn where_timers_run_the_application_gets_a_packet_once() {
        for (again, handed_up) in [(Some(Again::FromLate), 1), (None, 2)] {
            let (mut simulation, world) = still(again);
            receiver::start(&world);
            let told = Rc::clone(&world);
            world.sim.spawn(async move {
                let data = Data { connection: 0, sequence: 0, place: Some(0), bits: told.config.packet_bits };
                for _ in 0..2 {
                    receiver::arrive(&told, 0, data, false).await;
                }
            });
            simulation.run_until(Instant::ZERO + Duration::from_millis(5));
            assert_eq!(world.receiver.application.report().served, handed_up, "{again:?}");
        }
    }
}
