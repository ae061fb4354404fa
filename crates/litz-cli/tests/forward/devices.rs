//! Sockets of programs under `litz run` that are bound to a device: the kernel connects and sends.

use std::net::UdpSocket;

use super::names::Named;
use super::run::World;
use super::*;

/// Connects sockets that are bound to a device and others, and says where the server believes that they come from.
const CONNECTS: &str = "
import select, socket, sys
for device, blocks in [(None, True), (b'l0', True), (b'l0', False), (None, False)]:
    s = socket.socket()
    if device:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
    s.setblocking(blocks)
    s.connect_ex((sys.argv[1], int(sys.argv[2])))
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    assert poll.poll(60_000) == [(s.fileno(), select.POLLOUT)]
    s.setblocking(True)
    print(b''.join(iter(lambda: s.recv(100), b'')).decode())";

#[test]
fn a_socket_that_is_bound_to_a_device_is_connected_by_the_kernel() {
    let Some(world) = World::with(&["*:*"], &[], |_, _| {}) else { return };
    let port = world.serve("10.78.0.2", |mut stream| {
        let peer = stream.peer_addr().expect("it is connected").ip();
        let _gone = stream.write_all(peer.to_string().as_bytes());
    });
    // Also where nothing else goes without Litz.
    let (status, output, errors) = world.run(&["python3", "-c", CONNECTS, "10.78.0.2", &port.to_string()]);
    assert_eq!((status, &*output), (0, "10.78.0.2\n10.78.0.1\n10.78.0.1\n10.78.0.2\n"), "{errors}");
}

/// Asks a name server from sockets that are bound to a device and from others, in all ways.
const ASKS: &str = "
import ctypes, socket, struct
server = ('10.78.0.2', 53)
query = struct.pack('>6H', 7, 0x100, 1, 0, 0, 0) + b'\\x02db\\x03far\\x07example\\0\\0\\x01\\0\\x01'
def connect(s):
    s.connect(server)
    s.send(query)
def one_of_many(s):
    name = ctypes.create_string_buffer(struct.pack('=H', socket.AF_INET) + b'\\0\\x35' + socket.inet_aton(server[0]) + bytes(8))
    data = ctypes.create_string_buffer(query, len(query))
    area = ctypes.create_string_buffer(struct.pack('=QQ', ctypes.addressof(data), len(query)), 16)
    header = struct.pack('=QIIQQQQii', ctypes.addressof(name), 16, 0, ctypes.addressof(area), 1, 0, 0, 0, 0)
    entry = ctypes.create_string_buffer(header, 64)
    assert ctypes.CDLL(None).sendmmsg(s.fileno(), entry, 1, 0) == 1
ways = [connect, lambda s: s.sendto(query, server), lambda s: s.sendmsg([query], [], 0, server), one_of_many]
for device in [b'l0', None, b'l0']:
    for way in ways:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(60)
        if device:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
        way(s)
        data, origin = s.recvfrom(512)
        assert origin == server, origin
        assert data == b'direct' if device else data.endswith(socket.inet_aton('10.79.0.1')), (device, data)
print('good')";

#[test]
fn a_socket_that_is_bound_to_a_device_asks_the_name_server_itself() {
    let Some(named) = Named::with(&["10.79.0.0/16:*"], "10.78.0.2") else { return };
    let server = named.world.far.inside(|| UdpSocket::bind("10.78.0.2:53").expect("a port"));
    std::thread::spawn(move || {
        while let Ok((_, origin)) = server.recv_from(&mut [0; 512]) {
            let _sent = server.send_to(b"direct", origin);
        }
    });
    let (status, output, errors) = named.run(&["--dns", "far"], &["python3", "-c", ASKS]);
    assert!(status == 0 && output == "good\n", "{status} {output} {errors}");
}
