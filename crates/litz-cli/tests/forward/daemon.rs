//! `litz daemon`: one connection for several programs, and what happens when it ends.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use super::run::{FAR, World, assert_prints, echo, texts};
use super::*;
use crate::support::needs::has_programs;

/// A daemon on the near host.
pub(super) struct Daemon {
    pub(super) world: World,
    pub(super) socket: PathBuf,
    pub(super) process: Litz,
}

impl Daemon {
    pub(super) fn new() -> Option<Self> {
        Some(Self::of(World::new()?))
    }

    /// A daemon of this world.
    pub(super) fn of(world: World) -> Self {
        let socket = world.place.path("daemon.sock");
        let process = Self::start(&world, &socket);
        Self { world, socket, process }
    }

    /// A daemon of this world with the servers of a file; none of them is waited for.
    pub(super) fn with_servers(world: World, servers: &str) -> Self {
        let (socket, file) = (world.place.path("daemon.sock"), world.place.path("servers.toml"));
        std::fs::write(&file, servers).expect("a file");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
        let mut command = Self::prepare(&world, &socket);
        let process = Litz::of(command.arg("--servers").arg(file));
        Self { world, socket, process }
    }

    fn prepare(world: &World, socket: &std::path::Path) -> Command {
        let mut command = world.near.command(env!("CARGO_BIN_EXE_litz"));
        command.args(["daemon", "--json", "--idle-timeout=5s", "--socket"]).arg(socket);
        command.arg("--state-dir").arg(world.place.path("state-out"));
        command
    }

    /// Starts the process, and waits until it is connected.
    pub(super) fn start(world: &World, socket: &std::path::Path) -> Litz {
        let mut process = Litz::of(Self::prepare(world, socket).arg(&world.ticket));
        process.wait_for("serving");
        process.wait_for("connected");
        process
    }

    /// A program that uses the daemon.
    fn command(&self, program: &[&str]) -> Command {
        self.command_with(&[], program)
    }

    /// The same with more options.
    pub(super) fn command_with(&self, more: &[&str], program: &[&str]) -> Command {
        let mut command = self.world.near.command(env!("CARGO_BIN_EXE_litz"));
        command.args(["run", "--strict", "--daemon"]).arg(&self.socket).args(more).arg("--").args(program);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn spawn(&self, program: &[&str]) -> Child {
        self.command(program).spawn().expect("it starts")
    }

    pub(super) fn run(&self, program: &[&str]) -> (i32, String, String) {
        texts(self.command(program).output().expect("it starts"))
    }

    /// `litz daemon status` or `stop`.
    pub(super) fn ask(&self, what: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
        command.args(["daemon", what, "--json", "--socket"]).arg(&self.socket).output().expect("it starts")
    }

    pub(super) fn status(&self) -> Value {
        crate::support::run::json(&self.ask("status").stdout)
    }
}

/// Reads the first bytes that a program writes: it is connected then.
pub(super) fn wait_for_output(child: &mut Child, len: usize) {
    child.stdout.as_mut().expect("piped").read_exact(&mut vec![0; len]).expect("it is connected");
}

#[test]
fn programs_share_one_connection_and_get_all_bytes() {
    let Some(daemon) = Daemon::new() else { return };
    let port = daemon.world.serve(FAR, echo);
    // Both are connected at the same time.
    let script = format!("exec 3<>/dev/tcp/{FAR}/{port}; echo up; read -r; head -c 5000000 /dev/zero >&3");
    let script = format!("{script}; exec 3>&-; echo down");
    let mut programs: Vec<Child> = (0..2)
        .map(|_| daemon.command(&["bash", "-c", &script]).stdin(Stdio::piped()).spawn().expect("it starts"))
        .collect();
    programs.iter_mut().for_each(|program| wait_for_output(program, 3));
    let status = daemon.status();
    let listed = status["programs"].as_array().expect("a list");
    assert_eq!(listed.len(), 2, "{status:#}");
    assert!(listed.iter().all(|program| program["name"] == "bash" && program["connections"] == 1), "{status:#}");
    let paths = status["servers"][0]["paths"].as_array().expect("a list");
    let ends: Vec<_> = paths.iter().map(|path| (&path["device"], &path["local"])).collect();
    assert!(ends.len() == 2 && ends[0] != ends[1], "two links look the same: {status:#}");
    assert!(ends.iter().all(|(_, local)| local.is_string()), "{status:#}");
    for mut program in programs {
        program.stdin.take().expect("piped").write_all(b"go\n").expect("it reads");
        assert_prints(texts(program.wait_with_output().expect("it ends")), "down\n");
    }
    // Whole answers, too.
    let script = format!("exec 3<>/dev/tcp/{FAR}/{port}; printf hello >&3; exec 4<&3; exec 3>&-; exec 4<&-");
    assert_eq!(daemon.run(&["bash", "-c", &script]).0, 0);
    assert_prints(daemon.run(&["python3", "-c", EXCHANGE, FAR, &port.to_string()]), "5000000 same\n");
}

/// Sends random bytes with a half-close, and compares the answer.
const EXCHANGE: &str = "
import os, socket, sys, threading
data = os.urandom(5_000_000)
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
assert s.getpeername() == (sys.argv[1], int(sys.argv[2]))
def send():
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
answer = b''.join(iter(lambda: s.recv(65536), b''))
print(len(answer), 'same' if answer == data else 'other')";

#[test]
fn errors_of_the_far_host_reach_the_program() {
    let Some(daemon) = Daemon::new() else { return };
    let (status, _, errors) = daemon.run(&["bash", "-c", &format!("exec 3<>/dev/tcp/{FAR}/1")]);
    assert!(status == 1 && errors.contains("Connection refused"), "{status} {errors}");
    let (status, _, errors) = daemon.run(&["bash", "-c", "exec 3<>/dev/tcp/10.80.0.1/1"]);
    assert!(status == 1 && errors.contains("Permission denied"), "{status} {errors}");
}

#[test]
fn a_daemon_that_is_killed_resets_the_connections_and_a_new_one_serves_the_same_program() {
    let Some(mut daemon) = Daemon::new() else { return };
    let port = daemon.world.serve(FAR, |mut stream| {
        stream.write_all(b"x").expect("it is read");
        let _end = stream.read(&mut [0]);
    });
    // The second connection is made after the restart.
    let script = format!(
        "exec 3<>/dev/tcp/{FAR}/{port}; cat <&3; echo ended; read -r; exec 3<>/dev/tcp/{FAR}/{port}; head -c 1 <&3"
    );
    let mut program = daemon.command(&["bash", "-c", &script]).stdin(Stdio::piped()).spawn().expect("it starts");
    wait_for_output(&mut program, 1);
    daemon.process.kill();
    wait_for_output(&mut program, 6);
    // Its socket is left, which is in no one's way.
    assert!(daemon.socket.exists());
    daemon.process = Daemon::start(&daemon.world, &daemon.socket);
    program.stdin.take().expect("piped").write_all(b"go\n").expect("it reads");
    let (status, output, errors) = texts(program.wait_with_output().expect("it ends"));
    assert!(errors.contains("Connection reset by peer"), "{errors}");
    assert_eq!((status, &*output), (0, "x"), "{errors}");
}

#[test]
fn a_program_that_waits_for_a_connection_learns_that_the_daemon_was_killed() {
    let Some(mut daemon) = Daemon::new() else { return };
    // The address of no host, so that there is no answer. It leaves by the address of loopback, which has
    // no way back.
    daemon.world.far.ip("route add 10.79.9.0/24 dev l0");
    let program = daemon.spawn(&["bash", "-c", "exec 3<>/dev/tcp/10.79.9.9/80"]);
    // The daemon has the request once it counts the connection.
    let is_asked = |status: &Value| status["programs"][0]["connections"] == 1;
    while !is_asked(&daemon.status()) {
        std::thread::yield_now();
    }
    daemon.process.kill();
    let (status, _, errors) = texts(program.wait_with_output().expect("it ends"));
    assert!(status == 1 && errors.contains("Connection reset by peer"), "{status} {errors}");
    let (status, _, errors) = daemon.run(&["true"]);
    assert!(status == 125 && errors.contains("no daemon runs"), "{status} {errors}");
}

#[test]
fn stop_ends_the_daemon_and_another_one_may_start() {
    let Some(mut daemon) = Daemon::new() else { return };
    let second = Command::new(env!("CARGO_BIN_EXE_litz"))
        .args(["daemon", "--socket"])
        .arg(&daemon.socket)
        .arg("--state-dir")
        .arg(daemon.world.place.path("state-second"))
        .arg(&daemon.world.ticket)
        .output();
    let (status, _, errors) = texts(second.expect("it starts"));
    assert!(status == 2 && errors.contains("runs already"), "{status} {errors}");
    assert!(daemon.ask("stop").status.success());
    assert!(!daemon.socket.exists());
    assert_eq!(daemon.process.finish("error"), (0, None));
    let (status, _, errors) = texts(daemon.ask("status"));
    assert!(status == 2 && errors.is_empty(), "{status} {errors}");
    daemon.process = Daemon::start(&daemon.world, &daemon.socket);
    assert_eq!(daemon.status()["servers"][0]["is_connected"], true);
}

/// Connects as another user, and asks for the status.
const STRANGER: &str = "
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
try:
    s.connect(sys.argv[1])
except PermissionError:
    print('mode')
    sys.exit()
try:
    s.send(b'\\x01\\x05')
    answer = s.recv(40000)
except (BrokenPipeError, ConnectionResetError):
    answer = b'\\x01\\x82\\x02'  # It is refused before it has asked.
print('credentials' if answer[:3] == b'\\x01\\x82\\x02' else answer)";

#[test]
fn programs_of_other_users_are_refused_by_the_mode_and_by_their_credentials() {
    let Some(mut daemon) = Daemon::new() else { return };
    if !has_programs(&["setpriv"]) {
        return;
    }
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    open(daemon.world.place.root.path(), 0o755);
    let mode = std::fs::metadata(&daemon.socket).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let stranger = |user: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(user).args(["/usr/bin/python3", "-c", STRANGER]).arg(&daemon.socket);
        texts(command.output().expect("it starts"))
    };
    let other = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    assert_prints(stranger(&other), "mode\n");
    // As if the owner had let all in.
    open(&daemon.socket, 0o666);
    assert_prints(stranger(&other), "credentials\n");
    let refused = daemon.process.wait_for("program_refused");
    assert_eq!(refused["user"], 65534);
    let (_, output, _) = stranger(&["--reuid=0"]);
    assert!(output.contains("x01\\x86"), "the own user gets the status: {output}");
}

#[test]
fn what_is_no_request_ends_that_program_only() {
    let Some(daemon) = Daemon::new() else { return };
    let hostile = "
import array, os, socket, sys
socket.setdefaulttimeout(60)
publish = b'\\x01\\x08\\0\\0\\0\\1\\0\\1\\0\\x1f\\x90'
long = [b'\\x01\\x01' + b'a' * 400, b'\\x01' * 9000]
for first in [b'x', b'\\x02\\x01a', b'\\x01\\x03\\0\\0\\0\\0', publish] + long:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(sys.argv[1])
    s.send(first)
    reply = s.recv(1000)
    assert reply[:3] == b'\\x01\\x82\\x09' and len(reply) > 5, (first, reply)
    assert s.recv(100) == b'', first
# None at all.
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
assert s.recv(1000)[:3] == b'\\x01\\x82\\x06' and s.recv(100) == b''
welcomed = []
declines = b'\\x01\\x09\\0\\0\\0\\1\\1no'
for then in [b'', b'\\x01\\x05', b'\\x01\\x03\\0\\0\\0\\0', publish[:-1], declines, b'\\x01\\x09' + b'\\xff' * 600]:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(sys.argv[1])
    s.send(b'\\x01\\x01x')
    assert s.recv(100) == b'\\x01\\x81'
    if then:
        s.send(then)
        reply = s.recv(1000)
        assert reply[:3] == b'\\x01\\x82\\x09' and len(reply) > 5, (then, reply)
        assert s.recv(100) == b'', then
    else:
        welcomed.append(s)
# A descriptor that nobody asked for is closed, and two of them are against the rules.
s = welcomed[0]
r, w = os.pipe()
s.sendmsg([b'\\x01\\x03\\0\\0\\0\\x09'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [w]))])
os.close(w)
assert os.read(r, 1) == b''
s.sendmsg([b'\\x01\\x03\\0\\0\\0\\x09'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [r, r]))])
assert s.recv(100)[:3] == b'\\x01\\x82\\x09' and s.recv(100) == b''
# More programs than there are places.
held = []
while True:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(sys.argv[1])
    s.send(b'\\x01\\x01x')
    if s.recv(1000)[1] == 0x82:
        break
    held.append(s)
print(len(held))";
    let output = Command::new("python3").args(["-c", hostile]).arg(&daemon.socket).output().expect("it starts");
    assert_prints(texts(output), "64\n");
    let port = daemon.world.serve(FAR, echo);
    let script = format!("exec 3<>/dev/tcp/{FAR}/{port}; echo connected");
    assert_prints(daemon.run(&["bash", "-c", &script]), "connected\n");
}

/// Attaches a program to the daemon whose socket is its first argument: `s`.
const ATTACH: &str = "
import array, os, socket, sys
socket.setdefaulttimeout(60)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
s.send(b'\\x01\\x01mine')
assert s.recv(100) == b'\\x01\\x81'
";

/// Runs a script that is attached to the daemon with this socket. Returns its status and what it writes.
pub(super) fn run_attached(socket: &Path, script: &str, arguments: &[&str]) -> (i32, String, String) {
    let script = format!("{ATTACH}{script}");
    let output = Command::new("python3").args(["-c", &script]).arg(socket).args(arguments).output();
    texts(output.expect("it starts"))
}

/// A program that asks the daemon itself, and gets a socket.
const ASKS: &str = "
ip, port = socket.inet_aton(sys.argv[2]), int(sys.argv[3])
s.send(b'\\x01\\x02\\0\\0\\0\\x07\\x01\\x01\\x04' + ip + port.to_bytes(2, 'big'))
message, control, _, _ = s.recvmsg(100, 100)
assert message[:6] == b'\\x01\\x83\\0\\0\\0\\x07', message
fd = array.array('i', control[0][2][:4])[0]
c = socket.socket(fileno=fd)
data = os.urandom(100_000)
c.sendall(data)
c.shutdown(socket.SHUT_WR)
assert b''.join(iter(lambda: c.recv(65536), b'')) == data
message = s.recv(100)
assert message == b'\\x01\\x85\\0\\0\\0\\x07' + (100_000).to_bytes(8, 'big') * 2, message
print('good')";

#[test]
fn a_program_may_ask_for_a_socket_itself() {
    let Some(daemon) = Daemon::new() else { return };
    let port = daemon.world.serve(FAR, echo).to_string();
    assert_prints(run_attached(&daemon.socket, ASKS, &[FAR, &port]), "good\n");
}

#[test]
fn a_reader_that_stops_stops_its_writer_and_no_other_program() {
    let Some(daemon) = Daemon::new() else { return };
    let (wrote, written) = std::sync::mpsc::channel();
    let endless = daemon.world.serve(FAR, move |mut stream| {
        let mut total = 0_u64;
        while let Ok(count) = stream.write(&[7; 65536]) {
            total += count as u64;
            // The receiver has gone at the end of the test.
            let _gone = wrote.send(total);
        }
    });
    let port = daemon.world.serve(FAR, echo).to_string();
    let script = format!("exec 3<>/dev/tcp/{FAR}/{endless}; echo up; read -r");
    let mut stopped = daemon.command(&["bash", "-c", &script]).stdin(Stdio::piped()).spawn().expect("it starts");
    wait_for_output(&mut stopped, 3);
    // It writes until all buffers are full.
    let mut total = 0;
    while let Ok(now) = written.recv_timeout(std::time::Duration::from_secs(2)) {
        total = now;
    }
    assert!(total < 64 << 20, "{total} bytes are on their way");
    assert_prints(daemon.run(&["python3", "-c", EXCHANGE, FAR, &port]), "5000000 same\n");
    drop(stopped.stdin.take());
    stopped.wait().expect("it ends");
}

#[test]
fn the_daemon_of_this_user_is_found_and_a_ticket_comes_before_it() {
    let place = Place::new();
    let (_server, ticket) = serve_at(&place, "127.0.0.1:0", &["--target", "192.0.2.1:80"]);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
        command.env("XDG_RUNTIME_DIR", place.root.path()).env_remove("LITZ_TICKET").arg("run").args(arguments);
        texts(command.arg("--state-dir").arg(place.path("state-out")).args(["--", "true"]).output().expect("it starts"))
    };
    let missing = place.path("no-daemon");
    let (status, _, errors) = run(&["--daemon", missing.to_str().expect("a plain path")]);
    assert!(status == 125 && errors.contains("no daemon runs on"), "{status} {errors}");
    let (status, _, errors) = run(&["--daemon", "/run/x", &ticket]);
    assert!(status == 125 && errors.contains("either"), "{status} {errors}");
    let (status, _, errors) = run(&[&ticket]);
    assert_eq!(status, 0, "{errors}");
    let (status, _, errors) = run(&["--own", "litz1wrong"]);
    assert!(status == 125 && errors.contains("litz forward serve"), "{status} {errors}");
}
