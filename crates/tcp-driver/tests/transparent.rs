//! A stack that has all addresses, and whose application decides about each SYN.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use bytes::Bytes;
use driver::protocol::Begun;
use driver::shared::Common;
use driver::{Flush, Protocol, Route};
use tcp::{Arrival, Connection, HostSecret, Plan, SuperPacket, TcpConfig, Tuple};
use tcp_driver::{
    Closed, Count, HostCounters, Limits, OpeningHandle, Received, Runtime, SegmentPlan, StreamHandle, Tcp, TcpShared,
    Transparent, TransparentBounds,
};
use units::{Instant, Seq32};
use wire::icmp::{Message, Unreachable};
use wire::tcp::Flags;

const NOW: Instant = Instant::ZERO;

/// Runtime that runs nothing: the test makes the driver's calls.
#[derive(Clone)]
struct Still;

impl Runtime for Still {
    fn kick(&self, _shared: &TcpShared, _flush: Flush) {}

    fn block_on<T>(&self, _deadline: Option<Instant>, mut poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        match poll(Waker::noop()) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }
}

struct Stack {
    protocol: Tcp,
    transparent: Arc<Transparent>,
    counters: Arc<HostCounters>,
    shared: Arc<TcpShared>,
    /// Connections that began.
    begun: Mutex<Vec<tcp_driver::TcpConnection>>,
}

impl Stack {
    fn new(bounds: TransparentBounds) -> Self {
        let secret = HostSecret::new([7; 32]);
        let transparent = Arc::new(Transparent::new(bounds, secret.table_key()));
        let counters = Arc::<HostCounters>::default();
        let protocol = Tcp::new(TcpConfig::default(), secret, Vec::new())
            .with_counters(Arc::clone(&counters))
            .with_transparent(Arc::clone(&transparent));
        let common = Arc::new(Common::new(1));
        let shared = TcpShared::new(Waker::noop().clone(), Vec::new(), Limits::default(), common, 0);
        Self { protocol, transparent, counters, shared: Arc::new(shared), begun: Mutex::default() }
    }

    /// Takes a packet that may begin a connection. Returns true if it is held.
    fn accept(&mut self, packet: Received) -> bool {
        assert_eq!(self.protocol.route(&packet).1, Route::Begins);
        matches!(self.protocol.accept(NOW, &self.shared, 0, packet, false, false), Begun::Held)
    }

    fn next(&self) -> Option<OpeningHandle<Still>> {
        let next = OpeningHandle::poll_next(&Still, &self.shared, &self.transparent, Waker::noop());
        match next {
            Poll::Ready(opening) => Some(opening.expect("the stack runs")),
            Poll::Pending => None,
        }
    }

    /// Returns the packets caused by decisions.
    fn answers(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let Some((_, begun)) = self.protocol.poll_decided(NOW, &self.shared, true) {
            match begun {
                Begun::Reply(packet) => packet.packets(|bytes| all.push(bytes.to_vec())),
                Begun::Connection(connection, _) => self.begun.lock().expect("one thread").push(connection),
                _ => {}
            }
        }
        all
    }

    fn owns(&self, peer: &Connection) -> bool {
        let Tuple { local, remote } = *peer.tuple();
        self.transparent.owns(&Tuple { local: remote, remote: local })
    }
}

fn bounds(openings_max: usize, connections_max: usize) -> TransparentBounds {
    TransparentBounds { openings_max, connections_max }
}

/// Returns a peer and its SYN.
fn peer(source: &str, target: &str) -> (Connection, Received) {
    let tuple = Tuple { local: source.parse().unwrap(), remote: target.parse().unwrap() };
    let mut connection = Connection::connect(NOW, TcpConfig::default(), tuple, Seq32::new(5), 5);
    let syn = sent(&mut connection).expect("a SYN");
    (connection, syn)
}

/// Returns the packet that a connection sends now, as a packet of its peer's device.
fn sent(connection: &mut Connection) -> Option<Received> {
    let (mut plan, mut packet, mut out) = (Plan::default(), SuperPacket::default(), None);
    if connection.poll_plan(NOW, 1, &mut plan) {
        if let Some(transmission) = plan.transmission() {
            connection.handle_emitted(NOW, transmission);
        }
        plan.seal(&mut packet);
        packet.packets(|bytes| out = Some(Received::new(Bytes::copy_from_slice(bytes), None, false)));
    }
    out
}

/// Returns the first packet of a connection.
fn answer_of(connection: &mut tcp_driver::TcpConnection) -> Vec<u8> {
    let (mut plan, mut packet, mut out) = (SegmentPlan::default(), SuperPacket::default(), None);
    assert!(driver::Connection::poll_plan(connection, NOW, &|_| 1, &mut plan), "it answers");
    driver::protocol::Plan::seal(&plan, &mut packet);
    packet.packets(|bytes| out = Some(bytes.to_vec()));
    out.expect("a packet")
}

#[test]
fn a_syn_to_any_address_waits_for_the_decision_and_is_answered_then() {
    let mut stack = Stack::new(bounds(9, 9));
    for (source, target) in [("10.0.0.9:999", "192.0.2.1:80"), ("[fd00::9]:999", "[2001:db8::1]:443")] {
        let (peer, syn) = peer(source, target);
        assert!(!stack.owns(&peer), "nothing has begun");
        assert!(stack.accept(syn.clone()));
        assert!(stack.owns(&peer) && stack.answers().is_empty(), "no answer yet");
        // A repetition by the peer is the same attempt.
        assert!(stack.accept(syn));
        let opening = stack.next().expect("an attempt");
        assert!(stack.next().is_none());
        let ends: [SocketAddr; 2] = [source.parse().unwrap(), target.parse().unwrap()];
        assert_eq!((opening.source(), opening.destination(), opening.asks_for_ecn()), (ends[0], ends[1], true));
        let handle: StreamHandle<Still> = opening.accept_with_dscp(34);
        assert!(stack.answers().is_empty(), "a connection answers");
        let mut begun = stack.begun.lock().unwrap().pop().expect("a connection");
        assert_eq!(*begun.tcp().tuple(), Tuple { local: ends[1], remote: ends[0] });
        let answer = answer_of(&mut begun);
        let answer = wire::ip::Packet::parse(&answer).expect("a packet");
        let (header, _) = wire::tcp::Header::parse(answer.payload).expect("a segment");
        assert_eq!((header.flags.contains(Flags::SYN | Flags::ACK), answer.dscp), (true, 34));
        assert!(handle.poll_connected(Waker::noop()).is_pending());
    }
}

#[test]
fn a_refused_peer_is_reset_and_an_unreachable_one_told_so() {
    let mut stack = Stack::new(bounds(9, 9));
    let (mut refused, syn) = peer("10.0.0.9:1", "192.0.2.1:80");
    assert!(stack.accept(syn));
    stack.next().expect("an attempt").refuse();
    let reset = stack.answers().pop().expect("an answer");
    refused.handle_segment(NOW, Arrival::open(&Bytes::from(reset), None, false).expect("a segment"));
    assert_eq!(refused.close_reason(), Some(tcp::CloseReason::Refused));
    assert!(!stack.owns(&refused));

    for (source, target) in [("10.0.0.9:2", "192.0.2.1:80"), ("[fd00::9]:2", "[2001:db8::1]:443")] {
        let (_, syn) = peer(source, target);
        assert!(stack.accept(syn.clone()));
        stack.next().expect("an attempt").report_unreachable();
        let report = stack.answers().pop().expect("an answer");
        let packet = wire::ip::Packet::parse(&report).expect("a packet");
        let message = Message::parse(packet.source, packet.destination, packet.payload).expect("a report");
        let Message::Unreachable { code: Unreachable::Host, quoted, .. } = message else { panic!("{message:?}") };
        assert!(syn.packet().starts_with(quoted) && quoted.len() >= 28, "it names the connection");
    }
}

#[test]
fn an_ignored_peer_gets_no_answer_and_may_come_again() {
    let mut stack = Stack::new(bounds(9, 9));
    let (peer, syn) = peer("10.0.0.9:1", "192.0.2.1:80");
    for _ in 0..2 {
        assert!(stack.accept(syn.clone()));
        drop(stack.next().expect("an attempt"));
        assert!(stack.answers().is_empty() && !stack.owns(&peer));
    }
}

#[test]
fn attempts_and_connections_are_bounded() {
    let mut stack = Stack::new(bounds(2, 3));
    let attempt = |stack: &mut Stack, port: u16| stack.accept(peer(&format!("10.0.0.9:{port}"), "192.0.2.1:80").1);
    assert!(attempt(&mut stack, 1) && attempt(&mut stack, 2));
    assert!(!stack.transparent.has_space() && !attempt(&mut stack, 3), "two wait");
    assert_eq!(stack.counters.of(Count::BacklogDrops), 1);
    let _first = stack.next().expect("an attempt").accept();
    let _second = stack.next().expect("an attempt").accept();
    assert!(stack.answers().is_empty());
    assert_eq!(stack.transparent.connection_count(), 2);
    assert!(attempt(&mut stack, 3));
    assert!(!stack.transparent.has_space() && !attempt(&mut stack, 4), "one waits, and there are three");
    assert_eq!(stack.counters.of(Count::BacklogDrops), 2);
}

#[test]
fn a_stack_that_ends_leaves_no_caller_waiting() {
    let mut stack = Stack::new(bounds(9, 9));
    assert!(stack.accept(peer("10.0.0.9:1", "192.0.2.1:80").1));
    assert!(stack.accept(peer("10.0.0.9:2", "192.0.2.1:80").1));
    let decided = stack.next().expect("an attempt").accept();
    let Stack { protocol, transparent, shared, .. } = stack;
    let undecided = OpeningHandle::poll_next(&Still, &shared, &transparent, Waker::noop());
    drop(protocol);
    let late = match undecided {
        Poll::Ready(Some(opening)) => opening.accept(),
        _ => panic!("an attempt"),
    };
    for handle in [decided, late] {
        let closed = handle.poll_connected(Waker::noop());
        assert!(matches!(closed, Poll::Ready(Err(Closed::Driver(_)))), "{closed:?}");
    }
    let over = OpeningHandle::poll_next(&Still, &shared, &transparent, Waker::noop());
    assert!(matches!(over, Poll::Ready(None)));
}

#[test]
fn the_code_point_of_a_peers_packets_is_known_as_long_as_they_are_the_stacks() {
    let mut stack = Stack::new(bounds(9, 9));
    for (source, target) in [("10.0.0.9:1", "192.0.2.1:80"), ("[fd00::9]:1", "[2001:db8::1]:443")] {
        let tuple = Tuple { local: source.parse().unwrap(), remote: target.parse().unwrap() };
        let mut peer = Connection::connect(NOW, TcpConfig::default(), tuple, Seq32::new(5), 5);
        peer.set_dscp(46);
        let syn = sent(&mut peer).expect("a SYN");
        let seen_here = Tuple { local: tuple.remote, remote: tuple.local };
        assert!(!stack.transparent.takes(&seen_here, 1), "nothing has begun");
        assert!(stack.accept(syn));
        let opening = stack.next().expect("an attempt");
        assert_eq!((opening.dscp(), stack.transparent.dscp_of_peer(&seen_here)), (46, Some(46)));
        assert!(stack.transparent.takes(&seen_here, 1));
        assert_eq!(stack.transparent.dscp_of_peer(&seen_here), Some(1));
        opening.refuse();
        assert_eq!(stack.answers().len(), 1);
        assert_eq!(stack.transparent.dscp_of_peer(&seen_here), None);
    }
}
