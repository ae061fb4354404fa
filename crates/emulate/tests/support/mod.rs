//! Network namespaces for tests, and threads inside them.

#![allow(dead_code, reason = "each test program uses its part")]
#![expect(
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests run real clocks, threads and sockets, and say why they skip"
)]

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::process;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use emulate::Namespace;

/// Two namespaces, removed when dropped, also when the test fails.
pub(crate) struct Namespaces {
    pub(crate) left: Namespace,
    pub(crate) right: Namespace,
}

impl Namespaces {
    /// Two new namespaces; without root `None`, with a printed message.
    pub(crate) fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: network namespaces need root");
            return None;
        }
        let [left, right] = Namespace::create_pair("litz-emulate").unwrap();
        Some(Self { left, right })
    }
}

/// Runs `ip`, which must succeed, and returns its output.
pub(crate) fn ip(arguments: &[&str]) -> String {
    let output = process::Command::new("ip").args(arguments).output().expect("the command ip");
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs an action in a namespace, such as opening a socket, and waits for it.
pub(crate) fn inside<T: Send + 'static>(namespace: &Namespace, action: impl FnOnce() -> T + Send + 'static) -> T {
    namespace.run(action).unwrap().join().unwrap().unwrap()
}

/// A socket with a timeout of ten seconds.
pub(crate) fn udp(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

/// Sends a datagram and waits for its echo; returns the round-trip time.
pub(crate) fn ping(socket: &UdpSocket, to: &str) -> Duration {
    let start = Instant::now();
    socket.send_to(b"ping", to).unwrap();
    let mut buffer = [0; 64];
    receive(socket, &mut buffer).expect("an echo");
    start.elapsed()
}

/// Returns the next datagram. The system call of a socket with a timeout is not made again after a
/// signal, such as that of a frozen process that goes on (signal(7)).
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}

/// Echoes datagrams until one contains `stop`.
pub(crate) fn echo(socket: &UdpSocket) {
    let mut buffer = [0; 65_536];
    while let Ok((bytes, from)) = receive(socket, &mut buffer) {
        if &buffer[..bytes] == b"stop" {
            return;
        }
        socket.send_to(&buffer[..bytes], from).unwrap();
    }
}

/// Counts datagrams until one contains `end`.
pub(crate) fn count(socket: UdpSocket) -> JoinHandle<u64> {
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        let mut datagrams = 0;
        while let Ok((bytes, _)) = socket.recv_from(&mut buffer) {
            if &buffer[..bytes] == b"end" {
                return datagrams;
            }
            datagrams += 1;
        }
        panic!("no end after {datagrams} datagrams");
    })
}
