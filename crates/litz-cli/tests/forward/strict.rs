//! `litz run --strict`: no connection of the program goes without Litz that must not, whatever its threads do
//! meanwhile.

use std::net::TcpStream;
use std::sync::mpsc;

use super::run::World;

/// Connects again and again, while another thread changes what the call names: the address in memory, or the
/// socket behind the descriptor. The first address is allowed, and the second one is not. With UDP both are.
const RACES: &str = "
import ctypes, errno, os, socket, struct, sys, threading
way, blocks, far, port = sys.argv[1], sys.argv[2] == 'blocks', sys.argv[3], int(sys.argv[4])
libc = ctypes.CDLL(None, use_errno=True)
listener = socket.create_server(('127.0.0.1', port), backlog=4096)
def address(host):
    return struct.pack('=H', socket.AF_INET) + struct.pack('>H', port) + socket.inet_aton(host) + bytes(8)
good, bad = address('127.0.0.1'), address(far)
place = ctypes.create_string_buffer(good, 16)
stop, number, results = False, None, {}
spare = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def rewrite():
    while not stop:
        if way == 'address':
            ctypes.memmove(place, bad, 16)
            ctypes.memmove(place, good, 16)
        else:
            os.dup2(tcp.fileno(), number)
            os.dup2(udp.fileno(), number)
def connect(descriptor):
    error = 0 if libc.connect(descriptor, place, 16) == 0 else ctypes.get_errno()
    results[error] = results.get(error, 0) + 1
if way == 'descriptor':
    ctypes.memmove(place, bad, 16)
tcp, udp = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
number = os.dup(udp.fileno())
thread = threading.Thread(target=rewrite)
thread.start()
for _ in range(400):
    if way == 'address':
        s = socket.socket()
        s.setblocking(blocks)
        connect(s.fileno())
        s.close()
    else:
        tcp.setblocking(blocks)
        connect(number)
stop = True
thread.join()
print(sorted(results))";

#[test]
fn a_thread_that_changes_the_address_or_the_socket_of_a_call_gets_no_direct_connection() {
    let Some(world) = World::new() else { return };
    let (came, peers) = mpsc::channel();
    let port = world.serve("10.78.0.2", move |stream| {
        let _over = came.send(stream.peer_addr().ok());
    });
    for (way, mode) in [
        ("address", "blocks"),
        ("address", "does not block"),
        ("descriptor", "blocks"),
        ("descriptor", "does not block"),
    ] {
        let program = ["python3", "-c", RACES, way, mode, "10.78.0.2", &port.to_string()];
        let (status, output, errors) = world.run(&program);
        assert_eq!(status, 0, "{way}, {mode}: {errors}");
        // Both were tried: some are made, and some are refused.
        let expected = output.contains("0") && output.contains(&libc::EACCES.to_string());
        assert!(expected || mode != "blocks", "{way}, {mode}: {output}");
        // The first connection that comes is ours.
        let own = world.near.inside(|| TcpStream::connect(("10.78.0.2", port)).expect("the link is up"));
        assert_eq!(peers.recv().expect("the server runs"), own.local_addr().ok(), "{way}, {mode}: {output}");
    }
}

/// What the kernel does in place of Litz, and how the program sees it.
const DIRECT: &str = "
import errno, select, signal, socket, sys, time
listener = socket.create_server(('127.0.0.1', 0))
port = listener.getsockname()[1]
s = socket.socket()
assert s.connect_ex(('127.0.0.1', port)) == 0
assert s.connect_ex(('127.0.0.1', port)) == errno.EISCONN
assert socket.socket().connect_ex(('127.0.0.1', 1)) == errno.ECONNREFUSED
s = socket.socket()
s.setblocking(False)
assert s.connect_ex(('127.0.0.1', port)) == errno.EINPROGRESS
assert select.select([], [s], [], 60)[1] and s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.connect(('127.0.0.1', 9))
assert u.getpeername() == ('127.0.0.1', 9)
# One that does not answer: its queue is full. The socket's time ends the call, and stays as it is.
full = socket.socket()
full.bind(('127.0.0.1', 0))
full.listen(0)
held = [socket.socket() for _ in range(3)]
for one in held:
    one.setblocking(False)
    one.connect_ex(full.getsockname())
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bytes([0] * 8) + (300_000).to_bytes(8, sys.byteorder))
before = s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16)
assert s.connect_ex(full.getsockname()) == errno.EINPROGRESS
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16) == before
# A signal ends it.
class Interrupted(Exception):
    pass
def interrupt(*_):
    raise Interrupted
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    socket.socket().connect(full.getsockname())
    assert False
except Interrupted:
    pass
# Wrong arguments are the kernel's errors.
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for arguments, error in [((s.fileno(), 1, 16), errno.EFAULT), ((999, b'x' * 16, 16), errno.EBADF),
                         ((s.fileno(), b'x' * 200, 200), errno.EINVAL), ((0, b'x' * 16, 16), errno.ENOTSOCK)]:
    assert libc.connect(*arguments) == -1 and ctypes.get_errno() == error, (arguments, ctypes.get_errno())
print('good')";

#[test]
fn connections_that_stay_with_the_kernel_behave_as_without_litz() {
    let Some(world) = World::new() else { return };
    let (status, output, errors) = world.run(&["python3", "-c", DIRECT]);
    assert_eq!((status, &*output), (0, "good\n"), "{errors}");
}

/// A program that hides its memory (PR_SET_DUMPABLE), and one that takes a protocol other than TCP.
const HIDES: &str = "
import ctypes, errno, os, socket, sys
for kind, protocol in [(socket.SOCK_STREAM, 132), (socket.SOCK_SEQPACKET, 132), (5, 33)]:
    try:
        other = socket.socket(socket.AF_INET, kind, protocol)
    except OSError:
        continue
    assert other.connect_ex((sys.argv[1], int(sys.argv[2]))) == errno.EACCES
# Port 0 is that of no target.
assert socket.socket().connect_ex((sys.argv[1], 0)) == errno.EACCES
ctypes.CDLL(None).prctl(4, 0)
os.setresuid(65534, 65534, 65534)
assert socket.socket().connect_ex((sys.argv[1], int(sys.argv[2]))) in (errno.EACCES, 0)
print('good')";

#[test]
fn what_litz_cannot_see_or_carry_is_refused() {
    let Some(world) = World::new() else { return };
    let (status, output, errors) = world.run(&["python3", "-c", HIDES, "10.78.0.2", "9"]);
    assert_eq!((status, &*output), (0, "good\n"), "{errors}");
}
