//! The DSCP of terminated connections, as the devices of both ends show it.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use super::Terminated;
use crate::tunnel::{Running, SERVER, World};

/// Writes a line for each new kind of TCP packet from an address that the device litz0 carries: whether it has
/// the flag SYN, and its DSCP. Arguments: the address, the file.
const CAPTURE: &str = "
import socket, sys
source, file = sys.argv[1], sys.argv[2]
# With a protocol from the start, it would take packets of other devices until it is bound.
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
s.bind(('litz0', 3))
log = open(file, 'w', buffering=1)
open(file + '.ready', 'w').close()
seen = set()
while True:
    packet = s.recv(65536)
    if packet[0] >> 4 == 4:
        start, dscp = (packet[0] & 15) * 4, packet[1] >> 2
        kind = socket.inet_ntop(socket.AF_INET, packet[12:16]), packet[9]
    else:
        start, dscp = 40, (packet[0] << 8 | packet[1]) >> 6 & 63
        kind = socket.inet_ntop(socket.AF_INET6, packet[8:24]), packet[6]
    if kind != (source, socket.IPPROTO_TCP):
        continue
    line = f'{\"SYN\" if packet[start + 13] & 2 else \"data\"} {dscp}'
    if line not in seen:
        seen.add(line)
        log.write(line + '\\n')
";

/// How a script sets the DSCP of a socket.
const SET: &str = "
import socket, sys
address, port = sys.argv[1], int(sys.argv[2])
family = socket.AF_INET6 if ':' in address else socket.AF_INET
def set_dscp(s, dscp):
    if family == socket.AF_INET:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
    else:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2)
";

/// Sends back what it gets, with the DSCP AF41, on two addresses.
const ECHO: &str = "
l = socket.socket(family)
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
set_dscp(l, 34)
l.bind((address, port))
l.listen()
while True:
    c, _ = l.accept()
    set_dscp(c, 34)
    while data := c.recv(1000):
        c.sendall(data)
    c.close()
";

/// Connects with EF, and changes to lower effort once EF has come out of the tunnel, and AF41 of the far end. The
/// third and the fourth argument are the captures at the far end and at this one.
const CLIENT: &str = "
far, near = sys.argv[3:5]
def exchange_until(file, line):
    while line not in open(file).read().splitlines():
        s.sendall(b'x')
        assert s.recv(1) == b'x'
s = socket.socket(family)
set_dscp(s, 46)
s.connect((address, port))
exchange_until(far, 'data 46')
exchange_until(near, 'data 34')
set_dscp(s, 1)
exchange_until(far, 'data 1')
";

/// Starts a capture at a host.
fn capture(world: &World, name: &str, source: &str) -> (Running, String) {
    let file = world.path(&format!("capture-{source}")).display().to_string();
    let mut command = World::in_namespace(name, "python3", &["-c", CAPTURE, source, &file]);
    let mut capture = Running(command.stdout(Stdio::null()).spawn().expect("python3 starts"));
    while !Path::new(&format!("{file}.ready")).exists() {
        assert!(capture.0.try_wait().expect("it was started").is_none(), "the capture ended");
        std::thread::yield_now();
    }
    (capture, file)
}

#[test]
fn packets_that_leave_have_the_class_of_those_that_came_and_follow_its_changes() {
    let Some(test) = Terminated::new("tdscp", &[], &["--terminate=all"]) else { return };
    let world = &test.world;
    let clients = ["10.76.0.2", "fd76:6c69:747a::2"];
    for ((server, client), port) in SERVER.into_iter().zip(clients).zip(["8010", "8011"]) {
        let _echo = world.start("python3", &["-c", &format!("{SET}{ECHO}"), server, port]);
        world.await_port(port.parse().expect("a port"));
        let (_far, far) = capture(world, &world.server, client);
        let (_near, near) = capture(world, &world.client, server);
        world.succeed("python3", &["-c", &format!("{SET}{CLIENT}"), server, port, &far, &near]);
        let lines = |file: &str| fs::read_to_string(file).expect("a file");
        assert_eq!(lines(&far), "SYN 46\ndata 46\ndata 1\n");
        // The answer to the SYN has the class of the target's.
        assert_eq!(lines(&near), "SYN 34\ndata 34\n");
    }
    let (sent, received) = test.end();
    for end in [&sent, &received] {
        assert_eq!((&end["begun"], &end["failed"]), (&2.into(), &0.into()), "{end}");
    }
}
