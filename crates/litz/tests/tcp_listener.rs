//! Ports that accept connections.

use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::time::Duration;

use litz::Placement;
use litz::tcp::{CloseReason, Closed, IpDevice, ListenError, MemoryTun, TcpStack, TcpStackConfig};

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

/// Returns a client and a server with a link between them.
fn stacks(placement: Placement) -> [TcpStack; 2] {
    let mut ips = [CLIENT, SERVER].into_iter();
    MemoryTun::pair().map(|tun| {
        let ip = ips.next().expect("two addresses");
        let config = TcpStackConfig::new(IpDevice::memory(tun, ip), &[ip]).with_placement(placement);
        TcpStack::start(config).expect("a stack")
    })
}

#[test]
fn each_port_has_connections_of_its_own() {
    let [client, server] = stacks(Placement::Thread);
    let listeners = [80, 81].map(|port| server.listen(port).expect("the port is free"));
    // The other order, so that a common queue would mix them up.
    let clients = [81, 80].map(|port| client.connect((SERVER, port).into()).expect("connected"));
    for (listener, client) in listeners.iter().zip(clients.iter().rev()) {
        let accepted = listener.accept().expect("a client");
        assert_eq!(accepted.peer_addr(), client.local_addr());
        assert_eq!(
            (accepted.local_addr().port(), accepted.local_addr()),
            (listener.local_addr().port(), client.peer_addr())
        );
        assert!(listener.accept_timeout(Duration::ZERO).expect("it listens").is_none());
    }
}

#[test]
fn a_port_begins_to_listen_and_ends_while_the_stack_runs() {
    for placement in [Placement::Thread, Placement::Split, Placement::Pipeline, Placement::Packet(2)] {
        let [client, server] = stacks(placement);
        let connect = || client.connect((SERVER, 80).into());
        let refused = Some(Closed::Tcp(CloseReason::Refused));
        assert_eq!(connect().err(), refused, "nothing listens");
        let listener = server.listen(80).expect("the port is free");
        assert_eq!(server.listen(80).err(), Some(ListenError::InUse(80)));
        let first = connect().expect("connected");
        let accepted = listener.accept().expect("a client");
        listener.close();
        assert_eq!(listener.accept().err(), Some(Closed::NotListening));
        assert_eq!(connect().err(), refused, "it listens no more");
        // The accepted connection continues.
        (&accepted).write_all(b"hello").expect("the peer reads");
        accepted.finish();
        let mut text = String::new();
        (&first).read_to_string(&mut text).expect("the end");
        assert_eq!(text, "hello");
        // Another listener has the port, although the closed one still exists.
        let again = server.listen(80).expect("the port is free");
        drop(listener);
        let third = connect().expect("connected");
        assert_eq!(again.accept().expect("a client").peer_addr(), third.local_addr());
    }
}

#[test]
fn peers_that_wait_when_a_listener_is_dropped_are_reset() {
    let [client, server] = stacks(Placement::Thread);
    let listener = server.listen(80).expect("the port is free");
    let streams = [80; 3].map(|port| client.connect((SERVER, port).into()).expect("connected"));
    // The last segments of the handshakes may be on their way.
    drop(listener);
    for mut stream in &streams {
        let error = stream.read(&mut [0; 10]).expect_err("a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    while server.connection_count() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_call_that_waits_ends_with_its_listener_or_stack() {
    for closes_stack in [false, true] {
        let [_client, server] = stacks(Placement::Thread);
        let listener = server.listen(0).expect("a port is free");
        assert!(listener.local_addr().port() >= 49_152);
        std::thread::scope(|scope| {
            let waiting = [(); 2].map(|()| scope.spawn(|| listener.incoming().count()));
            if closes_stack {
                server.close();
            } else {
                listener.close();
            }
            waiting.into_iter().for_each(|thread| assert_eq!(thread.join().expect("it ends"), 0));
        });
        if closes_stack {
            assert_eq!(server.listen(81).err(), Some(ListenError::Closed));
        }
    }
}
