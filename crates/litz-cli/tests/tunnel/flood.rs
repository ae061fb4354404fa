//! A flood of tiny packets of very many flows into the tunnel.

use super::crowd::resident_bytes_max;
use super::{SERVER, World};

/// Packets that are sent at a time. The tunnel takes what it can; the kernel drops the rest at the device.
const PACKETS: u64 = 400_000;

/// Packets of the flood that the tunnel drops, at least.
const DROPPED: u64 = 50_000;

/// How much the flood may add to the largest resident memory of an end. Three MiB are usual; an end that kept the packets
/// that it drops would take far more.
const GROWTH_BYTES_MAX: u64 = 12 << 20;

/// Sends datagrams of one byte from many ports to as many ports of another host as there are, each to the
/// next one: COUNT ADDRESS.
const FLOOD: &str = "
import socket, sys
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(256)]
for number in range(int(sys.argv[1])):
    try:
        sockets[number * 31 % 256].sendto(b'x', (sys.argv[2], 1024 + number % 64000))
    except OSError:
        pass  # The kernel has no space for it.
";

/// Sends a text over a connection to a program that sends it back: ADDRESS.
const EXCHANGE: &str = "
import socket, sys
s = socket.create_connection((sys.argv[1], 5007))
s.sendall(b'there')
assert s.recv(5, socket.MSG_WAITALL) == b'there'
";

#[test]
#[expect(clippy::print_stderr, reason = "a measurement")]
fn a_flood_of_tiny_packets_of_many_flows_takes_bounded_memory() {
    let Some(world) = World::new("flood", 1, &["python3", "ss", "tc"]) else { return };
    // Less than the flood needs, so that packets wait and are dropped.
    world.shape(&[5]);
    let _echo = world.echo();
    let (client, server) = world.tunnel();
    world.succeed("python3", &["-c", EXCHANGE, SERVER[0]]);
    let ends = [client.id(), server.id()];
    let before = ends.map(resident_bytes_max);
    // A busy machine sends fewer in the same time, and more of them leave.
    while world.status()["peers"][0]["in"]["dropped"].as_u64().expect("a number") < DROPPED {
        world.succeed("python3", &["-c", FLOOD, &PACKETS.to_string(), SERVER[0]]);
    }
    let after = ends.map(resident_bytes_max);
    world.succeed("python3", &["-c", EXCHANGE, SERVER[0]]);

    let (sent, received) = World::end(client, server);
    eprintln!("resident bytes of client and server, at most: {before:?}, then {after:?}; {sent} {received}");
    assert!(sent["in"]["dropped"].as_u64() >= Some(DROPPED), "more came than the link carries: {sent}");
    for (before, after) in before.into_iter().zip(after) {
        assert!(after < before + GROWTH_BYTES_MAX, "{before} bytes became {after}");
    }
}
