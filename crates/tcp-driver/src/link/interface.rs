//! [`Interface`]: a host's end of an Ethernet link.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use units::Instant;
use wire::ethernet::{EtherType, HEADER_LEN, Header, MacAddress};
use wire::icmp::Message;
use wire::ip::{self, Protocol};
use wire::{arp, ndp};

use super::neighbors::{Answer, NeighborCache, Request, Waiting};
use super::routing::{Prefix, Route, RoutingTable, TableFull};

/// Limit on frames waiting to be sent: answers to a flood of requests are dropped beyond it.
const OUTGOING_MAX: usize = 256;

/// A frame to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing<T> {
    /// The Ethernet header.
    pub header: [u8; HEADER_LEN],
    /// Payload after the header.
    pub payload: Vec<u8>,
    /// The caller's note about a packet that waited; `None` for packets of the interface itself.
    pub note: Option<T>,
}

#[derive(Debug)]
struct Packet<T> {
    bytes: Vec<u8>,
    note: T,
}

impl<T> Waiting for Packet<T> {
    fn len_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// The addresses of a host on an Ethernet link, its routes, and its neighbours. `T` is the caller's
/// note about a packet, such as work for a device.
///
/// The caller passes every arriving frame and requests the header for each outgoing packet; after
/// each of these calls it sends [frames](Self::poll_frame) until there is none.
#[derive(Debug)]
pub struct Interface<T> {
    mac: MacAddress,
    addresses: Vec<(IpAddr, Prefix)>,
    routes: RoutingTable,
    neighbors: NeighborCache<Packet<T>>,
    outgoing: VecDeque<Outgoing<T>>,
    /// Packets of this host without a route, or dropped because too many frames were waiting.
    unroutable: u64,
}

/// Contents of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// An IP packet for this host; holds its offset.
    Packet(usize),
    /// A message of ARP or neighbour discovery, already handled.
    Link,
    /// A frame for others, or of another protocol.
    NotOurs,
    /// The sender is a group.
    InvalidSource,
    /// The frame is shorter than its header.
    Malformed,
}

impl<T> Interface<T> {
    /// Creates a host with only the Ethernet address `mac`.
    pub fn new(mac: MacAddress) -> Self {
        Self {
            mac,
            addresses: Vec::new(),
            routes: RoutingTable::default(),
            neighbors: NeighborCache::default(),
            outgoing: VecDeque::new(),
            unroutable: 0,
        }
    }

    /// Returns its Ethernet address.
    pub const fn mac(&self) -> MacAddress {
        self.mac
    }

    /// Adds an address of the host. The addresses of `prefix` are on the link.
    ///
    /// # Errors
    /// Fails if there are too many routes.
    pub fn add_address(&mut self, ip: IpAddr, prefix: Prefix) -> Result<(), TableFull> {
        self.routes.insert(prefix, Route { device: 0, next_hop: None })?;
        self.addresses.push((ip, prefix));
        Ok(())
    }

    /// Sends packets for `prefix` to the router `next_hop`, which is on the link.
    ///
    /// # Errors
    /// Fails if there are too many routes.
    pub fn add_route(&mut self, prefix: Prefix, next_hop: IpAddr) -> Result<(), TableFull> {
        self.routes.insert(prefix, Route { device: 0, next_hop: Some(next_hop) })
    }

    /// Processes a frame. Requests and answers of ARP and neighbour discovery are handled here.
    pub fn handle_frame(&mut self, now: Instant, frame: &[u8]) -> Frame {
        let Ok((header, payload)) = Header::parse(frame) else { return Frame::Malformed };
        let is_ours = header.destination == self.mac;
        if !is_ours && !header.destination.is_multicast() {
            return Frame::NotOurs;
        }
        if header.source.is_multicast() {
            return Frame::InvalidSource;
        }
        match header.ether_type {
            EtherType::ARP => {
                self.handle_arp(now, payload);
                Frame::Link
            }
            EtherType::IPV6
                if payload.get(6) == Some(&Protocol::ICMPV6.0) && self.handle_ndp(now, header.source, payload) =>
            {
                Frame::Link
            }
            // A packet to one host in a frame to many is invalid (RFC 1122, section 3.3.6).
            EtherType::IPV4 | EtherType::IPV6 if is_ours => Frame::Packet(HEADER_LEN),
            _ => Frame::NotOurs,
        }
    }

    /// Returns the Ethernet header of an IP packet that is sent now. Returns `None` if the packet
    /// waits for its neighbour, in the copy made by `keep`, or is dropped because it has no route.
    /// See [`take_dropped`](Self::take_dropped).
    pub fn header_for(
        &mut self,
        now: Instant,
        packet: &[u8],
        keep: impl FnOnce() -> (Vec<u8>, T),
    ) -> Option<[u8; HEADER_LEN]> {
        let destination = destination(packet)?;
        let Some(route) = self.routes.route_to(destination) else {
            self.unroutable += 1;
            return None;
        };
        let next_hop = route.next_hop.unwrap_or(destination);
        let (mac, request) = self.neighbors.resolve(now, next_hop);
        if let Some(request) = request {
            self.request(request);
        }
        if mac.is_none() {
            let (bytes, note) = keep();
            self.neighbors.wait(next_hop, Packet { bytes, note });
        }
        Some(self.header(mac?, ether_type(destination)))
    }

    /// Returns the next frame to send.
    pub fn poll_frame(&mut self) -> Option<Outgoing<T>> {
        self.outgoing.pop_front()
    }

    /// Returns the number of this host's packets dropped since the last call: without a route,
    /// because their neighbour did not answer in time, or because too many frames waited to be
    /// sent.
    pub const fn take_dropped(&mut self) -> u64 {
        std::mem::replace(&mut self.unroutable, 0) + self.neighbors.take_dropped()
    }

    /// Returns the number of neighbours known or requested, and the bytes that wait for them.
    pub fn held(&self) -> (usize, usize) {
        self.neighbors.held()
    }

    fn has(&self, ip: IpAddr) -> bool {
        self.addresses.iter().any(|(own, _)| *own == ip)
    }

    /// Returns whether an address is on the link.
    fn is_on_link(&self, ip: IpAddr) -> bool {
        self.routes.route_to(ip).is_some_and(|route| route.next_hop.is_none())
    }

    /// Processes an ARP message (RFC 826, "Packet Reception").
    fn handle_arp(&mut self, now: Instant, payload: &[u8]) {
        let Ok(packet) = arp::Packet::parse(payload) else { return };
        let (sender, mac) = (IpAddr::V4(packet.sender_ip), packet.sender_mac);
        let is_for_us = self.has(packet.target_ip.into());
        // No other host has our address, and no host's address is a group.
        let is_credible = self.is_on_link(sender) && !self.has(sender) && !mac.is_multicast();
        match packet.operation {
            arp::Operation::REQUEST if is_for_us => {
                if is_credible {
                    let waiting = self.neighbors.on_request(sender, mac);
                    self.release(mac, sender, waiting);
                }
                let reply = arp::Packet {
                    operation: arp::Operation::REPLY,
                    sender_mac: self.mac,
                    sender_ip: packet.target_ip,
                    target_mac: mac,
                    target_ip: packet.sender_ip,
                };
                self.send(mac, EtherType::ARP, |out| reply.emit(out));
            }
            // An announcement or an answer.
            _ if is_credible => {
                let is_solicited = packet.operation == arp::Operation::REPLY && is_for_us;
                let waiting = self.neighbors.on_answer(now, sender, mac, Answer { is_solicited, is_override: true });
                self.release(mac, sender, waiting);
            }
            _ => {}
        }
    }

    /// Processes a message of neighbour discovery (RFC 4861, section 7.2). Returns true if it was
    /// one.
    fn handle_ndp(&mut self, now: Instant, from: MacAddress, payload: &[u8]) -> bool {
        let Ok(packet) = ip::Packet::parse(payload) else { return false };
        let message = Message::parse(packet.source, packet.destination, packet.payload);
        let Ok(Message::Ndp(message)) = message else { return false };
        // Only a host on the link can send this hop limit (RFC 4861, section 7.1).
        let (IpAddr::V6(source), ndp::HOP_LIMIT) = (packet.source, packet.hop_limit) else { return true };
        match message {
            ndp::Message::NeighborSolicitation { target, source_link } if self.has(target.into()) => {
                self.advertise(source, target, source_link, from);
            }
            ndp::Message::NeighborAdvertisement {
                target, is_solicited, is_override, target_link: Some(mac), ..
            } => {
                let ip = IpAddr::V6(target);
                if !self.has(ip) && !mac.is_multicast() {
                    let waiting = self.neighbors.on_answer(now, ip, mac, Answer { is_solicited, is_override });
                    self.release(mac, ip, waiting);
                }
            }
            _ => {}
        }
        true
    }

    /// Answers a solicitation of one of our addresses (RFC 4861, section 7.2.4).
    fn advertise(&mut self, source: Ipv6Addr, target: Ipv6Addr, source_link: Option<MacAddress>, from: MacAddress) {
        const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        // A host that checks whether the address is free has no address to answer to.
        let is_solicited = !source.is_unspecified();
        let destination = if is_solicited { source } else { ALL_NODES };
        let ip = IpAddr::V6(source);
        if let Some(mac) = source_link.filter(|mac| is_solicited && !mac.is_multicast())
            && !self.has(ip)
            && (self.is_on_link(ip) || source.is_unicast_link_local())
        {
            let waiting = self.neighbors.on_request(ip, mac);
            self.release(mac, ip, waiting);
        }
        let group = MacAddress::for_multicast(ALL_NODES.into()).expect("a group");
        let mac = if is_solicited { source_link.filter(|mac| !mac.is_multicast()).unwrap_or(from) } else { group };
        let target_link = Some(self.mac);
        let message = ndp::Message::NeighborAdvertisement {
            target,
            is_router: false,
            is_solicited,
            is_override: true,
            target_link,
        };
        self.send_ndp(mac, target, destination, message);
    }

    /// Requests a neighbour's address.
    fn request(&mut self, request: Request) {
        match request.ip {
            IpAddr::V4(target_ip) => {
                let IpAddr::V4(sender_ip) = self.source_for(request.ip) else { return };
                let packet = arp::Packet {
                    operation: arp::Operation::REQUEST,
                    sender_mac: self.mac,
                    sender_ip,
                    target_mac: MacAddress::default(),
                    target_ip,
                };
                let mac = request.mac.unwrap_or(MacAddress::BROADCAST);
                self.send(mac, EtherType::ARP, |out| packet.emit(out));
            }
            IpAddr::V6(target) => {
                let IpAddr::V6(source) = self.source_for(request.ip) else { return };
                let group = ndp::solicited_node(target);
                let destination = if request.mac.is_some() { target } else { group };
                let mac = request.mac.or_else(|| MacAddress::for_multicast(group.into())).expect("a group");
                let message = ndp::Message::NeighborSolicitation { target, source_link: Some(self.mac) };
                self.send_ndp(mac, source, destination, message);
            }
        }
    }

    /// Returns our address in the network of a neighbour; otherwise any of its family, or the
    /// unspecified one.
    fn source_for(&self, ip: IpAddr) -> IpAddr {
        let in_network = self.addresses.iter().find(|(_, prefix)| prefix.contains(ip));
        let any = || self.addresses.iter().find(|(own, _)| own.is_ipv4() == ip.is_ipv4());
        let none = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        in_network.or_else(any).map_or(none, |(own, _)| *own)
    }

    /// Sends the packets that waited for a neighbour.
    fn release(&mut self, mac: MacAddress, ip: IpAddr, waiting: VecDeque<Packet<T>>) {
        let header = self.header(mac, ether_type(ip));
        for Packet { bytes, note } in waiting {
            self.push(Outgoing { header, payload: bytes, note: Some(note) });
        }
    }

    fn send_ndp(&mut self, mac: MacAddress, source: Ipv6Addr, destination: Ipv6Addr, message: ndp::Message) {
        let message = Message::Ndp(message);
        let header = ip::Header {
            source: source.into(),
            destination: destination.into(),
            protocol: Protocol::ICMPV6,
            hop_limit: ndp::HOP_LIMIT,
            dscp: 0,
            ecn: None,
            id: 0,
            may_fragment: false,
        };
        self.send(mac, EtherType::IPV6, |out| {
            header.emit(message.len(true), out);
            message.emit(source.into(), destination.into(), out);
        });
    }

    fn send(&mut self, mac: MacAddress, ether_type: EtherType, emit: impl FnOnce(&mut Vec<u8>)) {
        let mut payload = Vec::new();
        emit(&mut payload);
        let header = self.header(mac, ether_type);
        self.push(Outgoing { header, payload, note: None });
    }

    fn push(&mut self, frame: Outgoing<T>) {
        if self.outgoing.len() < OUTGOING_MAX {
            self.outgoing.push_back(frame);
        } else if frame.note.is_some() {
            self.unroutable += 1;
        }
    }

    fn header(&self, destination: MacAddress, ether_type: EtherType) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[..6].copy_from_slice(&destination.0);
        header[6..12].copy_from_slice(&self.mac.0);
        header[12..].copy_from_slice(&ether_type.0.to_be_bytes());
        header
    }
}

/// Returns the destination of an IP packet of this host.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => packet.get(16..20)?.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
        6 => packet.get(24..40)?.first_chunk::<16>().map(|octets| IpAddr::from(*octets)),
        _ => None,
    }
}

const fn ether_type(ip: IpAddr) -> EtherType {
    if ip.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hosts on one link, with a record of their frames.
    struct Link {
        hosts: [Interface<u8>; 2],
        frames: Vec<(usize, Outgoing<u8>)>,
        /// IP packets that arrived at each.
        received: [Vec<Vec<u8>>; 2],
    }

    const MACS: [MacAddress; 2] = [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])];

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn prefix(text: &str, len: u8) -> Prefix {
        Prefix::new(ip(text), len).unwrap()
    }

    fn packet(source: &str, destination: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (source, destination) = (ip(source), ip(destination));
        let (dscp, ecn, id) = (0, None, 0);
        ip::Header { source, destination, protocol: Protocol::TCP, hop_limit: 1, dscp, ecn, id, may_fragment: false }
            .emit(4, &mut bytes);
        bytes.extend_from_slice(b"data");
        bytes
    }

    impl Link {
        fn new() -> Self {
            let host = |index: usize| {
                let mut host = Interface::new(MACS[index]);
                for (ip, len) in [(["10.0.0.1", "10.0.0.2"][index], 24), (["fd00::1", "fd00::2"][index], 64)] {
                    host.add_address(ip.parse().unwrap(), prefix(ip, len)).unwrap();
                }
                host
            };
            Self { hosts: [host(0), host(1)], frames: Vec::new(), received: Default::default() }
        }

        fn send(&mut self, from: usize, packet: &[u8]) {
            let header = self.hosts[from].header_for(Instant::ZERO, packet, || (packet.to_vec(), 7));
            if let Some(header) = header {
                self.frames.push((from, Outgoing { header, payload: packet.to_vec(), note: Some(9) }));
                let frame = [&header[..], packet].concat();
                self.arrive(1 - from, &frame);
            }
            self.settle();
        }

        fn arrive(&mut self, at: usize, frame: &[u8]) {
            if let Frame::Packet(start) = self.hosts[at].handle_frame(Instant::ZERO, frame) {
                self.received[at].push(frame[start..].to_vec());
            }
        }

        /// Delivers frames until none is left.
        fn settle(&mut self) {
            for _ in 0..100 {
                for from in 0..2 {
                    while let Some(frame) = self.hosts[from].poll_frame() {
                        let bytes = [&frame.header[..], &frame.payload].concat();
                        self.frames.push((from, frame));
                        self.arrive(1 - from, &bytes);
                    }
                }
            }
        }
    }

    #[test]
    fn a_packet_waits_for_its_neighbor_and_both_know_each_other_then() {
        for (one, other) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let mut link = Link::new();
            link.send(0, &packet(one, other));
            // A request to all, the answer, and the packet with its note.
            let notes: Vec<_> = link.frames.iter().map(|(from, frame)| (*from, frame.note)).collect();
            assert_eq!(notes, [(0, None), (1, None), (0, Some(7))], "{one}");
            assert!(MacAddress(*link.frames[0].1.header.first_chunk().unwrap()).is_multicast());
            assert_eq!(link.frames[1].1.header[..6], MACS[0].0);
            assert_eq!(link.received[1], [packet(one, other)]);
            // The other host has learned from the request: its answer needs no request.
            link.send(1, &packet(other, one));
            assert_eq!(link.frames.len(), 4);
            assert_eq!(link.received[0], [packet(other, one)]);
        }
    }

    #[test]
    fn packets_beyond_the_link_go_to_the_router_of_the_longest_prefix() {
        let mut link = Link::new();
        link.send(0, &packet("10.0.0.1", "192.0.2.1"));
        assert!(link.frames.is_empty(), "there is no route");
        link.hosts[0].add_route(Prefix::all_of(ip("0.0.0.0")), ip("10.0.0.2")).unwrap();
        link.hosts[0].add_route(prefix("192.0.2.0", 24), ip("10.0.0.99")).unwrap();
        link.send(0, &packet("10.0.0.1", "198.51.100.1"));
        assert_eq!(link.received[1], [packet("10.0.0.1", "198.51.100.1")]);
        link.frames.clear();
        link.send(0, &packet("10.0.0.1", "192.0.2.1"));
        let asked = arp::Packet::parse(&link.frames[0].1.payload).unwrap();
        assert_eq!(asked.target_ip, Ipv4Addr::new(10, 0, 0, 99));
    }

    #[test]
    fn frames_for_others_and_packets_in_frames_for_all_are_ignored() {
        let mut link = Link::new();
        let bytes = packet("10.0.0.1", "10.0.0.2");
        for destination in [MacAddress([2, 0, 0, 0, 0, 9]), MacAddress::BROADCAST] {
            let mut frame = Vec::new();
            Header { destination, source: MACS[0], ether_type: EtherType::IPV4 }.emit(&mut frame);
            frame.extend_from_slice(&bytes);
            link.arrive(1, &frame);
        }
        assert!(link.received[1].is_empty());
        link.arrive(1, &[7; 13]);
        link.arrive(1, &[]);
    }

    #[test]
    fn an_address_of_ours_or_of_another_network_is_not_learned_from_others() {
        let mut link = Link::new();
        let attacker = MacAddress([2, 0, 0, 0, 0, 66]);
        let frame = |operation, sender_ip: &str, target_ip: &str| {
            let mut frame = Vec::new();
            Header { destination: MACS[0], source: attacker, ether_type: EtherType::ARP }.emit(&mut frame);
            let [sender_ip, target_ip] = [sender_ip, target_ip].map(|ip| ip.parse().unwrap());
            let (sender_mac, target_mac) = (attacker, MACS[0]);
            arp::Packet { operation, sender_mac, sender_ip, target_mac, target_ip }.emit(&mut frame);
            frame
        };
        for sender in ["10.0.0.1", "192.0.2.1"] {
            for operation in [arp::Operation::REQUEST, arp::Operation::REPLY] {
                link.arrive(0, &frame(operation, sender, "10.0.0.1"));
            }
        }
        assert_eq!(link.hosts[0].held(), (0, 0));
        // An answer without a request.
        link.arrive(0, &frame(arp::Operation::REPLY, "10.0.0.2", "10.0.0.1"));
        assert_eq!(link.hosts[0].held(), (0, 0));
    }

    #[test]
    fn neighbor_discovery_from_beyond_the_link_is_ignored() {
        for hop_limit in [254, ndp::HOP_LIMIT] {
            let mut link = Link::new();
            let (source, target) = ("fd00::1".parse::<Ipv6Addr>().unwrap(), "fd00::2".parse::<Ipv6Addr>().unwrap());
            let message = Message::Ndp(ndp::Message::NeighborSolicitation { target, source_link: Some(MACS[0]) });
            let mut frame = Vec::new();
            Header { destination: MACS[1], source: MACS[0], ether_type: EtherType::IPV6 }.emit(&mut frame);
            let header = ip::Header {
                source: source.into(),
                destination: target.into(),
                protocol: Protocol::ICMPV6,
                hop_limit,
                dscp: 0,
                ecn: None,
                id: 0,
                may_fragment: false,
            };
            header.emit(message.len(true), &mut frame);
            message.emit(source.into(), target.into(), &mut frame);
            link.arrive(1, &frame);
            assert_eq!(link.hosts[1].poll_frame().is_some(), hop_limit == ndp::HOP_LIMIT);
        }
    }

    #[test]
    fn a_flood_of_requests_has_bounded_answers() {
        let mut link = Link::new();
        let mut frame = Vec::new();
        Header { destination: MacAddress::BROADCAST, source: MACS[1], ether_type: EtherType::ARP }.emit(&mut frame);
        arp::Packet {
            operation: arp::Operation::REQUEST,
            sender_mac: MACS[1],
            sender_ip: [10, 0, 0, 2].into(),
            target_mac: MacAddress::default(),
            target_ip: [10, 0, 0, 1].into(),
        }
        .emit(&mut frame);
        (0..10_000).for_each(|_| link.arrive(0, &frame));
        assert_eq!(std::iter::from_fn(|| link.hosts[0].poll_frame()).count(), OUTGOING_MAX);
    }
}
