//! Two connections, a model link in each direction, and a virtual clock, in lock-step. Everything
//! follows from one seed.
//!
//! ```text
//!   client ──▶ links[0] ──▶ server
//!          ◀── links[1] ◀──
//! ```

#![allow(dead_code, reason = "each test binary uses its own part")]

#[path = "../../../quic/tests/adverse/heap_meter.rs"]
pub(crate) mod heap_meter;
pub(crate) mod journals;
pub(crate) mod packet;
pub(crate) mod peer;
pub(crate) mod split;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use netem::{Link, LinkConfig};
use tcp::{Arrival, Connection, Event, Plan, Read, State, SuperPacket, TcpConfig, Tuple};
use units::{Duration, Instant, Rate, Ratio, Rng, Seq32};
use wire::tcp::Flags;

use self::journals::Checked;
use self::packet::IpPacket;
use self::split::Split;

pub(crate) const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 40_000);
pub(crate) const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 80);

/// Limit on segments in a plan.
const BATCH: usize = 16;

/// Limit on plans of a host at one moment: far more than any window permits.
const ROUNDS_MAX: usize = 100_000;

/// Returns a link of this rate and one-way delay, with a queue of a round trip.
pub(crate) fn link(mbps: u64, delay_ms: u64) -> LinkConfig {
    let (rate, delay) = (Rate::from_mbps(mbps), Duration::from_millis(delay_ms));
    LinkConfig { rate: Some(rate), delay, queue_bytes: rate.bytes_in(delay * 2).max(64_000), ..LinkConfig::default() }
}

/// One host: its connection and its application.
pub(crate) struct Host {
    pub(crate) connection: Option<Connection>,
    pub(crate) config: Arc<TcpConfig>,
    /// Data that the application has not written yet, and whether it finishes after them.
    unwritten: Bytes,
    finishes: bool,
    pub(crate) received: Vec<u8>,
    /// Whether the application reads at once.
    pub(crate) reads: bool,
    pub(crate) has_ended: bool,
    pub(crate) events: Vec<Event>,
    /// Flags of every segment sent.
    pub(crate) sent: Vec<(Instant, Flags, usize)>,
    /// Digest of every packet sent, with its time.
    pub(crate) wire: u64,
    /// The receive half, if it is detached.
    pub(crate) split: Split,
    /// Dropped after the connection and its half, which completes the journal.
    checked: Checked,
}

impl Host {
    pub(crate) fn new(config: TcpConfig) -> Self {
        let checked = Checked::by_environment();
        let config = checked.config(&config);
        Self {
            checked,
            connection: None,
            config: Arc::new(config),
            unwritten: Bytes::new(),
            finishes: false,
            received: Vec::new(),
            reads: true,
            has_ended: false,
            events: Vec::new(),
            sent: Vec::new(),
            wire: 0,
            split: Split::default(),
        }
    }

    pub(crate) fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("there is a connection")
    }

    pub(crate) fn state(&self) -> Option<State> {
        self.connection.as_ref().map(Connection::state)
    }

    /// Writes `bytes` as space permits, and finishes.
    pub(crate) fn send(&mut self, bytes: impl Into<Bytes>, finishes: bool) {
        let mut all = self.unwritten.to_vec();
        all.extend_from_slice(&bytes.into());
        (self.unwritten, self.finishes) = (all.into(), finishes);
    }

    /// Drops the application.
    pub(crate) fn leave(&mut self) {
        (self.unwritten, self.finishes, self.reads) = (Bytes::new(), false, false);
    }

    pub(crate) fn has_connected(&self) -> bool {
        self.events.contains(&Event::Connected)
    }

    fn note_sent(&mut self, now: Instant, flags: Flags, packet: &IpPacket) {
        use std::hash::{DefaultHasher, Hash, Hasher};
        self.sent.push((now, flags, packet.data_len()));
        let mut hasher = DefaultHasher::new();
        (self.wire, now.as_nanos(), &packet.bytes).hash(&mut hasher);
        self.wire = hasher.finish();
    }

    /// Runs a turn of the application.
    pub(crate) fn serve(&mut self, now: Instant) {
        let Some(connection) = &mut self.connection else { return };
        self.split.update(now, connection);
        while let Some(event) = connection.poll_event() {
            self.events.push(event);
        }
        while !self.unwritten.is_empty() {
            if connection.write(&mut self.unwritten).is_err() {
                break;
            }
        }
        if self.unwritten.is_empty() && self.finishes {
            connection.finish();
        }
        while self.reads {
            match self.split.read(connection) {
                Read::Bytes(bytes) => self.received.extend_from_slice(&bytes),
                Read::End => {
                    self.has_ended = true;
                    break;
                }
                Read::Blocked | Read::Closed(_) => break,
            }
        }
    }
}

/// Function that changes, drops or adds packets: `None` drops.
type Tamper = Box<dyn FnMut(usize, &IpPacket) -> Vec<IpPacket>>;

pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) hosts: [Host; 2],
    pub(crate) links: [Link<IpPacket>; 2],
    rng: Rng,
    pub(crate) tamper: Option<Tamper>,
    /// Share of plans that the device refuses; the next field counts them.
    pub(crate) refused: Ratio,
    pub(crate) refusals: u64,
    rng_of_refusals: Rng,
}

impl Pair {
    pub(crate) fn new(seed: u64, config: &LinkConfig) -> Self {
        Self::with(seed, [config.clone(), config.clone()], [TcpConfig::default(), TcpConfig::default()])
    }

    pub(crate) fn with(seed: u64, links: [LinkConfig; 2], configs: [TcpConfig; 2]) -> Self {
        let rng = Rng::from_seed(seed);
        let [one, other] = links;
        let links = [Link::new(one, rng.split("link 0")), Link::new(other, rng.split("link 1"))];
        let (rng_of_refusals, refused) = (rng.split("refusals"), Ratio::ZERO);
        let (now, hosts) = (Instant::ZERO, configs.map(Host::new));
        Self { now, hosts, links, rng, tamper: None, refused, refusals: 0, rng_of_refusals }
    }

    /// Opens the client; the server answers when the SYN arrives.
    pub(crate) fn open(&mut self) {
        let (initial, offset) = (Seq32::new(self.rng.next_u64() as u32), self.rng.next_u64() as u32);
        let tuple = Tuple { local: CLIENT, remote: SERVER };
        let config = Arc::clone(&self.hosts[0].config);
        self.hosts[0].connection = Some(Connection::connect(self.now, config, tuple, initial, offset));
    }

    /// Opens both sides at once.
    pub(crate) fn open_both(&mut self) {
        self.open();
        let (initial, offset) = (Seq32::new(self.rng.next_u64() as u32), self.rng.next_u64() as u32);
        let (tuple, config) = (Tuple { local: SERVER, remote: CLIENT }, Arc::clone(&self.hosts[1].config));
        self.hosts[1].connection = Some(Connection::connect(self.now, config, tuple, initial, offset));
    }

    /// Opens, and runs until both are connected.
    pub(crate) fn connect(&mut self) {
        self.open();
        let is_connected = self.run_until(Duration::from_secs(60), |pair| {
            pair.hosts.iter().all(|host| host.state() == Some(State::Established))
        });
        assert!(is_connected);
    }

    fn flush(&mut self, host: usize) {
        let (mut plan, mut packet) = (Plan::default(), SuperPacket::default());
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "a host sends without end");
            let Host { connection, split, .. } = &mut self.hosts[host];
            let Some(connection) = connection else { return };
            split.report(self.now, connection);
            if !connection.poll_plan(self.now, BATCH, &mut plan) {
                return;
            }
            split.command(connection);
            if let Some(transmission) = plan.transmission() {
                if self.rng_of_refusals.chance(self.refused) {
                    connection.handle_not_emitted(transmission);
                    self.refusals += 1;
                    continue;
                }
                connection.handle_emitted(self.now, transmission);
            }
            plan.seal(&mut packet);
            let mut packets = Vec::new();
            packet.packets(|packet| packets.push(IpPacket::new(packet.to_vec())));
            for packet in packets {
                let header = packet.header();
                self.hosts[host].note_sent(self.now, header.flags, &packet);
                let all = match &mut self.tamper {
                    Some(tamper) => tamper(host, &packet),
                    None => vec![packet],
                };
                all.into_iter().for_each(|packet| self.links[host].send(self.now, packet));
            }
        }
    }

    /// Resets a segment of a connection that has ended.
    fn answer_closed(&mut self, host: usize, arrival: &Arrival) {
        let (mut plan, mut packet) = (Plan::default(), SuperPacket::default());
        if tcp::reply::reset(arrival, &mut plan) {
            plan.seal(&mut packet);
            packet.packets(|packet| self.links[host].send(self.now, IpPacket::new(packet.to_vec())));
        }
    }

    fn receive(&mut self, index: usize, packet: &IpPacket) {
        let bytes = Bytes::copy_from_slice(&packet.bytes);
        // Corrupted packets are dropped here.
        let Ok(arrival) = Arrival::open(&bytes, None, false) else { return };
        let host = &mut self.hosts[index];
        match &mut host.connection {
            Some(connection) if connection.state() == State::Closed => self.answer_closed(index, &arrival),
            Some(connection) => host.split.handle_segment(self.now, connection, arrival),
            None if arrival.header.flags.contains(Flags::SYN) => {
                let (initial, offset) = (Seq32::new(self.rng.next_u64() as u32), self.rng.next_u64() as u32);
                let config = Arc::clone(&host.config);
                host.connection = Some(Connection::accept(self.now, config, &arrival, initial, offset));
            }
            None => {}
        }
    }

    /// Handles everything that is due now, and moves to the next event; returns false if there is
    /// none before `end`.
    fn step(&mut self, end: Instant) -> bool {
        for host in 0..2 {
            self.hosts[host].serve(self.now);
            self.flush(host);
            // Reading and sending may have caused further work.
            self.hosts[host].serve(self.now);
        }
        let of_hosts = self.hosts.iter().filter_map(|host| host.connection.as_ref()?.poll_timeout());
        let of_links = self.links.iter().filter_map(Link::poll_timeout);
        let Some(next) = of_hosts.chain(of_links).min() else { return false };
        if next > end {
            self.now = self.now.max(end);
            return false;
        }
        self.now = self.now.max(next);
        for (link, host) in [(0, 1), (1, 0)] {
            while let Some(packet) = self.links[link].poll_deliver(self.now) {
                self.receive(host, &packet);
            }
        }
        for host in &mut self.hosts {
            if let Some(connection) = &mut host.connection {
                host.split.report(self.now, connection);
                connection.handle_timeout(self.now);
            }
        }
        true
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.step(end) {}
        self.now = end;
    }

    /// Runs until `is_done`; returns false if that does not happen within `span`.
    pub(crate) fn run_until(&mut self, span: Duration, mut is_done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + span;
        for step in 0_u64.. {
            assert!(step < 100_000_000, "the pair makes no progress");
            // Arrived data are read now, not at the time of the next event.
            self.hosts.iter_mut().for_each(|host| host.serve(self.now));
            if is_done(self) {
                return true;
            }
            if !self.step(end) {
                return is_done(self);
            }
        }
        unreachable!()
    }

    /// Sends `len` bytes from host `from`, and waits until the other has them and they are
    /// acknowledged.
    pub(crate) fn transfer_part(&mut self, from: usize, len: usize) {
        let end = self.hosts[1 - from].received.len() + len;
        self.hosts[from].send(pattern(len, 9), false);
        let is_done = self.run_until(Duration::from_secs(60), |pair| {
            pair.hosts[1 - from].received.len() == end && pair.hosts[from].connection().buffered() == 0
        });
        assert!(is_done);
    }

    /// Sends `len` bytes and a FIN from host `from`; returns the time until the other has read
    /// them.
    pub(crate) fn transfer(&mut self, from: usize, len: usize, span: Duration) -> Duration {
        let (start, bytes) = (self.now, pattern(len, 9));
        self.hosts[from].send(bytes.clone(), true);
        let is_done = self.run_until(span, |pair| pair.hosts[1 - from].has_ended);
        let to = &self.hosts[1 - from];
        assert!(is_done, "{} of {len} bytes have arrived after {span}", to.received.len());
        assert!(to.received == bytes, "the bytes differ");
        self.now.saturating_since(start)
    }
}

/// Returns bytes that differ from place to place.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::from_seed(seed).fill(&mut bytes);
    bytes
}
