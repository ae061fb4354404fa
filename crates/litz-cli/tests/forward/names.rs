//! Names that programs under `litz run` look up.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::run::{FAR, FAR6, World, assert_prints, echo, http, texts};
use super::*;
use crate::namespaces::Namespace;
use crate::support::needs::has_programs;

/// A name that only the far host knows.
const NAME: &str = "db.far.example";

/// Files in place of those in `/etc`, for programs that `ip netns exec` starts.
struct Files(PathBuf);

impl Files {
    fn new(host: &Namespace, files: &[(&str, &str)]) -> Self {
        let folder = PathBuf::from("/etc/netns").join(host.name());
        std::fs::create_dir_all(&folder).expect("root may");
        files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).expect("a file"));
        Self(folder)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

/// Hosts whose name servers do not answer; the far one knows names by itself.
pub(super) struct Named {
    pub(super) world: World,
    _files: [Files; 2],
}

impl Named {
    pub(super) fn with(targets: &[&str], name_server: &str) -> Option<Self> {
        let mut files = None;
        let world = World::with(targets, &[], |near, far| {
            let near = Files::new(near, &[("resolv.conf", &format!("nameserver {name_server}\n"))]);
            let hosts = format!(
                "{FAR} {NAME}\n{FAR6} {NAME}\n127.0.1.1 lonely.far.example\n10.80.0.1 other.far.example\n\
                 {FAR} forged.far.example\n"
            );
            let far = Files::new(far, &[("resolv.conf", "nameserver 127.0.0.1\n"), ("hosts", &hosts)]);
            files = Some([near, far]);
        })?;
        Some(Self { world, _files: files? })
    }

    /// By address; the name server of the near host is one without a way to it.
    pub(super) fn new() -> Option<Self> {
        Self::with(&["10.79.0.0/16:*", "[fd79::]/16:*"], "192.0.2.53")
    }

    pub(super) fn run(&self, more: &[&str], program: &[&str]) -> (i32, String, String) {
        texts(self.world.command_with(more, program).output().expect("it starts"))
    }
}

/// Connects to a name, and says what it is connected to.
const CONNECTS: &str = "
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print(s.getpeername()[0])
s.sendall(b'x' * 100_000)
s.shutdown(socket.SHUT_WR)
assert b''.join(iter(lambda: s.recv(65536), b'')) == b'x' * 100_000";

#[test]
fn programs_find_names_that_only_the_far_host_knows() {
    let Some(named) = Named::new() else { return };
    let port = named.world.serve(FAR, echo).to_string();
    for more in [&["--dns", "far"][..], &[]] {
        let (status, output, errors) = named.run(more, &["getent", "ahostsv4", NAME]);
        assert!(status == 0 && output.starts_with(FAR), "{more:?} {status} {output} {errors}");
        let (status, output, errors) = named.run(more, &["getent", "ahostsv6", NAME]);
        assert!(status == 0 && output.starts_with(FAR6), "{more:?} {status} {output} {errors}");
        let (status, output, errors) = named.run(more, &["python3", "-c", CONNECTS, NAME, &port]);
        assert!(status == 0 && output.trim() == FAR, "{more:?} {status} {output} {errors}");
        // Over TCP.
        let (status, output, errors) = named.run(more, &["env", "RES_OPTIONS=use-vc", "getent", "ahostsv4", NAME]);
        assert!(status == 0 && output.starts_with(FAR), "{more:?} {status} {output} {errors}");
    }
    let (status, output, _) = named.run(&["--dns", "here"], &["getent", "ahostsv4", NAME]);
    assert_eq!((status, &*output), (2, ""));
    if has_programs(&["curl"]) {
        let port = named.world.serve(FAR, http);
        assert_prints(named.run(&[], &["curl", "-4sS", "-m", "60", &format!("http://{NAME}:{port}/")]), "hello");
    }
}

/// Static, with its own resolver.
const GO: &str = r#"package main

import ("fmt"; "io"; "net"; "os"; "sort")

func main() {
	found, err := net.LookupHost(os.Args[1])
	sort.Strings(found)
	fmt.Println(found, err)
	c, err := net.Dial("tcp4", net.JoinHostPort(os.Args[1], os.Args[2]))
	if err != nil { fmt.Println(err); os.Exit(1) }
	c.Write([]byte("hello")); c.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(c)
	fmt.Println(string(answer), err)
}
"#;

#[test]
fn a_static_program_of_go_finds_names_of_the_far_host() {
    if !has_programs(&["go"]) {
        return;
    }
    let Some(named) = Named::new() else { return };
    let program = programs::build_go(&named.world, GO);
    let port = named.world.serve(FAR, echo).to_string();
    let (status, output, errors) = named.run(&["--dns", "far"], &[&program, NAME, &port]);
    assert_eq!((status, output), (0, format!("[{FAR} {FAR6}] <nil>\nhello <nil>\n")), "{errors}");
}

#[test]
fn names_that_the_far_host_does_not_allow_or_know_are_not_found() {
    let Some(named) = Named::new() else { return };
    let (status, output, errors) = named.run(&["--dns", "far"], &["getent", "ahosts", "other.far.example"]);
    assert!(status == 2 && output.is_empty(), "{status} {output} {errors}");
    assert!(errors.contains("the server does not allow to look up other.far.example (no --target"), "{errors}");
    // Its own address would mean this host here.
    let (status, output, errors) = named.run(&["--dns", "far"], &["getent", "ahosts", "lonely.far.example"]);
    assert!(status == 2 && output.is_empty() && errors.contains("does not allow"), "{status} {output} {errors}");
    let (status, output, errors) = named.run(&["--dns", "far"], &["getent", "ahosts", "missing.far.example"]);
    assert!(status == 2 && output.is_empty() && !errors.contains("litz:"), "{status} {output} {errors}");
    let Some(named) = Named::with(&["*:1"], "192.0.2.53") else { return };
    let (status, output, errors) = named.run(&["--dns", "far"], &["getent", "ahosts", "lonely.far.example"]);
    assert!(status == 2 && output.is_empty() && errors.contains("its own loopback"), "{status} {output} {errors}");
}

#[test]
fn a_rule_with_a_name_allows_the_name_and_connections_to_its_addresses() {
    let Some(named) = Named::with(&["db.far.example:8000-65535"], "192.0.2.53") else { return };
    let port = named.world.serve(FAR, echo).to_string();
    let (status, output, errors) = named.run(&[], &["python3", "-c", CONNECTS, NAME, &port]);
    // Whatever address of the name it wants, the far host uses one that works.
    assert_eq!(status, 0, "{output} {errors}");
    // Without its name, and at another port.
    let (status, _, errors) = named.run(&[], &["python3", "-c", CONNECTS, FAR, &port]);
    assert!(status == 1 && errors.contains("Permission denied"), "{status} {errors}");
    let (status, _, errors) = named.run(&[], &["python3", "-c", CONNECTS, NAME, "1"]);
    assert!(status == 1 && errors.contains("Permission denied"), "{status} {errors}");
}

/// A name server of the near host that knows one name, and one address of it, and has forged answers about
/// another one.
fn name_server(near: &Namespace) {
    let socket = near.inside(|| UdpSocket::bind("127.0.0.1:53").expect("a port"));
    std::thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((len, origin)) = socket.recv_from(&mut query) {
            // The question follows the header, and ends with the type and the class.
            let name_len = query[12..len].iter().position(|byte| *byte == 0).expect("the end of a name") + 1;
            let question = &query[12..12 + name_len + 4];
            let is_known = question.starts_with(b"\x04here\x07example\x00");
            let is_ipv4 = question[name_len..name_len + 2] == [0, 1];
            let is_forged = question.starts_with(b"\x06forged\x03far\x07example\x00");
            let code = if is_known { 0x80 } else { 0x83 - u8::from(is_forged) };
            let count = u8::from(is_known && is_ipv4);
            let mut reply = [&query[..2], &[0x81, code, 0, 1, 0, count, 0, 0, 0, 0], question].concat();
            if count == 1 {
                reply.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\x0a\x50\x00\x07");
            }
            let _sent = socket.send_to(&reply, origin);
        }
    });
}

/// Asks for records of a type that has no addresses (SSHFP), and says the codes of the answers.
const OF_TYPE_44: &str = "
import socket
codes = []
for name in [b'\\x04here', b'\\x05other']:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(('127.0.0.1', 53))
    s.settimeout(60)
    s.send(b'\\0\\x07\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + name + b'\\x07example\\0\\0\\x2c\\0\\1')
    codes.append(s.recv(512)[3] & 15)
print(codes)";

#[test]
fn this_host_is_asked_first() {
    let Some(named) = Named::with(&["*:*"], "127.0.0.1") else { return };
    name_server(&named.world.near);
    let (status, output, errors) = named.run(&[], &["getent", "ahostsv4", "here.example"]);
    assert!(status == 0 && output.starts_with("10.80.0.7"), "{status} {output} {errors}");
    let (status, output, errors) = named.run(&[], &["getent", "ahostsv4", NAME]);
    assert!(status == 0 && output.starts_with(FAR), "{status} {output} {errors}");
    let (status, output, errors) = named.run(&[], &["getent", "ahostsv4", "missing.example"]);
    assert!(status == 2 && output.is_empty() && !errors.contains("litz:"), "{status} {output} {errors}");
    let (status, output, errors) = named.run(&["--direct", "127.0.0.1:53"], &["getent", "ahostsv4", NAME]);
    assert!(status == 2 && output.is_empty(), "{status} {output} {errors}");
    // A failure that the far host does not have.
    let (status, output, errors) = named.run(&[], &["getent", "ahostsv4", "forged.far.example"]);
    assert!(status == 2 && output.is_empty(), "{status} {output} {errors}");
    let (status, output, errors) = named.run(&["--dns", "far"], &["getent", "ahostsv4", "forged.far.example"]);
    assert!(status == 0 && output.starts_with(FAR), "{status} {output} {errors}");
    let (status, output, errors) = named.run(&["--dns", "far"], &["getent", "ahostsv4", "here.example"]);
    assert!(status == 2 && output.is_empty(), "{status} {output} {errors}");
    for (from, codes) in [("auto", "[0, 3]"), ("far", "[4, 4]")] {
        let (status, output, errors) = named.run(&["--dns", from], &["python3", "-c", OF_TYPE_44]);
        assert!(status == 0 && output.trim() == codes, "{from} {status} {output} {errors}");
    }
}

#[test]
fn a_daemon_looks_up_names_too() {
    let Some(named) = Named::new() else { return };
    let socket = named.world.place.path("daemon.sock");
    let _daemon = daemon::Daemon::start(&named.world, &socket);
    let port = named.world.serve(FAR, echo).to_string();
    let run = |program: &[&str]| {
        let mut command = named.world.near.command(env!("CARGO_BIN_EXE_litz"));
        command.args(["run", "--strict", "--daemon"]).arg(&socket).arg("--").args(program);
        texts(command.stdin(Stdio::null()).output().expect("it starts"))
    };
    let (status, output, errors) = run(&["python3", "-c", CONNECTS, NAME, &port]);
    assert!(status == 0 && output.trim() == FAR, "{status} {output} {errors}");
    let (status, _, errors) = run(&["getent", "ahosts", "other.far.example"]);
    assert!(status == 2 && errors.contains("does not allow to look up"), "{status} {errors}");
}

/// Asks the daemon for a name, and does not want it any more.
const CANCELS: &str = "
s.send(b'\\x01\\x07\\0\\0\\0\\x07slow.far.example')
s.send(b'\\x01\\x04\\0\\0\\0\\x07')
message = s.recv(1000)
assert message[:6] == b'\\x01\\x84\\0\\0\\0\\x07' and message.endswith(b'cancelled'), message
print('good')";

#[test]
fn a_program_may_give_up_a_name_that_it_has_asked_the_daemon_for() {
    let mut files = None;
    let world = World::with(&["*:*"], &[], |_, far| {
        // There is no answer, and no error either.
        far.ip("neigh add 10.79.9.9 lladdr 02:00:00:00:00:09 dev l0");
        far.ip("route add 10.79.9.9/32 dev l0");
        files = Some(Files::new(far, &[("resolv.conf", "nameserver 10.79.9.9\n")]));
    });
    let Some(world) = world else { return };
    let socket = world.place.path("daemon.sock");
    let _daemon = daemon::Daemon::start(&world, &socket);
    assert_prints(daemon::run_attached(&socket, CANCELS, &[]), "good\n");
}

/// A program that makes its queries itself, in all ways in which it may receive.
const QUERIES: &str = "
import errno, signal, socket, struct, sys
server = ('192.0.2.53', 53)
def query(number, name):
    labels = b''.join(bytes([len(part)]) + part.encode() for part in name.split('.'))
    return struct.pack('>6H', number, 0x100, 1, 0, 0, 0) + labels + b'\\0\\0\\x01\\0\\x01'
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(server)
assert s.getpeername() == server, s.getpeername()
# Where its queries go.
local = s.getsockname()[1]
rows = [line.split() for line in open('/proc/net/udp')][1:]
print([int(row[2].split(':')[1], 16) for row in rows if int(row[1].split(':')[1], 16) == local][0], flush=True)
input()
# What has no header of a query has no answer, and other queries that cannot be read are malformed.
for wrong in [b'', b'x', b'\\xff' * 40]:
    s.send(wrong)
for wrong in [query(1, 'db.far.example')[:-3], bytes(5000)]:
    s.send(wrong)
    data = s.recv(512)
    assert data[:2] == wrong[:2] and data[2] & 0x80 and data[3] & 15 == 1, data
try:
    s.recvfrom(512, socket.MSG_DONTWAIT)
    sys.exit('an answer')
except BlockingIOError:
    pass
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 0, 200_000))
try:
    s.recvfrom(512)
    sys.exit('an answer')
except BlockingIOError:
    pass
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 0, 0))
class Rang(Exception): pass
def ring(*_): raise Rang()
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    s.recvfrom(512)
    sys.exit('an answer')
except Rang:
    pass
s.send(query(7, 'Db.Far.Example'))
peeked, origin = s.recvfrom(4, socket.MSG_PEEK)
assert origin == server and peeked[:2] == b'\\0\\x07', (peeked, origin)
data, origin = s.recvfrom(512)
assert origin == server and data[-4:] == socket.inet_aton('10.79.0.1'), (data, origin)
mail = query(8, 'db.far.example')
s.send(mail[:-3] + b'\\x0f' + mail[-2:])
data, origin = s.recvfrom(512)
assert data[3] & 15 == 4, data
s.close()
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(('127.0.0.1', local))
    sys.exit('another program can ask from there')
except OSError as error:
    assert error.errno == errno.EADDRINUSE, error
print('good')";

#[test]
fn answers_come_from_the_name_server_and_only_to_the_program_that_asks() {
    let Some(named) = Named::new() else { return };
    let mut command = named.world.command_with(&["--dns", "far"], &["python3", "-c", QUERIES]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("piped")));
    let port: u16 = lines.next().expect("a line").expect("text").parse().expect("a port");
    // A query of another program, which comes before those of this one.
    let stranger = named.world.near.inside(|| UdpSocket::bind("127.0.0.1:0").expect("a port"));
    stranger.set_nonblocking(true).expect("a socket");
    let query = b"\0\x09\x01\0\0\x01\0\0\0\0\0\0\x02db\x03far\x07example\0\0\x01\0\x01";
    stranger.send_to(query, ("127.0.0.1", port)).expect("it takes it");
    child.stdin.take().expect("piped").write_all(b"go\n").expect("it reads");
    let rest: Vec<String> = lines.map(|line| line.expect("text")).collect();
    let (status, _, errors) = texts(child.wait_with_output().expect("it ends"));
    assert!(status == 0 && rest == ["good"], "{status} {rest:?} {errors}");
    assert_eq!(stranger.recv(&mut [0; 512]).map_err(|error| error.kind()), Err(std::io::ErrorKind::WouldBlock));
}

/// A program that names the name server in each call that sends, in all ways in which it may send and receive.
const UNCONNECTED: &str = "
import ctypes, errno, os, select, socket, struct, sys, threading
server = ('192.0.2.53', 53)
address = socket.inet_aton('10.79.0.1')
def query(number, name='db.far.example'):
    labels = b''.join(bytes([len(part)]) + part.encode() for part in name.split('.'))
    return struct.pack('>6H', number, 0x100, 1, 0, 0, 0) + labels + b'\\0\\0\\x01\\0\\x01'
def is_good(data, number):
    return data[:2] == struct.pack('>H', number) and data[-4:] == address
def new(family=socket.AF_INET, bound=None):
    s = socket.socket(family, socket.SOCK_DGRAM)
    if bound:
        s.bind(bound)
    return s
def errno_of(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return error.errno
# As dnspython and others do, with a socket that blocks.
s = new()
assert s.sendto(query(7, 'Db.Far.Example'), server) == 32
data, origin = s.recvfrom(512)
assert origin == server and is_good(data, 7), (data, origin)
port = s.getsockname()[1]
assert port > 0 and s.getsockname() == ('0.0.0.0', port)
assert errno_of(s.getpeername) == errno.ENOTCONN
# As musl does: bound, without blocking, recvmsg.
m = new(bound=('0.0.0.0', 0))
m.setblocking(False)
assert errno_of(m.recvmsg, 512) == errno.EAGAIN
m.sendto(query(8), server)
def wait(s):
    poll = select.poll()
    poll.register(s, select.POLLIN)
    assert poll.poll(60_000)
wait(m)
data, control, flags, origin = m.recvmsg(512, 100)
assert origin == server and is_good(data, 8) and (control, flags) == ([], 0), (data, control, flags, origin)
assert errno_of(m.recvmsg, 512) == errno.EAGAIN
# A packet in pieces, and an answer that is cut.
m.sendmsg([query(9)[:5], b'', query(9)[5:]], [], 0, server)
wait(m)
assert m.recvmsg(4, 0, socket.MSG_PEEK) == (b'\\0\\x09\\x81\\x80', [], socket.MSG_TRUNC, server)
first, second = bytearray(4), bytearray(8)
assert m.recvmsg_into([first, second]) == (12, [], socket.MSG_TRUNC, server)
assert bytes(first + second)[:2] == b'\\0\\x09'
# Other packets keep their sender.
stranger = new(bound=('127.0.0.1', 0))
stranger.sendto(b'hello', ('127.0.0.1', port))
assert s.recvfrom(512) == (b'hello', stranger.getsockname())
stranger.sendmsg([b'hello'], [], 0, ('127.0.0.1', port))
assert s.recvmsg(512) == (b'hello', [], 0, stranger.getsockname())
# Sockets of the other family, and bound ones.
for s6, to in [(new(socket.AF_INET6), '::ffff:192.0.2.53'), (new(bound=('10.78.0.1', 0)), '192.0.2.53')]:
    s6.settimeout(60)
    s6.sendto(query(10), (to, 53))
    data, origin = s6.recvfrom(512)
    assert is_good(data, 10) and origin[:2] == (to, 53), (data, origin)
only = new(socket.AF_INET6)
only.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
assert errno_of(only.sendto, query(11), ('::ffff:192.0.2.53', 53)) == errno.ENETUNREACH
# What is for no name server, or too long, is the kernel's, which has no way there.
assert errno_of(s.sendto, query(12), ('192.0.2.54', 53)) == errno.ENETUNREACH
assert errno_of(s.sendto, query(12), ('192.0.2.53', 54)) == errno.ENETUNREACH
assert errno_of(s.sendto, bytes(5000), server) == errno.ENETUNREACH
# What has no header of a query has no answer, and other queries that cannot be read are malformed.
for wrong in [b'', b'x', b'\\xff' * 40]:
    assert s.sendto(wrong, server) == len(wrong)
for wrong in [query(13)[:-3], bytes(4096)]:
    assert s.sendto(wrong, server) == len(wrong)
    wait(s)
    data = s.recv(512)
    assert data[:2] == wrong[:2] and data[2] & 0x80 and data[3] & 15 == 1, data
assert errno_of(s.recvfrom, 512, socket.MSG_DONTWAIT) == errno.EAGAIN
# Memory that is not there, and a header that is none.
libc = ctypes.CDLL(None, use_errno=True)
def fails(name, *arguments):
    ctypes.set_errno(0)
    result = getattr(libc, name)(s.fileno(), *arguments)
    return ctypes.get_errno() if result == -1 else result
nowhere = ctypes.c_void_p(1)
name = struct.pack('=H', socket.AF_INET) + b'\\0\\x35' + socket.inet_aton(server[0]) + bytes(8)
at = ctypes.create_string_buffer(name, 16)
# The kernel looks for the way before it looks at the packet.
no_way = (errno.EFAULT, errno.ENETUNREACH)
assert fails('sendto', nowhere, 20, 0, at, 16) in no_way
assert fails('sendto', b'x', 1, 0, nowhere, 16) == errno.EFAULT
assert fails('sendto', b'x', 1, 0, at, 3) == errno.EINVAL
assert fails('sendto', b'x', 1, 0, at, -1) == errno.EINVAL
assert fails('recvmsg', nowhere, 0) == errno.EFAULT and fails('sendmsg', nowhere, 0) == errno.EFAULT
piece = ctypes.create_string_buffer(64)
areas = ctypes.create_string_buffer(struct.pack('=QQQQ', ctypes.addressof(piece), 32, 1, 32), 32)
def header(areas_at, count):
    packed = struct.pack('=QIIQQQQii', ctypes.addressof(at), 16, 0, areas_at, count, 0, 0, 0, 0)
    return ctypes.create_string_buffer(packed, 56)
assert fails('sendmsg', header(ctypes.addressof(areas), 2000), 0) == errno.EMSGSIZE
assert fails('sendmsg', header(1, 1), 0) == errno.EFAULT
assert fails('sendmsg', header(ctypes.addressof(areas), 2), 0) in no_way
s.sendto(query(14), server)
wait(s)
assert fails('recvmsg', header(ctypes.addressof(areas), 2), 0) == errno.EFAULT
assert at.raw == name
# Threads, each with a socket of its own.
def ask(number):
    own = new()
    for _ in range(4):
        own.sendto(query(number), server)
        data, origin = own.recvfrom(512)
        assert origin == server and is_good(data, number), (data, origin)
    good.append(number)
good = []
threads = [threading.Thread(target=ask, args=[number]) for number in range(100, 108)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(good) == 8, good
# More queries than there are places, also for waiting: each is answered, and some with SERVFAIL.
codes = {}
def take(flags):
    data = s.recv(512, flags)
    codes[int.from_bytes(data[:2], 'big')] = data[3] & 15
for number in range(2000):
    assert s.sendto(query(number), server) == 32
    try:
        while True:
            take(socket.MSG_DONTWAIT)
    except BlockingIOError:
        pass
s.settimeout(60)
while len(codes) < 2000:
    take(0)
assert set(codes.values()) <= {0, 2}, codes
print('good')";

#[test]
fn a_program_may_name_the_name_server_in_each_call() {
    let Some(named) = Named::new() else { return };
    for more in [&["--dns", "far"][..], &[]] {
        let (status, output, errors) = named.run(more, &["python3", "-c", UNCONNECTED]);
        assert!(status == 0 && output == "good\n", "{more:?} {status} {output} {errors}");
    }
    // Without Litz, there is no way to the name server.
    for more in [["--dns", "here"], ["--direct", "192.0.2.53:53"]] {
        let script = "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.53', 53))";
        let (status, _, errors) = named.run(&more, &["python3", "-c", script]);
        assert!(status == 1 && errors.contains("Network is unreachable"), "{more:?} {status} {errors}");
    }
}

/// Static, with the resolver of musl.
const MUSL: &str = r#"
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments) {
    struct addrinfo hints, *found, *each;
    char text[64];
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    int error = getaddrinfo(arguments[1], "80", &hints, &found);
    if (error) {
        puts(gai_strerror(error));
        return 1;
    }
    for (each = found; each; each = each->ai_next) {
        getnameinfo(each->ai_addr, each->ai_addrlen, text, sizeof text, 0, 0, NI_NUMERICHOST);
        puts(text);
    }
    return 0;
}
"#;

#[test]
fn a_static_program_of_musl_finds_names_of_the_far_host() {
    if !has_programs(&["musl-gcc"]) {
        return;
    }
    let Some(named) = Named::new() else { return };
    let (source, program) = (named.world.place.path("look-up.c"), named.world.place.path("look-up"));
    std::fs::write(&source, MUSL).expect("a file");
    let built = Command::new("musl-gcc").arg("-static").arg("-o").arg(&program).arg(&source).output();
    let (status, _, errors) = texts(built.expect("it starts"));
    assert_eq!(status, 0, "{errors}");
    let program = program.to_str().expect("a plain path");
    for more in [&["--dns", "far"][..], &[]] {
        let (status, output, errors) = named.run(more, &[program, NAME]);
        let mut found: Vec<_> = output.lines().collect();
        found.sort_unstable();
        assert!(status == 0 && found == [FAR, FAR6], "{more:?} {status} {output} {errors}");
        let (status, output, errors) = named.run(more, &[program, "missing.far.example"]);
        assert!(status == 1 && output.contains("Name does not resolve"), "{more:?} {status} {output} {errors}");
    }
}

#[test]
fn tools_that_ask_name_servers_get_answers_of_the_far_host() {
    let Some(named) = Named::new() else { return };
    for tool in [&["busybox", "nslookup", NAME][..], &["dig", "+short", NAME], &["nslookup", NAME]] {
        if has_programs(&tool[..1]) {
            let (status, output, errors) = named.run(&["--dns", "far"], tool);
            assert!(status == 0 && output.contains(FAR), "{tool:?} {status} {output} {errors}");
        }
    }
}

#[test]
fn a_way_to_look_up_names_that_is_none_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_litz")).args(["run", "--dns", "nowhere", "x", "--", "true"]).output();
    let (status, _, errors) = texts(output.expect("it starts"));
    assert!(status == 125 && errors.contains("far"), "{status} {errors}");
}
