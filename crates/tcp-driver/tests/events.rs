//! Segments of no connection, with all flags, numbers and lengths, and the exact answer (RFC 9293,
//! sections 3.10.7.1 and 3.10.7.2): for a port without a listener, and for a listening port. Also
//! covers sources that are no host.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use driver::protocol::{Begun, Plan as _};
use driver::shared::Common;
use driver::{Connection as _, Protocol, Route};
use tcp::{HostSecret, State, SuperPacket, TcpConfig};
use tcp_driver::link::Prefix;
use tcp_driver::{
    Count, HostCounters, Limits, Listen, ListeningPorts, LocalAddress, Received, SegmentPlan, Tcp, TcpCell,
    TcpConnection, TcpShared,
};
use units::{Instant, Seq32};
use wire::ip;
use wire::tcp::{Flags, Header};

const NOW: Instant = Instant::from_nanos(1_000_000_000);
const OPEN: u16 = 80;
const CLOSED: u16 = 81;

struct Stack {
    protocol: Tcp,
    counters: Arc<HostCounters>,
    shared: Arc<TcpShared>,
}

impl Stack {
    fn new() -> Self {
        let addresses =
            ["10.0.0.2", "10.0.9.2", "fd00::2"].map(|ip| LocalAddress { ip: ip.parse().unwrap(), device: 0 });
        let (ports, counters) = (Arc::<ListeningPorts>::default(), Arc::<HostCounters>::default());
        let common = Arc::new(Common::new(1));
        let shared = Arc::new(TcpShared::new(Waker::noop().clone(), Vec::new(), Limits::default(), common, 0));
        let port = ports.listen(&shared, OPEN, Listen::default()).expect("it listens");
        drop(port);
        let networks = [("10.0.0.2", 24), ("10.0.9.2", 31), ("10.0.10.2", 32), ("fd00::2", 64)]
            .map(|(ip, len)| Prefix::new(ip.parse().unwrap(), len).unwrap());
        let protocol = Tcp::new(TcpConfig::default(), HostSecret::new([7; 32]), addresses.to_vec())
            .with_networks(&networks)
            .with_listening(ports)
            .with_counters(Arc::clone(&counters));
        Self { protocol, counters, shared }
    }

    /// Takes a packet of no connection, like the driver.
    fn take(&mut self, packet: &Received) -> Taken {
        let mut out = SuperPacket::default();
        match self.protocol.route(packet).1 {
            Route::Begins => match self.protocol.accept(NOW, &self.shared, 0, packet.clone(), false, false) {
                Begun::Connection(connection, cell) => Taken::Begun(Box::new(connection), cell),
                Begun::Reply(packet) => Taken::Answer(answer(&packet)),
                _ => Taken::Nothing,
            },
            Route::Reply if self.protocol.reply(NOW, 0, packet, &mut out) => Taken::Answer(answer(&out)),
            Route::Known(_) => panic!("it has no connection"),
            _ => Taken::Nothing,
        }
    }
}

/// Result of a packet.
enum Taken {
    Begun(Box<TcpConnection>, Arc<TcpCell>),
    /// Answer: flags, SEQ and ACK.
    Answer((Flags, u32, u32)),
    Nothing,
}

fn answer(packet: &SuperPacket) -> (Flags, u32, u32) {
    let mut found = None;
    packet.packets(|bytes| {
        let packet = ip::Packet::parse(bytes).expect("a packet");
        let (header, _) = Header::parse(packet.payload).expect("a segment");
        found = Some((header.flags, header.seq.get(), header.ack.get()));
    });
    found.expect("one packet")
}

/// Returns a segment from `source` to `destination`, with `len` bytes of data.
fn segment(source: &str, destination: (&str, u16), flags: Flags, seq: u32, ack: u32, len: usize) -> Received {
    let [source, ip] = [source, destination.0].map(|ip| ip.parse().expect("an address"));
    let header = Header {
        source_port: 999,
        destination_port: destination.1,
        seq: Seq32::new(seq),
        ack: Seq32::new(ack),
        flags,
        window: 1000,
        ..Header::default()
    };
    packet(source, ip, header, len)
}

fn packet(source: IpAddr, destination: IpAddr, header: Header, len: usize) -> Received {
    let mut bytes = Vec::new();
    outer(source, destination, ip::Protocol::TCP).emit(header.len() + len, &mut bytes);
    header.emit(&mut bytes);
    bytes.resize(bytes.len() + len, b'x');
    Received::new(Bytes::from(bytes), None, true)
}

const fn outer(source: IpAddr, destination: IpAddr, protocol: ip::Protocol) -> ip::Header {
    ip::Header { source, destination, protocol, hop_limit: 64, dscp: 0, ecn: None, id: 0, may_fragment: false }
}

/// Returns all combinations of six flags.
fn all_flags() -> impl Iterator<Item = Flags> {
    let parts = [Flags::SYN, Flags::FIN, Flags::RST, Flags::ACK, Flags::PSH, Flags::URG];
    (0..64_u32).map(move |bits| {
        let chosen = parts.iter().enumerate().filter(|(at, _)| bits >> at & 1 != 0).map(|(_, flag)| *flag);
        chosen.fold(Flags::default(), |flags, flag| flags | flag)
    })
}

/// Returns each segment: flags, SEQ, ACK, bytes of data, and SEG.LEN.
fn all_segments() -> impl Iterator<Item = (Flags, u32, u32, usize, u32)> {
    let numbers = [0, 5000, u32::MAX];
    all_flags().flat_map(move |flags| {
        numbers.into_iter().flat_map(move |seq| {
            numbers.into_iter().flat_map(move |ack| {
                [0, 30].into_iter().map(move |len| {
                    let is_set = |flag: Flags| u32::from(flags.contains(flag));
                    (flags, seq, ack, len, len as u32 + is_set(Flags::SYN) + is_set(Flags::FIN))
                })
            })
        })
    })
}

#[test]
fn segments_for_a_port_that_nothing_has_are_answered_as_the_rfc_says() {
    let mut stack = Stack::new();
    let mut count = 0;
    for (flags, seq, ack, len, seg_len) in all_segments().take(900) {
        let expected = match (flags.contains(Flags::RST), flags.contains(Flags::ACK)) {
            (true, _) => None,
            (_, true) => Some((Flags::RST, ack, 0)),
            (_, false) => Some((Flags::RST | Flags::ACK, 0, seq.wrapping_add(seg_len))),
        };
        let found = match stack.take(&segment("10.0.0.1", ("10.0.0.2", CLOSED), flags, seq, ack, len)) {
            Taken::Answer(answer) => Some(answer),
            Taken::Nothing => None,
            Taken::Begun(..) => panic!("{flags}: a connection to a closed port"),
        };
        assert_eq!(found, expected, "{flags} {seq} {ack} {len}");
        count += 1;
    }
    assert!(count == 900, "at most a thousand are answered in a second");
}

#[test]
fn segments_in_listen_are_answered_as_the_rfc_says() {
    for (flags, seq, ack, len, _) in all_segments() {
        let mut stack = Stack::new();
        let has = |flag: Flags| flags.contains(flag);
        let text = format!("{flags} {seq} {ack} {len}");
        match stack.take(&segment("10.0.0.1", ("10.0.0.2", OPEN), flags, seq, ack, len)) {
            // Third check: SYN. Text and a FIN are kept for later.
            Taken::Begun(mut connection, _cell) => {
                assert!(has(Flags::SYN) && !has(Flags::RST) && !has(Flags::ACK), "{text}");
                assert_eq!(connection.tcp().state(), State::SynReceived, "{text}");
                let (mut plan, mut sealed) = (SegmentPlan::default(), SuperPacket::default());
                assert!(connection.poll_plan(NOW, &|_| 1, &mut plan), "{text}");
                plan.seal(&mut sealed);
                let (flags, iss, ack) = answer(&sealed);
                assert_eq!((flags, ack), (Flags::SYN | Flags::ACK, seq.wrapping_add(1)), "{text}");
                // The handshake is completed by an acknowledgement after the text.
                let len = len as u32 + u32::from(has(Flags::FIN));
                let last = segment("10.0.0.1", ("10.0.0.2", OPEN), Flags::ACK, ack.wrapping_add(len), iss + 1, 0);
                connection.absorb(NOW, 0, last);
                let state = if has(Flags::FIN) { State::CloseWait } else { State::Established };
                assert_eq!(connection.tcp().state(), state, "{text}");
            }
            // Second check: ACK.
            Taken::Answer(answer) => {
                assert!(has(Flags::ACK) && !has(Flags::RST), "{text}: {answer:?}");
                assert_eq!(answer, (Flags::RST, ack, 0), "{text}");
            }
            // First check, and fourth.
            Taken::Nothing => assert!(has(Flags::RST) || !(has(Flags::ACK) || has(Flags::SYN)), "{text}"),
        }
    }
}

/// RFC 1122, section 3.2.1.3, of all segments; RFC 9293, MUST-63, of a SYN.
#[test]
fn nothing_from_a_source_that_is_no_other_host_is_answered() {
    let v4 = (
        "10.0.0.2",
        [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "224.0.0.1",
            "239.1.2.3",
            "255.255.255.255",
            "10.0.0.2",
            "10.0.9.2",
            "10.0.0.255",
        ]
        .as_slice(),
    );
    let v6 = (
        "fd00::2",
        ["::", "::1", "ff02::1", "ff0e::9", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "fd00::2", "ff02::2"].as_slice(),
    );
    for (destination, sources) in [v4, v6] {
        for source in sources {
            let mut stack = Stack::new();
            for (number, (flags, port)) in all_flags().flat_map(|flags| [(flags, OPEN), (flags, CLOSED)]).enumerate() {
                let packet = segment(source, (destination, port), flags, 5, 6, 7);
                assert!(matches!(stack.take(&packet), Taken::Nothing), "{source} {flags} {port}");
                assert_eq!(stack.counters.of(Count::InvalidSources), 1 + number as u64, "{source}");
            }
            for protocol in [ip::Protocol::UDP, ip::Protocol::ICMP, ip::Protocol::ICMPV6, ip::Protocol(99)] {
                let before = stack.counters.of(Count::InvalidSources);
                let [from, to] = [source, destination].map(|ip| ip.parse().expect("an address"));
                let mut bytes = Vec::new();
                outer(from, to, protocol).emit(8, &mut bytes);
                // A packet to an unused port, or an echo request: others are answered.
                bytes.extend_from_slice(&[8, 0, 0, 9, 0, 8, 0, 0]);
                let packet = Received::new(Bytes::from(bytes), None, true);
                assert!(matches!(stack.take(&packet), Taken::Nothing), "{source} {protocol:?}");
                assert_eq!(stack.counters.of(Count::InvalidSources), before + 1, "{source} {protocol:?}");
            }
        }
    }
    // Other hosts are answered: both addresses of a /31 are hosts (RFC 3021), and the first address of a
    // network is one, as for Linux.
    let others = [
        ("10.0.0.1", "10.0.0.2"),
        ("10.0.0.0", "10.0.0.2"),
        ("10.0.1.255", "10.0.0.2"),
        ("10.0.9.3", "10.0.9.2"),
        ("10.0.10.2", "10.0.0.2"),
        ("fd00::1", "fd00::2"),
        ("fd00::ffff:ffff:ffff:ffff", "fd00::2"),
        ("fe80::1", "fd00::2"),
    ];
    for (source, destination) in others {
        let mut stack = Stack::new();
        let syn = segment(source, (destination, OPEN), Flags::SYN, 5, 0, 0);
        assert!(matches!(stack.take(&syn), Taken::Begun(..)), "{source}");
        assert_eq!(stack.counters.of(Count::InvalidSources), 0);
    }
}
