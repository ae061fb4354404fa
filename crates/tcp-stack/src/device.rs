//! [`IpDevice`]: source and destination of the packets of a TCP/IP stack.

use std::io::{self, IoSlice};
use std::iter;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use driver::SendError;
use driver::socket::Received as ReceiveOutcome;
use engine::{Device, Readiness};
use net::tun::{MemoryTun, OFFLOAD_HEADER_BYTES, PacketSocket, ReadOffload, Tap, Tun, TunDevice, tcp_offload};
use tcp_driver::link::Prefix;
use tcp_driver::{Count, HostCounters, Received, Tcp};

use crate::ethernet::{Ethernet, EthernetConfig, EthernetError};
use crate::memory::ReceiveMemory;
use crate::port::PacketPort;

/// Number of reads in one receive call: as many super-packets as fit into the caches of one core.
const READS_MAX: usize = 16;

/// Segments in a plan: more than fit into a packet of 64 KiB, unless they are tiny.
const SEGMENTS_MAX: usize = 64;

/// A TUN or TAP device of the kernel or in memory, or an Ethernet interface.
#[derive(Debug, Clone)]
pub struct IpDevice {
    kind: Kind,
    /// An address of the stack on the device.
    address: IpAddr,
    /// Further queues of the device.
    queues: Vec<Self>,
    /// Link layer, if the device carries Ethernet frames.
    ethernet: Option<Ethernet>,
    /// Known networks on the device.
    networks: Vec<Prefix>,
    /// Counters of the stack that it belongs to.
    counters: Arc<HostCounters>,
}

#[derive(Debug, Clone)]
enum Kind {
    Kernel(Tun),
    Tap(Tap),
    Interface(PacketSocket),
    Memory(MemoryTun),
    Port(PacketPort),
}

impl IpDevice {
    /// Creates a device on a TUN device of the kernel; the stack has `address` on it.
    pub fn kernel(tun: Tun, address: IpAddr) -> Self {
        Self::new(Kind::Kernel(tun), address, None)
    }

    fn new(kind: Kind, address: IpAddr, ethernet: Option<Ethernet>) -> Self {
        Self { kind, address, queues: Vec::new(), ethernet, networks: Vec::new(), counters: Arc::default() }
    }

    /// Creates a device on a TUN device in memory; the stack has `address` on it.
    pub fn memory(tun: MemoryTun, address: IpAddr) -> Self {
        Self::new(Kind::Memory(tun), address, None)
    }

    /// Creates a device on the share of a TUN device that another thread reads, for a [transparent
    /// stack](crate::TcpStackConfig::transparent).
    pub fn port(port: PacketPort) -> Self {
        Self::new(Kind::Port(port), IpAddr::V4(Ipv4Addr::UNSPECIFIED), None)
    }

    /// Adds a queue for another driver: see
    /// [`Placement::Connection`](crate::Placement::Connection).
    #[must_use]
    pub fn with_queue(mut self, queue: Self) -> Self {
        self.queues.push(queue);
        self
    }

    /// Adds a network behind the device: the addresses whose first `len` bits are those of `ip`.
    /// Packets from its directed broadcast address are dropped and counted
    /// ([`Count::InvalidSources`](crate::Count)), and connections to it are impossible (RFC 1122,
    /// section 3.2.1.3). An Ethernet device has the networks of its [`EthernetConfig`]. A length
    /// beyond the bits of the address has no effect.
    #[must_use]
    pub fn with_network(mut self, ip: IpAddr, len: u8) -> Self {
        self.networks.extend(Prefix::new(ip, len));
        self
    }

    pub(crate) fn networks(&self) -> &[Prefix] {
        &self.networks
    }

    pub(crate) fn queue_count(&self) -> usize {
        1 + self.queues.len()
    }

    /// Returns one of its queues, as a device that counts in `counters`.
    pub(crate) fn queue(&self, index: usize, counters: &Arc<HostCounters>) -> Self {
        let queue = if index == 0 { self } else { &self.queues[index - 1] };
        if let Kind::Port(port) = &queue.kind {
            port.count_in(counters);
        }
        let device = Self::new(queue.kind.clone(), self.address, queue.ethernet.clone());
        Self { counters: Arc::clone(counters), ..device }
    }

    /// Creates a device on a TAP device of the kernel; the stack is a host on its link.
    ///
    /// # Errors
    /// Fails if `config` has too many routes.
    pub fn tap(tap: Tap, config: &EthernetConfig) -> Result<Self, EthernetError> {
        Self::ethernet(Kind::Tap(tap), config)
    }

    /// Creates a device on an Ethernet interface of the kernel; the stack is a separate host on its
    /// link.
    ///
    /// # Errors
    /// Fails if `config` has too many routes.
    pub fn interface(socket: PacketSocket, config: &EthernetConfig) -> Result<Self, EthernetError> {
        Self::ethernet(Kind::Interface(socket), config)
    }

    /// Creates a device on a TUN device in memory that carries Ethernet frames; the stack is a host
    /// on its link.
    ///
    /// # Errors
    /// Fails if `config` has too many routes.
    pub fn memory_ethernet(tun: MemoryTun, config: &EthernetConfig) -> Result<Self, EthernetError> {
        Self::ethernet(Kind::Memory(tun), config)
    }

    fn ethernet(kind: Kind, config: &EthernetConfig) -> Result<Self, EthernetError> {
        let address = config.address().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let device = Self::new(kind, address, Some(Ethernet::new(config)?));
        Ok(Self { networks: config.networks().collect(), ..device })
    }

    /// Reads at most [`READS_MAX`] packets.
    fn read(&mut self, memory: &mut ReceiveMemory, batches: &mut Vec<Received>) -> ReceiveOutcome {
        if let Kind::Port(port) = &self.kind {
            return port.receive(batches, &self.counters);
        }
        // Counted once for all packets passed on, before their fates are counted.
        let before = batches.len();
        let outcome = self.read_into(memory, batches);
        self.counters.add_many(Count::Read, (batches.len() - before) as u64);
        outcome
    }

    fn read_into(&mut self, memory: &mut ReceiveMemory, batches: &mut Vec<Received>) -> ReceiveOutcome {
        for _ in 0..READS_MAX {
            let packet = match memory.fill(|buffer| self.tun().read(buffer)) {
                Ok(packet) => packet,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return ReceiveOutcome::NoMore,
                Err(error) => return ReceiveOutcome::Failed(error.to_string()),
            };
            match received(packet, self.ethernet.as_ref()) {
                Ok(batch) => batches.push(batch),
                Err(reason) => {
                    self.counters.add(Count::Read);
                    self.counters.add(reason);
                }
            }
        }
        ReceiveOutcome::MayHaveMore
    }

    /// Writes a packet with its offload header. The first piece contains its headers.
    fn write<'a>(
        &mut self,
        offload: &[u8; OFFLOAD_HEADER_BYTES],
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> io::Result<()> {
        let Some(ethernet) = self.ethernet.clone() else { return write_pieces(self.tun(), &[offload], pieces) };
        let sent = match ethernet.header_of(*offload, pieces.clone()) {
            Some(header) => write_pieces(self.tun(), &[offload, &header], pieces),
            None => Ok(()),
        };
        let counters = Arc::clone(&self.counters);
        ethernet.send_frames(self.tun(), &counters);
        sent
    }

    /// Returns whether its packets stay in this process.
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.kind, Kind::Memory(_))
    }

    fn tun(&mut self) -> &mut dyn TunDevice {
        match &mut self.kind {
            Kind::Kernel(tun) => tun,
            Kind::Tap(tap) => tap,
            Kind::Interface(socket) => socket,
            Kind::Memory(tun) => tun,
            Kind::Port(port) => &mut port.tun,
        }
    }
}

/// Parses a packet with its offload header, as it was read; returns the fate of one that is not for
/// the stack.
pub(crate) fn received(mut packet: Bytes, ethernet: Option<&Ethernet>) -> Result<Received, Count> {
    let offload = ReadOffload::parse(&packet).map_err(|_| Count::WrongOffloads)?;
    let mut packet = packet.split_off(OFFLOAD_HEADER_BYTES);
    if let Some(ethernet) = ethernet {
        packet = packet.split_off(ethernet.receive(&packet)?);
    }
    if packet.is_empty() {
        return Err(Count::Malformed);
    }
    Ok(Received::new(packet, offload.segment, offload.is_verified))
}

/// Writes a packet after at most two headers: those of offload and Ethernet.
fn write_pieces<'a>(
    tun: &mut dyn TunDevice,
    headers: &[&[u8]],
    pieces: impl Iterator<Item = &'a [u8]>,
) -> io::Result<()> {
    let mut all = [IoSlice::new(&[]); 2 + tcp::SuperPacket::PARTS_MAX];
    for (slot, header) in all.iter_mut().zip(headers) {
        *slot = IoSlice::new(header);
    }
    let mut count = headers.len();
    for piece in pieces {
        all[count] = IoSlice::new(piece);
        count += 1;
    }
    tun.write(&all[..count])
}

/// Returns the reason why the kernel does not accept a packet.
fn send_error(error: &io::Error) -> SendError {
    match error.kind() {
        io::ErrorKind::WouldBlock => SendError::WouldBlock,
        io::ErrorKind::OutOfMemory => SendError::NoBuffers,
        io::ErrorKind::InvalidInput => SendError::TooLarge,
        _ => SendError::Refused(error.to_string()),
    }
}

impl Device for IpDevice {
    type Protocol = Tcp;
    type Buffers = ReceiveMemory;

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::new(self.address, 0))
    }

    fn share(self) -> io::Result<[Self; 2]> {
        Ok([self.clone(), self])
    }

    fn readiness(&mut self, waker: &Waker) -> Readiness {
        match &self.kind {
            Kind::Kernel(tun) => Readiness::Descriptor(tun.as_raw_fd()),
            Kind::Tap(tap) => Readiness::Descriptor(tap.as_raw_fd()),
            Kind::Interface(socket) => Readiness::Descriptor(socket.as_raw_fd()),
            Kind::Memory(tun) => {
                tun.set_waker(waker.clone());
                Readiness::Waker
            }
            Kind::Port(port) => {
                port.set_waker(waker.clone());
                Readiness::Waker
            }
        }
    }

    fn receive(&mut self, memory: &mut ReceiveMemory, batches: &mut Vec<Received>) -> ReceiveOutcome {
        let outcome = self.read(memory, batches);
        if let Some(ethernet) = self.ethernet.clone() {
            let counters = Arc::clone(&self.counters);
            ethernet.send_frames(self.tun(), &counters);
        }
        outcome
    }

    fn send(&mut self, packet: &tcp::SuperPacket) -> Result<(), SendError> {
        let sent = self.send_packet(packet);
        if sent.as_ref().is_err_and(|error| !error.is_temporary()) {
            self.counters.add(Count::SendErrors);
        }
        sent
    }

    fn batch_max(&self) -> usize {
        SEGMENTS_MAX
    }

    fn size_of(packet: &tcp::SuperPacket) -> (usize, usize) {
        (packet.packet_count(), packet.len())
    }
}

impl IpDevice {
    fn send_packet(&mut self, packet: &tcp::SuperPacket) -> Result<(), SendError> {
        if !packet.is_checksum_partial {
            let mut sent = Ok(());
            packet.packets(|bytes| {
                if sent.is_ok() {
                    sent = self.write(&[0; OFFLOAD_HEADER_BYTES], iter::once(bytes));
                }
            });
            return sent.map_err(|error| send_error(&error));
        }
        let segment = (!packet.is_single()).then_some(packet.segment as u16);
        let before = if self.ethernet.is_some() { Ethernet::HEADER_LEN } else { 0 };
        let (ip_len, header_len) = (before + packet.ip_len as u16, before + packet.header_len as u16);
        let header = tcp_offload(packet.is_ipv6(), ip_len, header_len, segment);
        self.write(&header, packet.parts()).map_err(|error| send_error(&error))
    }
}
