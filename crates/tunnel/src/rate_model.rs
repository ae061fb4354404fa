//! TCP through outboxes that keep to a rate, in virtual time: each flow gets nearly all of the rate.
//!
//! ```text
//!  host ─ segments, joined ─▶ [Outboxes] ─ a wait of half a round trip ─▶ [Unpacker] ─ segments ─▶ host
//!  host ◀─ segments ─ [Unpacker] ◀─ a wait of half a round trip ─ [Outboxes] ◀─ segments, joined ─ host
//! ```

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use recovery::Algorithm;
use sim::{Sim, Simulation};
use tcp::TcpConfig;
use tcp_hosts::{Host, HostConfig};
use units::{Duration, Instant, Rate};
use wire::segmentation::continues_tcp;

use crate::inner::{Inner, set_payload_bytes};
use crate::meter::Meter;
use crate::outboxes::Outboxes;
use crate::packer::PacketHead;
use crate::queue::QueueStats;
use crate::samples::{Sample, completed, partial_sum};
use crate::unpacker::{Arrived, Sink, Unpacker};

const PORT: u16 = 5000;

/// The MTU of the tunnel.
const MTU: usize = 1400;

/// Bytes that datagrams carry, over paths with the usual MTU.
const DATAGRAM_BYTES: usize = 1430;

/// Bytes of a super-packet, at most.
const SUPER_PACKET_BYTES_MAX: usize = 64_000;

/// How often the thread looks. It also looks when the rate lets packets leave.
const LOOK: Duration = Duration::from_micros(200);

/// One direction of a tunnel.
struct Direction {
    /// Segments that the host has sent since the thread looked.
    sent: RefCell<Vec<Bytes>>,
    state: RefCell<(Outboxes, Unpacker)>,
    under_way: RefCell<VecDeque<(Instant, Bytes)>>,
}

/// Hands segments to a host.
struct ToHost<'a>(&'a Host);

impl Sink for ToHost<'_> {
    fn allows(&self, _inner: &Inner) -> bool {
        true
    }

    fn deliver(&mut self, packet: &Arrived<'_>) {
        let ip = packet.parts.iter().fold(packet.headers.to_vec(), |mut ip, part| {
            ip.extend_from_slice(part);
            ip
        });
        let sample = Sample { ip, is_partial: packet.is_partial, segment: packet.segment };
        for segment in sample.segments() {
            self.0.arrive(completed(segment, packet.is_partial).into());
        }
    }
}

/// Joins segments that leave together as the kernel does not cut them in the first place.
fn joined(segments: Vec<Bytes>) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    let mut is_open = false;
    for ip in segments {
        let inner = Inner::parse(&ip).expect("a packet");
        let (header_bytes, at) = (inner.header_bytes(), inner.ip_header_bytes);
        let payload = ip.len() - header_bytes;
        // PSH may be set.
        let is_plain = ip[at + 13] & !0x08 == 0x10;
        let segment = samples.last().map_or(0, |sample| usize::from(sample.segment.unwrap_or(0)));
        let continues = |last: &Sample| {
            let offset = last.ip.len().saturating_sub(header_bytes) as u32;
            last.inner().header_bytes() == header_bytes
                && continues_tcp(&last.ip[at..header_bytes], &ip[at..header_bytes], offset)
        };
        if let Some(last) = samples.last_mut().filter(|last| {
            is_open
                && is_plain
                && (1..=segment).contains(&payload)
                && last.ip.len() < SUPER_PACKET_BYTES_MAX
                && continues(last)
        }) {
            let old = last.ip.len() - header_bytes;
            last.ip.extend_from_slice(&ip[header_bytes..]);
            last.ip[at + 13] |= ip[at + 13];
            let new = last.ip.len() - header_bytes;
            set_payload_bytes(&mut last.ip[..header_bytes], &inner, old, new);
            is_open = payload == segment;
            continue;
        }
        let mut sample = Sample { ip: ip.to_vec(), is_partial: true, segment: None };
        let sum = partial_sum(&inner, ip.len() - at);
        sample.ip[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
        is_open = is_plain && payload > 0;
        sample.segment = is_open.then_some(payload as u16);
        samples.push(sample);
    }
    for sample in &mut samples {
        let payload = sample.ip.len() - sample.inner().header_bytes();
        sample.segment = sample.segment.filter(|segment| payload > usize::from(*segment));
    }
    samples
}

impl Direction {
    fn new(rate: Rate) -> Rc<Self> {
        let outboxes = Outboxes::sprayed(Some(Arc::new(Meter::sender(rate))));
        Rc::new(Self {
            sent: RefCell::default(),
            state: RefCell::new((outboxes, Unpacker::with_udp_runs(true))),
            under_way: RefCell::default(),
        })
    }

    /// What the thread does each time. Returns when it has to look again.
    fn look(&self, now: Instant, delay: Duration, to: &Host) -> Option<Instant> {
        let (outboxes, unpacker) = &mut *self.state.borrow_mut();
        for sample in joined(self.sent.take()) {
            let packet = sample.packet();
            let head = PacketHead { inner: packet.inner, is_partial: packet.is_partial, segment: packet.segment };
            let (mut buffer, flow) = (sample.ip.clone(), packet.inner.flow(7));
            let place = 0..buffer.len();
            outboxes.take(|| now, flow, &mut buffer, place, &head, DATAGRAM_BYTES);
        }
        let mut under_way = self.under_way.borrow_mut();
        outboxes.serve(|_, outbox, _| {
            loop {
                let batch: Vec<Bytes> = outbox.fill(now, DATAGRAM_BYTES).drain(..).collect();
                if batch.is_empty() {
                    return false;
                }
                outbox.on_taken(batch.len());
                under_way.extend(batch.into_iter().map(|datagram| (now + delay, datagram)));
            }
        });
        let mut host = ToHost(to);
        while under_way.front().is_some_and(|(at, _)| *at <= now) {
            let (_, datagram) = under_way.pop_front().expect("there is one");
            unpacker.push(now, 0, datagram, &mut host);
        }
        unpacker.flush(&mut host);
        outboxes.blocked_until()
    }
}

/// A flow of a controller through a tunnel with a rate.
#[derive(Clone, Copy, Debug)]
struct Case {
    algorithm: Algorithm,
    rate: Rate,
    round_trip: Duration,
    /// The thread comes back late by up to this.
    late: Duration,
}

/// The share of the rate that the application gets once the flow has found it, and the counters of the queue.
fn share(case: Case) -> (f64, QueueStats) {
    let (mut simulation, warm_up, span) = (Simulation::new(11, 0), Duration::from_secs(2), Duration::from_secs(4));
    let sim = simulation.sim();
    let tcp = TcpConfig { congestion: Some(case.algorithm), mtu: MTU, ecn: false, ..TcpConfig::default() };
    let host = |number: u8| {
        let config = HostConfig::new(Ipv4Addr::new(10, 0, 0, number).into(), tcp.clone());
        Host::new(&sim, &format!("host {number}"), HostConfig { listening: Some(PORT), ..config })
    };
    let hosts = [host(1), host(2)];
    let directions = [Direction::new(case.rate), Direction::new(case.rate)];
    for (from, to) in [(0, 1), (1, 0)] {
        let direction = Rc::clone(&directions[from]);
        let sink = Rc::clone(&directions[from]);
        hosts[from].set_output(move |packet| sink.sent.borrow_mut().push(packet));
        let (clock, receiver) = (sim.clone(), hosts[to].clone());
        simulation.spawn(async move {
            let mut rng = units::Rng::from_seed(3);
            loop {
                let now = clock.now();
                let next = direction.look(now, case.round_trip / 2, &receiver);
                let late = Duration::from_nanos(rng.below(case.late.as_nanos() + 1));
                clock.sleep_until(next.map_or(now + LOOK, |at| at.min(now + LOOK)) + late).await;
            }
        });
    }
    let [client, server] = hosts;
    simulation.spawn(async move {
        let remote = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 2), PORT));
        let stream = client.connect(remote).await.expect("the server listens");
        loop {
            stream.write(Bytes::from_static(&[7; 65_536])).await.expect("the connection lives");
        }
    });
    let (reading, read) = (sim.clone(), Rc::new(RefCell::new(0)));
    let count = Rc::clone(&read);
    simulation.spawn(async move { receive(reading, server, warm_up, &count).await });
    simulation.run_until(Instant::ZERO + warm_up + span);
    let bytes: usize = *read.borrow();
    let stats = directions[0].state.borrow().0.stats();
    (bytes as f64 / case.rate.bytes_in(span) as f64, stats)
}

/// Counts the bytes that arrive after the warm-up.
async fn receive(sim: Sim, server: Host, warm_up: Duration, count: &RefCell<usize>) {
    let stream = server.accept().await;
    while let Some(bytes) = stream.read(usize::MAX).await.expect("the connection lives") {
        if sim.now() >= Instant::ZERO + warm_up {
            *count.borrow_mut() += bytes.len();
        }
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a measurement")]
fn a_flow_gets_nearly_all_of_a_rate() {
    let mut short = Vec::new();
    for mbps in [5, 20, 100, 500] {
        for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
            // Faster ones take longer to compute, and over a long round trip CUBIC to find.
            let count = match mbps {
                500 => 1,
                100 => 3,
                _ => 4,
            };
            for (round_trip_us, late_us) in
                [(400, 300), (400, 3000), (10_000, 300), (40_000, 300)].into_iter().take(count)
            {
                let case = Case {
                    algorithm,
                    rate: Rate::from_mbps(mbps),
                    round_trip: Duration::from_micros(round_trip_us),
                    late: Duration::from_micros(late_us),
                };
                let (share, stats) = share(case);
                eprintln!("{share:.3} {case:?} {stats:?}");
                if !(0.95..1.005).contains(&share) {
                    short.push((share, case));
                }
            }
        }
    }
    assert!(short.is_empty(), "{short:#?}");
}
