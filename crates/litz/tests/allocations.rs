//! Bulk data in steady state: memory is allocated per batch at most, never per packet.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use litz::identity::{self, KeyPair};
use litz::{Endpoint, EndpointConfig, Placement, TransportConfig};
use net::testing::{Intercept, InterceptedSocket};
use net::{DatagramSocket, RecvMeta, UdpSocket, UdpSocketOptions};

/// The system's allocator, with a count of calls.
struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged; the counter does not touch the
// memory that it returns.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same one.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above with this layout, so from the system's
        // allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Batches that the sockets of both sides have received.
static BATCHES: AtomicU64 = AtomicU64::new(0);

struct CountBatches;

impl Intercept for CountBatches {
    fn recv(
        &mut self,
        inner: &mut dyn DatagramSocket,
        buffers: &mut [&mut [u8]],
        metas: &mut [RecvMeta],
    ) -> io::Result<usize> {
        inner.recv(buffers, metas).inspect(|count| {
            BATCHES.fetch_add(*count as u64, Ordering::Relaxed);
        })
    }
}

/// Returns an endpoint whose socket counts batches.
fn endpoint(config: EndpointConfig) -> Endpoint {
    let socket = UdpSocket::open(&UdpSocketOptions::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))).unwrap();
    Endpoint::with_sockets(config, vec![Box::new(InterceptedSocket::new(socket, CountBatches))]).unwrap()
}

const WARM_UP_BYTES: usize = 64 << 20;
const MEASURED_BYTES: usize = 256 << 20;
const CHUNK_LEN: usize = 64 << 10;

fn config() -> EndpointConfig {
    EndpointConfig::loopback()
        .with_placement(Placement::Inline)
        // Windows that need not grow, because this measures the steady state.
        .with_transport(TransportConfig::default().with_stream_window(32 << 20).with_connection_window(64 << 20))
}

#[test]
fn packets_cost_no_allocation() {
    let key = KeyPair::generate().unwrap();
    let tls = identity::client_config(&KeyPair::generate().unwrap(), &[key.public().fingerprint()], ["test/1"])
        .unwrap()
        .config;
    let server_tls = identity::server_config(&key, ["test/1"]).unwrap();
    let server = endpoint(config().with_server_tls(server_tls));
    let client = endpoint(config());
    let address = server.local_addr();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let connection = server.accept().unwrap();
            let mut stream = connection.accept_uni().unwrap();
            let counts = || {
                let packets = connection.stats().receive.packets_received;
                [CALLS.load(Ordering::Relaxed), BATCHES.load(Ordering::Relaxed), packets]
            };
            let (mut read, mut first) = (0, [0; 3]);
            while let Some(bytes) = stream.read_strided().unwrap() {
                let before = read;
                read += bytes.len();
                if before < WARM_UP_BYTES && read >= WARM_UP_BYTES {
                    first = counts();
                }
            }
            assert_eq!(read, WARM_UP_BYTES + MEASURED_BYTES);
            let counted = std::array::from_fn(|index| counts()[index] - first[index]);
            connection.closed();
            counted
        });
        let connection = client.connect(address, "host", tls).unwrap();
        let mut stream = connection.open_uni().unwrap();
        let chunk = Bytes::from(vec![7; CHUNK_LEN]);
        for _ in 0..(WARM_UP_BYTES + MEASURED_BYTES) / CHUNK_LEN {
            stream.write_chunk(chunk.clone()).unwrap();
        }
        stream.finish().unwrap();
        stream.wait_finished().unwrap();
        connection.close(0, "done");
        let [calls, batches, packets] = receiver.join().unwrap();
        assert!(packets > 100_000, "{packets}");
        // A batch may cost a few: the handle of its buffer, and the wake-ups of the application's
        // threads. On a quiet machine a batch has some fifty packets, on a busy one fewer.
        assert!(calls <= 4 * batches, "{calls} allocations for {batches} batches");
    });
}
