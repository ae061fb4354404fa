//! Treatment of packets that a stack reads: each is accepted, or dropped for a reason that is
//! counted, for all packets that a TUN device can deliver.

use std::net::IpAddr;
use std::time::Duration;

use litz::Placement;
use litz::tcp::{Count, IpDevice, MemoryTun, TcpStack, TcpStackConfig, UdpPort};
use net::MonotonicClock;
use wire::ip::{Header, Protocol};
use wire::tcp::Flags;
use wire::{checksum, tcp, udp};

use crate::listening::Listening;
use crate::tcp_stack::{KERNEL, STACK, exchange};
use crate::world::pattern;

/// The offload header of a packet without offloads.
const PLAIN: [u8; 10] = [0; 10];

/// Ports of the stack: one that listens, a UDP port, and one that nothing has.
const OPEN: u16 = 80;
const DATAGRAMS: u16 = 53;
const CLOSED: u16 = 81;

/// A stack whose network is the test.
struct World {
    stack: Listening,
    network: MemoryTun,
    _port: UdpPort,
    written: u64,
}

impl World {
    fn start(placement: Placement) -> Self {
        let pairs: Vec<_> = (0..placement.driver_count()).map(|_| MemoryTun::pair()).collect();
        let queue = |pair: &[MemoryTun; 2]| IpDevice::memory(pair[0].clone(), STACK[0]);
        let device = pairs.iter().map(queue).reduce(IpDevice::with_queue).expect("a queue");
        let device = device.with_network(STACK[0], 24).with_network(STACK[1], 64);
        let stack = Listening::start(TcpStackConfig::new(device, &STACK).with_placement(placement));
        let port = stack.bind_udp(DATAGRAMS).expect("it is free");
        Self { stack, network: pairs[0][1].clone(), _port: port, written: 0 }
    }

    /// Makes the stack read a packet after an offload header, and waits until it is accounted for.
    /// Returns its outcome; several, if it has completed another packet.
    fn read(&mut self, offload: &[u8], packet: &[u8], what: &str) -> Vec<Count> {
        let before = fates(&self.stack);
        self.network.write_frame(&[offload, packet].concat());
        self.written += 1;
        let clock = MonotonicClock::start();
        loop {
            while self.network.take_frame().is_some() {}
            // Read the outcomes first: a packet counts as read before it has one.
            let now = fates(&self.stack);
            let read = self.stack.count_of(Count::Read);
            let all = read + self.stack.count_of(Count::Reassembled);
            let known: u64 = now.iter().sum();
            assert!(known <= all && read <= self.written, "{what}: {known} fates of {all} packets");
            if read == self.written && known == all {
                let grown = Count::FATES.iter().zip(now.iter().zip(&before)).filter(|(_, (now, before))| now > before);
                return grown.map(|(count, _)| *count).collect();
            }
            let waited = clock.now().saturating_since(units::Instant::ZERO);
            assert!(waited < Duration::from_secs(30).into(), "{what}: {known} fates of {all} packets, {read} read");
            std::thread::yield_now();
        }
    }
}

fn fates(stack: &TcpStack) -> Vec<u64> {
    Count::FATES.iter().map(|count| stack.count_of(*count)).collect()
}

/// The test's end of the device.
trait Network {
    fn write_frame(&mut self, bytes: &[u8]);
    fn take_frame(&mut self) -> Option<Vec<u8>>;
}

impl Network for MemoryTun {
    fn write_frame(&mut self, bytes: &[u8]) {
        net::tun::TunDevice::write(self, &[std::io::IoSlice::new(bytes)]).expect("the stack reads");
    }

    fn take_frame(&mut self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; net::tun::TUN_BUFFER_BYTES];
        let len = net::tun::TunDevice::read(self, &mut buffer).ok()?;
        buffer.truncate(len);
        Some(buffer)
    }
}

fn ip_packet(source: IpAddr, destination: IpAddr, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = Header { source, destination, protocol, hop_limit: 64, dscp: 0, ecn: None, id: 7, may_fragment: true };
    header.emit(payload.len(), &mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns a segment to `port` with its checksum; `is_partial` leaves it to the device.
fn segment(family: usize, port: u16, flags: Flags, len: usize, is_partial: bool) -> Vec<u8> {
    let header =
        tcp::Header { source_port: 999, destination_port: port, flags, window: 1000, ..tcp::Header::default() };
    let mut bytes = Vec::new();
    header.emit(&mut bytes);
    bytes.resize(bytes.len() + len, b'x');
    let pseudo = pseudo(family, Protocol::TCP, bytes.len());
    if is_partial {
        tcp::fill_partial_checksum(&mut bytes, pseudo)
    } else {
        tcp::fill_checksum(&mut bytes, pseudo)
    }
    bytes
}

fn datagram(family: usize, port: u16, len: usize) -> Vec<u8> {
    let header =
        udp::Header { source_port: 999, destination_port: port, len: (udp::HEADER_LEN + len) as u16, checksum: 0 };
    let mut bytes = Vec::new();
    header.emit(&mut bytes);
    bytes.resize(bytes.len() + len, b'x');
    let pseudo = pseudo(family, Protocol::UDP, bytes.len());
    udp::fill_checksum(&mut bytes, pseudo);
    bytes
}

/// Returns an ICMP message of this type and code, of the family's ICMP, with its checksum.
fn icmp(family: usize, kind: u8, code: u8) -> Vec<u8> {
    let quoted =
        ip_packet(STACK[family], KERNEL[family], Protocol::TCP, &segment(family, CLOSED, Flags::SYN, 0, false));
    let mut bytes = [&[kind, code, 0, 0, 0, 0, 0, 0][..], &quoted].concat();
    let sum = if family == 0 { 0 } else { pseudo(family, Protocol::ICMPV6, bytes.len()) };
    let sum = !checksum::sum(&bytes, sum);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn pseudo(family: usize, protocol: Protocol, len: usize) -> u16 {
    checksum::pseudo_header(KERNEL[family], STACK[family], protocol, len as u32)
}

/// Returns a packet from the network to the stack.
fn packet(family: usize, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    ip_packet(KERNEL[family], STACK[family], protocol, payload)
}

/// Returns an offload header (`struct virtio_net_hdr`).
fn offload(flags: u8, kind: u8, segment: u16, start: u16, offset: u16) -> [u8; 10] {
    let mut bytes = PLAIN;
    (bytes[0], bytes[1]) = (flags, kind);
    bytes[4..6].copy_from_slice(&segment.to_ne_bytes());
    bytes[6..8].copy_from_slice(&start.to_ne_bytes());
    bytes[8..10].copy_from_slice(&offset.to_ne_bytes());
    bytes
}

/// Returns the IPv4 packet with options of `len` bytes that have no effect.
fn with_options(packet: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = [&packet[..20], &vec![1; len], &packet[20..]].concat();
    bytes[0] = 0x40 | ((20 + len) / 4) as u8;
    let total = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    checksum::fill_ipv4(&mut bytes[..20 + len]);
    bytes
}

/// Returns the IPv6 packet with one more header of 8 bytes, of this protocol and with this content.
fn with_extension(packet: &[u8], protocol: u8, content: [u8; 6]) -> Vec<u8> {
    let mut bytes = [&packet[..40], &[packet[6], 0], &content, &packet[40..]].concat();
    bytes[6] = protocol;
    let len = bytes.len() as u16 - 40;
    bytes[4..6].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// Returns a fragment of a packet: the bytes of its payload in `range`, which are not the last if
/// `more`.
fn fragment(family: usize, packet: &[u8], range: std::ops::Range<usize>, more: bool) -> Vec<u8> {
    let header_len = [20, 40][family];
    let payload = &packet[header_len..][range.clone()];
    let field = (range.start as u16) | if more { 1 } else { 0 };
    if family == 1 {
        let [high, low] = field.to_be_bytes();
        let whole = [&packet[..40], payload].concat();
        return with_extension(&whole, 44, [high, low, 0, 0, 0, 9]);
    }
    let mut bytes = [&packet[..20], payload].concat();
    let total = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    let field = (range.start / 8) as u16 | if more { 0x2000 } else { 0 };
    bytes[6..8].copy_from_slice(&field.to_be_bytes());
    checksum::fill_ipv4(&mut bytes[..20]);
    bytes
}

fn damaged(mut packet: Vec<u8>, at: usize) -> Vec<u8> {
    packet[at] ^= 0x55;
    packet
}

#[test]
fn each_packet_that_is_read_has_the_fate_that_is_counted() {
    let mut world = World::start(Placement::Thread);
    let needs_checksum = |family: usize| offload(1, 0, 0, [20, 40][family], 16);
    for family in 0..2 {
        let ip_len = [20, 40][family];
        let syn = packet(family, Protocol::TCP, &segment(family, OPEN, Flags::SYN, 0, false));
        let to_closed = packet(family, Protocol::TCP, &segment(family, CLOSED, Flags::SYN, 0, false));
        let udp_in = packet(family, Protocol::UDP, &datagram(family, DATAGRAMS, 40));
        let partial = packet(family, Protocol::TCP, &segment(family, OPEN, Flags::SYN, 0, true));
        let icmp_protocol = [Protocol::ICMP, Protocol::ICMPV6][family];
        let request = [8, 128][family];
        let mut unauthentic = segment(family, CLOSED, Flags::SYN, 0, false);
        unauthentic.splice(0..0, [6, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1].into_iter().chain([7; 12]));
        let mut cases: Vec<(&str, &[u8], Vec<u8>, Count)> = vec![
            ("a SYN for a port that listens", &PLAIN, syn.clone(), Count::Taken),
            ("for a closed port", &PLAIN, to_closed.clone(), Count::Answered),
            (
                "a reset of no connection",
                &PLAIN,
                packet(family, Protocol::TCP, &segment(family, CLOSED, Flags::RST, 0, false)),
                Count::Unwanted,
            ),
            ("a wrong checksum of TCP", &PLAIN, damaged(to_closed.clone(), ip_len + 4), Count::WrongChecksums),
            ("a partial checksum without a note", &PLAIN, partial, Count::WrongChecksums),
            ("half a header of TCP", &PLAIN, packet(family, Protocol::TCP, &[7; 11]), Count::Malformed),
            ("a data offset inside the header", &PLAIN, damaged(to_closed.clone(), ip_len + 12), Count::Malformed),
            (
                "a device that does not know its header",
                &[1, 9, 0, 0, 8, 0, 0, 0, 0, 0],
                to_closed.clone(),
                Count::WrongOffloads,
            ),
            ("a header alone", &PLAIN, Vec::new(), Count::Malformed),
            ("half a packet", &PLAIN, to_closed[..ip_len + 10].to_vec(), Count::Malformed),
            ("half a header", &PLAIN, to_closed[..ip_len / 2].to_vec(), Count::Malformed),
            ("one byte", &PLAIN, to_closed[..1].to_vec(), Count::Malformed),
            ("version 5", &PLAIN, damaged(to_closed.clone(), 0), Count::Malformed),
            (
                "from the address that it is for",
                &PLAIN,
                ip_packet(KERNEL[family], KERNEL[family], Protocol(99), b"x"),
                Count::InvalidSources,
            ),
            ("a datagram for a port", &PLAIN, udp_in.clone(), Count::Datagrams),
            (
                "a datagram for no port",
                &PLAIN,
                packet(family, Protocol::UDP, &datagram(family, CLOSED, 9)),
                Count::Answered,
            ),
            ("a wrong checksum of UDP", &PLAIN, damaged(udp_in.clone(), ip_len + 20), Count::WrongChecksums),
            ("half a header of UDP", &PLAIN, packet(family, Protocol::UDP, &[0; 5]), Count::Malformed),
            ("an unknown protocol", &PLAIN, packet(family, Protocol(99), b"?"), Count::Answered),
            (
                "a request for an echo",
                &PLAIN,
                packet(family, icmp_protocol, &icmp(family, request, 0)),
                Count::Answered,
            ),
            ("an echo", &PLAIN, packet(family, icmp_protocol, &icmp(family, [0, 129][family], 0)), Count::Unwanted),
            (
                "a report of no connection",
                &PLAIN,
                packet(family, icmp_protocol, &icmp(family, [3, 1][family], 0)),
                Count::Unwanted,
            ),
            ("a digest of IP", &PLAIN, packet(family, Protocol::AH, &unauthentic), Count::UnauthenticSegments),
            ("a lone fragment", &PLAIN, fragment(family, &udp_in, 0..16, true), Count::Fragments),
        ];
        if family == 0 {
            cases.push(("a wrong checksum of IP", &PLAIN, damaged(to_closed.clone(), 8), Count::WrongChecksums));
            cases.push(("options of IP", &PLAIN, with_options(&to_closed, 8), Count::Answered));
            cases.push((
                "a broadcast source",
                &PLAIN,
                {
                    let source = IpAddr::from([10, 77, 0, 255]);
                    ip_packet(source, STACK[0], Protocol(99), b"x")
                },
                Count::InvalidSources,
            ));
        } else {
            cases.push((
                "options that do nothing",
                &PLAIN,
                with_extension(&to_closed, 60, [1, 4, 0, 0, 0, 0]),
                Count::Answered,
            ));
            cases.push((
                "an option to be dropped",
                &PLAIN,
                with_extension(&to_closed, 60, [0x5e, 4, 0, 0, 0, 0]),
                Count::Malformed,
            ));
            cases.push((
                "a route to go on",
                &PLAIN,
                with_extension(&to_closed, 43, [9, 1, 0, 0, 0, 0]),
                Count::Malformed,
            ));
            cases.push(("no next header", &PLAIN, packet(1, Protocol(59), b""), Count::Answered));
        }
        for (what, header, bytes, expected) in cases {
            assert_eq!(world.read(header, &bytes, what), [expected], "{family}: {what}");
        }
        let other = [IpAddr::from([10, 77, 0, 9]), "fd77::9".parse().expect("an address")][family];
        let bytes = ip_packet(KERNEL[family], other, Protocol::TCP, &segment(family, OPEN, Flags::SYN, 0, false));
        assert_eq!(world.read(&PLAIN, &bytes, "for another host"), [Count::NotOurs]);
        // Offloads. Work that the device has done is not verified.
        let partial = packet(family, Protocol::TCP, &segment(family, CLOSED, Flags::SYN, 0, true));
        assert_eq!(world.read(&needs_checksum(family), &partial, "partial"), [Count::Answered]);
        assert_eq!(world.read(&offload(2, 0, 0, 0, 0), &partial, "verified"), [Count::Answered]);
        let many = packet(family, Protocol::TCP, &segment(family, CLOSED, Flags::ACK, 5000, true));
        let tcp_gso = offload(1, [1, 4][family], 1000, [20, 40][family], 16);
        assert_eq!(world.read(&tcp_gso, &many, "a super-packet of TCP"), [Count::Answered]);
        let many = packet(family, Protocol::UDP, &datagram(family, DATAGRAMS, 5000));
        let udp_gso = offload(1, 5, 1000, [20, 40][family], 6);
        assert_eq!(world.read(&udp_gso, &many, "a super-packet of UDP"), [Count::Datagrams]);
        // The rest of the packet of the lone fragment, which completes it.
        let rest = fragment(family, &udp_in, 16..48, false);
        assert_eq!(world.read(&PLAIN, &rest, "the last fragment"), [Count::Datagrams, Count::Fragments]);
    }
    // An application that does not read has a queue that fills.
    let udp_in = packet(0, Protocol::UDP, &datagram(0, DATAGRAMS, 40));
    let is_full = |world: &mut World| world.read(&PLAIN, &udp_in, "a datagram") == [Count::QueueDrops];
    assert!((0..2000).any(|_| is_full(&mut world)), "the queue has no bound");
}

/// All offloads with all shapes of packets with all contents: each is counted, and the stack works
/// afterwards.
#[test]
fn no_combination_vanishes() {
    for placement in [Placement::Thread, Placement::Split, Placement::Packet(2)] {
        let mut world = World::start(placement);
        for family in 0..2 {
            for (name, bytes) in shapes(family) {
                for (number, header) in offloads(family).iter().enumerate() {
                    world.read(header, &bytes, &format!("{placement}, {family}, {name}, offload {number}"));
                }
            }
        }
        let [read, whole] = [Count::Read, Count::Reassembled].map(|count| world.stack.count_of(count));
        assert!(read > 1000 && whole > 0, "{placement}: {read} packets, {whole} of fragments");
    }
}

/// Descriptions of offloads, possible and not.
fn offloads(family: usize) -> Vec<Vec<u8>> {
    let ip_len = [20, 40][family];
    let mut all = vec![PLAIN.to_vec(), Vec::new(), vec![0; 4], offload(2, 0, 0, 0, 0).to_vec()];
    for offset in [6, 16, 3] {
        for kind in [0, 1, 4, 5, 0x81, 3, 7] {
            for segment in [0, 1, 8, 1000, u16::MAX] {
                all.push(offload(1, kind, segment, ip_len, offset).to_vec());
            }
        }
    }
    all.push(offload(1, 1, 1000, u16::MAX, 16).to_vec());
    all
}

/// Returns packets of many shapes.
fn shapes(family: usize) -> Vec<(String, Vec<u8>)> {
    let icmp_protocol = [Protocol::ICMP, Protocol::ICMPV6][family];
    let mut contents: Vec<(String, Vec<u8>)> = Vec::new();
    for (port, flags) in [(OPEN, Flags::ACK), (CLOSED, Flags::SYN), (CLOSED, Flags::RST), (OPEN, Flags::empty())] {
        let payload = segment(family, port, flags, 40, false);
        contents.push((format!("{flags} to {port}"), packet(family, Protocol::TCP, &payload)));
    }
    for port in [DATAGRAMS, CLOSED] {
        contents.push((format!("datagram to {port}"), packet(family, Protocol::UDP, &datagram(family, port, 40))));
    }
    for kind in [0, 1, 2, 3, 4, 5, 8, 11, 12, 13, 17, 128, 129, 133, 135, 136, 137, 255] {
        contents.push((format!("ICMP {kind}"), packet(family, icmp_protocol, &icmp(family, kind, 0))));
    }
    for protocol in [0, 4, 41, 43, 44, 47, 50, 51, 58, 59, 60, 99, 132, 135, 255] {
        contents.push((format!("protocol {protocol}"), packet(family, Protocol(protocol), &[0; 24])));
    }
    let mut all = Vec::new();
    for (name, plain) in contents {
        let len = plain.len();
        for end in [1, 10, [20, 40][family], len - 1] {
            all.push((format!("{name}, {end} bytes"), plain[..end].to_vec()));
        }
        all.push((format!("{name}, damaged at the end"), damaged(plain.clone(), len - 1)));
        all.push((format!("{name}, first part"), fragment(family, &plain, 0..8, true)));
        all.push((format!("{name}, last part"), fragment(family, &plain, 8..16, false)));
        all.push((format!("{name}, contradicting part"), fragment(family, &plain, 0..16, true)));
        if family == 0 {
            all.push((format!("{name}, options"), with_options(&plain, 40)));
            all.push((format!("{name}, wrong checksum"), damaged(plain.clone(), 8)));
        } else {
            all.push((format!("{name}, options"), with_extension(&plain, 0, [1, 4, 0, 0, 0, 0])));
            all.push((format!("{name}, unknown option"), with_extension(&plain, 60, [0xc2, 4, 0, 0, 0, 0])));
        }
        all.push((name, plain));
    }
    all
}

/// Packets taken by connections are counted as well, under placements with and without a second
/// receiver.
#[test]
fn packets_of_connections_are_counted() {
    for placement in [Placement::Thread, Placement::Split, Placement::Packet(2), Placement::Connection(2)] {
        let pairs: Vec<_> = (0..placement.driver_count()).map(|_| MemoryTun::pair()).collect();
        let stack = |side: usize, ip: IpAddr| {
            let queues = pairs.iter().map(|pair| IpDevice::memory(pair[side].clone(), ip));
            let device = queues.reduce(IpDevice::with_queue).expect("a queue");
            Listening::start(TcpStackConfig::new(device, &[ip]).with_placement(placement))
        };
        let (client, server) = (stack(0, KERNEL[0]), stack(1, STACK[0]));
        let (there, back) = (pattern(2 << 20, 1), pattern(1 << 20, 2));
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| exchange(&server.accept().expect("a client"), &back));
            let stream = client.connect((STACK[0], 80).into()).expect("connected");
            assert!(exchange(&stream, &there) == back, "{placement}");
            assert!(serving.join().expect("served") == there, "{placement}");
        });
        for stack in [&client, &server] {
            let clock = MonotonicClock::start();
            loop {
                let (read, known) = (stack.count_of(Count::Read), fates(stack).iter().sum::<u64>());
                if read == known {
                    break;
                }
                let waited = clock.now().saturating_since(units::Instant::ZERO);
                assert!(waited < Duration::from_secs(30).into(), "{placement}: {known} fates of {read} packets");
                std::thread::yield_now();
            }
            assert!(stack.count_of(Count::Taken) >= 8, "{placement}");
            // There were no errors.
            for count in Count::ALL.into_iter().filter(|count| count.is_drop() && *count != Count::Unwanted) {
                assert_eq!(stack.count_of(count), 0, "{placement}: {}", count.name());
            }
        }
    }
}
