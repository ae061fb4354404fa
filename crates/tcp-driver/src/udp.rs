//! [`UdpHost`]: UDP (RFC 768) beside TCP: datagrams for bound ports wait for their application,
//! those for other ports are answered with an ICMP report.
//!
//! The ports are shared by the drivers of a stack and its application. Every queue is bounded;
//! beyond its limit datagrams are dropped, as in any network.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use bytes::Bytes;
use driver::sync::{WakerSet, lock};
use wire::checksum;
use wire::ip::{self, Protocol};
use wire::udp::{self, HEADER_LEN, Header};

use crate::counters::Count;
use crate::packets::Received;

/// Limit on datagrams that wait for the application of a port.
pub const RECEIVED_MAX: usize = 1024;

/// Limit on their bytes.
pub const RECEIVED_BYTES_MAX: usize = 1 << 20;

/// Limit on datagrams of all ports that wait to be sent.
pub const OUTGOING_MAX: usize = 1024;

/// Largest datagram that fits into an IP packet of 65,535 bytes.
pub const DATAGRAM_MAX: usize = 65_535 - 20 - HEADER_LEN;

/// Lowest port chosen for an application (RFC 6335, section 6).
const EPHEMERAL_MIN: u16 = 49_152;

/// Time to live of our datagrams.
const HOP_LIMIT: u8 = 64;

/// A datagram for a bound port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// Address that it was sent to.
    pub local: IpAddr,
    /// Sender.
    pub remote: SocketAddr,
    /// Payload.
    pub data: Bytes,
}

/// Reason why a port cannot be bound, or a datagram cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UdpError {
    /// The port is bound already.
    Taken,
    /// All eligible ports are bound.
    NoPort,
    /// The datagram has more than [`DATAGRAM_MAX`] bytes.
    TooLarge,
    /// Too many datagrams wait to be sent.
    Full,
    /// The stack has no address of the receiver's family.
    NoAddress,
}

impl std::fmt::Display for UdpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Taken => "the UDP port is bound",
            Self::NoPort => "every UDP port from 49152 on is bound",
            Self::TooLarge => "a UDP datagram has at most 65507 bytes of data",
            Self::Full => "too many UDP datagrams wait to be sent: try again",
            Self::NoAddress => "the stack has no address of the receiver's family",
        })
    }
}

impl std::error::Error for UdpError {}

/// UDP ports of a stack.
#[derive(Debug, Default)]
pub struct UdpHost {
    ports: Mutex<BTreeMap<u16, Arc<Port>>>,
    outgoing: Mutex<VecDeque<Vec<u8>>>,
    has_outgoing: AtomicBool,
}

#[derive(Debug, Default)]
struct Port {
    state: Mutex<PortState>,
}

#[derive(Debug, Default)]
struct PortState {
    received: VecDeque<Datagram>,
    bytes: usize,
    dropped: u64,
    wakers: WakerSet,
}

impl UdpHost {
    /// Binds `port`; zero lets the host choose. It is free again when the [`UdpPort`] is dropped.
    ///
    /// # Errors
    /// Fails if the port is bound, or none is free.
    pub fn bind(self: &Arc<Self>, port: u16) -> Result<UdpPort, UdpError> {
        let mut ports = lock(&self.ports);
        let port = match port {
            0 => (EPHEMERAL_MIN..=u16::MAX).find(|port| !ports.contains_key(port)).ok_or(UdpError::NoPort)?,
            port if ports.contains_key(&port) => return Err(UdpError::Taken),
            port => port,
        };
        let state = Arc::<Port>::default();
        ports.insert(port, Arc::clone(&state));
        Ok(UdpPort { host: Arc::clone(self), port, state })
    }

    /// Takes a packet if it is a datagram for a bound port, or an invalid datagram. Returns its
    /// fate; `None` for other packets, which are answered with a report.
    pub(crate) fn take(&self, batch: &Received) -> Option<Count> {
        let Ok(packet) = ip::Packet::parse(batch.packet()) else { return Some(Count::Malformed) };
        if packet.protocol != Protocol::UDP || packet.fragment.is_some() {
            return None;
        }
        let Ok((header, data)) = Header::parse(packet.payload) else { return Some(Count::Malformed) };
        if !batch.is_verified() {
            let len = usize::from(header.len);
            let pseudo = checksum::pseudo_header(packet.source, packet.destination, packet.protocol, len as u32);
            if !udp::is_checksum_valid(&packet.payload[..len], pseudo, packet.is_ipv6()) {
                return Some(Count::WrongChecksums);
            }
        }
        let port = lock(&self.ports).get(&header.destination_port).cloned()?;
        let remote = SocketAddr::new(packet.source, header.source_port);
        let data = batch.packet().slice_ref(data);
        // A super-packet stands for several datagrams.
        let segment = batch.segment().unwrap_or(data.len()).max(1);
        let mut is_taken = false;
        if data.is_empty() {
            is_taken |= port.deliver(Datagram { local: packet.destination, remote, data: Bytes::new() });
        }
        for start in (0..data.len()).step_by(segment) {
            // Copied, so that a small datagram does not keep a large buffer alive.
            let part = Bytes::copy_from_slice(&data[start..data.len().min(start + segment)]);
            is_taken |= port.deliver(Datagram { local: packet.destination, remote, data: part });
        }
        port.wake();
        Some(if is_taken { Count::Datagrams } else { Count::QueueDrops })
    }

    /// Returns whether a datagram waits to be sent.
    pub(crate) fn has_outgoing(&self) -> bool {
        self.has_outgoing.load(Ordering::Acquire)
    }

    /// Takes the next whole packet to send.
    pub(crate) fn pop_outgoing(&self) -> Option<Vec<u8>> {
        let mut outgoing = lock(&self.outgoing);
        let packet = outgoing.pop_front();
        self.has_outgoing.store(!outgoing.is_empty(), Ordering::Release);
        packet
    }
}

impl Port {
    /// Queues the datagram; returns false if too many wait, and it is dropped.
    fn deliver(&self, datagram: Datagram) -> bool {
        let mut state = lock(&self.state);
        if state.received.len() >= RECEIVED_MAX || state.bytes + datagram.data.len() > RECEIVED_BYTES_MAX {
            state.dropped += 1;
            return false;
        }
        state.bytes += datagram.data.len();
        state.received.push_back(datagram);
        true
    }

    fn wake(&self) {
        let wakers = lock(&self.state).wakers.take();
        wakers.wake();
    }
}

/// A bound UDP port.
#[derive(Debug)]
pub struct UdpPort {
    host: Arc<UdpHost>,
    port: u16,
    state: Arc<Port>,
}

impl UdpPort {
    /// Returns its number.
    pub const fn number(&self) -> u16 {
        self.port
    }

    /// Returns the next datagram.
    pub fn poll_receive(&self, waker: &Waker) -> Poll<Datagram> {
        let mut state = lock(&self.state.state);
        match state.received.pop_front() {
            Some(datagram) => {
                state.bytes -= datagram.data.len();
                Poll::Ready(datagram)
            }
            None => {
                state.wakers.add(waker);
                Poll::Pending
            }
        }
    }

    /// Sends a datagram from `local`, an address of the stack. The caller wakes the driver.
    ///
    /// # Errors
    /// Fails if it is too large, or too many wait.
    pub fn send(&self, local: IpAddr, remote: SocketAddr, data: &[u8]) -> Result<(), UdpError> {
        if data.len() > DATAGRAM_MAX {
            return Err(UdpError::TooLarge);
        }
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(UdpError::NoAddress);
        }
        let ip = ip::Header {
            source: local,
            destination: remote.ip(),
            protocol: Protocol::UDP,
            hop_limit: HOP_LIMIT,
            dscp: 0,
            ecn: None,
            id: 0,
            may_fragment: true,
        };
        let len = HEADER_LEN + data.len();
        let header = Header { source_port: self.port, destination_port: remote.port(), len: len as u16, checksum: 0 };
        let mut packet = Vec::with_capacity(ip.len() + len);
        ip.emit(len, &mut packet);
        header.emit(&mut packet);
        packet.extend_from_slice(data);
        let pseudo = checksum::pseudo_header(local, remote.ip(), Protocol::UDP, len as u32);
        udp::fill_checksum(&mut packet[ip.len()..], pseudo);
        let mut outgoing = lock(&self.host.outgoing);
        if outgoing.len() >= OUTGOING_MAX {
            return Err(UdpError::Full);
        }
        outgoing.push_back(packet);
        self.host.has_outgoing.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns the number of datagrams dropped because the application did not receive earlier
    /// ones.
    pub fn dropped(&self) -> u64 {
        lock(&self.state.state).dropped
    }
}

impl Drop for UdpPort {
    fn drop(&mut self) {
        lock(&self.host.ports).remove(&self.port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "10.0.0.1";

    /// Returns the packets that `from` sends, as they arrive.
    fn carried(from: &UdpHost) -> Vec<Received> {
        std::iter::from_fn(|| from.pop_outgoing()).map(|packet| Received::new(packet.into(), None, false)).collect()
    }

    fn receive(port: &UdpPort) -> Option<Datagram> {
        match port.poll_receive(Waker::noop()) {
            Poll::Ready(datagram) => Some(datagram),
            Poll::Pending => None,
        }
    }

    fn hosts() -> [Arc<UdpHost>; 2] {
        Default::default()
    }

    #[test]
    fn datagrams_reach_bound_ports_and_no_others() {
        for ips in [[LOCAL, "10.0.0.2"], ["fd00::1", "fd00::2"]] {
            let ips: [IpAddr; 2] = ips.map(|ip| ip.parse().unwrap());
            let [one, other] = hosts();
            let (client, server) = (one.bind(0).unwrap(), other.bind(53).unwrap());
            assert_eq!((client.number(), other.bind(53).err()), (EPHEMERAL_MIN, Some(UdpError::Taken)));
            for data in [&b"hello"[..], b""] {
                client.send(ips[0], (ips[1], 53).into(), data).unwrap();
                client.send(ips[0], (ips[1], 54).into(), data).unwrap();
                let arriving = carried(&one);
                assert!(arriving.len() == 2 && !one.has_outgoing());
                assert_eq!([0, 1].map(|index| other.take(&arriving[index])), [Some(Count::Datagrams), None]);
                let datagram = receive(&server).expect("it was delivered");
                assert_eq!((datagram.local, datagram.remote), (ips[1], (ips[0], EPHEMERAL_MIN).into()));
                assert_eq!(datagram.data, data);
                assert_eq!(receive(&server), None);
            }
            drop(server);
            client.send(ips[0], (ips[1], 53).into(), b"late").unwrap();
            assert!(other.take(&carried(&one)[0]).is_none(), "the port is free again");
            assert!(other.bind(53).is_ok());
        }
    }

    #[test]
    fn damaged_datagrams_are_dropped_without_an_answer() {
        let [one, other] = hosts();
        let (client, server) = (one.bind(0).unwrap(), other.bind(53).unwrap());
        client.send(LOCAL.parse().unwrap(), "10.0.0.2:53".parse().unwrap(), b"hello").unwrap();
        let packet = carried(&one).remove(0).packet().to_vec();
        for bit in 8 * 20..8 * packet.len() {
            let mut damaged = packet.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let fate = other.take(&Received::new(damaged.into(), None, false));
            assert!(matches!(fate, Some(Count::WrongChecksums | Count::Malformed)), "bit {bit}: {fate:?}");
            assert!(receive(&server).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn a_flood_takes_bounded_memory() {
        let [one, other] = hosts();
        let (client, server) = (one.bind(0).unwrap(), other.bind(53).unwrap());
        for (len, max) in [(0, RECEIVED_MAX), (10_000, RECEIVED_BYTES_MAX / 10_000)] {
            let before = server.dropped();
            client.send(LOCAL.parse().unwrap(), "10.0.0.2:53".parse().unwrap(), &vec![7; len]).unwrap();
            let datagram = carried(&one).remove(0);
            let fates: Vec<_> = (0..5000).filter_map(|_| other.take(&datagram)).collect();
            let full = fates.iter().filter(|fate| **fate == Count::QueueDrops).count();
            assert_eq!((fates.len(), full), (5000, 5000 - max));
            assert_eq!(std::iter::from_fn(|| receive(&server)).count(), max);
            assert_eq!(server.dropped() - before, 5000 - max as u64);
        }
        let send = || client.send(LOCAL.parse().unwrap(), "10.0.0.2:53".parse().unwrap(), b"");
        assert_eq!((0..OUTGOING_MAX).filter(|_| send().is_ok()).count(), OUTGOING_MAX);
        assert_eq!(send(), Err(UdpError::Full));
        let too_large = vec![7; DATAGRAM_MAX + 1];
        assert_eq!(
            client.send(LOCAL.parse().unwrap(), "10.0.0.2:53".parse().unwrap(), &too_large),
            Err(UdpError::TooLarge)
        );
    }

    #[test]
    fn a_super_packet_is_several_datagrams() {
        let [one, other] = hosts();
        let (client, server) = (one.bind(0).unwrap(), other.bind(53).unwrap());
        client.send(LOCAL.parse().unwrap(), "10.0.0.2:53".parse().unwrap(), b"abcabcab").unwrap();
        let packet = carried(&one).remove(0).packet().clone();
        assert_eq!(other.take(&Received::new(packet, Some(3), true)), Some(Count::Datagrams));
        let all: Vec<Bytes> = std::iter::from_fn(|| receive(&server)).map(|datagram| datagram.data).collect();
        assert_eq!(all, ["abc", "abc", "ab"]);
    }
}
