//! Sockets of programs under `litz run`: those that do not block, and those that listen.

use std::process::{Child, Command, Stdio};

use super::run::{FAR, World, assert_prints, echo, texts};
use super::*;
use crate::support::needs::skipped_by_the_kernel;

/// One thread, sockets that do not block: while one waits for a host that does not answer, another one is
/// connected, and a third one is refused.
const LATER: &str = "
import errno, select, socket, sys
def begin(host, port):
    s = socket.socket()
    s.setblocking(False)
    assert s.connect_ex((host, port)) == errno.EINPROGRESS
    return s
def wait(s):
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    [(_, events)] = poll.poll(60_000)
    return events, s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
far, port = sys.argv[1], int(sys.argv[2])
silent = begin('10.79.9.9', 80)
assert silent.connect_ex(('10.79.9.9', 80)) == errno.EALREADY
refused = begin(far, 1)
events, error = wait(refused)
assert error == errno.ECONNREFUSED and events & select.POLLERR, (events, error)
assert refused.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
again = begin(far, 1)
poll = select.poll()
poll.register(again, select.POLLOUT)
poll.poll(60_000)
assert again.connect_ex((far, 1)) == errno.ECONNREFUSED
good = begin(far, port)
assert wait(good) == (select.POLLOUT, 0)
assert good.getpeername() == (far, port)
good.setblocking(True)
good.sendall(b'x' * 1_000_000)
good.shutdown(socket.SHUT_WR)
assert b''.join(iter(lambda: good.recv(65536), b'')) == b'x' * 1_000_000
try:
    silent.getpeername()
    print('connected')
except OSError as error:
    assert error.errno == errno.ENOTCONN
print('good')
silent.close()";

#[test]
fn a_socket_that_does_not_block_is_connected_later() {
    let Some(world) = World::new() else { return };
    // Nothing answers there.
    world.far.ip("route add 10.79.9.0/24 dev l0");
    let port = world.serve(FAR, echo).to_string();
    assert_prints(world.run(&["python3", "-c", LATER, FAR, &port]), "good\n");
}

/// The own address of sockets of both families, before and after they are connected.
const OWN: &str = "
import socket, sys, time
port = int(sys.argv[2])
for family, any, host in [(socket.AF_INET, '0.0.0.0', sys.argv[1]), (socket.AF_INET6, '::', '::ffff:' + sys.argv[1])]:
    s = socket.socket(family)
    assert s.getsockname()[:2] == (any, 0), s.getsockname()
    s.connect((host, port))
    print(s.getsockname()[0].removeprefix('::ffff:'), s.getsockname()[1] > 0)
    own = s.getsockname()
    s.shutdown(socket.SHUT_WR)
    assert s.recv(1) == b''
    # Also when Litz does not carry it any more, which is soon.
    for _ in range(50):
        assert s.getsockname() == own, (s.getsockname(), own)
        time.sleep(0.01)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(('127.0.0.1', 0))
print(udp.getsockname()[0])";

#[test]
fn a_connected_socket_has_an_own_address_that_fits_its_peer() {
    let Some(world) = World::with(&["*:*"], &[], |_, _| {}) else { return };
    // One that the near host has a way to, by its second link, and one that it reaches over Litz alone.
    for (host, expected) in [("10.78.1.2", "10.78.1.1"), (FAR, "10.78.0.1")] {
        let port = world.serve(host, echo).to_string();
        let (status, output, errors) = world.run(&["python3", "-c", OWN, host, &port]);
        let expected = format!("{expected} True\n{expected} True\n127.0.0.1\n");
        assert_eq!((status, output), (0, expected), "{errors}");
    }
}

/// Multipath TCP (RFC 8684), with a socket that blocks and with one that does not.
const MULTIPATH: &str = "
import socket, sys
for time in [None, 60]:
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
    except OSError:
        print('missing')
        break
    s.settimeout(time)
    s.connect((sys.argv[1], int(sys.argv[2])))
    assert s.getpeername() == (sys.argv[1], int(sys.argv[2]))
    s.sendall(b'x' * 300_000)
    s.shutdown(socket.SHUT_WR)
    assert b''.join(iter(lambda: s.recv(65536), b'')) == b'x' * 300_000
print('end')";

#[test]
fn a_socket_of_multipath_tcp_is_forwarded_as_one_of_tcp() {
    let Some(world) = World::new() else { return };
    let port = world.serve(FAR, echo).to_string();
    let (status, output, errors) = world.run(&["python3", "-c", MULTIPATH, FAR, &port]);
    assert!(status == 0 && output.ends_with("end\n"), "{status} {output} {errors}");
    if output.contains("missing") {
        skipped_by_the_kernel("multipath TCP");
    }
}

/// Accepts one connection at a time, and says where it comes from.
const BLOCKING: &str = "
import signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
s = socket.create_server(('', 8080))
print('ready', flush=True)
while True:
    c, peer = s.accept()
    assert c.getpeername() == peer
    data = b''.join(iter(lambda: c.recv(65536), b''))
    c.sendall(data)
    c.close()
    print(peer[0], peer[1], flush=True)";

/// The same with an event loop, for both address families.
const POLLING: &str = "
import asyncio
async def serve(reader, writer):
    peer = writer.get_extra_info('peername')
    writer.write(await reader.read())
    await writer.drain()
    writer.close()
    print(peer[0].removeprefix('::ffff:'), peer[1], flush=True)
async def main():
    import socket
    s = socket.create_server(('::', 8080), family=socket.AF_INET6, dualstack_ipv6=True)
    server = await asyncio.start_server(serve, sock=s)
    print('ready', flush=True)
    await server.serve_forever()
asyncio.run(main())";

/// A server of the near host that the far one can reach.
fn publish(world: &World, program: &str) -> (Child, impl Iterator<Item = String>) {
    let mut command = world.command_with(&["--publish", "8080"], &["python3", "-c", program]);
    let mut child = command.stderr(Stdio::inherit()).spawn().expect("it starts");
    let output = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let mut lines = std::io::BufRead::lines(output).map(|line| line.expect("text"));
    assert_eq!(lines.next().as_deref(), Some("ready"));
    (child, lines)
}

fn terminate(child: &Child) {
    let status = Command::new("kill").arg(child.id().to_string()).status();
    assert!(status.expect("kill runs").success());
}

#[test]
fn a_published_server_sees_the_addresses_of_far_programs() {
    let Some(world) = World::new() else { return };
    for (program, expected) in [(BLOCKING, 9), (POLLING, 143)] {
        let (mut child, mut lines) = publish(&world, program);
        for (number, address) in ["127.0.0.1:8080", "[::1]:8080"].into_iter().enumerate() {
            if program == BLOCKING && number == 1 {
                // A socket for IPv4 cannot name such a peer.
                continue;
            }
            let stream = world.far.inside(|| connect(address.parse().expect("an address")));
            let own = stream.local_addr().expect("a socket");
            assert_echo(stream, 300_000, number as u64);
            assert_eq!(lines.next(), Some(format!("{} {}", own.ip(), own.port())));
        }
        // Also while it waits in a call of accept.
        terminate(&child);
        assert_eq!(child.wait().expect("it ends").code(), Some(expected));
    }
}

#[test]
fn a_port_that_the_program_does_not_serve_is_closed_to_far_programs() {
    let Some(world) = World::new() else { return };
    let script = "echo ready; read -r";
    let mut command = world.command_with(&["--publish", "8081"], &["bash", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
    child.stdout.as_mut().expect("piped").read_exact(&mut [0; 6]).expect("it runs");
    let stream = world.far.inside(|| connect("127.0.0.1:8081".parse().expect("an address")));
    assert!(exchange(stream, b"x").is_err(), "it is reset");
    child.stdin.take().expect("piped").write_all(b"end\n").expect("it reads");
    assert_eq!(texts(child.wait_with_output().expect("it ends")).0, 0);
}
