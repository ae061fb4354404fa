//! A second protocol on the threads of the engine: the toy protocol with which the crate `driver`
//! is tested, over devices in memory that carry its segments.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use driver::socket::Received;
use driver::sync::lock;
use driver::{RECV_BATCHES_MAX, SendError};
use engine::{Device, DriverSettings, Drivers, Placement, Readiness};
use units::Duration;

use self::app::{End, ToyCell};
use self::packets::Segments;
use self::protocol::Toy;
use self::transfer::{Transfer, connection_number};
use self::wire::segments;

// The modules refer to each other from the root of their crate.
#[path = "../../driver/tests/toy/app.rs"]
#[expect(dead_code, reason = "the tests of the driver use more of it")]
mod app;
#[path = "../../driver/tests/toy/connection.rs"]
mod connection;
#[path = "../../driver/tests/toy/detached.rs"]
mod detached;
#[path = "../../driver/tests/toy/packets.rs"]
mod packets;
#[path = "../../driver/tests/toy/protocol.rs"]
mod protocol;
#[path = "../../driver/tests/toy/recv.rs"]
mod recv;
#[path = "../../driver/tests/toy/send.rs"]
mod send;
#[path = "../../driver/tests/toy/transfer.rs"]
#[expect(dead_code, reason = "the tests of the driver use more of it")]
mod transfer;
#[path = "../../driver/tests/toy/wire.rs"]
mod wire;

const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 7);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// Number of connections, and of bytes that each carries in both directions.
const CONNECTIONS: usize = 4;
const LEN: u64 = 2 << 20;

/// Limit of the segments of a queue. A sender that finds no space tries again.
const QUEUE_MAX: usize = 256;

/// Limits of a batch.
const BATCH_BYTES_MAX: usize = 16 << 10;
const PLAN_SEGMENTS_MAX: usize = 16;

/// Time limit of a test; a longer one hangs.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Segments on the way to one handle of a device.
#[derive(Default)]
struct Queue {
    segments: VecDeque<Vec<u8>>,
    receiver: Option<Waker>,
}

type Queues = Arc<[Mutex<Queue>]>;

/// A handle of a device in memory, as of a network device with several queues: each receives the
/// segments of some of the peer's ports.
#[derive(Clone)]
struct MemoryDevice {
    local: Ipv4Addr,
    index: usize,
    own: Queues,
    peer: Queues,
    /// Whether the next receive call panics, and with it the thread that makes it.
    fault: Arc<AtomicBool>,
}

impl MemoryDevice {
    /// Returns the handles of two connected hosts, `counts` of them.
    fn pair(counts: [usize; 2]) -> [Vec<Self>; 2] {
        let queues = counts.map(|count| (0..count).map(|_| Mutex::default()).collect::<Queues>());
        [(CLIENT, 0), (*SERVER.ip(), 1)].map(|(local, host)| {
            let handle = |index| {
                let (own, peer) = (Arc::clone(&queues[host]), Arc::clone(&queues[1 - host]));
                Self { local, index, own, peer, fault: Arc::default() }
            };
            (0..counts[host]).map(handle).collect()
        })
    }
}

impl Device for MemoryDevice {
    type Protocol = Toy;
    type Buffers = ();

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok((self.local, 0).into())
    }

    fn share(self) -> io::Result<[Self; 2]> {
        Ok([Self { fault: Arc::default(), ..self.clone() }, self])
    }

    fn readiness(&mut self, waker: &Waker) -> Readiness {
        lock(&self.own[self.index]).receiver = Some(waker.clone());
        Readiness::Waker
    }

    fn receive(&mut self, (): &mut (), batches: &mut Vec<Segments>) -> Received {
        assert!(!self.fault.load(Ordering::SeqCst), "requested by the test");
        let waiting = &mut lock(&self.own[self.index]).segments;
        for _ in 0..RECV_BATCHES_MAX {
            let mut bytes = Vec::new();
            while bytes.len() < BATCH_BYTES_MAX
                && let Some(segment) = waiting.pop_front()
            {
                bytes.extend_from_slice(&segment);
            }
            if bytes.is_empty() {
                return Received::NoMore;
            }
            batches.push(Segments { bytes });
        }
        Received::MayHaveMore
    }

    fn send(&mut self, packets: &Vec<u8>) -> Result<(), SendError> {
        // All segments of a plan belong to one connection.
        let Some((_, first)) = segments(packets).next() else { return Ok(()) };
        let port = first.source.port().max(first.destination.port());
        let waker = {
            let mut queue = lock(&self.peer[usize::from(port) % self.peer.len()]);
            if queue.segments.len() >= QUEUE_MAX {
                return Err(SendError::WouldBlock);
            }
            let bytes = segments(packets).map(|(at, header)| packets[at..at + header.segment_len()].to_vec());
            queue.segments.extend(bytes);
            queue.receiver.clone()
        };
        waker.iter().for_each(Waker::wake_by_ref);
        Ok(())
    }

    fn batch_max(&self) -> usize {
        PLAN_SEGMENTS_MAX
    }

    fn size_of(packets: &Vec<u8>) -> (usize, usize) {
        (segments(packets).count(), packets.len())
    }
}

fn start(placement: Placement, devices: Vec<MemoryDevice>) -> Drivers<MemoryDevice> {
    let settings = DriverSettings { placement, measure: true, ..DriverSettings::default() };
    let local = devices[0].local;
    Drivers::start(settings, (), devices, |count, _| {
        let toy = |_| Toy::new(local, 0x5eed, (local == *SERVER.ip()).then_some(SERVER.port()));
        Ok((0..count).map(toy).collect())
    })
    .expect("the system has threads")
}

/// Steps transfers until all have ended, and accepts connections while there are too few. Then
/// waits until the connections are gone.
fn run(drivers: &Drivers<MemoryDevice>, mut transfers: Vec<Transfer>) {
    let (deadline, mut ends) = (drivers.now() + TIMEOUT, Vec::new());
    let step = |waker: &Waker| {
        while transfers.len() + ends.len() < CONNECTIONS
            && let Some(cell) = ToyCell::accept(drivers.shared(0), waker)
        {
            let number = connection_number(&cell);
            transfers.push(Transfer::new(cell, false, number, LEN));
        }
        transfers.retain_mut(|transfer| {
            let is_over = transfer.step(waker);
            ends.extend(transfer.end().filter(|_| is_over).cloned());
            !is_over
        });
        if ends.len() == CONNECTIONS { Poll::Ready(()) } else { Poll::Pending }
    };
    drivers.block_on(Some(deadline), step).expect("all connections end");
    assert_eq!(ends, vec![End::Finished; CONNECTIONS]);
    drivers.block_on(Some(deadline), |waker| drivers.poll_idle(waker)).expect("no connection remains");
}

/// Runs transfers in both directions: the client's transfers from number `first`.
fn exchange(first: usize, client: &Drivers<MemoryDevice>, server: &Drivers<MemoryDevice>) {
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| run(server, Vec::new()));
        let connect = |number: usize| {
            let cell = client.begin(None, |shared| ToyCell::connect(shared, SERVER)).expect("the endpoint is open");
            Transfer::new(cell, true, number as u64, LEN)
        };
        run(client, (first..first + CONNECTIONS).map(connect).collect());
        serving.join().expect("the server has served all");
    });
}

/// Runs transfers in both directions. Returns the drivers of the server, which have stopped.
fn transfer(placements: [Placement; 2]) -> Drivers<MemoryDevice> {
    let [of_client, of_server] = MemoryDevice::pair(placements.map(|placement| placement.driver_count()));
    let (client, server) = (start(placements[0], of_client), start(placements[1], of_server));
    assert_eq!((client.placement(), server.placement()), (placements[0], placements[1]));
    exchange(0, &client, &server);
    client.stop();
    server.stop();
    let sent = server.costs().expect("it measures").sent;
    // The sockets of workers are not metered.
    assert!(sent.bytes > LEN * CONNECTIONS as u64 || placements[1] == Placement::Pipeline, "{sent:?}");
    server
}

#[test]
fn transfers_of_another_protocol_end_well_under_each_placement() {
    for placement in [Placement::Inline, Placement::Thread] {
        transfer([placement; 2]);
    }
    // A client has one driver, because the drivers of the toy protocol choose the same ports.
    let drivers = transfer([Placement::Thread, Placement::Connection(2)]);
    assert_eq!(drivers.count(), 2);
}

#[test]
fn workers_take_part_of_the_work_of_another_protocol() {
    let stats = transfer([Placement::Split; 2]).receive_worker_stats().expect("it has a receive worker");
    assert!(stats.detached > 0 && stats.lost == 0, "{stats:?}");
    let stats = transfer([Placement::Packet(2); 2]).worker_pool_stats().expect("it has a crypto worker");
    assert!(stats.workers[0].batches > 0 && stats.workers_gone == 0, "{stats:?}");
}

#[test]
fn four_processors_in_a_pipeline_each_do_a_part_of_the_work() {
    let drivers = transfer([Placement::Pipeline; 2]);
    let halves = drivers.receive_worker_stats().expect("it has a receive worker");
    assert!(halves.detached > 0 && halves.lost == 0, "{halves:?}");
    let stats = drivers.worker_pool_stats().expect("it has a sender and an intake");
    assert_eq!(stats.workers.len(), 2);
    assert!(stats.workers.iter().all(|worker| worker.batches > 100 && !worker.busy.is_zero()), "{stats:?}");
}

#[test]
fn the_sender_of_a_pipeline_receives_if_its_intake_ends() {
    let [of_client, of_server] = MemoryDevice::pair([1; 2]);
    let fault = Arc::clone(&of_server[0].fault);
    let (client, server) = (start(Placement::Thread, of_client), start(Placement::Pipeline, of_server));
    exchange(0, &client, &server);
    let before = server.worker_pool_stats().expect("it has workers").workers;
    fault.store(true, Ordering::SeqCst);
    exchange(CONNECTIONS, &client, &server);
    let after = server.worker_pool_stats().expect("it has workers").workers;
    assert_eq!(before[1].batches, after[1].batches, "the intake receives nothing more");
    assert!(after[0].batches > before[0].batches);
    client.stop();
    server.stop();
}
