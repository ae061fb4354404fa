//! The serial step of TCP: what must be done in order for each plan and each arrival. Two connections
//! without a driver exchange segments, and their steps are timed. Writing and opening packets is not in
//! it: any processor can do that.

use bytes::Bytes;
use net::MonotonicClock;
use serde::Serialize;
use tcp::{Arrival, Connection, Nagle, Plan, Read, SuperPacket, TcpConfig, Tuple};
use units::{Duration, Instant, Seq32};

use super::super::fit::median;

/// Rounds that are measured, after as many that open the window.
const ROUNDS: usize = 400;

/// Plans that are written for a round, which are timed together.
const PLANS: usize = 8;

/// Rounds with fewer plans are not measured: the window was not open.
const PLANS_MIN: usize = 4;

/// Bytes that both buffers hold: a round never fills them.
const BUFFER: usize = 1 << 20;

/// The time between two steps, for the connections.
const STEP_TIME: Duration = Duration::from_micros(100);

/// Bytes of the headers: without options, and the option of timestamps.
const HEADERS_LEN: usize = 40 + 12;

/// Nanoseconds of the serial steps of one plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct SerialStep {
    /// Segments in the plan.
    pub(crate) segments: usize,
    /// The sender plans it.
    pub(crate) plan_ns: f64,
    /// It arrives, and is read.
    pub(crate) arrival_ns: f64,
    /// The sender handles an acknowledgement of eight.
    pub(crate) acknowledgement_ns: f64,
}

/// Measures plans of `segments` segments with `payload` bytes each.
///
/// # Errors
/// A message for the user, if the connections do not exchange data.
pub(crate) fn measure(payload: usize, segments: usize) -> Result<SerialStep, String> {
    let mut pair = Pair::new(payload);
    let chunk = Bytes::from(vec![7; payload * segments * PLANS]);
    let mut times_ns: [Vec<f64>; 3] = Default::default();
    for round in 0..2 * ROUNDS {
        let (count, spent) = pair.round(&chunk, segments)?;
        if round >= ROUNDS && count >= PLANS_MIN {
            for (times_ns, spent) in times_ns.iter_mut().zip(spent) {
                times_ns.push(spent.as_nanos() as f64 / count as f64);
            }
        }
    }
    if times_ns[0].is_empty() {
        return Err("connections in memory exchange no data".to_owned());
    }
    let [plan_ns, arrival_ns, acknowledgement_ns] = [0, 1, 2].map(|step| median(&times_ns[step]));
    // One acknowledgement a round.
    Ok(SerialStep { segments, plan_ns, arrival_ns, acknowledgement_ns: acknowledgement_ns * PLANS as f64 })
}

/// Two connected connections.
pub(super) struct Pair {
    now: Instant,
    sender: Connection,
    receiver: Connection,
    plans: [Plan; PLANS],
    packet: SuperPacket,
    clock: MonotonicClock,
}

impl Pair {
    pub(super) fn new(payload: usize) -> Self {
        let tuple = Tuple { local: ([10, 0, 0, 1], 1000).into(), remote: ([10, 0, 0, 2], 80).into() };
        let config = TcpConfig {
            mtu: payload + HEADERS_LEN,
            nagle: Nagle::Off,
            send_buffer: BUFFER,
            receive_buffer: BUFFER,
            buffers_initial: BUFFER,
            ..TcpConfig::default()
        };
        let (now, mut plan, mut packet) = (Instant::ZERO, Plan::default(), SuperPacket::default());
        let mut sender = Connection::connect(now, config.clone(), tuple, Seq32::new(1), 1);
        sender.poll_plan(now, 1, &mut plan);
        let syn = carry(&plan, &mut packet).expect("a SYN");
        let receiver = Connection::accept(now, config, &syn, Seq32::new(2), 2);
        Self { now, sender, receiver, plans: Default::default(), packet, clock: MonotonicClock::start() }
    }

    /// Sends as much of `chunk` as the window permits in plans of `segments` segments, which are read and
    /// acknowledged. Returns the number of plans, and the time of their serial steps and of that of the
    /// acknowledgement.
    fn round(&mut self, chunk: &Bytes, segments: usize) -> Result<(usize, [Duration; 3]), String> {
        let _full = self.sender.write(&mut chunk.clone());
        self.now += STEP_TIME;
        let begin = self.clock.now();
        let mut count = 0;
        while count < PLANS && self.sender.poll_plan(self.now, segments, &mut self.plans[count]) {
            count += 1;
        }
        let planned = self.clock.now().saturating_since(begin);
        let arrivals: Vec<_> =
            self.plans[..count].iter().map(|plan| carry(plan, &mut self.packet)).collect::<Result<_, _>>()?;
        let begin = self.clock.now();
        for arrival in arrivals {
            self.receiver.handle_segment(self.now, arrival);
            while let Read::Bytes(_) = self.receiver.read(usize::MAX) {}
            while self.receiver.poll_event().is_some() {}
        }
        let arrived = self.clock.now().saturating_since(begin);
        self.now += STEP_TIME;
        self.receiver.handle_timeout(self.now);
        let mut acknowledged = Duration::ZERO;
        while self.receiver.poll_plan(self.now, segments, &mut self.plans[0]) {
            let arrival = carry(&self.plans[0], &mut self.packet)?;
            let begin = self.clock.now();
            self.sender.handle_segment(self.now, arrival);
            while self.sender.poll_event().is_some() {}
            acknowledged += self.clock.now().saturating_since(begin);
        }
        self.sender.handle_timeout(self.now);
        Ok((count, [planned, arrived, acknowledged]))
    }

    /// The packet of a segment of `payload` bytes, with its checksum.
    pub(super) fn data_packet(&mut self, payload: usize) -> Result<Bytes, String> {
        let chunk = Bytes::from(vec![7; payload]);
        // The first round carries the handshake.
        for _ in 0..2 {
            self.round(&chunk, 1)?;
        }
        let _full = self.sender.write(&mut chunk.clone());
        self.now += STEP_TIME;
        if !self.sender.poll_plan(self.now, 1, &mut self.plans[0]) {
            return Err("a connection in memory sends no data".to_owned());
        }
        self.plans[0].seal_packets(None, &mut self.packet);
        let packet = Bytes::copy_from_slice(&self.packet.bytes);
        self.deliver(&packet)?;
        Ok(packet)
    }

    /// The packet arrives, and is acknowledged when the timer of delayed acknowledgements expires.
    fn deliver(&mut self, packet: &Bytes) -> Result<Duration, String> {
        let arrival = Arrival::open(packet, None, false).map_err(|error| error.to_string())?;
        self.receiver.handle_segment(self.now, arrival);
        while let Read::Bytes(_) = self.receiver.read(usize::MAX) {}
        while self.receiver.poll_event().is_some() {}
        let at = self.receiver.poll_timeout().ok_or("an acknowledgement has no timer")?;
        self.now = self.now.max(at);
        let begin = self.clock.now();
        self.receiver.handle_timeout(self.now);
        let has_plan = self.receiver.poll_plan(self.now, 1, &mut self.plans[0]);
        self.plans[0].seal_packets(None, &mut self.packet);
        let spent = self.clock.now().saturating_since(begin);
        if !has_plan {
            return Err("an expired timer acknowledges nothing".to_owned());
        }
        let ack = Bytes::copy_from_slice(&self.packet.bytes);
        let arrival = Arrival::open(&ack, None, false).map_err(|error| error.to_string())?;
        self.sender.handle_segment(self.now, arrival);
        while self.sender.poll_event().is_some() {}
        Ok(spent)
    }

    /// The time from the expiry of the timer of delayed acknowledgements to the packet that acknowledges
    /// a segment of `payload` bytes.
    pub(super) fn delayed_acknowledgement(&mut self, payload: usize) -> Result<Duration, String> {
        let _full = self.sender.write(&mut Bytes::from(vec![7; payload]));
        self.now += STEP_TIME;
        if !self.sender.poll_plan(self.now, 1, &mut self.plans[0]) {
            return Err("a connection in memory sends no data".to_owned());
        }
        self.plans[0].seal_packets(None, &mut self.packet);
        let packet = Bytes::copy_from_slice(&self.packet.bytes);
        self.deliver(&packet)
    }
}

/// Carries a plan to the other side as a device with offloads does.
fn carry(plan: &Plan, packet: &mut SuperPacket) -> Result<Arrival, String> {
    plan.seal(packet);
    let segment = (!packet.is_single()).then_some(packet.segment);
    Arrival::open(&Bytes::copy_from_slice(&packet.bytes), segment, true).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_steps_cost_something_plausible_whatever_the_plan_holds() {
        for (payload, segments) in [(512, 1), (4096, 1), (4096, 15), (1448, 44)] {
            let step = measure(payload, segments).unwrap();
            assert_eq!(step.segments, segments);
            for ns in [step.plan_ns, step.arrival_ns, step.acknowledgement_ns] {
                assert!(ns > 0.0 && ns < 20_000.0, "{step:?}");
            }
        }
    }

    #[test]
    fn a_lone_segment_is_acknowledged_by_the_timer() {
        let mut pair = Pair::new(4096);
        assert_eq!(pair.data_packet(4096).unwrap().len(), 4096 + HEADERS_LEN);
        assert!(pair.delayed_acknowledgement(4096).unwrap() > Duration::ZERO);
    }
}
