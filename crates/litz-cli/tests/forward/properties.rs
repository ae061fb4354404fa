//! Properties of the sockets of programs under `litz run`, and of their processes: with which of them a
//! connection is carried, and with which it is the kernel's.

use super::run::{FAR, World, texts};
use super::*;

/// Connects a socket of each kind, blocking and not, and says where the server sees it come from: Litz, or this
/// host. `-` is an option that the kernel does not have.
const EACH: &str = "
import errno, os, select, socket, struct, sys
host, port, host6, port6 = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
IP, TCP, ANY, IP6 = socket.IPPROTO_IP, socket.IPPROTO_TCP, socket.SOL_SOCKET, socket.IPPROTO_IPV6
def option(level, name, value):
    return lambda s: s.setsockopt(level, name, value)
def v6(*options):
    def make():
        s = socket.socket(socket.AF_INET6)
        [o(s) for o in options]
        return s
    return make
def v4(*options):
    def make():
        s = socket.socket()
        [o(s) for o in options]
        return s
    return make
def bound(*address):
    return lambda s: s.bind(address)
mapped = '::ffff:' + host
kinds = {
    'plain': (v4(), host, port),
    'port': (v4(option(ANY, socket.SO_REUSEADDR, 1), bound('', 7001)), host, port),
    'address': (v4(bound('10.78.0.1', 0)), host, port),
    'reuseport': (v4(option(ANY, socket.SO_REUSEPORT, 1), bound('10.78.0.1', 7003)), host, port),
    'mark': (v4(option(ANY, 36, 7)), host, port),
    'priority': (v4(option(ANY, socket.SO_PRIORITY, 5)), host, port),
    'linger': (v4(option(ANY, socket.SO_LINGER, struct.pack('ii', 1, 5))), host, port),
    'keepalive': (v4(option(ANY, socket.SO_KEEPALIVE, 1), option(TCP, socket.TCP_KEEPIDLE, 1)), host, port),
    'dontroute': (v4(option(ANY, socket.SO_DONTROUTE, 1)), host, port),
    'rcvlowat': (v4(option(ANY, socket.SO_RCVLOWAT, 1)), host, port),
    'buffers': (v4(option(ANY, socket.SO_RCVBUF, 1), option(ANY, socket.SO_SNDBUF, 1)), host, port),
    'tos': (v4(option(IP, socket.IP_TOS, 0xb8), option(IP, socket.IP_TTL, 1)), host, port),
    'minttl': (v4(option(IP, 21, 255)), host, port),
    'recverr': (v4(option(IP, 11, 1)), host, port),
    'no port': (v4(option(IP, 24, 1), bound('10.78.0.1', 0)), host, port),
    'nodelay': (v4(option(TCP, socket.TCP_NODELAY, 1), option(TCP, socket.TCP_CORK, 1)), host, port),
    'maxseg': (v4(option(TCP, socket.TCP_MAXSEG, 500)), host, port),
    'congestion': (v4(option(TCP, 13, b'reno')), host, port),
    'syncnt': (v4(option(TCP, socket.TCP_SYNCNT, 1), option(TCP, 18, 9000)), host, port),
    'fast open': (v4(option(TCP, 30, 1)), host, port),
    'fast open without a cookie': (v4(option(TCP, 34, 1), option(TCP, 30, 1)), host, port),
    'mptcp': (lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262), host, port),
    'mapped': (v6(), mapped, port),
    'mapped and bound': (v6(bound('::ffff:10.78.0.1', 0)), mapped, port),
    'v6only': (v6(option(IP6, socket.IPV6_V6ONLY, 1)), host6, port6),
    'class': (v6(option(IP6, socket.IPV6_TCLASS, 0xb8)), host6, port6),
    'minhops': (v6(option(IP6, 73, 255)), host6, port6),
}
for name, (make, to, at) in kinds.items():
    for blocks in (True, False):
        try:
            s = make()
        except OSError as error:
            assert error.errno in (errno.ENOPROTOOPT, errno.EPROTONOSUPPORT, errno.ENOENT, errno.EINVAL), (name, error)
            print(name, '-')
            continue
        s.setblocking(blocks)
        error = s.connect_ex((to, at))
        assert error in ((0,) if blocks else (0, errno.EINPROGRESS)), (name, errno.errorcode[error])
        poll = select.poll()
        poll.register(s, select.POLLOUT)
        assert poll.poll(60_000) and s.getsockopt(ANY, socket.SO_ERROR) == 0, name
        s.setblocking(True)
        s.settimeout(60)
        print(name, b''.join(iter(lambda: s.recv(100), b'')).decode())
        s.close()
# What never connects is the kernel's error.
for make, to, at, expected in [
    (v6(option(IP6, socket.IPV6_V6ONLY, 1)), mapped, port, errno.ENETUNREACH),
    (v6(option(IP6, socket.IPV6_V6ONLY, 1)), 'fe80::1', port, errno.EINVAL),
]:
    error = make().connect_ex((to, at))
    assert error == expected, (to, errno.errorcode[error])
# A call that sends and connects at once is not supported, and connect does it.
s = socket.socket()
for send in [lambda: s.sendto(b'x', socket.MSG_FASTOPEN, (host, port)),
             lambda: s.sendmsg([b'x'], [], socket.MSG_FASTOPEN, (host, port))]:
    try:
        send()
        assert False
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP, error";

#[test]
fn sockets_are_carried_whatever_their_options_are() {
    let Some(world) = World::with(&["*:*"], &[], |near, far| {
        for (host, last) in [(near, 1), (far, 2)] {
            host.ip(&format!("addr add fd78::{last}/64 dev l0 nodad"));
        }
    }) else {
        return;
    };
    let tell = |mut stream: TcpStream| {
        let peer = stream.peer_addr().expect("it is connected").ip();
        let _gone = stream.write_all(peer.to_string().as_bytes());
    };
    let (port, port6) = (world.serve("10.78.0.2", tell), world.serve("fd78::2", tell));
    for more in [&[][..], &["--dns", "here"]] {
        let (port, port6) = (port.to_string(), port6.to_string());
        let program = ["python3", "-c", EACH, "10.78.0.2", &port, "fd78::2", &port6];
        let (status, output, errors) = texts(world.command_with(more, &program).output().expect("it starts"));
        assert_eq!(status, 0, "{output}{errors}");
        for line in output.lines() {
            let (name, seen) = line.rsplit_once(' ').expect("two words");
            assert!(["10.78.0.2", "fd78::2", "-"].contains(&seen), "{name}: {seen}");
        }
        assert_eq!(output.lines().filter(|line| line.starts_with("plain 10.78.0.2")).count(), 2, "{output}");
    }
}

/// The time of a socket, after which a call of connect returns.
const TIMED: &str = "
import errno, socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bytes(8) + (200_000).to_bytes(8, sys.byteorder))
assert s.connect_ex((sys.argv[1], 9)) == errno.EINPROGRESS
assert s.connect_ex((sys.argv[1], 9)) == errno.ETIMEDOUT
print('good')";

#[test]
fn a_socket_with_a_time_for_sending_waits_no_longer_for_its_connection() {
    let Some(world) = World::with(&["*:*"], &[], |_, far| {
        // The far host knows its hardware address, so that nothing tells that it is not there.
        far.ip("neigh add 10.78.0.77 lladdr 02:00:00:00:00:77 dev l0");
    }) else {
        return;
    };
    let (status, output, errors) = world.run(&["python3", "-c", TIMED, "10.78.0.77"]);
    assert_eq!((status, &*output), (0, "good\n"), "{errors}");
}

/// A process in a network namespace of its own, whose address is not the far host's.
const NAMESPACE: &str = "
ip link set lo up && ip addr add 10.79.0.1/32 dev lo && python3 -c \"
import socket
listener = socket.create_server(('10.79.0.1', 0))
listener.settimeout(60)
for blocks in (True, False):
    s = socket.socket()
    s.setblocking(blocks)
    s.connect_ex(listener.getsockname())
    print(listener.accept()[1][0])
\"";

/// An address that this host does not have: packets from there come back by rules of the host.
const TRANSPARENT: &str = "
import errno, socket, sys
s = socket.socket()
s.setsockopt(socket.IPPROTO_IP, 15, 1)
s.bind(('203.0.113.9', 0))
s.setblocking(False)
print(errno.errorcode[s.connect_ex((sys.argv[1], 9))])";

/// The address of a neighbour on a link.
const ON_LINK: &str = "
import errno, socket
s = socket.socket(socket.AF_INET6)
s.setblocking(False)
print(errno.errorcode[s.connect_ex(('fe80::77', 9, 0, socket.if_nametoindex('l0')))])";

#[test]
fn what_names_a_network_of_this_host_is_the_kernels() {
    let Some(world) = World::new() else { return };
    let run = |program: &[&str]| texts(world.command_with(&["--json"], program).output().expect("it starts"));
    let is_carried = |errors: &str| errors.contains("\"opened\"") || errors.contains("\"refused\"");
    let (status, output, errors) = run(&["unshare", "-n", "bash", "-c", NAMESPACE]);
    assert_eq!((status, &*output, is_carried(&errors)), (0, "10.79.0.1\n10.79.0.1\n", false), "{errors}");
    let (status, output, errors) = run(&["python3", "-c", TRANSPARENT, FAR]);
    // The near host has no route there.
    assert_eq!((status, &*output, is_carried(&errors)), (0, "ENETUNREACH\n", false), "{errors}");
    let (status, output, errors) = run(&["python3", "-c", ON_LINK]);
    // Without an address on the link yet, the kernel cannot begin.
    assert!(["EINPROGRESS\n", "EADDRNOTAVAIL\n"].contains(&&*output), "{output}");
    assert_eq!((status, is_carried(&errors)), (0, false), "{errors}");
}
