//! RFC 793's retransmission timer: one per packet, set on transmission to a multiple of the
//! smoothed round trip.

use std::rc::Rc;

use units::Instant;

use super::config::{Retransmit, Timer};
use super::model::Model;
use super::packet::Data;
use super::sender;

/// Returns the time at which a packet sent now by `connection` must be retransmitted; `None`
/// without a timer.
pub(super) fn deadline(model: &Model, connection: usize) -> Option<Instant> {
    let timer = model.config.choices.timer?;
    Some(model.sim.now() + model.connections[connection].round_trip.timeout(timer))
}

/// Retransmits a packet of `connection`, and the packets after it, each time that it is late, until
/// it is acknowledged.
pub(super) async fn retransmit_late(model: Rc<Model>, data: Data, timer: Timer) {
    let Data { connection, sequence, .. } = data;
    let state = &model.connections[connection];
    while let Some(deadline) = state.deadline_of(sequence) {
        if deadline > model.sim.now() {
            model.sim.sleep_until(deadline).await;
            continue;
        }
        let end = if timer.retransmit == Retransmit::OnlyLate { sequence + 1 } else { u64::MAX };
        if timer.retransmit == Retransmit::FromLateTogether {
            state.postpone(sequence, self::deadline(&model, connection));
        }
        sender::retransmit(&model, connection, sequence..end).await;
    }
}

#[cfg(test)]
mod tests {
    use sim::Simulation;
    use units::Duration;

    use super::super::config::Config;
    use super::super::packet::{Ack, Packet};
    use super::super::paper::Kind;
    use super::super::receiver;
    use super::super::round_trip::{FIRST_TIMEOUT, RoundTrip};
    use super::*;

    /// Creates a machine with one processor, one interface and a window of four packets, without
    /// running processes.
    fn idle(retransmit: Option<Retransmit>) -> (Simulation, Rc<Model>) {
        let mut config = Config::new(Kind::OneBus);
        (config.protocol_processors, config.interfaces) = (1, 1);
        config.window_bits = 4 * config.packet_bits;
        config.choices.timer = retransmit.map(|retransmit| Timer { retransmit, ..Timer::of_paper() });
        let simulation = Simulation::new(1, 0);
        let model = Rc::new(Model::new(&simulation.sim(), &config).unwrap());
        (simulation, model)
    }

    /// Creates the same with a running sender and rings that deliver nothing: sent packets stay in
    /// its outbox and are not acknowledged.
    fn isolated_sender(retransmit: Option<Retransmit>) -> (Simulation, Rc<Model>) {
        let (simulation, model) = idle(retransmit);
        sender::start(&model);
        (simulation, model)
    }

    /// Runs until `millis` and takes the sent packets.
    fn sent_until(simulation: &mut Simulation, model: &Model, millis: u64) -> Vec<u64> {
        simulation.run_until(Instant::ZERO + Duration::from_millis(millis));
        let packets = std::iter::from_fn(|| model.sender.outboxes[0].try_take());
        let sequence =
            |packet| if let Packet::Data(data) = packet { data.sequence } else { panic!("a sender of data") };
        packets.map(|outgoing| sequence(outgoing.packet)).collect()
    }

    #[test]
    fn the_timeout_is_a_multiple_of_recent_round_trips() {
        let (round_trip, minimum) = (RoundTrip::default(), Duration::from_micros(150));
        let timer = Timer { alpha: 0.2, beta: 2.0, minimum, retransmit: Retransmit::FromLate };
        assert_eq!(round_trip.timeout(timer), FIRST_TIMEOUT);
        round_trip.measure(50.0, 0.2);
        assert_eq!(round_trip.timeout(timer), minimum);
        let round_trip = RoundTrip::default();
        round_trip.measure(100.0, 0.2);
        assert_eq!(round_trip.timeout(timer), Duration::from_micros(200));
        // The old estimate has a weight of a fifth.
        round_trip.measure(300.0, 0.2);
        assert_eq!(round_trip.timeout(timer), Duration::from_micros(520));
    }

    #[test]
    fn without_a_timer_nothing_is_retransmitted() {
        let (mut simulation, model) = isolated_sender(None);
        assert_eq!(sent_until(&mut simulation, &model, 1_000), [0, 1, 2, 3]);
    }

    #[test]
    fn late_packets_are_retransmitted_in_order_and_not_earlier() {
        for retransmit in [Retransmit::OnlyLate, Retransmit::FromLateTogether] {
            let (mut simulation, model) = isolated_sender(Some(retransmit));
            assert_eq!(sent_until(&mut simulation, &model, 100), [0, 1, 2, 3]);
            assert_eq!(sent_until(&mut simulation, &model, 110), [0, 1, 2, 3], "{retransmit:?}");
            assert_eq!(sent_until(&mut simulation, &model, 200), [0; 0]);
        }
    }

    #[test]
    fn packets_that_are_late_during_a_retransmission_cause_another_go_back() {
        let (mut simulation, model) = isolated_sender(Some(Retransmit::FromLate));
        assert_eq!(sent_until(&mut simulation, &model, 100), [0, 1, 2, 3]);
        let retransmit = sent_until(&mut simulation, &model, 110);
        assert!(retransmit.starts_with(&[0]) && retransmit.len() > 4, "{retransmit:?}");
        // The first one is retransmitted once, independently of the others.
        assert_eq!(retransmit.iter().filter(|&&sequence| sequence == 0).count(), 1, "{retransmit:?}");
    }

    #[test]
    fn a_timer_uses_recent_round_trips_and_ends_with_the_acknowledgement() {
        let (mut simulation, model) = isolated_sender(Some(Retransmit::OnlyLate));
        assert_eq!(sent_until(&mut simulation, &model, 10), [0, 1, 2, 3]);
        let shared = Rc::clone(&model);
        let ack = Ack { connection: 0, next: 1, only: None, bad: None };
        model.sim.spawn(async move { sender::take_acknowledgement(&shared, ack).await });
        // Packet 4 uses the slot of packet 0, whose round trip was nearly 10 ms.
        assert_eq!(sent_until(&mut simulation, &model, 29), [4]);
        assert_eq!(sent_until(&mut simulation, &model, 31), [4]);
        let later = sent_until(&mut simulation, &model, 110);
        assert!([1, 2, 3].iter().all(|sequence| later.contains(sequence)) && !later.contains(&0), "{later:?}");
    }

    #[test]
    fn the_timers_of_a_failed_processor_send_nothing() {
        let (mut simulation, model) = isolated_sender(Some(Retransmit::FromLate));
        // During its first packet.
        simulation.run_until(Instant::ZERO + Duration::from_micros(30));
        sender::fail(&model, 0);
        assert_eq!(sent_until(&mut simulation, &model, 500), [0]);
    }

    #[test]
    fn with_timers_each_packet_is_delivered_once() {
        for (retransmit, delivered) in [(Some(Retransmit::FromLate), 1), (None, 2)] {
            let (mut simulation, model) = idle(retransmit);
            receiver::start(&model);
            let shared = Rc::clone(&model);
            model.sim.spawn(async move {
                let data = Data { connection: 0, sequence: 0, place: Some(0), bits: shared.config.packet_bits };
                for _ in 0..2 {
                    shared.inboxes.put(0, data, false).await;
                }
            });
            simulation.run_until(Instant::ZERO + Duration::from_millis(5));
            assert_eq!(model.receiver.application.report().served, delivered, "{retransmit:?}");
        }
    }
}
