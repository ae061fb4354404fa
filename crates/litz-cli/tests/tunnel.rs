//! `litz tunnel` between network namespaces (root), used by programs that know nothing of it.
//!
//! ```text
//!   client: litz0 ═ c0 ── s0 ═ litz0: server
//!                   c1 ── s1
//! ```

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::support::needs::{has_programs, has_root};
use crate::support::{Litz, Place};

mod call;
mod crowd;
mod flood;
mod forwarding;
mod joined;
mod kill_switch;
mod local_first;
mod many;
mod mtu;
mod nat;
mod order;
mod other_commands;
mod pin;
mod policy;
mod rates;
mod recording;
mod restart;
mod settings;
mod ssh;
mod status;
mod stream;
mod underlay;
mod urgent;
mod without_ipv6;

/// A program that has not ended after so many seconds hangs.
const PROGRAM_SECONDS_MAX: &str = "60";

/// The server's addresses in the tunnel, as in its default.
pub(crate) const SERVER: [&str; 2] = ["10.76.0.1", "fd76:6c69:747a::1"];

pub(crate) fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("the command ip");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A client, a server, and the links between them.
pub(crate) struct World {
    pub(crate) client: String,
    pub(crate) server: String,
    /// Namespaces of hosts between them.
    routers: Vec<String>,
    pub(crate) place: Place,
}

impl World {
    /// None without root or one of `programs`.
    pub(crate) fn new(test: &str, links: usize, programs: &[&str]) -> Option<Self> {
        if !has_root() || !has_programs(programs) {
            return None;
        }
        let [client, server] = ["c", "s"].map(|side| format!("litz-tunnel-{test}-{}-{side}", std::process::id()));
        let world = Self { client, server, routers: Vec::new(), place: Place::new() };
        for name in [&world.client, &world.server] {
            ip(&format!("netns add {name}"));
            ip(&format!("-n {name} link set lo up"));
        }
        for link in 0..links {
            let (client, server) = (&world.client, &world.server);
            ip(&format!("link add c{link} netns {client} type veth peer name s{link} netns {server}"));
            for (name, device, host) in [(client, 'c', 1), (server, 's', 2)] {
                ip(&format!("-n {name} link set {device}{link} up"));
                ip(&format!("-n {name} addr add 10.9.{link}.{host}/24 dev {device}{link}"));
            }
        }
        Some(world)
    }

    /// A client and a server with emulated links between them, written as for `litz emulate`. They exist as
    /// long as the command that is returned.
    pub(crate) fn emulated(test: &str, links: &[&str], programs: &[&str]) -> Option<(Self, Litz)> {
        let world = Self::new(test, 0, programs)?;
        let mut arguments = vec!["emulate".to_owned(), "tun".to_owned(), "--json".to_owned()];
        arguments.push(format!("--left-netns={}", world.client));
        arguments.push(format!("--right-netns={}", world.server));
        arguments.extend(
            links
                .iter()
                .enumerate()
                .map(|(link, text)| format!("--link=name=l{link},left=10.9.{link}.1/24,right=10.9.{link}.2/24,{text}")),
        );
        let mut links = Litz::start(&arguments);
        links.wait_for("running");
        Some((world, links))
    }

    /// Gives the links these rates, in Mb/s, with queues of 30 ms.
    fn shape(&self, rates: &[u32]) {
        for (name, device) in [(&self.client, 'c'), (&self.server, 's')] {
            for (link, rate) in rates.iter().enumerate() {
                let shape = format!("qdisc add dev {device}{link} root tbf rate {rate}mbit burst 20kb latency 30ms");
                let output = Self::in_namespace(name, "tc", &shape.split(' ').collect::<Vec<_>>()).output();
                assert!(output.as_ref().is_ok_and(|output| output.status.success()), "{output:?}");
            }
        }
    }

    pub(crate) fn in_namespace(name: &str, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name, "timeout", PROGRAM_SECONDS_MAX, program]).args(arguments);
        command.stdin(Stdio::null());
        command
    }

    /// Runs a program at the client to its end, and expects success.
    pub(crate) fn succeed(&self, program: &str, arguments: &[&str]) -> Output {
        let output = Self::in_namespace(&self.client, program, arguments).output().expect("the program starts");
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
        output
    }

    /// Starts a program at the server.
    pub(crate) fn start(&self, program: &str, arguments: &[&str]) -> Running {
        let mut command = Self::in_namespace(&self.server, program, arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().expect("the program starts"))
    }

    /// Starts [`LISTEN`] at the server, and waits until it listens.
    fn listener(&self, file: &str) -> Running {
        let mut listener = self.start("python3", &["-c", LISTEN, file]);
        while !Path::new(&format!("{file}.ready")).exists() {
            assert!(listener.0.try_wait().expect("it was started").is_none(), "the listener ended");
            std::thread::yield_now();
        }
        listener
    }

    /// The key of the host with this state, made if need be.
    fn key_in(state: &str) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_litz")).args(["id", state]).output().expect("it starts");
        let text = String::from_utf8(output.stdout).expect("text");
        text.split_whitespace().find(|word| word.starts_with("ed25519:")).expect("a key").to_owned()
    }

    pub(crate) fn litz(&self, name: &str, arguments: &[&str]) -> Litz {
        let state = format!("--state-dir={}", self.place.path(&format!("state-{}", name == self.client)).display());
        Litz::of(self.command(name).args(arguments).args([&state, "--json"]))
    }

    /// The command in a namespace. Hosts have a folder for the state of running tunnels each.
    pub(crate) fn command(&self, name: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name, env!("CARGO_BIN_EXE_litz"), "tunnel"]);
        command.env("RUNTIME_DIRECTORY", self.place.path(&format!("run-{}", name == self.client)));
        command
    }

    pub(crate) fn serve(&self, arguments: &[&str]) -> (Litz, String) {
        let mut server = self.litz(&self.server, &[&["serve"], arguments].concat());
        let ticket = server.wait_for("listening")["ticket"].as_str().expect("a ticket").to_owned();
        (server, ticket)
    }

    /// A tunnel that is up.
    pub(crate) fn tunnel(&self) -> (Litz, Litz) {
        let (mut server, ticket) = self.serve(&[]);
        let mut client = self.litz(&self.client, &["up", &ticket]);
        client.wait_for("up");
        server.wait_for("client");
        (client, server)
    }

    /// Waits until a program at the server listens on this port of both IP versions.
    pub(crate) fn await_port(&self, port: u16) {
        let wanted = format!("sport = :{port}");
        for _ in 0..10_000 {
            let output = Self::in_namespace(&self.server, "ss", &["-Hltn", &wanted]).output().expect("ss");
            if !output.stdout.is_empty() {
                return;
            }
        }
        panic!("no program listens on port {port}");
    }

    /// Runs iperf3 from the client to the server, and returns its report. Each run has a server of its own:
    /// one that serves several closes its port after each, and resets a client that comes then.
    pub(crate) fn iperf(&self, arguments: &[&str]) -> Value {
        let mut server = self.start("iperf3", &["-s", "-1", "-J"]);
        self.await_port(5201);
        let output = self.succeed("iperf3", &[&["-J"], arguments].concat());
        assert!(server.0.wait().expect("it was started").success());
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Runs `litz tunnel down` at the client, and expects success.
    fn down(&self) {
        let down = self.command(&self.client).arg("down").output().expect("it starts");
        assert!(down.status.success(), "{down:?}");
    }

    /// The answer of `litz tunnel status` at the client.
    fn status(&self) -> Value {
        self.status_of(&self.client)
    }

    /// The answer of `litz tunnel status` at a host.
    fn status_of(&self, name: &str) -> Value {
        let output = self.command(name).args(["status", "--json"]).output().expect("it starts");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// Waits until so many paths of the client are active.
    fn await_paths(&self, count: usize) {
        for _ in 0..10_000 {
            let status = self.status();
            let paths = status["peers"][0]["paths"].as_array().cloned().unwrap_or_default();
            if paths.iter().filter(|path| path["state"] == "active").count() >= count {
                return;
            }
        }
        panic!("there are not {count} paths: {}", self.status());
    }

    /// Waits until the server has taken so many packets of its client.
    fn await_packets(&self, count: u64) {
        for _ in 0..10_000 {
            if self.status_of(&self.server)["peers"][0]["out"]["packets"].as_u64() >= Some(count) {
                return;
            }
        }
        panic!("{count} packets have not come: {}", self.status_of(&self.server));
    }

    /// Ends the client and then the server; returns what each counted.
    pub(crate) fn end(mut client: Litz, mut server: Litz) -> (Value, Value) {
        client.signal("TERM");
        let (status, down) = client.finish("down");
        assert_eq!(status, 130);
        let gone = server.wait_for("gone");
        server.signal("TERM");
        assert_eq!(server.finish("gone").0, 130);
        (down.expect("a down event")["peer"].clone(), gone["peer"].clone())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path(name)
    }

    /// The same, where other users may pass through the folders of the test.
    pub(crate) fn path_for_all(&self, name: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(self.path(""), std::fs::Permissions::from_mode(0o711)).expect("ours");
        self.path(name)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for name in [&self.client, &self.server].into_iter().chain(&self.routers) {
            // A test that failed early may not have created it.
            let _gone = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

/// A program that runs until this is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // `timeout` ends its program with itself. It may have ended already.
        if let Ok(None) = self.0.try_wait() {
            let process = rustix::process::Pid::from_child(&self.0);
            let _ended = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
        let _reaped = self.0.wait();
    }
}

/// Sends a UDP datagram from an address and returns whether the answer came.
const SEND_FROM: &str = "
import socket, sys
own, to, text = sys.argv[1:4]
s = socket.socket(socket.AF_INET6 if ':' in to else socket.AF_INET, socket.SOCK_DGRAM)
s.bind((own, 0))
s.sendto(text.encode(), (to, 5005))
";

/// Writes the UDP datagrams that arrive to a file, one a line, until one says `end`.
const LISTEN: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('0.0.0.0', 5005))
open(sys.argv[1] + '.ready', 'w').close()
lines = []
while not lines or not lines[-1].startswith('end'):
    data, source = s.recvfrom(2000)
    lines.append(data.decode() + ' ' + source[0])
open(sys.argv[1], 'w').write('\\n'.join(lines))
";

#[test]
fn a_file_of_a_web_server_arrives_whole_over_both_ip_versions() {
    let Some(world) = World::new("web", 1, &["curl", "python3", "ss"]) else { return };
    let (client, server) = world.tunnel();
    let file = world.place.file("file", 20_000_000, 1);
    let folder = file.parent().expect("below the folder").display().to_string();
    let _web = world.start("python3", &["-m", "http.server", "8000", "--bind", "::", "--directory", &folder]);
    world.await_port(8000);
    for (address, name) in [(SERVER[0].to_owned(), "v4"), (format!("[{}]", SERVER[1]), "v6")] {
        let to = world.path(name);
        world.succeed("curl", &["-sSf", "-o", &to.display().to_string(), &format!("http://{address}:8000/file")]);
        assert!(std::fs::read(&to).expect("a file") == std::fs::read(&file).expect("a file"), "{address}");
    }
    let (sent, received) = World::end(client, server);
    assert!(received["in"]["bytes"].as_u64() > Some(40_000_000), "it went through the tunnel: {received}");
    assert_eq!((&sent["out"]["malformed"], &sent["out"]["spoofed"]), (&0.into(), &0.into()), "{sent}");
}

#[test]
fn iperf3_measures_tcp_and_udp_in_both_directions() {
    let Some(world) = World::new("iperf", 2, &["iperf3", "ss"]) else { return };
    let (client, server) = world.tunnel();
    for address in SERVER {
        for more in [&["-n", "20M"][..], &["-n", "20M", "-R"]] {
            let arguments = [&["-c", address], more].concat();
            let end = &world.iperf(&arguments)["end"];
            assert!(end["sum_received"]["bytes"].as_u64() > Some(1_000_000), "{arguments:?}: {end}");
        }
        [false, true].into_iter().for_each(|is_reverse| assert_datagrams(&world, address, is_reverse));
    }
    let (sent, received) = World::end(client, server);
    assert_eq!(sent["paths"].as_array().map(Vec::len), Some(2), "{sent}");
    assert_eq!(received["out"]["malformed"], 0, "{received}");
}

/// Datagrams of a run of iperf3. They fit the receive buffer, so that none is lost because a busy machine
/// does not run the receiver for a while.
const DATAGRAMS: u64 = 150;

/// How many of them may be lost, and arrive after later ones. The tunnel restores the order, and gives up
/// waiting for a packet that is late by more than its bound, as it may be on a machine that is too busy.
const LOST_MAX: u64 = 8;
const OUT_OF_ORDER_MAX: u64 = 8;

/// Runs iperf3 with UDP, over both paths, and checks what its receiver reports.
fn assert_datagrams(world: &World, address: &str, is_reverse: bool) {
    let bytes = (DATAGRAMS * 1200).to_string();
    let mut arguments = vec!["-u", "-b", "5M", "-l", "1200", "-w", "208K", "-n", &bytes, "-c", address];
    arguments.push(if is_reverse { "-R" } else { "--get-server-output" });
    let report = world.iperf(&arguments);
    let end = if is_reverse { &report["end"] } else { &report["server_output_json"]["end"] };
    let count = |name: &str| end["streams"][0]["udp"][name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"));
    // The client tells the server over another connection that it has ended, which may pass the last datagrams.
    let arrived = end["sum_received"]["packets"].as_u64().expect("a number");
    assert!(arrived >= DATAGRAMS / 2, "{arguments:?}: {end}");
    assert!(count("lost_packets") <= LOST_MAX && count("out_of_order") <= OUT_OF_ORDER_MAX, "{arguments:?}: {end}");
}

#[test]
fn packets_from_addresses_that_the_client_does_not_have_are_dropped_and_counted() {
    let Some(world) = World::new("spoof", 1, &["python3"]) else { return };
    let (client, server) = world.tunnel();
    let seen = world.path("seen").display().to_string();
    let mut listener = world.listener(&seen);
    ip(&format!("-n {} addr add 10.76.0.77/32 dev litz0", world.client));
    world.succeed("python3", &["-c", SEND_FROM, "10.76.0.77", SERVER[0], "foreign"]);
    world.succeed("python3", &["-c", SEND_FROM, "10.76.0.2", SERVER[0], "own"]);
    world.succeed("python3", &["-c", SEND_FROM, "10.76.0.2", SERVER[0], "end"]);
    assert!(listener.0.wait().expect("it was started").success());
    assert_eq!(std::fs::read_to_string(&seen).expect("a file"), "own 10.76.0.2\nend 10.76.0.2");
    let (_, received) = World::end(client, server);
    assert_eq!(received["out"]["spoofed"], 1, "{received}");
}

/// Tries to send a UDP datagram with this text to an address that is at the server, outside the tunnel.
fn try_outside(world: &World, text: &str) -> bool {
    let own = "0.0.0.0";
    let sent = World::in_namespace(&world.client, "python3", &["-c", SEND_FROM, own, "10.200.0.1", text]).output();
    sent.expect("python3 starts").status.success()
}

/// Sends UDP datagrams to an address as long as it runs, refused or not.
const SEND_ALWAYS: &str = "
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    try:
        s.sendto(b'always', (sys.argv[1], 5005))
    except OSError:
        pass  # refused
    time.sleep(0.0005)
";

#[test]
fn a_kill_switch_lets_nothing_out_while_the_device_is_made_again() {
    let Some(world) = World::new("remade", 1, &["python3"]) else { return };
    ip(&format!("-n {} addr add 10.200.0.1/32 dev lo", world.server));
    ip(&format!("-n {} route add default via 10.9.0.2 dev c0", world.client));
    let (mut server, ticket) = world.serve(&[]);
    let up = ["up", "--all", "--kill-switch", &ticket];
    let mut client = world.litz(&world.client, &up);
    client.wait_for("up");
    let seen = world.path("seen").display().to_string();
    let mut listener = world.listener(&seen);
    let mut sender = World::in_namespace(&world.client, "python3", &["-c", SEND_ALWAYS, "10.200.0.1"]);
    let sender = Running(sender.spawn().expect("python3 starts"));
    world.await_packets(20);

    // The server assigns other addresses.
    server.kill();
    server = world.serve(&["--address", "10.77.0.1/24"]).0;
    client.wait_for("retrying");
    let addresses = client.wait_for("up")["addresses"].clone();
    assert_eq!(addresses[0], "10.77.0.2/24");
    server.wait_for("client");
    world.await_packets(20);

    // The command is killed, and another one takes over what it has left.
    client.kill();
    client = world.litz(&world.client, &up);
    client.wait_for("up");
    server.wait_for("client");
    drop(sender);

    let down = world.command(&world.client).arg("down").output().expect("it starts");
    assert!(down.status.success(), "{down:?}");
    assert_eq!(client.finish("down").0, 130);
    assert!(try_outside(&world, "end"));
    assert!(listener.0.wait().expect("it was started").success());
    let seen = std::fs::read_to_string(&seen).expect("a file");
    let sources: std::collections::BTreeSet<_> = seen.lines().collect();
    let expected = ["always 10.76.0.2", "always 10.77.0.2", "end 10.9.0.1"];
    assert_eq!(sources.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_kill_switch_lets_nothing_out_until_down_and_routes_are_then_as_before() {
    let Some(world) = World::new("kill", 1, &["python3"]) else { return };
    // An address behind the server, which the client reaches by its default route.
    ip(&format!("-n {} addr add 10.200.0.1/32 dev lo", world.server));
    ip(&format!("-n {} route add default via 10.9.0.2 dev c0", world.client));
    let routes = || {
        let show = |what: &str| {
            let arguments = ["-n", &world.client, what, "show"];
            let output = Command::new("ip").args(arguments).output().expect("the command ip");
            String::from_utf8(output.stdout).expect("text")
        };
        [show("rule"), show("route")]
    };
    let before = routes();
    let (mut server, ticket) = world.serve(&[]);
    let mut client = world.litz(&world.client, &["up", "--all", "--kill-switch", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    let seen = world.path("seen").display().to_string();
    let mut listener = world.listener(&seen);
    assert!(try_outside(&world, "through"));
    let status = world.status();
    assert_eq!((&status["role"], &status["peers"][0]["paths"][0]["state"]), (&"client".into(), &"active".into()));

    client.kill();
    assert!(!try_outside(&world, "refused"), "the kernel refuses it");
    world.down();
    assert_eq!(routes(), before);
    assert!(try_outside(&world, "end"));
    assert!(listener.0.wait().expect("it was started").success());
    assert_eq!(std::fs::read_to_string(&seen).expect("a file"), "through 10.76.0.2\nend 10.9.0.1");
}

#[test]
fn down_ends_a_tunnel_in_order_and_another_one_cannot_take_its_device() {
    let Some(world) = World::new("down", 1, &[]) else { return };
    let (mut server, ticket) = world.serve(&[]);
    let mut client = world.litz(&world.client, &["up", "--all", &ticket]);
    client.wait_for("up");
    world.litz(&world.client, &["up", &ticket]).fail(2, "runs already");
    world.down();
    assert!(client.finish("down").1.is_some());
    server.wait_for("gone");
    let again = world.command(&world.client).arg("down").output().expect("it starts");
    assert_eq!(again.status.code(), Some(2), "{again:?}");
}

#[test]
fn one_inner_connection_uses_both_links() {
    let Some(world) = World::new("sum", 2, &["iperf3", "ss", "tc"]) else { return };
    world.shape(&[20, 10]);
    let (client, server) = world.tunnel();
    let _iperf = world.start("iperf3", &["-s"]);
    world.await_port(5201);
    // With a congestion control that fills queues, as most programs use.
    world.succeed("iperf3", &["-C", "cubic", "-c", SERVER[0], "-n", "20M"]);
    let (sent, received) = World::end(client, server);
    let bytes = |path: usize| sent["paths"][path]["bytes_sent"].as_u64().expect("a number");
    assert!(bytes(0).min(bytes(1)) > 1_000_000, "both carry the flow: {sent}");
    assert!(received["order"]["held"].as_u64() > Some(100), "packets waited for earlier ones: {received}");
}

#[test]
fn a_host_without_the_ticket_is_refused() {
    let Some(world) = World::new("refuse", 1, &[]) else { return };
    let (mut server, ticket) = world.serve(&[]);
    let mut stranger = world.litz(&world.client, &["up", "--by-key", &ticket]);
    stranger.fail(2, "leave --by-key out");
    let ended = server.wait_for("ended");
    assert!(ended["message"].as_str().expect("text").contains("wants the secret of its ticket"), "{ended}");
    // The first host with the ticket keeps it.
    let mut client = world.litz(&world.client, &["up", &ticket]);
    client.wait_for("up");
    let other = format!("--state-dir={}", world.path("state-other").display());
    let mut command = world.command(&world.client);
    command.args(["up", "--tun=other", "--json", &other, &ticket]);
    Litz::of(&mut command).fail(2, "the ticket belongs to another host");
    World::end(client, server);
}

#[test]
fn a_server_gets_no_packets_by_a_default_route_and_replaces_no_route_of_the_client() {
    let Some(world) = World::new("routes", 1, &["python3"]) else { return };
    let route = |network: &str| {
        let output = World::in_namespace(&world.client, "ip", &["route", "show", network]).output().expect("ip");
        String::from_utf8(output.stdout).expect("text")
    };
    // The network of the client's own link, and all that there is, in one piece and in two. The kernel marks the route
    // until it has noticed that the link has a carrier.
    let own = route("10.9.0.0/24").replace(" linkdown", "");
    let named = ["192.168.7.0/24", "10.9.0.0/24", "0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1", "::/0", "2000::/3"];
    let (mut server, ticket) = world.serve(&named.map(|network| format!("--route={network}")).each_ref().map(|s| &**s));
    let mut client = world.litz(&world.client, &["up", &ticket]);
    let up = client.wait_for("up");
    assert_eq!(up["routes"], serde_json::json!(["192.168.7.0/24"]));
    assert!(route("192.168.7.0/24").contains("litz0"));
    assert_eq!(route("10.9.0.0/24").replace(" linkdown", ""), own);
    assert_eq!([route("default"), route("0.0.0.0/1"), route("128.0.0.0/1")], ["", "", ""].map(str::to_owned));
    let left_out = client.seen.iter().filter(|event| event["kind"] == "route_left_out");
    assert_eq!(left_out.count(), 6, "{:#?}", client.seen);

    // The server's address in the network of the link is none that it may send from in the tunnel.
    let own = up["addresses"][0].as_str().and_then(|own| own.split('/').next()).expect("an address");
    for source in ["10.9.0.2", SERVER[0]] {
        let sent = World::in_namespace(&world.server, "python3", &["-c", SEND_FROM, source, own, "forged"]).output();
        assert!(sent.as_ref().is_ok_and(|sent| sent.status.success()), "{sent:?}");
    }
    let is_counted = |status: &Value| {
        let out = &status["peers"][0]["out"];
        out["spoofed"] == 1 && out["packets"].as_u64() > Some(0)
    };
    let mut statuses = (0..10_000).map(|_| world.status());
    assert!(statuses.any(|status| is_counted(&status)), "{}", world.status());
    server.wait_for("client");
    World::end(client, server);
}
