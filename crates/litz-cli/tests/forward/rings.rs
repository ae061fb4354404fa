//! Programs that share memory with `litz daemon`: through the library, and by the specification alone.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::mpsc;

use litz::daemon::{Daemon, Stream};

use super::daemon::run_attached;
use super::run::assert_prints;
use super::*;

/// Connections with rings that a daemon has at a time.
const RINGS_MAX: usize = 128;

/// A server and a daemon, which may connect to all programs of this host.
struct Host {
    place: Place,
    _server: Litz,
    process: Litz,
    socket: PathBuf,
}

impl Host {
    fn new() -> Self {
        Self::with(&[])
    }

    /// With more arguments of the server.
    fn with(more: &[&str]) -> Self {
        let place = Place::new();
        let (server, ticket) = serve_at(&place, "127.0.0.1:0", &[&["--target", "127.0.0.1:*"], more].concat());
        let socket = place.path("daemon.sock");
        let (path, state) = (socket.to_str().expect("a plain path"), place.path("state-out"));
        let state = state.to_str().expect("a plain path");
        let mut process = Litz::start(&["daemon", "--json", "--socket", path, "--state-dir", state, &ticket]);
        process.wait_for("serving");
        process.wait_for("connected");
        Self { place, _server: server, process, socket }
    }

    fn daemon(&self) -> Daemon {
        Daemon::connect(&self.socket, "test").expect("it runs")
    }

    /// A connection with rings.
    fn open(&self, target: SocketAddr) -> Stream {
        let stream = self.daemon().open(&target.to_string()).expect("it is connected");
        assert!(stream.shares_memory());
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a time");
        stream.set_write_timeout(Some(TEST_TIMEOUT)).expect("a time");
        stream
    }

    /// What `litz daemon status` says of memory.
    fn rings(&self) -> Value {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_litz"));
        let output = command.args(["daemon", "status", "--json", "--socket"]).arg(&self.socket).output();
        crate::support::run::json(&output.expect("it starts").stdout)["rings"].clone()
    }

    /// Waits until so many connections share memory.
    fn wait_for_rings(&self, count: usize) {
        while self.rings()["connections"] != count {
            std::thread::yield_now();
        }
    }
}

/// A program that sends back what it reads, at once.
fn echo() -> SocketAddr {
    tcp_program(|stream| {
        let _broken = std::io::copy(&mut &stream, &mut &stream);
    })
}

#[test]
fn bytes_go_both_ways_with_a_half_close_and_the_memory_is_given_back() {
    let host = Host::new();
    let mut stream = host.open(late_echo());
    assert_eq!(host.rings()["connections"], 1);
    assert!(host.rings()["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 500_000));
    let bytes = random(5_000_000, 1);
    stream.write_all(&bytes).expect("it is read");
    stream.finish().expect("an end");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert!(answer == bytes, "{} bytes", answer.len());
    drop(stream);
    host.wait_for_rings(0);
}

/// With `LITZ_RINGS_BYTES=1000000000` a gigabyte each way.
#[test]
fn many_bytes_arrive_in_order_while_others_go() {
    const BLOCK_LEN: usize = 50_001;
    let host = Host::new();
    let wanted = std::env::var("LITZ_RINGS_BYTES").ok().map(|text| text.parse().expect("a number"));
    let blocks = wanted.unwrap_or(30_000_000) / BLOCK_LEN + 1;
    let (mut read, mut write) = host.open(echo()).split();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut rng, mut block) = (Rng::from_seed(7), vec![0; BLOCK_LEN]);
            for _ in 0..blocks {
                rng.fill(&mut block);
                write.write_all(&block).expect("it is read");
            }
            write.finish().expect("an end");
        });
        let (mut rng, mut expected, mut block) = (Rng::from_seed(7), vec![0; BLOCK_LEN], vec![0; BLOCK_LEN]);
        for number in 0..blocks {
            rng.fill(&mut expected);
            read.read_exact(&mut block).expect("a whole block");
            assert!(block == expected, "block {number} of {blocks}");
        }
        assert_eq!(read.read(&mut block).expect("the end"), 0);
    });
}

#[test]
fn a_daemon_that_is_killed_resets_programs_that_read_and_that_write() {
    let mut host = Host::new();
    let mut reads = host.open(tcp_program(|mut stream| while stream.write_all(&[7; 65536]).is_ok() {}));
    let mut writes =
        host.open(tcp_program(|mut stream| while stream.read(&mut [0; 65536]).is_ok_and(|len| len > 0) {}));
    std::thread::scope(|scope| {
        let (began, begins) = mpsc::channel();
        let failed = |began: mpsc::Sender<()>, mut step: Box<dyn FnMut() -> std::io::Result<()> + Send>| {
            let mut count = 0;
            loop {
                if let Err(error) = step() {
                    return error.kind();
                }
                count += 1;
                if count == 100 {
                    began.send(()).expect("it is waited for");
                }
            }
        };
        let read = {
            let began = began.clone();
            scope.spawn(move || failed(began, Box::new(move || reads.read_exact(&mut [0; 10_000]))))
        };
        let write = scope.spawn(move || failed(began, Box::new(move || writes.write_all(&[1; 10_000]))));
        (0..2).for_each(|_| begins.recv_timeout(TEST_TIMEOUT).expect("data"));
        host.process.kill();
        assert_eq!(read.join().expect("it ends"), ErrorKind::ConnectionReset);
        assert_eq!(write.join().expect("it ends"), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_target_that_resets_resets_the_program_and_no_other_connection() {
    let host = Host::new();
    let mut other = host.open(echo());
    let mut stream = host.open(tcp_program(|mut stream| {
        stream.read_exact(&mut [0]).expect("a byte");
        reset(stream);
    }));
    stream.write_all(b"x").expect("it is read");
    assert_eq!(stream.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    while stream.write(b"x").is_ok() {}
    other.write_all(b"still here").expect("it is read");
    let mut answer = [0; 10];
    other.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"still here");
}

#[test]
fn a_stream_that_is_dropped_early_is_a_reset_for_the_target() {
    let host = Host::new();
    let (give, ended) = mpsc::channel();
    let mut stream = host.open(tcp_program(move |mut stream| {
        stream.read_exact(&mut [0]).expect("a byte");
        stream.write_all(b"y").expect("it is read");
        give.send(stream.read(&mut [0]).map_err(|error| error.kind())).expect("it is waited for");
    }));
    stream.write_all(b"x").expect("it is read");
    stream.read_exact(&mut [0]).expect("an answer");
    drop(stream);
    assert_eq!(ended.recv_timeout(TEST_TIMEOUT), Ok(Err(ErrorKind::ConnectionReset)));
}

#[test]
fn more_connections_than_there_is_memory_for_get_sockets() {
    let host = Host::new();
    let (daemon, target) = (host.daemon(), echo().to_string());
    let streams: Vec<Stream> = (0..RINGS_MAX).map(|_| daemon.open(&target).expect("it is connected")).collect();
    assert!(streams.iter().all(Stream::shares_memory));
    let mut next = daemon.open(&target).expect("it is connected");
    assert!(!next.shares_memory());
    next.write_all(b"by socket").expect("it is read");
    let mut answer = [0; 9];
    next.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"by socket");
    assert_eq!(host.rings()["connections"], RINGS_MAX);
    drop(streams);
    host.wait_for_rings(0);
    assert!(daemon.open(&target).expect("it is connected").shares_memory());
}

/// Shares memory with the daemon as `docs/spec/daemon.md` has it. Runs after `ATTACH`.
const SHARES: &str = "
import mmap, signal, struct, time
signal.alarm(120)
def wake(socket):
    try:
        socket.send(b'w')
    except (BrokenPipeError, ConnectionResetError):
        pass  # It may have seen a lie already.
ip = socket.inet_aton('127.0.0.1')
def connect(number, port):
    number = number.to_bytes(4, 'big')
    s.send(b'\\x01\\x02' + number + b'\\x02\\x01\\x04' + ip + int(port).to_bytes(2, 'big'))
    message, control, _, _ = s.recvmsg(100, 200)
    assert message[:6] == b'\\x01\\x83' + number, message
    return Rings(number, control)
class Rings:
    def __init__(self, number, control):
        self.number = number
        descriptors = array.array('i')
        descriptors.frombytes(control[0][2][:12])
        self.file, up, down = descriptors
        self.memory = mmap.mmap(self.file, 0)
        self.len = (len(self.memory) - 4096) // 2
        self.up, self.down = socket.socket(fileno=up), socket.socket(fileno=down)
    def get(self, word):
        return struct.unpack_from('=Q', self.memory, 8 * word)[0]
    def put(self, word, value):
        struct.pack_into('=Q', self.memory, 8 * word, value)
    def write(self, data):
        at = self.get(0)
        self.memory[4096 + at:4096 + at + len(data)] = data
        self.put(0, at + len(data))
        wake(self.up)
    def read(self, count):
        while self.get(32) - self.get(48) < count:
            time.sleep(0.001)
        at = self.get(48)
        data = self.memory[4096 + self.len + at:4096 + self.len + at + count]
        self.put(48, at + count)
        wake(self.down)
        return data
    def finish(self):
        self.put(1, 1)
        wake(self.up)
        while self.get(33) == 0:
            time.sleep(0.001)
        assert self.get(33) == 1, self.get(33)
    def ended(self):
        message = s.recv(400)
        assert message[:6] == b'\\x01\\x85' + self.number, message
        return message[6:]
";

/// Runs a program that shares memory by the specification alone.
fn run_sharing(host: &Host, script: &str, targets: &[SocketAddr]) -> (i32, String, String) {
    let ports: Vec<String> = targets.iter().map(|target| target.port().to_string()).collect();
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    run_attached(&host.socket, &format!("{SHARES}{script}"), &ports)
}

#[test]
fn a_program_may_share_memory_by_the_specification_alone() {
    let host = Host::new();
    let script = "
r = connect(7, sys.argv[2])
r.write(b'good ')
r.write(b'day')
assert r.read(8) == b'good day'
r.finish()
assert r.ended() == (8).to_bytes(8, 'big') * 2
print('good')";
    assert_prints(run_sharing(&host, script, &[echo()]), "good\n");
}

#[test]
fn what_arrives_at_a_publication_may_come_with_memory() {
    let port = free_port();
    let host = Host::with(&["--permit-listen", &port.to_string()]);
    let script = "
port = int(sys.argv[2]).to_bytes(2, 'big')
s.send(b'\\x01\\x08\\0\\0\\0\\1\\2\\1\\0' + port)
assert s.recv(100) == b'\\x01\\x89\\0\\0\\0\\1\\1\\0' + port
c = socket.create_connection(('127.0.0.1', int(sys.argv[2])))
message, control, _, _ = s.recvmsg(100, 200)
assert message[:6] == b'\\x01\\x8a\\0\\0\\0\\1', message
r = Rings(message[6:10], control)
c.sendall(b'good day')
assert r.read(8) == b'good day'
r.write(b'and to you')
c.shutdown(socket.SHUT_WR)
r.finish()
assert c.recv(100) + c.recv(100) == b'and to you'
assert r.ended() == (10).to_bytes(8, 'big') + (8).to_bytes(8, 'big')
print('good')";
    assert_prints(run_sharing(&host, script, &[SocketAddr::from(([127, 0, 0, 1], port))]), "good\n");
}

#[test]
fn a_program_that_is_killed_resets_its_connection() {
    let host = Host::new();
    let (give, ended) = mpsc::channel();
    let target = tcp_program(move |mut stream| {
        stream.read_exact(&mut [0; 4]).expect("a half");
        stream.write_all(b"y").expect("it is read");
        give.send(stream.read(&mut [0]).map_err(|error| error.kind())).expect("it is waited for");
    });
    let script = "
r = connect(7, sys.argv[2])
r.write(b'half')
assert r.read(1) == b'y'
os.kill(os.getpid(), 9)";
    let (status, _, errors) = run_sharing(&host, script, &[target]);
    assert_eq!(status, -1, "{errors}");
    assert_eq!(ended.recv_timeout(TEST_TIMEOUT), Ok(Err(ErrorKind::ConnectionReset)));
    host.wait_for_rings(0);
}

#[test]
fn a_program_that_lies_loses_that_connection_only() {
    let host = Host::new();
    let endless = tcp_program(|mut stream| while stream.write_all(&[7; 65536]).is_ok() {});
    let script = "
number = 0
# (word, value): counts of the writer, its state.
for lies in [[(0, 1 << 63)], [(0, 2 ** 64 - 1)], [(0, 262145)], [(1, 7)], [(1, 2 ** 64 - 1), (0, 5)]]:
    r = connect(number, sys.argv[2])
    for word, value in lies:
        r.put(word, value)
    wake(r.up)
    assert len(r.ended()) > 16, 'it ended in order'
    assert r.get(33) == 3, r.get(33)
    number += 1
# Those of the reader are looked at when the ring is full.
for read in [1 << 63, 2 ** 64 - 1, 262145]:
    r = connect(number, sys.argv[3])
    while r.get(32) < r.len:
        time.sleep(0.001)
    r.put(48, read)
    wake(r.down)
    assert len(r.ended()) > 16, 'it ended in order'
    assert r.get(33) == 3, r.get(33)
    number += 1
# A count that moves back.
r = connect(number, sys.argv[2])
r.write(b'good day')
assert r.read(8) == b'good day'
r.put(0, 7)
wake(r.up)
assert len(r.ended()) > 16, 'it ended in order'
# The memory stays as it is, whatever is tried.
r = connect(100, sys.argv[2])
for size in [0, 4096, 1 << 30]:
    try:
        os.ftruncate(r.file, size)
        print('it has another size')
    except PermissionError:
        pass
# Announcements may have any value, and data may change at any time.
r.put(8, 2 ** 64 - 1)
r.put(24, 2 ** 64 - 1)
r.put(56, 2 ** 64 - 1)
r.write(b'good day')
assert r.read(8) == b'good day'
print('good')";
    assert_prints(run_sharing(&host, script, &[echo(), endless]), "good\n");
    assert!(host.place.path("daemon.sock").exists());
    let mut honest = host.open(echo());
    honest.write_all(b"still here").expect("it is read");
    let mut answer = [0; 10];
    honest.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"still here");
}
