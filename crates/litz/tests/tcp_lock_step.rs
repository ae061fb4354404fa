//! Two TCP stacks in lock-step over a model link: the same packets at the same times under all
//! placements of both; and the same again from their journals.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use driver::Flush;
use engine::{DriverSettings, Drivers, ManualClock, SteppedDrivers};
use journal::memory::MemoryJournals;
use litz::Placement;
use litz::tcp::{IpDevice, MemoryTun, TcpConfig};
use netem::{Link, LinkConfig};
use tcp::HostSecret;
use tcp_driver::{
    Connect, Limits, Listen, ListenerHandle, ListeningPorts, LocalAddress, Runtime, StreamHandle, Tcp, TcpShared,
};
use units::{Duration, Instant, Rate, Ratio, Rng};

use crate::tcp_stack::replay_all;
use crate::world::pattern;

const ADDRESSES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2))];
const PORT: u16 = 80;

/// Bytes in each direction.
const LEN: usize = 4 << 20;

/// Maximum number of moments of a run.
const MOMENTS_MAX: u32 = 1_000_000;

#[derive(Clone)]
struct Steps(Drivers<IpDevice>);

impl Runtime for Steps {
    fn kick(&self, shared: &TcpShared, flush: Flush) {
        self.0.kick(shared, flush);
    }

    fn block_on<T>(&self, _deadline: Option<Instant>, _poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        unreachable!("in lock-step nothing blocks")
    }
}

/// A stack, and its application: it writes everything, finishes, and reads to the end.
struct Host {
    tun: MemoryTun,
    drivers: Drivers<IpDevice>,
    listener: ListenerHandle<Steps>,
    stepped: SteppedDrivers<IpDevice>,
    stream: Option<StreamHandle<Steps>>,
    unwritten: Bytes,
    received: Vec<u8>,
    has_ended: bool,
}

impl Host {
    fn new(index: usize, placement: Placement, clock: &ManualClock, journals: &MemoryJournals) -> Self {
        let (tun, ip) = (MemoryTun::new(), ADDRESSES[index]);
        let device = IpDevice::memory(tun.clone(), ip);
        let config = TcpConfig { receive_buffer: 600_000, journal: Some(journals.source()), ..TcpConfig::default() };
        let addresses = vec![LocalAddress { ip, device: 0 }];
        let ports = Arc::<ListeningPorts>::default();
        let stack = Tcp::new(config, HostSecret::new([index as u8; 32]), addresses).with_listening(Arc::clone(&ports));
        let settings = DriverSettings { placement, ..DriverSettings::default() };
        let limits = Limits { outbox_bytes_max: 300_000, inbox_bytes_max: 200_000 };
        let (drivers, stepped) =
            Drivers::start_stepped(settings, limits, vec![device], clock.clone(), |_, _| Ok(vec![stack]))
                .expect("the drivers start");
        let listener =
            ListenerHandle::listen(&Steps(drivers.clone()), drivers.shared(0), &ports, PORT, Listen::default())
                .expect("the port is free");
        let unwritten = pattern(LEN, index as u64).into();
        Self { tun, drivers, listener, stepped, stream: None, unwritten, received: Vec::new(), has_ended: false }
    }

    /// Runs the processors until none has anything to do at this moment.
    fn settle(&mut self, clock: &ManualClock) {
        for turn in 0.. {
            assert!(turn < 10_000, "the processors never rest");
            let is_due = |processor: &usize| self.stepped.due_at_of(*processor).is_some_and(|due| due <= clock.now());
            let Some(processor) = (0..self.stepped.processor_count()).find(is_due) else { return };
            self.stepped.turn_of(processor);
        }
    }

    /// Takes the application's next step: one piece at a time, as a turn follows each. Returns
    /// false if it waits.
    fn step(&mut self) -> bool {
        if self.stream.is_none() {
            let Poll::Ready(Some(stream)) = self.listener.poll_accept(Waker::noop()) else {
                return false;
            };
            self.stream = Some(stream);
        }
        let Some(stream) = &self.stream else { return false };
        if let Poll::Ready(read) = stream.poll_read(usize::MAX, Waker::noop())
            && !self.has_ended
        {
            match read.expect("the peer finishes") {
                Some(bytes) => self.received.extend_from_slice(&bytes),
                None => self.has_ended = true,
            }
            return true;
        }
        if self.unwritten.is_empty() || stream.poll_connected(Waker::noop()).is_pending() {
            return false;
        }
        let is_written = stream.poll_write(&mut self.unwritten, Waker::noop()).is_ready();
        if is_written && self.unwritten.is_empty() {
            stream.finish();
        }
        is_written
    }
}

/// Everything that both stacks have sent, with its time.
struct World {
    clock: ManualClock,
    hosts: [Host; 2],
    links: [Link<Vec<u8>>; 2],
    wire: [blake3::Hasher; 2],
    packets: usize,
    journals: MemoryJournals,
}

impl World {
    fn new(placements: [Placement; 2], seed: u64) -> Self {
        let clock = ManualClock::new();
        clock.set(Instant::ZERO + Duration::from_secs(1));
        let (rate, delay) = (Rate::from_mbps(200), Duration::from_millis(3));
        let link = LinkConfig {
            rate: Some(rate),
            delay,
            loss: Ratio::new(1, 40),
            queue_bytes: 1 << 20,
            ..LinkConfig::default()
        };
        let rng = Rng::from_seed(seed);
        let links = ["there", "back"].map(|name| Link::new(link.clone(), rng.split(name)));
        let [one, other] = placements;
        let journals = MemoryJournals::default();
        let hosts = [Host::new(0, one, &clock, &journals), Host::new(1, other, &clock, &journals)];
        Self { clock, hosts, links, wire: [blake3::Hasher::new(), blake3::Hasher::new()], packets: 0, journals }
    }

    /// Runs a host until it rests, its application too, and sends what it has written.
    fn settle(&mut self, host: usize) {
        loop {
            self.hosts[host].settle(&self.clock);
            while let Some(packet) = self.hosts[host].tun.take_written() {
                let now = self.clock.now();
                self.wire[host].update(&now.as_nanos().to_be_bytes()).update(&packet);
                self.packets += 1;
                self.links[host].send(now, packet);
            }
            if !self.hosts[host].step() {
                return;
            }
        }
    }

    fn run(mut self) -> ([String; 2], usize) {
        let (runtime, client) = (Steps(self.hosts[0].drivers.clone()), &mut self.hosts[0]);
        let remote = (ADDRESSES[1], PORT).into();
        let stream = StreamHandle::connect(&runtime, client.drivers.shared(0), remote, Connect::default(), 0);
        client.stream = Some(stream.expect("the stack is open"));
        for moment in 0.. {
            assert!(moment < MOMENTS_MAX, "the hosts make no progress");
            (0..2).for_each(|host| self.settle(host));
            if self.hosts.iter().all(|host| host.has_ended && host.unwritten.is_empty()) {
                break;
            }
            let of_links = self.links.iter().filter_map(Link::poll_timeout);
            let next = of_links.chain(self.hosts.iter().filter_map(|host| host.stepped.due_at())).min();
            self.clock.set(next.expect("something follows").max(self.clock.now()));
            for (link, host) in [(0, 1), (1, 0)] {
                while let Some(packet) = self.links[link].poll_deliver(self.clock.now()) {
                    self.hosts[host].tun.inject(packet);
                    self.settle(host);
                }
            }
        }
        for (host, peer) in [(0, 1), (1, 0)] {
            assert!(self.hosts[host].received == pattern(LEN, peer), "host {host}");
            let worker = self.hosts[host].drivers.receive_worker_stats();
            assert!(worker.is_none_or(|worker| worker.detached > 0 && worker.batches > 20), "{worker:?}");
        }
        assert!(self.links.iter().all(|link| link.stats().lost > 0), "nothing was lost");
        drop(self.hosts);
        replay_all(&self.journals, 2 * LEN as u64);
        (self.wire.map(|hasher| hasher.finalize().to_hex().to_string()), self.packets)
    }
}

#[test]
fn placements_change_no_packet_of_tcp() {
    let inline = World::new([Placement::Inline; 2], 5).run();
    assert!(inline.1 > 300, "{} packets", inline.1);
    for placement in
        [Placement::Thread, Placement::Split, Placement::Pipeline, Placement::Packet(2), Placement::Packet(3)]
    {
        for placements in [[placement, Placement::Inline], [Placement::Inline, placement], [placement; 2]] {
            assert_eq!(World::new(placements, 5).run(), inline, "{placements:?}");
        }
    }
    assert_ne!(World::new([Placement::Inline; 2], 6).run().0, inline.0, "another seed, other losses");
}
