//! Measures the cost of absorbing a segment of TCP: the serial part of what the meter counts as
//! opening. Two connections without a driver exchange segments, and the steps of the receiver are
//! timed.

use bytes::Bytes;
use net::MonotonicClock;
use tcp::{Arrival, Connection, Plan, Read, SuperPacket, TcpConfig, Tuple};
use units::{Duration, Instant, Seq32};

use super::bound::median;

/// Rounds that are measured, after as many that open the window.
const ROUNDS: usize = 400;

/// Segments that are written for a round.
const SEGMENTS: usize = 8;

/// Rounds with fewer segments are not measured: the window was not open.
const SEGMENTS_MIN: usize = 4;

/// Bytes that both buffers hold: a round never fills them.
const BUFFER: usize = 1 << 20;

/// The time of a round, for the connections.
const ROUND_TIME: Duration = Duration::from_micros(100);

/// Nanoseconds per segment of `payload` bytes.
///
/// # Errors
/// A message for the user, if the connections do not exchange data.
pub(super) fn segment_ns(payload: usize) -> Result<f64, String> {
    let clock = MonotonicClock::start();
    let mut pair = Pair::new(payload);
    let chunk = Bytes::from(vec![7; payload * SEGMENTS]);
    let mut times_ns = Vec::new();
    for round in 0..2 * ROUNDS {
        let _full = pair.sender.write(&mut chunk.clone());
        pair.now += ROUND_TIME;
        let arrivals = pair.arrivals()?;
        let count = arrivals.len();
        let begin = clock.now();
        for arrival in arrivals {
            pair.receiver.handle_segment(pair.now, arrival);
        }
        while let Read::Bytes(_) = pair.receiver.read(usize::MAX) {}
        while pair.receiver.poll_event().is_some() {}
        let spent = clock.now().saturating_since(begin);
        if round >= ROUNDS && count >= SEGMENTS_MIN {
            times_ns.push(spent.as_nanos() as f64 / count as f64);
        }
        pair.acknowledge()?;
    }
    if times_ns.is_empty() { Err("connections in memory exchange no data".to_owned()) } else { Ok(median(times_ns)) }
}

struct Pair {
    now: Instant,
    sender: Connection,
    receiver: Connection,
    plan: Plan,
    packet: SuperPacket,
}

impl Pair {
    fn new(payload: usize) -> Self {
        let tuple = Tuple { local: ([10, 0, 0, 1], 1000).into(), remote: ([10, 0, 0, 2], 80).into() };
        let config = TcpConfig {
            mtu: payload + 40,
            timestamps: false,
            send_buffer: BUFFER,
            receive_buffer: BUFFER,
            buffers_initial: BUFFER,
            ..TcpConfig::default()
        };
        let (now, mut plan, packet) = (Instant::ZERO, Plan::default(), SuperPacket::default());
        let mut sender = Connection::connect(now, config.clone(), tuple, Seq32::new(1), 1);
        let mut pair_packet = packet;
        sender.poll_plan(now, 1, &mut plan);
        plan.seal(&mut pair_packet);
        let syn = Arrival::open(&Bytes::copy_from_slice(&pair_packet.bytes), None, true).expect("a SYN");
        let receiver = Connection::accept(now, config, &syn, Seq32::new(2), 2);
        Self { now, sender, receiver, plan, packet: pair_packet }
    }

    /// What the sender sends now, packet by packet.
    fn arrivals(&mut self) -> Result<Vec<Arrival>, String> {
        let (mut arrivals, mut failure) = (Vec::new(), None);
        while self.sender.poll_plan(self.now, SEGMENTS, &mut self.plan) {
            self.plan.seal_packets(None, &mut self.packet);
            self.packet.packets(|packet| match Arrival::open(&Bytes::copy_from_slice(packet), None, true) {
                Ok(arrival) => arrivals.push(arrival),
                Err(error) => failure = Some(error.to_string()),
            });
        }
        failure.map_or(Ok(arrivals), Err)
    }

    fn acknowledge(&mut self) -> Result<(), String> {
        self.now += ROUND_TIME;
        self.receiver.handle_timeout(self.now);
        while self.receiver.poll_plan(self.now, SEGMENTS, &mut self.plan) {
            self.plan.seal(&mut self.packet);
            let bytes = Bytes::copy_from_slice(&self.packet.bytes);
            let arrival = Arrival::open(&bytes, None, true).map_err(|error| error.to_string())?;
            self.sender.handle_segment(self.now, arrival);
            while self.sender.poll_event().is_some() {}
        }
        self.sender.handle_timeout(self.now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absorbing_a_segment_costs_something_plausible() {
        for payload in [512, 4096] {
            let ns = segment_ns(payload).unwrap();
            assert!(ns > 0.0 && ns < 20_000.0, "{ns}");
        }
    }
}
