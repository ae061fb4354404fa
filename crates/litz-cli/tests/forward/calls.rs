//! Calls of programs under `litz run`: each gives what it gives without Litz.

use std::process::Stdio;

use super::daemon::{Daemon, wait_for_output};
use super::run::{FAR, World, assert_prints, echo, texts};
use super::*;

/// Options, forks, programs that are executed, threads, bound sockets and files.
const CALLS: &str = "
import errno, fcntl, os, select, socket, subprocess, sys, tempfile, threading
far = (sys.argv[1], int(sys.argv[2]))
def new():
    s = socket.socket()
    s.settimeout(None)
    return s
def rest(s):
    return b''.join(iter(lambda: s.recv(65536), b''))
def errno_of(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return error.errno
# Options are those of the socket, before and after.
s = new()
level, name = socket.IPPROTO_TCP, socket.TCP_NODELAY
s.setsockopt(level, name, 1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
assert errno_of(s.getpeername) == errno.ENOTCONN
s.connect(far)
assert s.getsockopt(level, name) == 1 and s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
s.setsockopt(level, name, 0)
assert s.getsockopt(level, name) == 0
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
assert errno_of(s.connect, far) == errno.EISCONN
# A fork: both have the connection, and its end is that of the last one.
if (child := os.fork()) == 0:
    assert s.getpeername() == far
    s.sendall(b'child ')
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
other = os.dup(s.fileno())
os.write(other, b'parent ')
os.close(other)
# A file that is sent, and a program that is executed with the socket.
with tempfile.TemporaryFile() as file:
    file.write(b'file ')
    file.flush()
    assert os.sendfile(s.fileno(), file.fileno(), 0, 5) == 5
script = 'import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); s.sendall(b\\'program\\'); print(s.getpeername())'
told = subprocess.run([sys.executable, '-c', script, str(s.fileno())], pass_fds=[s.fileno()], stdout=subprocess.PIPE)
assert told.stdout.decode().strip() == str(far), told
s.shutdown(socket.SHUT_WR)
assert errno_of(s.send, b'x') == errno.EPIPE
assert rest(s) == b'child parent file program'
s.close()
# Close-on-exec stays as the program wants it.
for inherits in [False, True]:
    s = new()
    s.set_inheritable(inherits)
    s.connect(far)
    assert s.get_inheritable() == inherits
    script = 'import os, sys; os.fstat(int(sys.argv[1]))'
    status = subprocess.run([sys.executable, '-c', script, str(s.fileno())], close_fds=False, stderr=subprocess.DEVNULL)
    assert (status.returncode == 0) == inherits, status
    s.close()
# A socket that is bound keeps its address, with and without blocking.
for blocks in [True, False]:
    s = new()
    s.bind(('10.78.0.1', 0))
    own = s.getsockname()
    s.setblocking(blocks)
    assert s.connect_ex(far) == (0 if blocks else errno.EINPROGRESS)
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    assert poll.poll(60_000) == [(s.fileno(), select.POLLOUT)]
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert (s.getsockname(), s.getpeername()) == (own, far), (own, s.getsockname(), s.getpeername())
    s.setblocking(True)
    s.sendall(b'bound')
    s.shutdown(socket.SHUT_WR)
    assert rest(s) == b'bound'
# Threads.
def one(number):
    s = new()
    s.connect(far)
    assert s.getpeername() == far
    s.sendall(bytes([number]) * 50_000)
    s.shutdown(socket.SHUT_WR)
    assert rest(s) == bytes([number]) * 50_000
    good.append(number)
good = []
threads = [threading.Thread(target=one, args=[number]) for number in range(24)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(good) == 24, good
print('good')";

#[test]
fn calls_of_a_connected_socket_give_what_they_give_without_litz() {
    let Some(world) = World::new() else { return };
    let port = world.serve(FAR, echo).to_string();
    assert_prints(world.run(&["python3", "-c", CALLS, FAR, &port]), "good\n");
}

/// Accepts in all ways, and looks at the descriptors and the addresses that it gets.
const ACCEPTS: &str = "
import ctypes, fcntl, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
s = socket.create_server(('', 8080))
print('ready', flush=True)
def flags(fd):
    return fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC, fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK
c, _ = s.accept()
assert flags(c.fileno()) == (fcntl.FD_CLOEXEC, 0)
address, space = ctypes.create_string_buffer(128), ctypes.c_int(128)
fd = libc.accept(s.fileno(), address, ctypes.byref(space))
assert flags(fd) == (0, 0)
assert space.value == 16 and address.raw[4:8] == socket.inet_aton('127.0.0.1')
# With too little space, the address is cut, and its length is that of the whole.
address, space = ctypes.create_string_buffer(128), ctypes.c_int(4)
fd = libc.accept4(s.fileno(), address, ctypes.byref(space), socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
assert flags(fd) == (fcntl.FD_CLOEXEC, os.O_NONBLOCK)
assert space.value == 16 and address.raw[4:8] == bytes(4) and address.raw[:2] == struct.pack('=H', socket.AF_INET)
print('good', flush=True)";

#[test]
fn a_published_server_gets_descriptors_as_it_asks_for_them() {
    let Some(world) = World::new() else { return };
    let mut command = world.command_with(&["--publish", "8080"], &["python3", "-c", ACCEPTS]);
    let mut child = command.spawn().expect("it starts");
    wait_for_output(&mut child, "ready\n".len());
    let streams: Vec<TcpStream> =
        (0..3).map(|_| world.far.inside(|| connect("127.0.0.1:8080".parse().expect("an address")))).collect();
    // The command goes on as long as they are open.
    let mut output = child.stdout.take().expect("piped");
    let mut line = [0; 5];
    let is_good = output.read_exact(&mut line).is_ok();
    drop(streams);
    let (status, _, errors) = texts(child.wait_with_output().expect("it ends"));
    assert!(is_good && line == *b"good\n" && status == 0, "{status} {errors}");
}

/// Begins to connect to a host that does not answer, and waits for the end.
const BEGINS: &str = "
import errno, select, socket
s = socket.socket()
s.setblocking(False)
assert s.connect_ex(('10.79.9.9', 80)) == errno.EINPROGRESS
poll = select.poll()
poll.register(s, select.POLLOUT)
print('begun', flush=True)
[(_, events)] = poll.poll(60_000)
error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
assert error == errno.ECONNRESET and events & select.POLLERR, (error, events)
print('reset')";

#[test]
fn a_connection_that_has_begun_is_reset_when_the_daemon_is_killed() {
    let Some(mut daemon) = World::new().map(Daemon::of) else { return };
    daemon.world.far.ip("route add 10.79.9.0/24 dev l0");
    let mut child =
        daemon.command_with(&[], &["python3", "-c", BEGINS]).stdin(Stdio::null()).spawn().expect("it starts");
    wait_for_output(&mut child, "begun\n".len());
    while daemon.status()["programs"][0]["connections"] != 1 {
        std::thread::yield_now();
    }
    daemon.process.kill();
    assert_prints(texts(child.wait_with_output().expect("it ends")), "reset\n");
}
