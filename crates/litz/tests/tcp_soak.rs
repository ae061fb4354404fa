//! Long runs of our TCP against the kernel's, and with many connections, at the round trips of one
//! host: microseconds. The seed determines random sizes and ends. Skipped without root.
#![expect(clippy::disallowed_methods, reason = "stands for programs of the kernel's stack")]

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use emulate::Namespace;
use litz::tcp::{IpDevice, Listen, TcpConfig, TcpStackConfig, Tun};
use net::MonotonicClock;
use units::Rng;

use crate::listening::Listening;
use crate::world::pattern;

const KERNEL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 78, 0, 1));
const STACK: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 78, 0, 2));
const PORT: u16 = 80;

/// The threads that open connections in each direction, and those that accept.
const THREADS: usize = 2;

/// Duration of the soak in seconds in the long tests; other tests run a share of it.
const SOAK_SECONDS: u64 = 600;

/// The largest transfer of one direction.
const LEN_MAX: usize = 4 << 20;

/// Time limit of a connection; one that does not end within it hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Common interface of the streams of both stacks.
trait Stream: Sync {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;
    fn write(&self, bytes: &[u8]) -> io::Result<()>;
    fn finish(&self);
}

impl Stream for litz::tcp::TcpStream {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut stream = self;
        Read::read(&mut stream, buffer)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stream = self;
        stream.write_all(bytes)
    }

    fn finish(&self) {
        self.finish();
    }
}

impl Stream for std::net::TcpStream {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut stream = self;
        Read::read(&mut stream, buffer)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stream = self;
        stream.write_all(bytes)
    }

    fn finish(&self) {
        // The connection may have been reset.
        let _reset = self.shutdown(Shutdown::Write);
    }
}

/// The way in which the opener ends its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// After both directions.
    InOrder,
    /// Without reading the rest: the other side is reset.
    Abandoned,
    /// In order, and no more connections come to this acceptor.
    Last,
}

/// The course of a connection. The opener announces it first.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    up: usize,
    down: usize,
    end: End,
}

const HEADER_LEN: usize = 12;

impl Exchange {
    fn random(rng: &mut Rng, len_max: usize) -> Self {
        // Small and large ones are equally frequent.
        let [up, down] = [(); 2].map(|()| {
            let magnitude = rng.below(22);
            rng.below(1 + (len_max as u64 >> magnitude)) as usize
        });
        Self { up, down, end: if rng.below(8) == 0 { End::Abandoned } else { End::InOrder } }
    }

    fn header(self) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[..4].copy_from_slice(&(self.up as u32).to_be_bytes());
        header[4..8].copy_from_slice(&(self.down as u32).to_be_bytes());
        header[8] = self.end as u8;
        header
    }

    fn parse(header: [u8; HEADER_LEN]) -> Self {
        let len = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes")) as usize;
        let end = [End::InOrder, End::Abandoned, End::Last][usize::from(header[8])];
        Self { up: len(0), down: len(4), end }
    }
}

/// Reads `len` bytes, which must equal those of `data`; returns an error if they end before.
fn expect_bytes(stream: &dyn Stream, data: &[u8], len: usize) -> io::Result<()> {
    let (mut memory, mut at) = (vec![0; 64 << 10], 0);
    while at < len {
        let wanted = memory.len().min(len - at);
        let count = stream.read(&mut memory[..wanted])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        assert!(memory[..count] == data[at..at + count], "the bytes from {at} on are wrong");
        at += count;
    }
    Ok(())
}

/// Runs one connection as its opener.
fn open(stream: &dyn Stream, exchange: Exchange, data: &[u8]) -> io::Result<()> {
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let result = stream.write(&exchange.header()).and_then(|()| stream.write(&data[..exchange.up]));
            stream.finish();
            result
        });
        if exchange.end == End::Abandoned {
            // The other side may have been faster. The writer ends by itself.
            let read = expect_bytes(stream, data, exchange.down / 2);
            return writing.join().expect("no panic").and(read);
        }
        let read = expect_bytes(stream, data, exchange.down);
        writing.join().expect("no panic")?;
        read?;
        assert_eq!(stream.read(&mut [0; 1])?, 0, "nothing follows the end");
        Ok(())
    })
}

/// Runs one connection as its acceptor. Returns false after the last one.
fn serve(stream: &dyn Stream, data: &[u8]) -> bool {
    let mut header = [0; HEADER_LEN];
    let mut at = 0;
    while at < HEADER_LEN {
        at += match stream.read(&mut header[at..]) {
            Ok(count) if count > 0 => count,
            other => panic!("no header: {other:?}"),
        };
    }
    let exchange = Exchange::parse(header);
    let result = thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let result = stream.write(&data[..exchange.down]);
            stream.finish();
            result
        });
        let read = expect_bytes(stream, data, exchange.up)
            .and_then(|()| stream.read(&mut [0; 1]))
            .map(|count| assert_eq!(count, 0, "nothing follows the end"));
        writing.join().expect("no panic").and(read)
    });
    if exchange.end != End::Abandoned {
        result.unwrap_or_else(|error| panic!("{exchange:?}: {error}"));
    }
    exchange.end != End::Last
}

/// Opens connections until `is_enough` of their number, then the last one for each acceptor.
fn open_all<S: Stream>(
    seed: u64,
    data: &[u8],
    len_max: usize,
    is_enough: impl Fn() -> bool + Sync,
    connect: impl Fn() -> S + Sync,
) {
    thread::scope(|scope| {
        for number in 0..THREADS as u64 {
            let (is_enough, connect) = (&is_enough, &connect);
            scope.spawn(move || {
                let mut rng = Rng::from_seed(seed).split(&format!("opener {number}"));
                while !is_enough() {
                    let exchange = Exchange::random(&mut rng, len_max);
                    let result = open(&connect(), exchange, data);
                    if exchange.end == End::InOrder {
                        result.unwrap_or_else(|error| panic!("seed {seed}: {exchange:?}: {error}"));
                    }
                }
                let last = Exchange { up: 0, down: 0, end: End::Last };
                open(&connect(), last, data).expect("in order");
            });
        }
    });
}

/// Runs connections in both directions. Returns their number.
fn exchange(seed: u64, len_max: usize, is_enough: impl Fn(u64) -> bool + Send + Sync + 'static) -> Option<u64> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("litz-soak-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let namespace = Namespace::create(&name).expect("a namespace");
    let inside = move || {
        // The kernel has some 28,000 ports for a minute each: it must use them again.
        std::fs::write("/proc/sys/net/ipv4/tcp_tw_reuse", "1").expect("root");
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "2000 65000").expect("root");
        let tun = Tun::open_up("soak0", &[(KERNEL, 24)], 1500).expect("a device");
        let tcp = TcpConfig { time_wait: units::Duration::from_secs(1), ..TcpConfig::default() };
        let config = TcpStackConfig::new(IpDevice::kernel(tun, STACK), &[STACK]).with_tcp(tcp);
        let stack = Listening::start_with(config, PORT, Listen::default());
        let data = pattern(LEN_MAX, seed);
        let listener = TcpListener::bind((KERNEL, 0)).expect("bound");
        let kernel = listener.local_addr().expect("bound");
        let count = AtomicU64::new(0);
        let is_enough = || is_enough(count.load(Ordering::Relaxed));
        let counted = || count.fetch_add(1, Ordering::Relaxed);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| while serve(&stack.accept().expect("a client"), &data) {});
                scope.spawn(|| while serve(&listener.accept().expect("a client").0, &data) {});
            }
            scope.spawn(|| {
                open_all(seed, &data, len_max, is_enough, || {
                    counted();
                    let stream = std::net::TcpStream::connect(SocketAddr::from((STACK, PORT))).expect("connected");
                    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
                    stream.set_write_timeout(Some(PATIENCE)).expect("a time");
                    stream
                });
            });
            open_all(seed + 1, &data, len_max, is_enough, || {
                counted();
                stack.connect(kernel).expect("connected")
            });
        });
        let (clock, limit) = (MonotonicClock::start(), units::Duration::from(PATIENCE));
        while stack.connection_count() > 0 {
            assert!(clock.now() < units::Instant::ZERO + limit, "{} connections are left", stack.connection_count());
            thread::yield_now();
        }
        count.into_inner()
    };
    let thread = namespace.run(inside).expect("a thread");
    Some(thread.join().expect("the test passes").expect("the namespace exists"))
}

#[test]
fn ten_thousand_connections_are_opened_and_closed() {
    const CONNECTIONS: u64 = 10_000;
    let count = exchange(1, 2000, |count| count >= CONNECTIONS);
    assert!(count.is_none_or(|count| count >= CONNECTIONS), "{count:?}");
}

#[test]
fn a_soak_at_microsecond_round_trips() {
    let share = std::env::var("LITZ_TEST_SHARE").map_or(1, |share| share.parse().expect("a number"));
    let (clock, span) = (MonotonicClock::start(), units::Duration::from_secs(SOAK_SECONDS * share / 100));
    exchange(7, LEN_MAX, move |_| clock.now() >= units::Instant::ZERO + span);
}
