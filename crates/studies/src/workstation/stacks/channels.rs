//! Complete stacks, one for each ring, under one application: it passes the next chunk to the first
//! stack that can take it, and the receiver restores the order of all chunks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use sim::hardware::fddi::Ring;
use sim::{Sim, Simulation, Store};
use tcp::{RtoFormula, TcpConfig};
use tcp_hosts::{Costs, Host, HostConfig, Limits, SegmentCost, Stream};
use units::{Duration, Instant};

use super::super::config::Config;
use super::super::paper::{Cost, paper};
use super::super::rings::{RING_FRAMES, ring_of};
use crate::conserved::check_accounting;
use crate::study::Effort;

/// IP and TCP headers without options.
const HEADERS_BYTES: u64 = 40;

const PORT: u16 = 5000;

/// Length of the number of a chunk, in its first bytes.
const NUMBER_BYTES: usize = 8;

/// Stacks on a machine's processors.
pub(super) struct Channels {
    pub(super) machine: Config,
    /// Frames that an interface has taken and not sent.
    pub(super) interface_frames: usize,
}

/// Results of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    /// Rate of in-order data at the application, including headers as in the report.
    pub(super) mbps: f64,
    /// Largest number of chunks that waited for an earlier one.
    pub(super) waiting_max: u64,
}

/// Order of chunks at the receiver.
#[derive(Default)]
struct Order {
    expected: u64,
    ahead: BTreeSet<u64>,
    waiting_max: u64,
}

impl Order {
    fn take(&mut self, number: u64) {
        self.ahead.insert(number);
        while self.ahead.remove(&self.expected) {
            self.expected += 1;
        }
        self.waiting_max = self.waiting_max.max(self.ahead.len() as u64);
    }
}

impl Channels {
    pub(super) fn new(machine: Config) -> Self {
        let interface_frames = machine.choices.interface_frames;
        Self { machine, interface_frames }
    }

    /// Returns the number of data bytes in a segment, and in a chunk.
    const fn chunk_bytes(&self) -> usize {
        (self.machine.packet_bits / 8 - HEADERS_BYTES) as usize
    }

    fn tcp(&self) -> TcpConfig {
        let (window, common) = (self.machine.window_packets() as usize * self.chunk_bytes(), &paper().common);
        let percent = |share: f64| (share * 100.0).round() as u32;
        let formula = RtoFormula::Rfc793 { alpha_percent: percent(common.alpha), beta_percent: percent(common.beta) };
        TcpConfig {
            mtu: (self.machine.packet_bits / 8) as usize,
            send_buffer: window,
            receive_buffer: window,
            rto_formula: formula,
            ..TcpConfig::classic()
        }
    }

    /// Returns the time of a packet's operations on a processor that waits for no other user of its
    /// memory. The model counts acknowledgements with the packets that they acknowledge, so the
    /// whole cost is charged to data.
    fn cost(&self, costs: &[Cost]) -> SegmentCost {
        let machine = &self.machine;
        let of = |cost: &Cost| {
            let work = machine.work(*cost, machine.packet_bits);
            let words = work.data_words + work.stream_words;
            work.instructions as f64 * 1000.0 / machine.mips + (words * machine.memory_ns) as f64
        };
        let ns: f64 = costs.iter().map(of).sum();
        SegmentCost { segment: Duration::ZERO, byte_ps: (ns * 1000.0 / self.chunk_bytes() as f64).round() as u64 }
    }

    fn host(&self, sim: &Sim, name: &str, address: [u8; 4], listening: Option<u16>) -> Host {
        let costs = &self.machine.choices.costs;
        let costs = Costs {
            sent: self.cost(&[costs.send]),
            received: self.cost(&[costs.receive, costs.deliver]),
            ..Costs::default()
        };
        // The application decides late to which stack it passes a chunk.
        let limits = Limits { outbox_bytes_max: self.chunk_bytes(), ..Limits::default() };
        let config = HostConfig::new(Ipv4Addr::from(address).into(), self.tcp());
        Host::new(sim, name, HostConfig { listening, costs, interrupts_max: 1, limits, ..config })
    }

    /// Connects two stacks by a ring.
    fn connect(&self, sim: &Sim, index: usize, sender: &Host, receiver: &Host) {
        let stations = paper().common.stations;
        let ring: Ring<Bytes> = ring_of(sim, &self.machine, stations, index).expect("the machine of a study is valid");
        let ends = [(0, sender), (self.machine.choices.receiver_station, receiver)];
        for (end, name) in [(0, "sender"), (1, "receiver")] {
            let ((from, host), (to, peer)) = (ends[end], ends[1 - end]);
            let outbox = Store::new(sim, &format!("{name} outbox {index}"), RING_FRAMES);
            let filled = outbox.clone();
            host.set_output(move |packet: Bytes| {
                assert!(filled.try_put(packet).is_ok(), "windows limit what waits for an interface");
            });
            for _ in 0..self.interface_frames {
                sim.spawn(send_frames(outbox.clone(), ring.clone(), (from, to)));
            }
            let peer = peer.clone();
            ring.on_delivery(to, move |frame| peer.arrive(frame.item));
        }
    }

    /// Performs a run, and measures after the machine's warm-up.
    pub(super) fn run(&self, seed: u64, run: u64, effort: Effort) -> Received {
        let (warm_up, measured) = match effort {
            Effort::Quick => (Duration::from_millis(15), Duration::from_millis(70)),
            Effort::Full => (self.machine.warm_up, self.machine.measured),
        };
        let mut simulation = Simulation::new(seed, run);
        let sim = simulation.sim();
        let (next, order) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Order::default())));
        for index in 0..self.machine.protocol_processors {
            let network = index as u8;
            let sender = self.host(&sim, &format!("sender {index}"), [10, 0, network, 1], None);
            let receiver = self.host(&sim, &format!("receiver {index}"), [10, 0, network, 2], Some(PORT));
            self.connect(&sim, index, &sender, &receiver);
            sim.spawn(read(receiver, self.chunk_bytes(), Rc::clone(&order)));
            let remote = (Ipv4Addr::new(10, 0, network, 2), PORT).into();
            sim.spawn(write(sender, remote, self.chunk_bytes(), Rc::clone(&next)));
        }
        simulation.run_until(Instant::ZERO + warm_up);
        let before = order.borrow().expected;
        simulation.run_until(Instant::ZERO + warm_up + measured);
        check_accounting(&simulation);
        let order = order.borrow();
        let bits = (order.expected - before) * self.machine.packet_bits;
        Received { mbps: bits as f64 / 1e6 / measured.as_secs_f64(), waiting_max: order.waiting_max }
    }
}

/// Runs an interface that takes a packet, waits until it has left, and takes the next one.
async fn send_frames(outbox: Store<Bytes>, ring: Ring<Bytes>, (from, to): (usize, usize)) {
    loop {
        let packet = outbox.take().await;
        let len = packet.len() as u64;
        ring.send(from, to, len, packet).await;
    }
}

/// Sends the next chunk whenever this stack can take one.
async fn write(host: Host, remote: SocketAddr, len: usize, next: Rc<Cell<u64>>) {
    let stream = host.connect(remote).await.expect("the receiver listens");
    loop {
        let number: u64 = next.get();
        next.set(number + 1);
        let mut chunk = BytesMut::zeroed(len);
        chunk[..NUMBER_BYTES].copy_from_slice(&number.to_be_bytes());
        stream.write(chunk.freeze()).await.expect("the connection lives");
    }
}

async fn read(host: Host, len: usize, order: Rc<RefCell<Order>>) {
    let stream: Stream = host.accept().await;
    let (mut at, mut number) = (0, 0_u64);
    while let Some(bytes) = stream.read(usize::MAX).await.expect("the connection lives") {
        for byte in bytes {
            if at < NUMBER_BYTES {
                number = number << 8 | u64::from(byte);
            }
            at += 1;
            if at == len {
                order.borrow_mut().take(number);
                (at, number) = (0, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine;
    use super::*;

    #[test]
    fn chunks_are_put_in_order() {
        let mut order = Order::default();
        for number in [1, 0, 4, 3, 2, 5] {
            order.take(number);
        }
        assert_eq!((order.expected, order.ahead.len(), order.waiting_max), (6, 0, 2));
    }

    #[test]
    fn the_rings_are_the_limit_until_memories_are_slow() {
        let whole = Channels::new(machine(2)).run(1, 0, Effort::Quick).mbps;
        let slow = Channels::new(Config { memory_ns: 800, ..machine(2) }).run(1, 0, Effort::Quick).mbps;
        assert!(whole > 60.0, "{whole}");
        assert!(slow < 0.7 * whole, "{slow} of {whole}: the processors are the limit");
    }
}
