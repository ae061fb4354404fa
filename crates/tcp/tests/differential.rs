//! Against smoltcp, another TCP, over model links with faults by seed. `LITZ_SEEDS=5000 cargo test
//! --release -p litz-tcp --test all differential` runs more seeds.

use std::collections::VecDeque;

use bytes::Bytes;
use netem::{Link, LinkConfig};
use recovery::Algorithm;
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp as smol;
use smoltcp::time::Instant as SmolInstant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use tcp::{Arrival, Connection, LossRecovery, Nagle, Plan, State, SuperPacket, TcpConfig, Tuple};
use units::{Duration, Instant, Ratio, Rng, Seq32};
use wire::tcp::Flags;

use crate::support::packet::IpPacket;
use crate::support::{CLIENT, Host, SERVER, link, pattern};

/// Seeds of each role.
const SEEDS: u64 = 400;

/// Percentage of them that runs by default.
const SHARE: u64 = 10;

/// Limit on plans of our side at one moment.
const PLANS_MAX: usize = 10_000;

/// Time limit of a run, after which it hangs: no transfer waits for more than some timeouts of a
/// minute.
const SPAN: Duration = Duration::from_secs(3600);

/// Packets that smoltcp has sent, and those that it has not read.
struct Wire {
    arrived: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    mtu: usize,
}

struct Arrived(Vec<u8>);

struct Leaving<'a>(&'a mut Vec<Vec<u8>>);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

impl TxToken for Leaving<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut packet = vec![0; len];
        let result = write(&mut packet);
        self.0.push(packet);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Leaving<'a>;

    fn receive(&mut self, _now: SmolInstant) -> Option<(Arrived, Leaving<'_>)> {
        Some((Arrived(self.arrived.pop_front()?), Leaving(&mut self.sent)))
    }

    fn transmit(&mut self, _now: SmolInstant) -> Option<Leaving<'_>> {
        Some(Leaving(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        (capabilities.medium, capabilities.max_transmission_unit) = (Medium::Ip, self.mtu);
        capabilities
    }
}

/// The host with smoltcp.
struct Smol {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    wire: Wire,
    unwritten: Bytes,
    received: Vec<u8>,
    has_ended: bool,
}

/// Choices of a seed.
#[derive(Debug)]
struct Case {
    links: [LinkConfig; 2],
    ours: TcpConfig,
    smol_buffers: [usize; 2],
    smol_nagle: bool,
    smol_delays_acks: bool,
    smol_uses_cubic: bool,
    mtu: usize,
    bytes: [usize; 2],
}

impl Case {
    fn new(rng: &mut Rng) -> Self {
        // Each fault is absent in some runs, and frequent in others.
        let share = |rng: &mut Rng, most: u64| Ratio::new(rng.below(3).min(1) * rng.below(most + 1), 1000);
        let config = |rng: &mut Rng| LinkConfig {
            loss: share(rng, 80),
            reorder: share(rng, 80),
            reorder_by: Duration::from_millis(rng.between(1, 30)),
            duplicate: share(rng, 60),
            corrupt: share(rng, 20),
            ..link(rng.between(2, 200), rng.between(0, 60))
        };
        let links = [config(rng), config(rng)];
        let mtu = [576, 1280, 1500, 9000][rng.below(4) as usize];
        let ours = TcpConfig {
            mtu,
            sack: rng.below(3) > 0,
            timestamps: rng.below(3) > 0,
            window_scaling: rng.below(3) > 0,
            ecn: rng.below(2) > 0,
            nagle: [Nagle::Off, Nagle::Rfc896, Nagle::Minshall][rng.below(3) as usize],
            recovery: if rng.below(6) == 0 { LossRecovery::GoBackN } else { LossRecovery::Selective },
            receive_buffer: rng.between(4_000, 400_000) as usize,
            send_buffer: rng.between(1_000, 400_000) as usize,
            congestion: [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr].get(rng.below(4) as usize).copied(),
            ..TcpConfig::default()
        };
        Self {
            links,
            ours,
            smol_buffers: [(); 2].map(|()| rng.between(1_000, 300_000) as usize),
            smol_nagle: rng.below(2) > 0,
            smol_delays_acks: rng.below(2) > 0,
            smol_uses_cubic: rng.below(2) > 0,
            mtu,
            bytes: [(); 2].map(|()| rng.below(3).min(1) as usize * rng.between(1, 150_000) as usize),
        }
    }
}

fn smol_now(now: Instant) -> SmolInstant {
    // Rounded up, so that a deadline has passed when it is reached.
    SmolInstant::from_micros(now.saturating_since(Instant::ZERO).as_nanos().div_ceil(1000) as i64)
}

impl Smol {
    fn new(case: &Case, rng: &mut Rng, address: std::net::SocketAddr) -> Self {
        let mut wire = Wire { arrived: VecDeque::new(), sent: Vec::new(), mtu: case.mtu };
        let mut config = smoltcp::iface::Config::new(HardwareAddress::Ip);
        config.random_seed = rng.next_u64();
        let mut interface = Interface::new(config, &mut wire, SmolInstant::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(IpAddress::from(address.ip()), 24)).expect("there is space");
        });
        let buffer = |len| smol::SocketBuffer::new(vec![0; len]);
        let mut socket = smol::Socket::new(buffer(case.smol_buffers[0]), buffer(case.smol_buffers[1]));
        socket.set_nagle_enabled(case.smol_nagle);
        if !case.smol_delays_acks {
            socket.set_ack_delay(None);
        }
        if case.smol_uses_cubic {
            socket.set_congestion_control(smol::CongestionControl::Cubic);
        }
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        let unwritten = pattern(case.bytes[1], 2).into();
        Self { interface, sockets, socket, wire, unwritten, received: Vec::new(), has_ended: false }
    }

    fn socket(&mut self) -> &mut smol::Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    /// Runs a turn of the application and one of the stack; returns the packets that leave.
    fn turn(&mut self, now: Instant) -> Vec<Vec<u8>> {
        self.interface.poll(smol_now(now), &mut self.wire, &mut self.sockets);
        let socket = self.sockets.get_mut::<smol::Socket<'static>>(self.socket);
        if socket.can_send() && !self.unwritten.is_empty() {
            let count = socket.send_slice(&self.unwritten).expect("it can send");
            bytes::Buf::advance(&mut self.unwritten, count);
        }
        let is_open = !matches!(socket.state(), smol::State::Listen | smol::State::SynSent | smol::State::SynReceived);
        if is_open && self.unwritten.is_empty() && socket.may_send() {
            socket.close();
        }
        while socket.can_recv() {
            let more = socket.recv(|data| (data.len(), data.to_vec())).expect("it can receive");
            self.received.extend(more);
        }
        let is_at_end = socket.recv(|_| (0, ())) == Err(smol::RecvError::Finished);
        self.has_ended |= is_at_end;
        self.interface.poll(smol_now(now), &mut self.wire, &mut self.sockets);
        std::mem::take(&mut self.wire.sent)
    }

    fn poll_timeout(&mut self, now: Instant) -> Option<Instant> {
        let at = self.interface.poll_at(smol_now(now), &self.sockets)?;
        Some(Instant::ZERO + Duration::from_micros(at.total_micros().max(0) as u64))
    }
}

/// Runs one case until both sides have everything, and their ends.
fn run(seed: u64, smol_is_client: bool) {
    let rng = Rng::from_seed(seed);
    let case = Case::new(&mut rng.split("case"));
    let (our_address, smol_address) = if smol_is_client { (SERVER, CLIENT) } else { (CLIENT, SERVER) };
    let mut random = rng.split("numbers");
    let (initial, offset) = (Seq32::new(random.next_u64() as u32), random.next_u64() as u32);
    let mut ours = Host::new(case.ours.clone());
    ours.send(pattern(case.bytes[0], 1), true);
    let mut smol = Smol::new(&case, &mut random, smol_address);
    if smol_is_client {
        let (interface, sockets) = (&mut smol.interface, &mut smol.sockets);
        let socket = sockets.get_mut::<smol::Socket<'_>>(smol.socket);
        socket.connect(interface.context(), our_address, smol_address.port()).expect("it is closed");
    } else {
        smol.socket().listen(smol_address.port()).expect("it is closed");
        let tuple = Tuple { local: our_address, remote: smol_address };
        ours.connection = Some(Connection::connect(Instant::ZERO, case.ours.clone(), tuple, initial, offset));
    }
    let [one, other] = case.links.clone();
    let mut links: [Link<IpPacket>; 2] = [Link::new(one, rng.split("there")), Link::new(other, rng.split("back"))];
    let mut now = Instant::ZERO;
    loop {
        flush(&mut ours, now, &mut links[0]);
        for packet in smol.turn(now) {
            links[1].send(now, IpPacket::new(packet));
        }
        let is_done = ours.has_ended && smol.has_ended && ours.state().is_some_and(is_over);
        if is_done && matches!(smol.socket().state(), smol::State::TimeWait | smol::State::Closed) {
            break;
        }
        let deadlines = [
            ours.connection.as_ref().and_then(Connection::poll_timeout),
            links[0].poll_timeout(),
            links[1].poll_timeout(),
            smol.poll_timeout(now),
        ];
        let next = deadlines.into_iter().flatten().min();
        let progress = || (ours.received.len(), ours.state());
        let Some(next) = next.filter(|next| *next < Instant::ZERO + SPAN) else {
            panic!(
                "seed {seed}, smoltcp connects: {smol_is_client}: no end: ours {:?}, smoltcp {} {}\n{case:?}",
                progress(),
                smol.received.len(),
                smol.sockets.get::<smol::Socket<'_>>(smol.socket).state(),
            );
        };
        now = now.max(next);
        while let Some(packet) = links[0].poll_deliver(now) {
            smol.wire.arrived.push_back(packet.bytes);
        }
        while let Some(packet) = links[1].poll_deliver(now) {
            receive(&mut ours, now, packet, (initial, offset), &mut links[0]);
        }
        if let Some(connection) = &mut ours.connection {
            connection.handle_timeout(now);
        }
    }
    let context = format!("seed {seed}, smoltcp connects: {smol_is_client}: {case:?}");
    assert!(smol.received == pattern(case.bytes[0], 1), "ours to smoltcp: {context}");
    assert!(ours.received == pattern(case.bytes[1], 2), "smoltcp to ours: {context}");
}

const fn is_over(state: State) -> bool {
    matches!(state, State::TimeWait | State::Closed)
}

/// Runs the turns of our application and our connection.
fn flush(ours: &mut Host, now: Instant, link: &mut Link<IpPacket>) {
    let (mut plan, mut packet) = (Plan::default(), SuperPacket::default());
    ours.serve(now);
    for count in 0.. {
        assert!(count < PLANS_MAX, "our side sends without end");
        let Some(connection) = &mut ours.connection else { return };
        if !connection.poll_plan(now, 16, &mut plan) {
            break;
        }
        if let Some(transmission) = plan.transmission() {
            connection.handle_emitted(now, transmission);
        }
        plan.seal(&mut packet);
        packet.packets(|packet| link.send(now, IpPacket::new(packet.to_vec())));
    }
    ours.serve(now);
}

fn receive(ours: &mut Host, now: Instant, packet: IpPacket, numbers: (Seq32, u32), link: &mut Link<IpPacket>) {
    let Ok(arrival) = Arrival::open(&packet.bytes.into(), None, false) else { return };
    let is_syn = arrival.header.flags.contains(Flags::SYN) && !arrival.header.flags.contains(Flags::ACK);
    match &mut ours.connection {
        None if is_syn => {
            let connection = Connection::accept(now, ours.config.clone(), &arrival, numbers.0, numbers.1);
            ours.connection = Some(connection);
        }
        Some(connection) if connection.state() != State::Closed => connection.handle_segment(now, arrival),
        _ => {
            let (mut plan, mut packet) = (Plan::default(), SuperPacket::default());
            if tcp::reply::reset(&arrival, &mut plan) {
                plan.seal(&mut packet);
                packet.packets(|packet| link.send(now, IpPacket::new(packet.to_vec())));
            }
        }
    }
}

fn number_from(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn run_all(smol_is_client: bool) {
    let count = number_from("LITZ_SEEDS", SEEDS * number_from("LITZ_TEST_SHARE", SHARE) / 100);
    (0..count).for_each(|seed| run(seed, smol_is_client));
}

#[test]
fn smoltcp_accepts_and_all_bytes_are_right() {
    run_all(false);
}

#[test]
fn smoltcp_connects_and_all_bytes_are_right() {
    run_all(true);
}
