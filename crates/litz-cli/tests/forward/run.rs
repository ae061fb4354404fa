//! `litz run`: programs that know nothing of Litz.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use super::*;
use crate::namespaces::Namespace;
use crate::support::needs::{has_programs, has_root};

/// An address of the far host that the near one has no route to: it is reached over Litz or not at all.
pub(super) const FAR: &str = "10.79.0.1";
pub(super) const FAR6: &str = "fd79::1";

/// Two hosts with two links; the far one serves.
pub(super) struct World {
    pub(super) place: Place,
    pub(super) near: Namespace,
    pub(super) far: Namespace,
    server: Litz,
    /// The arguments of the server.
    arguments: Vec<String>,
    pub(super) ticket: String,
}

impl World {
    /// None without root.
    pub(super) fn new() -> Option<Self> {
        Self::with(&["10.79.0.0/16:*", "[fd79::]/16:*"], &[], |_, _| {})
    }

    /// The same with other targets and arguments of the server, after `prepare` with the near and the far
    /// host.
    pub(super) fn with(targets: &[&str], more: &[&str], prepare: impl FnOnce(&Namespace, &Namespace)) -> Option<Self> {
        if !has_root() {
            return None;
        }
        let (near, far, place) = (Namespace::new("near"), Namespace::new("far"), Place::new());
        for link in 0..2 {
            near.ip(&format!("link add l{link} type veth peer name l{link} netns {}", far.name()));
            for (host, last) in [(&near, 1), (&far, 2)] {
                host.ip(&format!("addr add 10.78.{link}.{last}/24 dev l{link}"));
                host.ip(&format!("link set l{link} up"));
            }
        }
        [&near, &far].iter().for_each(|host| host.wait_for_carrier(&["l0", "l1"]));
        far.ip(&format!("addr add {FAR}/32 dev lo"));
        far.ip(&format!("addr add {FAR6}/128 dev lo"));
        let state = format!("--state-dir={}", place.path("state-in").display());
        prepare(&near, &far);
        let fixed = ["forward", "serve", "--json", &state, "--permit-listen", "8080-8089"];
        let targets = targets.iter().flat_map(|target| ["--target", target]);
        let arguments =
            fixed.into_iter().chain(targets).chain(more.iter().copied()).map(str::to_owned).collect::<Vec<_>>();
        let (server, ticket) = serve_in(&far, &arguments);
        Some(Self { place, near, far, server, arguments, ticket })
    }

    /// Kills the server, and starts it again after `between`.
    pub(super) fn restart(&mut self, between: impl FnOnce()) {
        self.stop();
        between();
        self.start();
    }

    /// Kills the server.
    pub(super) fn stop(&mut self) {
        self.server.kill();
    }

    /// Starts it again.
    pub(super) fn start(&mut self) {
        let (server, ticket) = serve_in(&self.far, &self.arguments);
        assert_eq!(ticket, self.ticket);
        self.server = server;
    }

    /// A server on the far host; returns its port.
    pub(super) fn serve(&self, ip: &str, act: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
        let address: SocketAddr = (ip.parse::<std::net::IpAddr>().expect("an address"), 0).into();
        // Its sockets stay in the namespace.
        let listener = self.far.inside(|| TcpListener::bind(address).expect("a port"));
        accept_each(listener, act).port()
    }

    fn command(&self, program: &[&str]) -> Command {
        self.command_with(&[], program)
    }

    /// The same with more options.
    pub(super) fn command_with(&self, more: &[&str], program: &[&str]) -> Command {
        let mut command = self.near.command(env!("CARGO_BIN_EXE_litz"));
        command.args(["run", "--strict", "--idle-timeout=5s", "--state-dir"]).arg(self.place.path("state-out"));
        command.args(more).arg(&self.ticket).arg("--").args(program);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(super) fn run(&self, program: &[&str]) -> (i32, String, String) {
        texts(self.command(program).output().expect("it starts"))
    }
}

/// Starts the server; returns its ticket.
pub(super) fn serve_in(far: &Namespace, arguments: &[String]) -> (Litz, String) {
    let mut server = Litz::of(far.command(env!("CARGO_BIN_EXE_litz")).args(arguments));
    let ticket = server.wait_for("listening")["ticket"].as_str().expect("a ticket").to_owned();
    (server, ticket)
}

/// Asserts that a program has succeeded and printed this, and nothing else on standard output.
#[track_caller]
pub(super) fn assert_prints((status, output, errors): (i32, String, String), expected: &str) {
    assert_eq!((status, &*output), (0, expected), "{errors}");
}

pub(super) fn texts(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

pub(super) fn echo(mut stream: TcpStream) {
    let mut all = Vec::new();
    if stream.read_to_end(&mut all).is_ok() {
        let _written = stream.write_all(&all);
    }
}

pub(super) fn http(mut stream: TcpStream) {
    let mut request = [0; 4096];
    let _read = stream.read(&mut request);
    let _written = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello");
}

#[test]
fn a_program_that_blocks_exchanges_data_and_ends() {
    let Some(world) = World::new() else { return };
    let port = world.serve(FAR, |mut stream| {
        stream.write_all(b"good day").expect("it is read");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the end");
        assert_eq!(answer, "and to you");
    });
    let script = format!("exec 3<>/dev/tcp/{FAR}/{port}; head -c 8 <&3; printf 'and to you' >&3; exit 7");
    let (status, output, errors) = world.run(&["bash", "-c", &script]);
    assert_eq!((status, &*output), (7, "good day"), "{errors}");
}

#[test]
fn what_a_program_sent_before_it_ended_arrives() {
    let Some(world) = World::new() else { return };
    let (arrived, results) = std::sync::mpsc::channel();
    let port = world.serve(FAR, move |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("the end, not a reset");
        arrived.send(all.len()).expect("it is waited for");
    });
    let script = format!("head -c 30000000 /dev/zero >/dev/tcp/{FAR}/{port}");
    let (status, _, errors) = world.run(&["bash", "-c", &script]);
    assert_eq!(status, 0, "{errors}");
    assert_eq!(results.recv_timeout(TEST_TIMEOUT), Ok(30_000_000));
}

#[test]
fn curl_does_not_block_and_sees_the_address_that_it_wants() {
    let Some(world) = World::new() else { return };
    if !has_programs(&["curl"]) {
        return;
    }
    for (ip, host) in [(FAR, FAR.to_owned()), (FAR6, format!("[{FAR6}]"))] {
        let port = world.serve(ip, http);
        let (url, shown) = (format!("http://{host}:{port}/"), " %{remote_ip}:%{remote_port}");
        let (status, output, errors) = world.run(&["curl", "-sS", "-m", "60", "-w", shown, &url]);
        assert_eq!((status, output), (0, format!("hello {ip}:{port}")), "{errors}");
    }
    let (status, _, errors) = world.run(&["curl", "-sS", "-m", "60", &format!("http://{FAR}:1/")]);
    assert!(status == 7 && errors.contains("Connection refused"), "{status} {errors}");
}

/// Fifty connections of one thread with epoll, each with a half-close; the peer of each by name.
const ASYNCIO: &str = "
import asyncio, sys
async def one(number):
    reader, writer = await asyncio.open_connection(sys.argv[1], int(sys.argv[2]))
    assert writer.get_extra_info('peername') == (sys.argv[1], int(sys.argv[2]))
    writer.write(bytes([number]) * 100_000)
    writer.write_eof()
    assert await reader.read() == bytes([number]) * 100_000
    writer.close()
async def main():
    await asyncio.gather(*[one(number) for number in range(50)])
    print('all')
asyncio.run(main())";

#[test]
fn many_connections_of_one_thread_are_polled() {
    let Some(world) = World::new() else { return };
    if !has_programs(&["python3"]) {
        return;
    }
    let port = world.serve(FAR, echo).to_string();
    assert_prints(world.run(&["python3", "-c", ASYNCIO, FAR, &port]), "all\n");
}

#[test]
fn a_connection_of_a_program_goes_on_when_a_link_is_cut() {
    let Some(world) = World::new() else { return };
    let (began, beginnings) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let may_go_on = std::sync::Arc::new(std::sync::Mutex::new(may_go_on));
    let port = world.serve(FAR, move |mut stream| {
        stream.write_all(&[1; 20_000_000]).expect("it is read");
        began.send(()).expect("it is waited for");
        may_go_on.lock().expect("one connection").recv().expect("after the cut");
        stream.write_all(&[1; 20_000_000]).expect("it is read");
    });
    let child = world.command(&["bash", "-c", &format!("wc -c </dev/tcp/{FAR}/{port}")]).spawn().expect("it starts");
    beginnings.recv_timeout(TEST_TIMEOUT).expect("the first half");
    world.far.ip("link set l0 down");
    go_on.send(()).expect("it waits");
    let (status, output, errors) = texts(child.wait_with_output().expect("it ends"));
    assert_eq!((status, output.trim()), (0, "40000000"), "{errors}");
    assert!(!errors.contains("reconnecting"), "{errors}");
}

#[test]
fn a_connection_is_reset_when_the_server_dies() {
    let Some(mut world) = World::new() else { return };
    let port = world.serve(FAR, |mut stream| {
        stream.write_all(b"x").expect("it is read");
        let _end = stream.read(&mut [0]);
    });
    let script = format!("exec 3<>/dev/tcp/{FAR}/{port}; cat <&3");
    let mut child = world.command(&["bash", "-c", &script]).spawn().expect("it starts");
    child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("connected");
    world.server.kill();
    let (status, _, errors) = texts(child.wait_with_output().expect("it ends"));
    assert!(status == 1 && errors.contains("Connection reset by peer"), "{status} {errors}");
}

/// A server on loopback, and `litz run` with these arguments.
fn run_here(more: &[&str], program: &[&str]) -> (i32, String, String) {
    let place = Place::new();
    let (_server, ticket) = serve_at(&place, "127.0.0.1:0", &["--target", "192.0.2.1:80"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    command.arg("run").args(more).arg("--state-dir").arg(place.path("state-out")).arg(&ticket).arg("--");
    texts(command.args(program).stdin(Stdio::null()).output().expect("it starts"))
}

#[test]
fn the_status_is_that_of_the_program_or_says_why_there_is_none() {
    assert_eq!(run_here(&[], &["sh", "-c", "exit 7"]).0, 7);
    assert_eq!(run_here(&[], &["sh", "-c", "kill -9 $$"]).0, 137);
    let (status, _, errors) = run_here(&[], &["/nonexistent/program"]);
    assert!(status == 127 && errors.contains("cannot run /nonexistent/program"), "{status} {errors}");
    let place = Place::new();
    let plain = place.path("plain");
    std::fs::write(&plain, "no program").expect("a file");
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).expect("a file");
    assert_eq!(run_here(&[], &[plain.to_str().expect("a plain path")]).0, 126);
    let refused = Command::new(env!("CARGO_BIN_EXE_litz")).args(["run", "no-ticket", "--", "true"]).output();
    let (status, _, errors) = texts(refused.expect("it starts"));
    assert!(status == 125 && errors.contains("ticket"), "{status} {errors}");
}

#[test]
fn connections_inside_the_host_are_the_kernels() {
    let target = late_echo();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{} && echo connected", target.port());
    let (status, output, errors) = run_here(&["--strict", "--json"], &["bash", "-c", &script]);
    assert_eq!((status, &*output), (0, "connected\n"), "{errors}");
    assert!(!errors.contains("\"opened\""), "{errors}");
}

#[test]
fn what_the_far_host_does_not_allow_fails_if_the_user_wants_that() {
    let script = "exec 3<>/dev/tcp/192.0.2.1/81";
    let (status, _, errors) = run_here(&["--strict"], &["bash", "-c", script]);
    assert!(status == 1 && errors.contains("Permission denied"), "{status} {errors}");
    // Otherwise it is the kernel's; this address is that of no host (RFC 5737).
    let (_, _, errors) = run_here(&["--json"], &["timeout", "0.5", "bash", "-c", script]);
    assert!(errors.contains("\"event\":\"direct\""), "{errors}");
    let (_, _, errors) = run_here(&["--json", "--direct", "192.0.2.0/24:*"], &["timeout", "0.5", "bash", "-c", script]);
    assert!(!errors.contains("\"event\":\"direct\"") && !errors.contains("\"refused\""), "{errors}");
}

#[test]
fn a_command_inside_another_one_says_that_there_can_be_one() {
    let place = Place::new();
    let (_server, ticket) = serve_at(&place, "127.0.0.1:0", &["--target", "192.0.2.1:80"]);
    let state = place.path("state-out");
    let (litz, state) = (env!("CARGO_BIN_EXE_litz"), state.to_str().expect("a plain path"));
    let command = ["run", "--state-dir", state, &ticket, "--"];
    let output = Command::new(litz).args(command).arg(litz).args(command).arg("true").output();
    let (status, _, errors) = texts(output.expect("it starts"));
    assert!(status == 125 && errors.contains("leave out the inner `litz run`"), "{status} {errors}");
}

#[test]
fn connections_come_from_the_address_that_the_server_chooses() {
    let host = ["10.78.0.2:*", "[fd79::]/16:*"];
    for (source, expected) in [("10.79.0.1", "10.79.0.1"), ("lo", "127.0.0.1"), ("l1", "10.78.1.2")] {
        let Some(world) = World::with(&host, &["--source", source], |_, _| {}) else { return };
        let port = world.serve("10.78.0.2", |mut stream| {
            let peer = stream.peer_addr().expect("a socket").ip().to_string();
            let _written = stream.write_all(peer.as_bytes());
        });
        let script = format!("cat </dev/tcp/10.78.0.2/{port}");
        assert_prints(world.run(&["bash", "-c", &script]), expected);
        if source == "10.79.0.1" {
            // The other family has none.
            let (status, _, errors) = world.run(&["bash", "-c", &format!("exec 3<>/dev/tcp/{FAR6}/1")]);
            assert!(status == 1 && errors.contains("--source has no IPv6 address"), "{status} {errors}");
        }
    }
    let place = Place::new();
    let state = place.path("state-in");
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    command.args(["forward", "serve", "--target", "*:*", "--source", "192.0.2.1", "--state-dir"]).arg(state);
    let (status, _, errors) = texts(command.output().expect("it starts"));
    assert!(status == 2 && errors.contains("no interface of this host has it"), "{status} {errors}");
}

#[test]
fn connections_from_a_chosen_address_share_its_ports() {
    for (source, target) in [("10.79.0.1", "10.78.0.2"), (FAR6, FAR6)] {
        let host = ["10.78.0.2:*", "[fd79::]/16:*"];
        let Some(world) = World::with(&host, &["--source", source], |_, _| {}) else { return };
        let ports: Vec<String> = (0..4).map(|_| world.serve(target, echo).to_string()).collect();
        let range = || std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "20000 20001");
        world.far.inside(|| range().expect("root may"));
        let script = "import socket, sys
held = [socket.create_connection((sys.argv[1], int(port))) for port in sys.argv[2:]]
for each in held:
    each.sendall(b'x')
    each.shutdown(socket.SHUT_WR)
    assert each.recv(9) == b'x'
print(len(held))";
        let mut program = vec!["python3", "-c", script, target];
        program.extend(ports.iter().map(String::as_str));
        let (status, output, errors) = world.run(&program);
        assert_eq!((status, &*output), (0, "4\n"), "{source} {errors}");
    }
}

#[test]
fn a_termination_signal_is_the_programs() {
    let place = Place::new();
    let (_server, ticket) = serve_at(&place, "127.0.0.1:0", &["--target", "192.0.2.1:80"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    command.arg("run").arg("--state-dir").arg(place.path("state-out")).arg(&ticket).arg("--");
    let script = "trap 'echo caught; exit 9' TERM; echo ready; while true; do sleep 0.01; done";
    let mut child = command.args(["bash", "-c", script]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut output = child.stdout.take().expect("piped");
    let mut ready = [0; 6];
    output.read_exact(&mut ready).expect("the program runs");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("text");
    assert_eq!((child.wait().expect("it ends").code(), &*rest), (Some(9), "caught\n"));
}
