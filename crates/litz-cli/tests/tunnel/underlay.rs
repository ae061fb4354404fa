//! The links below the tunnel: what leaves on them, and what happens when they go and come.

use std::path::Path;

use super::stream::Stream;
use super::{Running, SERVER, World, ip, try_outside};

/// Writes the packets that leave on a device, other than those of the neighbour protocols and those between the
/// given addresses and the port of a server: DEVICE FILE PORT. It ends when FILE.stop is there.
const CAPTURE: &str = "
import os, socket, struct, sys
device, file, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
# With a protocol from the start, it would take packets of other devices until it is bound.
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
s.bind((device, 3))
s.settimeout(0.05)
leaked, own = [], 0
open(file + '.ready', 'w').close()
while True:
    try:
        data, (_, protocol, kind, _, _) = s.recvfrom(65535)
    except TimeoutError:
        if os.path.exists(file + '.stop'):
            break
        continue
    if kind != 4:  # PACKET_OUTGOING
        continue
    if protocol == 0x0806 or protocol == 0x86dd and (data[6] == 0 or data[6] == 58 and data[40] >= 130):
        continue  # ARP, ICMPv6 of the link: neighbours and groups
    if protocol == 0x0800 and data[9] == 1 and data[20:22] == b'\\x03\\x03' and data[48:50] == struct.pack('!H', port):
        continue  # the kernel tells the server that the tunnel's own socket is closed
    at = 20 if protocol == 0x0800 else 40
    udp = (data[9] if at == 20 else data[6]) == 17
    if udp and struct.unpack('!H', data[at + 2:at + 4])[0] == port:
        own += 1
    else:
        leaked.append(data[:48].hex())
open(file, 'w').write(f'{own}\\n' + '\\n'.join(leaked))
";

/// Tries to reach an address by all means, and tells nothing.
const TRY_ALL: &str = "
import socket
for family, to in ((socket.AF_INET, '10.200.0.1'), (socket.AF_INET6, 'fd20::1')):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s = socket.socket(family, kind)
        s.settimeout(0.3)
        try:
            s.connect((to, 5005))
            s.send(b'x')
        except OSError:
            pass
    try:
        s = socket.socket(family, socket.SOCK_RAW, 1 if family == socket.AF_INET else 58)
        s.sendto(b'\\x08\\0\\xf7\\xff\\0\\0\\0\\0' if family == socket.AF_INET else b'\\x80' + bytes(7), (to, 0))
    except OSError:
        pass
";

/// The client reaches all networks through the server, which has an address in another one.
pub(super) fn give_default_routes(world: &World) {
    ip(&format!("-n {} addr add 10.200.0.1/32 dev lo", world.server));
    ip(&format!("-n {} route add default via 10.9.0.2 dev c0", world.client));
    ip(&format!("-n {} addr add fd09::1/64 dev c0 nodad", world.client));
    ip(&format!("-n {} -6 route add default via fd09::2 dev c0", world.client));
}

#[test]
fn with_a_kill_switch_nothing_but_the_tunnels_own_packets_leaves() {
    let Some(world) = World::new("capture", 1, &["python3"]) else { return };
    give_default_routes(&world);
    let (mut server, ticket) = world.serve(&[]);
    let port = server.seen.iter().find_map(|event| event["port"].as_u64()).expect("a port").to_string();
    let mut client = world.litz(&world.client, &["up", "--all", "--kill-switch", &ticket]);
    client.wait_for("up");
    server.wait_for("client");

    let seen = world.path("capture").display().to_string();
    let capture = World::in_namespace(&world.client, "python3", &["-c", CAPTURE, "c0", &seen, &port]).spawn();
    let mut capture = Running(capture.expect("python3 starts"));
    while !Path::new(&format!("{seen}.ready")).exists() {
        assert!(capture.0.try_wait().expect("it was started").is_none(), "the capture ended");
        std::thread::yield_now();
    }
    world.succeed("python3", &["-c", TRY_ALL]);
    client.kill();
    // Now there is no tunnel.
    world.succeed("python3", &["-c", TRY_ALL]);
    assert!(!try_outside(&world, "refused"));
    std::fs::write(format!("{seen}.stop"), "").expect("a file");
    assert!(capture.0.wait().expect("it was started").success());
    let report = std::fs::read_to_string(&seen).expect("a file");
    let (own, leaked) = report.split_once('\n').unwrap_or((&report, ""));
    assert!(own.parse::<u64>().is_ok_and(|own| own > 0), "the tunnel's own were seen: {report}");
    assert_eq!(leaked, "", "of {own} packets");

    // The capture sees what leaves when nothing holds it back.
    world.down();
    let again = world.path("again").display().to_string();
    let capture = World::in_namespace(&world.client, "python3", &["-c", CAPTURE, "c0", &again, &port]).spawn();
    let mut capture = Running(capture.expect("python3 starts"));
    while !Path::new(&format!("{again}.ready")).exists() {
        std::thread::yield_now();
    }
    assert!(try_outside(&world, "out"));
    std::fs::write(format!("{again}.stop"), "").expect("a file");
    assert!(capture.0.wait().expect("it was started").success());
    assert!(std::fs::read_to_string(&again).expect("a file").lines().count() > 1, "it was seen");
}

#[test]
fn a_kill_switch_stays_in_force_when_another_holder_of_the_key_has_taken_over() {
    let Some(world) = World::new("taken", 1, &["python3"]) else { return };
    ip(&format!("-n {} addr add 10.200.0.1/32 dev lo", world.server));
    ip(&format!("-n {} route add default via 10.9.0.2 dev c0", world.client));
    let (mut server, ticket) = world.serve(&[]);
    let mut client = world.litz(&world.client, &["up", "--all", "--kill-switch", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    let mut other = world.litz(&world.client, &["up", "--tun", "litz1", &ticket]);
    other.wait_for("up");
    client.fail(2, "still refused (--kill-switch): `litz tunnel down` ends that");
    assert!(!try_outside(&world, "refused"));
    server.wait_for("client");
    server.wait_for("gone");
    World::end(other, server);
    assert!(!try_outside(&world, "refused"));
    world.down();
    assert!(try_outside(&world, "out"));
}

#[test]
fn one_device_at_a_time_gets_all_packets() {
    let Some(world) = World::new("second", 1, &[]) else { return };
    let (mut server, ticket) = world.serve(&[]);
    let mut client = world.litz(&world.client, &["up", "--all", &ticket]);
    client.wait_for("up");
    let rules = || World::in_namespace(&world.client, "ip", &["rule", "show"]).output().expect("ip").stdout;
    let before = rules();
    world.litz(&world.client, &["up", "--all", "--tun", "litz1", &ticket]).fail(2, "`litz tunnel down --tun litz0`");
    assert_eq!(rules(), before);
    // Its own rules, which it has left, hinder no command.
    client.kill();
    server.wait_for("client");
    let mut client = world.litz(&world.client, &["up", "--all", &ticket]);
    client.wait_for("up");
    assert_eq!(rules(), before);
    server.wait_for("client");
    server.wait_for("gone");
    World::end(client, server);
}

#[test]
fn an_inner_connection_survives_links_and_addresses_that_go_and_come() {
    let Some(world) = World::new("links", 2, &["python3", "ss"]) else { return };
    let _echo = world.echo();
    let (client, server) = world.tunnel();
    world.await_paths(2);
    let mut stream = Stream::start(&world, SERVER[0]);
    stream.await_progress(50);
    for device in ["c0", "c1"] {
        ip(&format!("-n {} link set {device} down", world.client));
        stream.await_progress(100);
        ip(&format!("-n {} link set {device} up", world.client));
        world.await_paths(2);
        stream.await_progress(50);
    }
    // Other addresses, as a network assigns when a host comes again.
    for (link, device) in ["c0", "c1"].iter().enumerate() {
        ip(&format!("-n {} addr del 10.9.{link}.1/24 dev {device}", world.client));
        stream.await_progress(100);
        ip(&format!("-n {} addr add 10.9.{link}.77/24 dev {device}", world.client));
        world.await_paths(2);
        stream.await_progress(50);
    }
    // In silence: packets vanish on the way.
    ip(&format!("-n {} link set s0 down", world.server));
    stream.await_progress(100);
    stream.finish();
    World::end(client, server);
}

/// Sends a datagram over a device, whatever the rules prefer.
const SEND_ON_DEVICE: &str = "
import socket
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'c0')
s.sendto(b'x', ('fd20::1', 5005))
";

#[test]
fn a_kill_switch_is_in_force_before_the_server_answers_and_when_it_does_not() {
    let Some(world) = World::new("early", 1, &["python3"]) else { return };
    give_default_routes(&world);
    let sends_on_device = || World::in_namespace(&world.client, "python3", &["-c", SEND_ON_DEVICE]).output();
    let sends_on_device = || sends_on_device().expect("python3 starts").status.success();
    assert!(sends_on_device());
    // Packets to this address leave, and nothing comes back.
    ip(&format!("-n {} neigh add 10.9.0.77 lladdr 02:00:00:00:00:01 dev c0 nud permanent", world.client));
    let rules = || World::in_namespace(&world.client, "ip", &["rule", "show"]).output().expect("ip").stdout;
    let before = rules();
    let (_server, ticket) = world.serve(&["--advertise", "10.9.0.77:4433"]);
    let seen = world.path("seen").display().to_string();
    let mut listener = world.listener(&seen);
    let up = ["up", "--all", "--kill-switch", &ticket];
    let mut client = world.litz(&world.client, &up);
    client.wait_for("unanswered");
    assert!(!try_outside(&world, "refused") && !sends_on_device());
    // The user ends it.
    world.down();
    assert_eq!(client.finish("down").0, 130);
    assert_eq!(rules(), before);
    assert!(try_outside(&world, "between"));

    // The first attempt fails.
    world.litz(&world.client, &[&up[..], &["--path", "c9"]].concat()).fail(2, "still refused (--kill-switch)");
    assert!(!try_outside(&world, "refused"));
    // Another command takes that over, and is killed before it is answered.
    client = world.litz(&world.client, &up);
    client.wait_for("unanswered");
    client.kill();
    assert!(!try_outside(&world, "refused"));
    world.down();
    assert_eq!(rules(), before);
    assert!(try_outside(&world, "end"));
    assert!(listener.0.wait().expect("it was started").success());
    assert_eq!(std::fs::read_to_string(&seen).expect("a file"), "between 10.9.0.1\nend 10.9.0.1");
}
