//! TCP/IP in this process: two stacks over a device in memory, and a stack against the kernel, which is
//! skipped without root.
#![expect(clippy::disallowed_methods, reason = "stands for programs of the kernel's stack")]

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use emulate::Namespace;
use journal::LogEnd;
use journal::memory::MemoryJournals;
use litz::Placement;
use litz::tcp::{
    CloseReason, Closed, IpDevice, Listen, MemoryTun, TcpConfig, TcpStack, TcpStackConfig, TcpStream, Tun,
};

use crate::listening::Listening;
use crate::world::pattern;

const PLACEMENTS: [Placement; 6] = [
    Placement::Inline,
    Placement::Thread,
    Placement::Split,
    Placement::Pipeline,
    Placement::Packet(2),
    Placement::Connection(2),
];

/// The kernel's addresses and the stack's, for each family.
pub(crate) const KERNEL: [IpAddr; 2] = [IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 1)), v6(1)];
pub(crate) const STACK: [IpAddr; 2] = [IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 2)), v6(2)];

const fn v6(last: u16) -> IpAddr {
    IpAddr::V6(std::net::Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last))
}

/// Sends `bytes` on one thread, and reads to the end on this one. Waits until the connection has ended:
/// inline, only its calls send the rest.
pub(crate) fn exchange(stream: &TcpStream, bytes: &[u8]) -> Vec<u8> {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            (&*stream).write_all(bytes).expect("the peer reads");
            stream.finish();
        });
        let mut received = Vec::new();
        (&*stream).read_to_end(&mut received).expect("the peer finishes");
        assert_eq!(stream.closed(), Closed::Tcp(CloseReason::Finished));
        received
    })
}

/// Exchanges data like [`exchange`], for a socket of the kernel.
pub(crate) fn exchange_with_kernel(stream: &std::net::TcpStream, bytes: &[u8]) -> Vec<u8> {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut stream = stream;
            stream.write_all(bytes).expect("the peer reads");
            stream.shutdown(std::net::Shutdown::Write).expect("connected");
        });
        let (mut received, mut stream) = (Vec::new(), stream);
        stream.read_to_end(&mut received).expect("the peer finishes");
        received
    })
}

/// Replays all journals, which must be complete, and hold as many plans as a transfer needs.
pub(crate) fn replay_all(journals: &MemoryJournals, bytes_min: u64) {
    let logs = journals.logs();
    assert_eq!(logs.len(), 2, "both sides are recorded");
    let mut planned = 0;
    for (side, log) in logs {
        let mut replay = tcp::Replay::begin(&log[..]).expect("the replay begins");
        while let Some(step) = replay.step().unwrap_or_else(|stopped| panic!("{side}: {stopped}")) {
            planned += step.planned().map_or(0, |(_, bytes)| bytes);
        }
        assert_eq!(replay.end(), Some(LogEnd::Complete), "{side}");
    }
    assert!(planned >= bytes_min, "{planned} bytes were planned");
}

/// Their journals show that a placement changes only the order and the times of inputs: replayed on one
/// thread, each connection makes the same plans.
#[test]
fn two_stacks_exchange_megabytes_under_every_placement() {
    for placement in PLACEMENTS {
        let journals = MemoryJournals::default();
        let pairs: Vec<_> = (0..placement.driver_count()).map(|_| MemoryTun::pair()).collect();
        let stack = |side: usize, ip: IpAddr| {
            let queues = pairs.iter().map(|pair| IpDevice::memory(pair[side].clone(), ip));
            let device = queues.reduce(IpDevice::with_queue).expect("a queue");
            let tcp = TcpConfig { journal: Some(journals.source()), ..TcpConfig::default() };
            let config = TcpStackConfig::new(device, &[ip]).with_tcp(tcp);
            Listening::start(config.with_placement(placement))
        };
        let (client, server) = (stack(0, KERNEL[0]), stack(1, STACK[0]));
        let (there, back) = (pattern(3 << 20, 1), pattern(2 << 20, 2));
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| {
                let stream = server.accept().expect("a client");
                assert_eq!(stream.peer_addr().ip(), KERNEL[0]);
                exchange(&stream, &back)
            });
            let stream = client.connect((STACK[0], 80).into()).expect("connected");
            assert!(exchange(&stream, &there) == back, "{placement}");
            assert!(serving.join().expect("served") == there, "{placement}");
        });
        for stats in [&client, &server].into_iter().filter_map(|stack| stack.receive_worker_stats()) {
            assert!(stats.detached > 0 && stats.batches > 10 && stats.lost == 0, "{stats:?}");
        }
        [client, server].iter().for_each(|stack| stack.close());
        replay_all(&journals, 5 << 20);
    }
}

/// Runs `test` with a stack on a device in a namespace of its own.
pub(crate) fn beside_kernel(placement: Placement, test: impl FnOnce(Listening) + Send + 'static) {
    let configure = move |config: TcpStackConfig| config.with_placement(placement);
    beside_kernel_over(placement.driver_count(), configure, Listen::default(), test);
}

/// Runs `test` like [`beside_kernel`], with a listening port of the test.
pub(crate) fn beside_kernel_with(bounds: Listen, test: impl FnOnce(Listening) + Send + 'static) {
    beside_kernel_over(1, |config| config, bounds, test);
}

/// Runs `test` like [`beside_kernel_with`], over a device with this many queues.
fn beside_kernel_over(
    queues: usize,
    configure: impl FnOnce(TcpStackConfig) -> TcpStackConfig + Send + 'static,
    bounds: Listen,
    test: impl FnOnce(Listening) + Send + 'static,
) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let namespace = Namespace::create(&format!("litz-tcp-{}-{number}", std::process::id())).expect("a namespace");
    let inside = move || {
        let networks = [(KERNEL[0], 24), (KERNEL[1], 64)];
        let tuns = match queues {
            1 => vec![Tun::open_up("tcp0", &networks, 1500).expect("a device")],
            queues => Tun::open_queues("tcp0", &networks, 1500, queues).expect("a device with queues"),
        };
        let queues = tuns.into_iter().map(|tun| IpDevice::kernel(tun, STACK[0]));
        let device = queues.reduce(IpDevice::with_queue).expect("a queue");
        let config = TcpStackConfig::new(device, &STACK);
        test(Listening::start_with(configure(config), 80, bounds));
    };
    namespace.run(inside).expect("a thread").join().expect("the test passes").expect("the namespace exists");
}

/// Megabytes in both directions, with a program of the kernel's stack as server and as client, over
/// each family.
pub(crate) fn exchange_in_either_role(stack: &Listening, case: &str) {
    let (ours, theirs) = (pattern(5 << 20, 1), pattern(4 << 20, 2));
    for family in 0..2 {
        let listener = TcpListener::bind((KERNEL[family], 0)).expect("an address of this namespace");
        let address = listener.local_addr().expect("bound");
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| exchange_with_kernel(&listener.accept().expect("a client").0, &theirs));
            let stream = stack.connect(address).expect("connected");
            assert!(exchange(&stream, &ours) == theirs, "{case}");
            assert!(serving.join().expect("served") == ours, "{case}");

            let serving = scope.spawn(|| exchange(&stack.accept().expect("a client"), &ours));
            let stream = std::net::TcpStream::connect((STACK[family], 80)).expect("connected");
            assert!(exchange_with_kernel(&stream, &theirs) == ours, "{case}");
            assert!(serving.join().expect("served") == theirs, "{case}");
        });
    }
}

#[test]
fn the_kernel_and_the_stack_exchange_megabytes_in_either_role() {
    for placement in PLACEMENTS {
        beside_kernel(placement, move |stack| {
            exchange_in_either_role(&stack, &placement.to_string());
        });
    }
}

#[test]
fn refused_and_reset_connections_are_told_to_both_sides() {
    beside_kernel(Placement::Thread, |stack| {
        for family in 0..2 {
            let free = TcpListener::bind((KERNEL[family], 0)).expect("bound").local_addr().expect("bound");
            assert_eq!(stack.connect(free).err(), Some(Closed::Tcp(CloseReason::Refused)));
            let refused = std::net::TcpStream::connect((STACK[family], 81)).expect_err("the port is closed");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            // A datagram for a port without a program.
            let socket = UdpSocket::bind((KERNEL[family], 0)).expect("bound");
            socket.connect((STACK[family], 9)).expect("a route");
            socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
            socket.send(b"anyone?").expect("sent");
            let refused = socket.recv(&mut [0; 10]).expect_err("the port is closed");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);

            let mut client = std::net::TcpStream::connect((STACK[family], 80)).expect("connected");
            let stream = stack.accept().expect("a client");
            stream.reset();
            assert_eq!(client.read(&mut [0; 10]).expect_err("reset").kind(), ErrorKind::ConnectionReset);
            assert_eq!(stream.closed(), Closed::Tcp(CloseReason::Aborted));
            // The kernel resets a connection that is closed with unread data.
            let listener = TcpListener::bind((KERNEL[family], 0)).expect("bound");
            let stream = stack.connect(listener.local_addr().expect("bound")).expect("connected");
            stream.write_chunk(Bytes::from_static(b"unread")).expect("sent");
            let (server, _) = listener.accept().expect("a client");
            server.peek(&mut [0; 6]).expect("it has arrived");
            drop(server);
            assert_eq!(stream.closed(), Closed::Tcp(CloseReason::Reset));
        }
    });
}

#[test]
fn many_connections_are_opened_and_closed() {
    beside_kernel(Placement::Thread, |stack| {
        const CONNECTIONS: usize = 1000;
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| {
                for _ in 0..CONNECTIONS {
                    let stream = stack.accept().expect("a client");
                    let mut request = Vec::new();
                    (&stream).read_to_end(&mut request).expect("a request");
                    (&stream).write_all(&request).expect("an answer");
                }
            });
            for number in 0..CONNECTIONS {
                let mut stream = std::net::TcpStream::connect(SocketAddr::from((STACK[0], 80))).expect("connected");
                let request = format!("request {number}");
                stream.write_all(request.as_bytes()).expect("sent");
                stream.shutdown(std::net::Shutdown::Write).expect("connected");
                let mut answer = String::new();
                stream.read_to_string(&mut answer).expect("an answer");
                assert_eq!(answer, request);
            }
            serving.join().expect("served");
        });
    });
}

#[test]
fn the_drivers_of_a_stack_share_its_connections() {
    const CONNECTIONS: usize = 24;
    beside_kernel(Placement::Connection(3), |stack| {
        let listener = TcpListener::bind((KERNEL[0], 0)).expect("an address of this namespace");
        let address = listener.local_addr().expect("bound");
        // All are open at once, opened by both sides.
        let ours: Vec<TcpStream> = (0..CONNECTIONS).map(|_| stack.connect(address).expect("connected")).collect();
        let theirs: Vec<_> = (0..CONNECTIONS).map(|_| listener.accept().expect("a client").0).collect();
        let open = |_| std::net::TcpStream::connect((STACK[0], 80)).expect("connected");
        let outside: Vec<_> = (0..CONNECTIONS).map(open).collect();
        let inside: Vec<TcpStream> = (0..CONNECTIONS).map(|_| stack.accept().expect("a client")).collect();
        let pairs = ours.iter().zip(&theirs).chain(inside.iter().zip(&outside));
        for (mut stream, _) in pairs.clone() {
            stream.write_all(stream.peer_addr().to_string().as_bytes()).expect("sent");
            stream.finish();
        }
        for mut kernel in theirs.iter().chain(&outside) {
            let (mut text, local) = (String::new(), kernel.local_addr().expect("bound"));
            kernel.read_to_string(&mut text).expect("an address");
            assert_eq!(text, local.to_string());
        }
        assert_eq!(stack.connection_count(), 2 * CONNECTIONS);
    });
}

#[test]
fn several_drivers_need_as_many_queues() {
    let [tun, _other] = MemoryTun::pair();
    let config = TcpStackConfig::new(IpDevice::memory(tun, STACK[0]), &[STACK[0]]);
    let error = TcpStack::start(config.with_placement(Placement::Connection(2))).err().expect("one queue");
    assert!(error.to_string().contains("2 queues"), "{error}");
}

#[test]
fn what_was_written_before_a_stream_is_dropped_arrives() {
    let [one, other] = MemoryTun::pair();
    let stack = |tun, ip: IpAddr| {
        let tcp = TcpConfig { buffers_initial: usize::MAX, ..TcpConfig::default() };
        let config = TcpStackConfig::new(IpDevice::memory(tun, ip), &[ip]);
        Listening::start(config.with_tcp(tcp))
    };
    let (client, server) = (stack(one, KERNEL[0]), stack(other, STACK[0]));
    // Both sides together hold 10 MiB: buffers of 4 MiB and queues of 1 MiB. Therefore half a
    // mebibyte waits in the queue of the sender until something is read.
    let bytes = pattern(19 << 19, 1);
    let sending = client.connect((STACK[0], 80).into()).expect("connected");
    (&sending).write_all(&bytes).expect("there is space");
    drop(sending);
    let mut received = Vec::new();
    (&server.accept().expect("a client")).read_to_end(&mut received).expect("the end");
    assert!(received == bytes, "{} of {} bytes", received.len(), bytes.len());
}

#[test]
fn dropping_a_stream_with_unread_data_resets_it() {
    beside_kernel(Placement::Thread, |stack| {
        for read in [0, 10] {
            let mut client = std::net::TcpStream::connect((STACK[0], 80)).expect("connected");
            client.write_all(&[7; 100]).expect("sent");
            let stream = stack.accept().expect("a client");
            // A chunk has arrived, of which a part is read.
            let mut part = [0; 10];
            (&stream).read_exact(&mut part[..read]).expect("data");
            client.write_all(&[8; 100]).expect("sent");
            drop(stream);
            let error = client.read(&mut [0; 10]).expect_err("a reset");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    });
}
