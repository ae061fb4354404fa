//! The two backends, and helpers for the tests.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use net::{
    DatagramSocket, Ecn, MemoryNetwork, MonotonicClock, RECV_BUFFER_BYTES, RecvMeta, UdpSocket, UdpSocketOptions,
};

/// Time limit for arrivals. Loopback takes microseconds; the limit is for a machine under load.
const RECEIVE_TIMEOUT: units::Duration = units::Duration::from_secs(10);

pub(crate) enum Backend {
    Udp,
    Memory(MemoryNetwork),
}

pub(crate) fn udp() -> Backend {
    Backend::Udp
}

pub(crate) fn memory() -> Backend {
    Backend::Memory(MemoryNetwork::new())
}

impl Backend {
    pub(crate) fn open(&self, bind: SocketAddr) -> Box<dyn DatagramSocket> {
        match self {
            Self::Udp => Box::new(UdpSocket::open(&UdpSocketOptions::new(bind)).unwrap()),
            Self::Memory(network) => Box::new(network.bind(bind).unwrap()),
        }
    }

    /// Opens a socket; returns `None` if this backend has no such address.
    pub(crate) fn try_open(&self, bind: SocketAddr) -> Option<Box<dyn DatagramSocket>> {
        match self {
            Self::Udp => Some(Box::new(UdpSocket::open(&UdpSocketOptions::new(bind)).ok()?)),
            Self::Memory(_) => Some(self.open(bind)),
        }
    }

    /// Waits until sent datagrams have certainly arrived, where no event indicates it.
    pub(crate) fn settle(&self) {
        if matches!(self, Self::Udp) {
            pause(Duration::from_millis(50));
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) source: SocketAddr,
    pub(crate) destination_ip: Option<IpAddr>,
    pub(crate) ecn: Option<Ecn>,
    pub(crate) contents: Vec<u8>,
}

/// Receives the next `count` datagrams.
pub(crate) fn receive(socket: &mut dyn DatagramSocket, count: usize) -> Vec<Received> {
    let clock = MonotonicClock::start();
    let mut memory = [vec![0; RECV_BUFFER_BYTES], vec![0; RECV_BUFFER_BYTES]];
    let mut metas = [RecvMeta::default(); 2];
    let mut received = Vec::new();
    while received.len() < count {
        let [first, second] = &mut memory;
        let filled = match socket.recv(&mut [first, second], &mut metas) {
            Ok(filled) => filled,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                assert!(clock.now().since_start() < RECEIVE_TIMEOUT, "{} of {count} datagrams arrived", received.len());
                pause(Duration::from_micros(200));
                continue;
            }
            Err(error) => panic!("receiving failed: {error}"),
        };
        for (meta, buffer) in metas[..filled].iter().zip(&memory) {
            let datagram = |contents: &[u8]| Received {
                source: meta.source,
                destination_ip: meta.destination_ip,
                ecn: meta.ecn,
                contents: contents.to_vec(),
            };
            if meta.len == 0 {
                received.push(datagram(&[]));
            }
            received.extend(meta.datagrams(buffer).map(datagram));
        }
    }
    assert_eq!(received.len(), count, "more datagrams than were sent");
    received
}

/// Bytes that reveal a lost, repeated or exchanged datagram.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    let mut contents = vec![0; bytes];
    units::Rng::from_seed(0x11ad).fill(&mut contents);
    contents
}

#[expect(clippy::disallowed_methods, reason = "the kernel delivers asynchronously")]
fn pause(span: Duration) {
    std::thread::sleep(span);
}
