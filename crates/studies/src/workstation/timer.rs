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
    use super::*;

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
}
