//! The system accepts no datagrams for a while: `ENOBUFS` from a queue below the socket,
//! `EWOULDBLOCK` from the socket itself. Neither is a loss.

use std::io::{self, Read, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use litz::{Closed, Endpoint, LiveSocket, Placement, Stats, UdpSocket, UdpSocketOptions};
use net::SendError;
use net::testing::{Faults, InterceptedSocket, Refusals, RefuseSends};
use units::Duration;

use crate::world::{Variant, Wire, World, pattern};

const LEN: usize = 8 << 20;

/// Error that the system returns for the send with this number, if it refuses.
type Choose = fn(u64) -> Option<SendError>;

#[expect(clippy::disallowed_methods, reason = "a test in which one side waits while the other is notified")]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(100));
}

/// Runs a transfer between these sockets and returns the statistics of sender and receiver.
fn transfer(world: &World, receiving: Box<dyn LiveSocket>, sending: Box<dyn LiveSocket>) -> (Stats, Stats) {
    let mut config = world.config();
    // Less than any queue on the path holds, so that only the refusals cause loss.
    config.transport.stream_window = 128 << 10;
    config.transport.stream_window_max = 128 << 10;
    let server = world.server_over(config.clone(), receiving);
    let address = server.local_addr();
    std::thread::scope(|scope| {
        let server = &server;
        let reading = scope.spawn(move || {
            let connection = server.accept().unwrap();
            let mut all = Vec::new();
            connection.accept_uni().unwrap().read_to_end(&mut all).unwrap();
            assert!(all == pattern(LEN, 3));
            // The last acknowledgements, also of late packets, must reach the sender before the
            // close.
            pause();
            let stats = connection.stats();
            connection.close(0, "done");
            connection.closed();
            stats
        });
        let client = Endpoint::with_sockets(config, vec![sending]).unwrap();
        let connection = world.connect(&client, address);
        let mut stream = connection.open_uni().unwrap();
        stream.write_all(&pattern(LEN, 3)).unwrap();
        stream.finish().unwrap();
        assert!(matches!(connection.closed(), Closed::ByPeer { .. }));
        (connection.stats(), reading.join().unwrap())
    })
}

/// A transfer whose sender and whose receiver meet these refusals, each at least `least` times.
fn nothing_is_lost(wire: Wire, placement: Placement, choose: Choose, least: u64) {
    let world = World::new(Variant { wire, placement });
    let refused: [Arc<Refusals>; 2] = Default::default();
    let [at_client, at_server] = refused.each_ref().map(|refused| -> Box<dyn LiveSocket> {
        Box::new(InterceptedSocket::new(world.socket(0), RefuseSends::new(choose, refused)))
    });
    let (sent, received) = transfer(&world, at_server, at_client);
    let [at_client, at_server] = refused.map(|refused| refused.total());
    assert!(at_client >= least && at_server >= least, "{wire:?}, {placement:?}: {at_client} and {at_server} refusals");
    let received_twice = received.receive.packets_duplicate;
    let lost = [missing(&sent), missing(&received)];
    assert_eq!(lost, [0, 0], "{wire:?}, {placement:?}: refusals are no losses");
    assert_eq!(received_twice, 0, "{wire:?}, {placement:?}: nothing was sent twice");
}

/// Packets lost permanently. A busy machine's loopback delivers from the queues of several cores,
/// so packets can pass others and be declared lost until they are acknowledged after all.
fn missing(stats: &Stats) -> u64 {
    stats.send.packets_lost - stats.send.packets_late
}

#[test]
fn the_first_two_hundred_sends_find_no_buffers() {
    for placement in [Placement::Thread, Placement::Inline] {
        nothing_is_lost(Wire::Udp, placement, |number| (number <= 200).then_some(SendError::NoBuffers), 200);
    }
}

#[test]
fn bursts_without_buffers_only_delay() {
    for wire in [Wire::Udp, Wire::Memory] {
        let choose: Choose = |number| (number % 60 >= 40).then_some(SendError::NoBuffers);
        nothing_is_lost(wire, Placement::Thread, choose, 20);
    }
}

/// A system socket whose buffer was full reports when it is writable again; the driver retries a
/// socket in memory after a short time.
#[test]
fn full_socket_buffers_only_delay() {
    let once: Choose = |number| (number % 3 == 1).then_some(SendError::WouldBlock);
    nothing_is_lost(Wire::Udp, Placement::Thread, once, 20);
    let burst: Choose = |number| (number % 60 >= 40).then_some(SendError::WouldBlock);
    nothing_is_lost(Wire::Memory, Placement::Thread, burst, 20);
}

/// The same with a real kernel queue: a network namespace whose loopback device carries 100 Mb/s,
/// and a small send buffer.
#[test]
fn a_send_buffer_that_the_kernel_has_filled_only_delays() {
    const INSIDE: &str = "LITZ_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        let refused = slow_loopback();
        assert!(refused > 20, "the send buffer was full {refused} times");
        return;
    }
    let name = "adverse::no_buffers::a_send_buffer_that_the_kernel_has_filled_only_delays";
    let setup =
        "ip link set lo up && tc qdisc add dev lo root tbf rate 100mbit burst 64kb limit 8mb || exit 77; exec \"$@\"";
    let status = std::process::Command::new("unshare")
        .args(["--net", "sh", "-c", setup, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) if status.code() == Some(101) => panic!("it failed inside the namespace"),
        other => skipped(&format!("a network namespace with a slow device needs root and tc: {other:?}")),
    }
}

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}

/// Runs a transfer over a socket with a small send buffer and returns how often that was full.
fn slow_loopback() -> u64 {
    let world = World::new(Variant { wire: Wire::Udp, placement: Placement::Thread });
    let mut options = UdpSocketOptions::new("127.0.0.1:0".parse().unwrap());
    options.send_buffer_bytes = 32 << 10;
    let refused = Arc::new(Refusals::default());
    let socket = InterceptedSocket::new(UdpSocket::open(&options).unwrap(), RefuseSends::new(|_| None, &refused));
    let (sent, _) = transfer(&world, world.socket(0), Box::new(socket));
    assert_eq!(missing(&sent), 0, "a full buffer is no loss: {:?}", sent.send);
    refused.total()
}

/// A socket that never accepts data again does not prevent callers from being notified of the
/// close.
#[test]
fn users_of_a_socket_that_stays_full_are_notified_of_the_close() {
    let world = World::new(Variant { wire: Wire::Memory, placement: Placement::Thread });
    let refused = Arc::new(Refusals::default());
    let choose: Choose = |number| (number > 8).then_some(SendError::NoBuffers);
    let stuck = InterceptedSocket::new(world.socket(0), RefuseSends::new(choose, &refused));
    let mut config = world.config();
    config.transport.idle_timeout = Duration::from_secs(2);
    let server = world.server(config.clone());
    let address = server.local_addr();
    let (ended, results) = mpsc::channel();
    let client = Endpoint::with_sockets(config, vec![Box::new(stuck)]).unwrap();
    let connection = world.connect(&client, address);
    let mut stream = connection.open_uni().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let error = stream.write_all(&pattern(LEN, 3)).unwrap_err();
            ended.send(error.kind()).unwrap();
        });
        let kind = results.recv_timeout(std::time::Duration::from_secs(6));
        // Also releases a writer that was not woken.
        client.close();
        assert_eq!(kind, Ok(io::ErrorKind::TimedOut), "after {} refusals", refused.total());
    });
}

/// Received data is delivered even if nothing can be sent.
#[test]
fn a_socket_that_cannot_send_still_receives() {
    let world = World::new(Variant { wire: Wire::Memory, placement: Placement::Thread });
    let faults = Arc::new(Faults::default());
    let socket_of_server = InterceptedSocket::new(world.socket(0), Arc::clone(&faults));
    let server = world.server_over(world.config(), Box::new(socket_of_server));
    let client = world.client(world.config());
    let ours = world.connect(&client, server.local_addr());
    let theirs = server.accept().unwrap();
    let mut stream = ours.open_uni().unwrap();
    stream.write_all(b"before").unwrap();
    let mut reading = theirs.accept_uni().unwrap();
    let mut before = [0; 6];
    reading.read_exact(&mut before).unwrap();
    faults.no_buffers.store(true, Ordering::SeqCst);
    theirs.send_datagram(bytes::Bytes::from_static(b"stuck")).unwrap();
    while faults.refused.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    stream.write_all(b"during").unwrap();
    let read = reading.read_chunk_timeout(std::time::Duration::from_secs(1));
    let refused = faults.refused.load(Ordering::SeqCst);
    faults.no_buffers.store(false, Ordering::SeqCst);
    assert_eq!(read, Ok(Some(Some(bytes::Bytes::from_static(b"during")))), "while {refused} sends were refused");
}
