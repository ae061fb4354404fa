//! Packets of all sizes through links and devices of all sizes.

use super::{Running, SERVER, World, ip};

/// Answers UDP datagrams and the bytes of TCP connections with the same, over both IP versions.
const ECHO: &str = "
import socket, threading
def udp():
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.bind(('::', 5007))
    while True:
        data, source = s.recvfrom(65535)
        s.sendto(data, source)
def tcp(c):
    while data := c.recv(65536):
        c.sendall(data)
    c.close()
threading.Thread(target=udp, daemon=True).start()
s = socket.create_server(('::', 5007), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    c, _ = s.accept()
    threading.Thread(target=tcp, args=(c,), daemon=True).start()
";

/// Sends datagrams of sizes around all limits up to a packet of MTU bytes, and bytes over TCP, and wants all
/// back: MTU ADDRESS... A datagram that a link loses while the path MTU is searched is sent again.
const PROBE: &str = "
import os, socket, sys
mtu = int(sys.argv[1])
for address in sys.argv[2:]:
    is_v6 = ':' in address
    most = mtu - (48 if is_v6 else 28)
    s = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(0.5)
    s.connect((address, 5007))
    for size in sorted({1, 600, 1100, 1200, most - 1, most} | {s for s in (1353, 1425, 1473, 8000) if s < most}):
        data = os.urandom(size)
        for _ in range(20):
            s.send(data)
            try:
                if s.recv(65535) == data:
                    break
            except TimeoutError:
                pass
        else:
            sys.exit(f'{size} bytes to {address} do not come back')
    c = socket.create_connection((address, 5007), timeout=20)
    data = os.urandom(300000)
    for at in range(0, len(data), 100000):
        c.sendall(data[at:at + 100000])
        back = b''
        while len(back) < 100000:
            part = c.recv(100000 - len(back))
            assert part, 'the connection ended'
            back += part
        assert back == data[at:at + 100000]
    c.close()
";

/// Sends datagrams of 5000 bytes that may not be fragmented until the kernel knows that they do not fit.
const TOO_LARGE: &str = "
import errno, socket, sys
address = sys.argv[1]
is_v6 = ':' in address
s = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET, socket.SOCK_DGRAM)
if is_v6:
    s.setsockopt(socket.IPPROTO_IPV6, 23, 2)  # IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO
else:
    s.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
s.connect((address, 9))
while True:
    try:
        s.send(bytes(5000))
    except OSError as error:
        if error.errno == errno.EMSGSIZE:
            break
print(s.getsockopt(socket.IPPROTO_IPV6, 24) if is_v6 else s.getsockopt(socket.IPPROTO_IP, 14))
";

impl World {
    /// Sets the MTU of all links.
    pub(super) fn set_link_mtu(&self, mtu: u32, links: usize) {
        for (name, device) in [(&self.client, 'c'), (&self.server, 's')] {
            (0..links).for_each(|link| ip(&format!("-n {name} link set {device}{link} mtu {mtu}")));
        }
    }

    /// Gives the links IPv6 addresses, and no others.
    fn use_ipv6_only(&self) {
        for (name, device, host) in [(&self.client, "c0", 1), (&self.server, "s0", 2)] {
            ip(&format!("-n {name} addr flush dev {device}"));
            ip(&format!("-n {name} addr add fd09::{host}/64 dev {device} nodad"));
        }
    }

    pub(super) fn echo(&self) -> Running {
        let echo = self.start("python3", &["-c", ECHO]);
        self.await_port(5007);
        echo
    }

    fn probe(&self, mtu: &str, addresses: &[&str]) {
        self.succeed("python3", &[&["-c", PROBE, mtu], addresses].concat());
    }
}

#[test]
fn packets_of_every_size_get_through_links_and_devices_of_every_size() {
    let Some(world) = World::new("mtu", 1, &["python3", "ss"]) else { return };
    let _echo = world.echo();
    for (link, tunnel, is_ipv6_only) in [
        (1280, "1280", false),
        (1500, "9000", false),
        (9000, "1400", false),
        (9000, "9000", false),
        (1280, "9000", true),
    ] {
        if is_ipv6_only {
            world.use_ipv6_only();
        }
        world.set_link_mtu(link, 1);
        let (mut server, ticket) = world.serve(&["--mtu", tunnel]);
        let mut client = world.litz(&world.client, &["up", &ticket]);
        assert_eq!(client.wait_for("up")["mtu"].to_string(), tunnel);
        server.wait_for("client");
        world.probe(tunnel, &SERVER);
        let (_, received) = World::end(client, server);
        assert_eq!((&received["out"]["malformed"], &received["in"]["too_large"]), (&0.into(), &0.into()), "{received}");
    }
}

#[test]
fn a_client_that_takes_less_gets_less_and_senders_are_told() {
    let Some(world) = World::new("small", 1, &["python3"]) else { return };
    let (mut server, ticket) = world.serve(&["--mtu", "9000"]);
    let mut client = world.litz(&world.client, &["up", "--mtu", "1300", &ticket]);
    assert_eq!(client.wait_for("up")["mtu"], 1300);
    let addresses = server.wait_for("client")["addresses"].clone();
    for address in addresses.as_array().expect("a list") {
        let address = address.as_str().expect("text");
        let output = World::in_namespace(&world.server, "python3", &["-c", TOO_LARGE, address]).output();
        let output = output.expect("python3 starts");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1300", "{address}: {output:?}");
    }
    let (_, received) = World::end(client, server);
    assert!(received["in"]["too_large"].as_u64() >= Some(2), "{received}");
}

#[test]
fn a_tunnel_in_a_tunnel_carries_packets_of_every_size() {
    let Some(world) = World::new("nested", 1, &["python3", "ss"]) else { return };
    let _echo = world.echo();
    let (outer_client, outer_server) = world.tunnel();
    // Unless it is named, a tunnel is no link of another one.
    let inner = ["--tun", "litz1", "--device", "litz0", "--address", "10.77.0.1/24", "--address", "fd77::1/64"];
    let (mut server, ticket) = world.serve(&inner);
    let mut client = world.litz(&world.client, &["up", "--tun", "litz1", "--path", "litz0", &ticket]);
    let up = client.wait_for("up");
    assert!(up["remote"].as_str().is_some_and(|remote| remote.contains("10.76.") || remote.contains("fd76:")), "{up}");
    server.wait_for("client");
    world.probe("1400", &["10.77.0.1", "fd77::1"]);
    World::end(client, server);
    World::end(outer_client, outer_server);
}
