//! TCP connections that `litz tunnel --terminate` ends at each side (root), used by programs that know
//! nothing of it.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::support::Litz;
use crate::tunnel::{Running, SERVER, World, ip};

mod dscp;

/// A server of several kinds. It writes a line about each connection that has ended, to the file of its
/// first argument: its port, the client's address, and what happened.
const PEER: &str = "
import os, socket, sys, threading
log = open(sys.argv[1], 'a', buffering=1)
lock = threading.Lock()

def end(port, source, what):
    with lock:
        log.write(f'{port} {source} {what}\\n')

def serve(port, s, source):
    count, text = 0, []
    try:
        if port == 8001:  # the data back, after their end
            while data := s.recv(65536):
                count += len(data)
                text.append(data)
            s.sendall(b''.join(text))
        elif port == 8002:  # a reset after the first bytes
            count = len(s.recv(1))
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\\1\\0\\0\\0\\0\\0\\0\\0')
        elif port == 8003:  # reads slowly: nothing until a file exists
            while not os.path.exists(sys.argv[1] + '.read'):
                threading.Event().wait(0.01)
            while data := s.recv(65536):
                count += len(data)
        end(port, source, f'ended {count}')
    except OSError as error:
        end(port, source, type(error).__name__)
    s.close()

def listen(port):
    s = socket.create_server(('::', port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    while True:
        c, source = s.accept()
        threading.Thread(target=serve, args=(port, c, source[0].removeprefix('::ffff:')), daemon=True).start()

threads = [threading.Thread(target=listen, args=(port,)) for port in (8001, 8002, 8003)]
[t.start() for t in threads]
[t.join() for t in threads]
";

/// Sends bytes, ends the sending side, and prints whether the same came back; or the error. The fourth
/// argument is the source address.
const ECHO: &str = "
import os, socket, sys
try:
    source = (sys.argv[4], 0) if len(sys.argv) > 4 else None
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])), source_address=source)
    data = os.urandom(int(sys.argv[3]))
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    back = b''.join(iter(lambda: s.recv(1 << 20), b''))
    print('same' if back == data else f'{len(back)} other bytes')
except OSError as error:
    print(error.errno and os.strerror(error.errno))
";

/// As many connections at a time as the third argument says, each of which is used in turn.
const MANY: &str = "
import os, socket, sys
to, count = (sys.argv[1], int(sys.argv[2])), int(sys.argv[3])
all = [socket.create_connection(to) for _ in range(count)]
data = [os.urandom(2000) for _ in all]
for s, text in zip(all, data):
    s.sendall(text)
for s in reversed(all):
    s.shutdown(socket.SHUT_WR)
for s, text in zip(all, data):
    back = b''.join(iter(lambda: s.recv(1 << 20), b''))
    assert back == text, len(back)
print('same')
";

/// Connects, sends a byte, and then what the third argument says.
const HOLD: &str = "
import os, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(b'a')
if sys.argv[3] == 'reset':
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\\1\\0\\0\\0\\0\\0\\0\\0')
    s.close()
    sys.exit()
open(sys.argv[4], 'w').close()
try:
    print(len(s.recv(1)))
except OSError as error:
    print(os.strerror(error.errno))
";

/// A tunnel, with servers behind it at the server.
struct Terminated {
    world: World,
    client: Litz,
    server: Litz,
    _peer: Running,
}

impl Terminated {
    fn new(test: &str, serve: &[&str], up: &[&str]) -> Option<Self> {
        let world = World::new(test, 2, &["curl", "python3", "ss"])?;
        let (mut server, ticket) = world.serve(serve);
        let mut client = world.litz(&world.client, &[&["up"], up, &[&ticket]].concat());
        client.wait_for("up");
        server.wait_for("client");
        let peer = world.start("python3", &["-c", PEER, &world.path("log").display().to_string()]);
        [8001, 8002, 8003].iter().for_each(|port| world.await_port(*port));
        Some(Self { world, client, server, _peer: peer })
    }

    /// What a program at the client prints, in one line.
    fn output_of(&self, script: &str, arguments: &[&str]) -> String {
        let output: Output = self.world.succeed("python3", &[&["-c", script], arguments].concat());
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    /// The lines of the log that begin with this port, once there are as many.
    fn log_of(&self, port: u16, count: usize) -> Vec<String> {
        let prefix = format!("{port} ");
        loop {
            let log = fs::read_to_string(self.world.path("log")).unwrap_or_default();
            let lines: Vec<_> = log.lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect();
            if lines.len() >= count {
                return lines;
            }
            std::thread::yield_now();
        }
    }

    /// The terminated connections of the client's tunnel.
    fn status(&self) -> Value {
        let status = self.world.command(&self.world.client).args(["status", "--json"]).output().expect("it starts");
        let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
        status["peers"][0]["terminated"].clone()
    }

    fn end(self) -> (Value, Value) {
        let (sent, received) = World::end(self.client, self.server);
        (sent["terminated"].clone(), received["terminated"].clone())
    }
}

#[test]
fn a_file_of_a_web_server_arrives_whole_through_terminated_connections_of_both_ip_versions() {
    let Some(test) = Terminated::new("tweb", &[], &["--terminate=all"]) else { return };
    let file = test.world.place.file("file", 20_000_000, 1);
    let folder = file.parent().expect("below the folder").display().to_string();
    let _web = test.world.start("python3", &["-m", "http.server", "8000", "--bind", "::", "--directory", &folder]);
    test.world.await_port(8000);
    for (address, name) in [(SERVER[0].to_owned(), "v4"), (format!("[{}]", SERVER[1]), "v6")] {
        let to = test.world.path(name);
        let url = format!("http://{address}:8000/file");
        test.world.succeed("curl", &["-sSf", "-o", &to.display().to_string(), &url]);
        assert!(fs::read(&to).expect("a file") == fs::read(&file).expect("a file"), "{address}");
    }
    let (sent, received) = test.end();
    for end in [&sent, &received] {
        assert_eq!((&end["begun"], &end["failed"]), (&2.into(), &0.into()), "{end}");
    }
    assert!(received["bytes_in"].as_u64() > Some(40_000_000), "it went through streams: {received}");
}

#[test]
fn a_client_sees_refusals_half_closes_and_resets_as_without_a_tunnel() {
    let Some(test) = Terminated::new("tends", &[], &["--terminate=all"]) else { return };
    for address in SERVER {
        assert_eq!(test.output_of(ECHO, &[address, "9", "1"]), "Connection refused");
        assert_eq!(test.output_of(ECHO, &[address, "8001", "3000000"]), "same");
        assert_eq!(test.output_of(HOLD, &[address, "8002", "read", "/dev/null"]), "Connection reset by peer");
        test.output_of(HOLD, &[address, "8001", "reset"]);
    }
    let log = test.log_of(8001, 4);
    let clients = ["10.76.0.2", "fd76:6c69:747a::2"];
    let expected = clients.map(|client| [format!("{client} ended 3000000"), format!("{client} ConnectionResetError")]);
    assert_eq!(log, expected.concat(), "the server sees the client's address");
    let (sent, received) = test.end();
    for end in [&sent, &received] {
        assert_eq!((&end["begun"], &end["failed"], &end["open"]), (&6.into(), &2.into(), &0.into()), "{end}");
    }
}

#[test]
fn a_target_that_no_route_leads_to_is_reported_as_unreachable() {
    let network = "192.168.99.0/24";
    let Some(test) = Terminated::new("troute", &["--route", network], &["--terminate", network]) else { return };
    ip(&format!("netns exec {} sysctl -qw net.ipv4.ip_forward=1", test.world.server));
    ip(&format!("-n {} route add unreachable {network}", test.world.server));
    assert_eq!(test.output_of(ECHO, &["192.168.99.1", "80", "1"]), "No route to host");
    assert_eq!(test.end().1["failed"], 1);
}

#[test]
fn a_connection_from_an_address_that_the_client_does_not_have_is_refused() {
    let Some(test) = Terminated::new("tspoof", &[], &["--terminate=all"]) else { return };
    ip(&format!("-n {} addr add 10.76.0.77/32 dev litz0", test.world.client));
    assert_eq!(test.output_of(ECHO, &[SERVER[0], "8001", "10", "10.76.0.77"]), "Connection refused");
    assert_eq!(test.output_of(ECHO, &[SERVER[0], "8001", "10", "10.76.0.2"]), "same");
    assert_eq!(test.log_of(8001, 1), ["10.76.0.2 ended 10"]);
    let received = test.end().1;
    assert_eq!((&received["begun"], &received["failed"]), (&1.into(), &1.into()), "{received}");
}

#[test]
fn only_the_selected_connections_are_terminated() {
    let selected = format!("--terminate={}/30:8001-8002", SERVER[0]);
    let Some(test) = Terminated::new("tselect", &[], &[&selected]) else { return };
    let read = test.world.path("log.read");
    fs::write(&read, "").expect("a file");
    assert_eq!(test.output_of(ECHO, &[SERVER[0], "8003", "5000"]), "0 other bytes");
    assert_eq!(test.output_of(ECHO, &[SERVER[1], "8001", "5000"]), "same");
    assert_eq!(test.status()["begun"], 0);
    assert_eq!(test.output_of(ECHO, &[SERVER[0], "8001", "5000"]), "same");
    assert_eq!(test.end().1["begun"], 1);
}

#[test]
fn programs_of_the_server_open_terminated_connections_to_the_client_too() {
    let Some(test) = Terminated::new("tback", &["--terminate=8001"], &[]) else { return };
    let log = test.world.path("back").display().to_string();
    let at = |name: &str, arguments: &[&str]| World::in_namespace(name, "python3", arguments);
    let mut peer = at(&test.world.client, &["-c", PEER, &log]);
    let _peer = Running(peer.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"));
    loop {
        let arguments = ["-c", ECHO, "10.76.0.2", "8001", "100000"];
        let output = at(&test.world.server, &arguments).output().expect("it starts");
        match String::from_utf8(output.stdout).expect("text").trim() {
            "same" => break,
            // The peer is starting.
            text => assert_eq!(text, "Connection refused"),
        }
    }
    let (sent, received) = test.end();
    assert_eq!((&sent["begun"], &received["begun"]), (&1.into(), &1.into()), "{sent} {received}");
}

#[test]
fn two_hundred_connections_are_open_at_a_time() {
    let Some(test) = Terminated::new("tmany", &[], &["--terminate=all"]) else { return };
    assert_eq!(test.output_of(MANY, &[SERVER[0], "8001", "200"]), "same");
    assert_eq!(test.log_of(8001, 200).len(), 200);
    let (sent, received) = test.end();
    assert_eq!((&sent["begun"], &received["begun"]), (&200.into(), &200.into()));
}

#[test]
fn terminated_connections_are_reset_when_the_tunnel_is_lost() {
    let Some(mut test) = Terminated::new("tlost", &[], &["--terminate=all"]) else { return };
    let ready = test.world.path("ready").display().to_string();
    let arguments = ["-c", HOLD, SERVER[0], "8001", "read", &ready];
    let mut command = World::in_namespace(&test.world.client, "python3", &arguments);
    let held = command.stdout(Stdio::piped()).spawn().expect("it starts");
    while !Path::new(&ready).exists() {
        std::thread::yield_now();
    }
    test.server.kill();
    let (server, _) = test.world.serve(&[]);
    let output = held.wait_with_output().expect("it was started");
    assert_eq!(String::from_utf8(output.stdout).expect("text").trim(), "Connection reset by peer");
    test.client.wait_for("up");
    assert_eq!(test.output_of(ECHO, &[SERVER[0], "8001", "5000"]), "same");
    World::end(test.client, server);
}
