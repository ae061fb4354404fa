//! `litz tunnel up --userspace`, run by a user without rights, and used through its proxy and its ports.

use std::path::PathBuf;
use std::process::Command;

use crate::support::Litz;
use crate::tunnel::{Running, SERVER, World};

/// The user that has nothing.
const NOBODY: &str = "65534";

/// A server with root's rights, and a client without any.
fn tunnel(world: &World, more: &[&str]) -> (Litz, Litz) {
    tunnel_to(world, &[], more)
}

/// The same, with more options of the server.
fn tunnel_to(world: &World, serve: &[&str], more: &[&str]) -> (Litz, Litz) {
    let (mut server, ticket) = world.serve(serve);
    let mut client = user(world, &[&["up", "--userspace", &ticket], more].concat());
    client.wait_for("up");
    server.wait_for("client");
    (client, server)
}

/// The command at the client, as a user without rights.
fn user(world: &World, arguments: &[&str]) -> Litz {
    // Other users may have no access to the folder of the build.
    let program = world.path_for_all("litz");
    std::fs::copy(env!("CARGO_BIN_EXE_litz"), &program).expect("there is space");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &world.client, "setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    command.args(["--bounding-set=-all", "--inh-caps=-all"]).arg(program).arg("tunnel").args(arguments);
    for (name, folder) in [("XDG_STATE_HOME", "user-state"), ("XDG_RUNTIME_DIR", "user-run")] {
        let path = world.path(folder);
        std::fs::create_dir_all(&path).expect("ours");
        std::os::unix::fs::chown(&path, NOBODY.parse().ok(), NOBODY.parse().ok()).expect("we are root");
        command.env(name, path);
    }
    Litz::of(command.env_remove("RUNTIME_DIRECTORY").arg("--json"))
}

/// Where the client listens for this kind of forward.
fn address(client: &Litz, kind: &str) -> String {
    let event = client.seen.iter().find(|event| event["event"] == "forwarding" && event["kind"] == kind);
    event.expect("it was told")["address"].as_str().expect("an address").to_owned()
}

/// A web server with a file, and the file.
fn web(world: &World) -> (Running, PathBuf) {
    let file = world.place.file("file", 5_000_000, 1);
    let folder = file.parent().expect("below the folder").display().to_string();
    let web = world.start("python3", &["-m", "http.server", "8000", "--bind", "::", "--directory", &folder]);
    world.await_port(8000);
    (web, file)
}

#[test]
fn a_user_without_rights_uses_a_tunnel_by_a_proxy_and_by_a_port() {
    let Some(world) = World::new("us", 2, &["curl", "python3", "setpriv", "ss"]) else { return };
    let (_web, file) = web(&world);
    let local = format!("0:{}:8000", SERVER[0]);
    let (client, server) = tunnel(&world, &["-D", "0", "-L", &local]);
    let proxy = format!("socks5h://{}", address(&client, "dynamic"));
    let port = format!("http://{}/file", address(&client, "local"));
    let through = [
        (format!("http://{}:8000/file", SERVER[0]), Some(&proxy)),
        (format!("http://[{}]:8000/file", SERVER[1]), Some(&proxy)),
        (port, None),
    ];
    for (number, (url, proxy)) in through.iter().enumerate() {
        let to = world.path(&format!("copy-{number}"));
        let mut arguments = vec!["-sSf", "-o", to.to_str().expect("plain"), url];
        arguments.extend(proxy.iter().flat_map(|proxy| ["-x", proxy]));
        world.succeed("curl", &arguments);
        assert!(std::fs::read(to).expect("a file") == std::fs::read(&file).expect("a file"), "{url}");
    }
    // A port that no program listens on: the reply of SOCKS says so (RFC 1928, section 6).
    let refused = format!("http://{}:8001/", SERVER[0]);
    let output = World::in_namespace(&world.client, "curl", &["-sS", "-x", &proxy, &refused]).output().expect("curl");
    assert_eq!(output.status.code(), Some(97), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("(5)"), "connection refused: {output:?}");
    let (sent, received) = World::end(client, server);
    assert!(received["in"]["bytes"].as_u64() > Some(15_000_000), "it went through the tunnel: {received}");
    assert_eq!((&sent["out"]["malformed"], &sent["out"]["spoofed"]), (&0.into(), &0.into()), "{sent}");
}

/// Sends a UDP datagram through a SOCKS5 proxy, and one to a forwarded port; prints the answers.
const UDP: &str = "
import socket, struct, sys
proxy, port, target = sys.argv[1:4]
def address(text):
    host, port = text.rsplit(':', 1)
    return (host, int(port))
tcp = socket.create_connection(address(proxy))
tcp.sendall(bytes([5, 1, 0]))
assert tcp.recv(2) == bytes([5, 0])
tcp.sendall(bytes([5, 3, 0, 1, 0, 0, 0, 0, 0, 0]))
reply = tcp.recv(10)
assert reply[1] == 0, reply
relay = (socket.inet_ntoa(reply[4:8]), struct.unpack('>H', reply[8:10])[0])
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
host, number = address(target)
header = bytes([0, 0, 0, 1]) + socket.inet_aton(host) + struct.pack('>H', number)
udp.sendto(header + b'relay', relay)
answer = udp.recv(2000)
assert answer[:10] == header, answer
print(answer[10:].decode())
udp.sendto(b'port', address(port))
print(udp.recv(2000).decode())
";

/// Answers UDP datagrams with what they hold, and the source's address.
const ECHO: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('0.0.0.0', 5006))
open(sys.argv[1], 'w').close()
while True:
    data, source = s.recvfrom(2000)
    s.sendto(data + b' from ' + source[0].encode(), source)
";

#[test]
fn udp_goes_through_the_proxy_and_through_a_port() {
    let Some(world) = World::new("uu", 1, &["python3", "setpriv"]) else { return };
    let local = format!("udp:0:{}:5006", SERVER[0]);
    let (client, server) = tunnel(&world, &["-D", "0", "-L", &local]);
    let ready = world.path("ready");
    let _echo = world.start("python3", &["-c", ECHO, &ready.display().to_string()]);
    while !ready.exists() {
        std::thread::yield_now();
    }
    let target = format!("{}:5006", SERVER[0]);
    let (proxy, port) = (address(&client, "dynamic"), address(&client, "local"));
    let output = world.succeed("python3", &["-c", UDP, &proxy, &port, &target]);
    let own = client.seen.iter().find(|event| event["event"] == "up").expect("it is up")["addresses"][0].clone();
    let own = own.as_str().and_then(|own| own.split('/').next()).expect("an address");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("relay from {own}\nport from {own}\n"));
    World::end(client, server);
}

/// A name server (RFC 1035): `web.test` has the address of the first argument, `large.test`, too, but only over
/// TCP, and there are no other names. The second argument is a file that is made once it answers; it writes
/// each query there.
const NAMES: &str = "
import socket, struct, sys, threading
address, log = sys.argv[1:3]
def answer(query, is_tcp):
    number, at, labels = query[:2], 12, []
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode())
        at += 1 + query[at]
    question, name = query[12:at + 5], '.'.join(labels)
    kind = struct.unpack('!H', query[at + 1:at + 3])[0]
    open(log, 'a').write(f'{name} {kind} {\"tcp\" if is_tcp else \"udp\"}\\n')
    flags, count, data = 0x8180, 0, b''
    if name not in ('web.test', 'large.test'):
        flags |= 3
    elif name == 'large.test' and not is_tcp:
        flags |= 0x200
    elif kind == 1:
        count, data = 1, struct.pack('!HHHIH', 0xc00c, 1, 1, 60, 4) + socket.inet_aton(address)
    return number + struct.pack('!HHHHH', flags, 1, count, 0, 0) + question + data
def exactly(c, length):
    data = b''
    while len(data) < length:
        data += c.recv(length - len(data))
    return data
def tcp(listener):
    while True:
        c, _ = listener.accept()
        reply = answer(exactly(c, struct.unpack('!H', exactly(c, 2))[0]), True)
        c.sendall(struct.pack('!H', len(reply)) + reply)
        c.close()
listener = socket.create_server((address, 53))
threading.Thread(target=tcp, args=(listener,), daemon=True).start()
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((address, 53))
open(log, 'w').close()
while True:
    query, source = s.recvfrom(2000)
    s.sendto(answer(query, False), source)
";

#[test]
fn names_are_looked_up_in_the_tunnel_by_the_servers_that_the_far_end_names() {
    let Some(world) = World::new("un", 1, &["curl", "python3", "setpriv", "ss"]) else { return };
    let (_web, file) = web(&world);
    let (mut client, mut server) = tunnel_to(&world, &["--dns", "10.76.0.77"], &["-D", "0"]);
    // A server that is started again names another one. The proxy goes on.
    server.kill();
    server = world.serve(&["--dns", SERVER[0]]).0;
    client.wait_for("retrying");
    client.wait_for("up");
    server.wait_for("client");
    let log = world.path("queries");
    let _names = world.start("python3", &["-c", NAMES, SERVER[0], &log.display().to_string()]);
    while !log.exists() {
        std::thread::yield_now();
    }
    let proxy = format!("socks5h://{}", address(&client, "dynamic"));
    for name in ["web.test", "large.test"] {
        let to = world.path(name).display().to_string();
        world.succeed("curl", &["-sSf", "-x", &proxy, "-o", &to, &format!("http://{name}:8000/file")]);
        assert!(std::fs::read(to).expect("a file") == std::fs::read(&file).expect("a file"), "{name}");
    }
    // No other server is asked, so a name that the far end's does not know has no address.
    let unknown = ["-sS", "-x", &proxy, "http://localhost:8000/file"];
    let output = World::in_namespace(&world.client, "curl", &unknown).output().expect("curl");
    assert_eq!(output.status.code(), Some(97), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("(4)"), "host unreachable: {output:?}");
    let queries = std::fs::read_to_string(&log).expect("a file");
    for query in ["web.test 1 udp", "web.test 28 udp", "large.test 1 tcp", "localhost 1 udp"] {
        assert!(queries.lines().any(|line| line == query), "{query}: {queries}");
    }
    World::end(client, server);
}

#[test]
fn options_that_do_not_fit_are_refused_with_advice() {
    for (arguments, message) in [
        (&["--userspace", "--all"][..], "cannot be used with"),
        (&["-D", "1080"], "--userspace"),
        (&["--userspace", "-D", "*:1080"], "--gateway"),
        (&["--userspace", "-L", "1:/socket"], "no UNIX sockets in a tunnel"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
        let output = command.args(["tunnel", "up", "ticket"]).args(arguments).output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(message), "{error}");
    }
}
