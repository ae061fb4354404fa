//! The memory of an idle connection in a driver: with its cell and its routes, in bytes counted by
//! the allocator. It has a separate binary, because nothing else may allocate.

#[path = "../../quic/tests/adverse/heap_meter.rs"]
mod heap_meter;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use driver::protocol::{Begun, ConnectionKey, Plan as _, Protocol};
use driver::{Connection as _, Shared, shared::Common};
use heap_meter::Meter;
use tcp::{Arrival, Connection, HostSecret, Plan, State, SuperPacket, TcpConfig, Tuple};
use tcp_driver::{Limits, Listen, ListeningPorts, LocalAddress, Received, SegmentPlan, Tcp, TcpCell, TcpConnection};
use units::{Instant, Seq32};

const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const COUNT: usize = 1000;

/// Memory limit of an idle connection in bytes.
const IDLE_MAX: usize = 4096;

/// Returns the packets that the client sends now.
fn packets(client: &mut Connection) -> Vec<Received> {
    let (mut plan, mut packet, mut all) = (Plan::default(), SuperPacket::default(), Vec::new());
    while client.poll_plan(Instant::ZERO, 1, &mut plan) {
        plan.seal(&mut packet);
        packet.packets(|packet| all.push(Received::new(Bytes::copy_from_slice(packet), None, false)));
    }
    all
}

/// Creates a connection of client `number`, after a handshake and some data.
fn connection(
    protocol: &mut Tcp,
    shared: &Arc<Shared<tcp_driver::TcpApplication>>,
    number: u16,
) -> (TcpConnection, Arc<TcpCell>) {
    let now = Instant::ZERO;
    let tuple = Tuple { local: (Ipv4Addr::new(10, 0, 0, 1), 10_000 + number).into(), remote: (LOCAL, 80).into() };
    let mut client = Connection::connect(now, TcpConfig::default(), tuple, Seq32::new(5), 5);
    let syn = packets(&mut client).remove(0);
    let Begun::Connection(mut connection, cell) = protocol.accept(now, shared, 0, syn, false, false) else {
        panic!("a SYN begins a connection");
    };
    let (mut plan, mut sealed) = (SegmentPlan::default(), SuperPacket::default());
    for round in 0..4 {
        protocol.update_routes(ConnectionKey(number.into()), &mut connection);
        while connection.poll_plan(now, &|_| 16, &mut plan) {
            plan.seal(&mut sealed);
            sealed.packets(|packet| {
                let arrival = Arrival::open(&Bytes::copy_from_slice(packet), None, false).expect("a segment");
                client.handle_segment(now, arrival);
            });
        }
        packets(&mut client).into_iter().for_each(|packet| connection.absorb(now, 0, packet));
        connection.process_events(&|| now);
        assert!(round == 0 || client.state() == State::Established);
    }
    (connection, cell)
}

#[test]
fn an_idle_connection_takes_four_kilobytes_with_its_cell_and_routes() {
    let address = LocalAddress { ip: LOCAL.into(), device: 0 };
    let protocol = Tcp::new(TcpConfig::default(), HostSecret::new([7; 32]), vec![address]);
    let common = Arc::new(Common::new(1));
    let shared = Arc::new(Shared::new(Waker::noop().clone(), vec![(LOCAL, 0).into()], Limits::default(), common, 0));
    let ports = Arc::<ListeningPorts>::default();
    ports.listen(&shared, 80, Listen::default()).expect("the port is free");
    let mut protocol = protocol.with_listening(ports);
    let mut connections = Vec::with_capacity(COUNT);
    let mut meter = Meter::start();
    for number in 0..COUNT as u16 {
        connections.push(connection(&mut protocol, &shared, number));
    }
    let heap = meter.look() / COUNT;
    let bytes = heap + size_of::<TcpConnection>() + size_of::<Arc<TcpCell>>();
    assert!(bytes <= IDLE_MAX, "{bytes} bytes, {heap} of them on the heap");
    assert!(heap > 500, "{heap}: the meter counts nothing");
}
