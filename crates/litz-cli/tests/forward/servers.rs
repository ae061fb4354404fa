//! A daemon with several servers (`--servers`).

use std::process::Command;

use super::daemon::Daemon;
use super::publish::{ECHO, PORT, assert_served, dial, end, publish};
use super::run::{FAR, World, echo, serve_in, texts};
use super::*;

/// An address of the far host that only the second server may reach.
const OTHER: &str = "10.81.0.1";

/// The servers of the daemon.
const SERVERS: &str = "
[[server]]
name = \"first\"
ticket-file = \"first.ticket\"
target = [\"10.79.0.0/16:*\"]
permit-listen = [\"8080-8089\"]

[[server]]
name = \"second\"
ticket-file = \"second.ticket\"
target = [\"10.79.0.0/16:*\", \"10.81.0.0/16:*\", \"localhost:*\"]
permit-listen = [\"*:8080\"]
";

/// The second server of a far host.
struct Second {
    process: Litz,
    arguments: Vec<String>,
}

/// A far host with two servers. The second one also allows the loopback of its host, and listens on all addresses.
fn two_servers() -> Option<(World, Second)> {
    let world = World::with(&["10.79.0.0/16:*"], &[], |_, far| far.ip(&format!("addr add {OTHER}/32 dev lo")))?;
    let state = format!("--state-dir={}", world.place.path("state-second").display());
    let arguments = ["forward", "serve", "--json", &state, "--permit-listen", "*:8080", "--target", "10.81.0.0/16:*"];
    let arguments: Vec<_> = arguments.into_iter().chain(["--target", "localhost:*"]).map(str::to_owned).collect();
    let (process, ticket) = serve_in(&world.far, &arguments);
    std::fs::write(world.place.path("first.ticket"), &world.ticket).expect("a file");
    std::fs::write(world.place.path("second.ticket"), ticket).expect("a file");
    Some((world, Second { process, arguments }))
}

/// A daemon that uses both, and is connected to them.
fn daemon_of_two() -> Option<(Daemon, Second)> {
    let (world, second) = two_servers()?;
    let mut daemon = Daemon::with_servers(world, SERVERS);
    daemon.process.wait_for("serving");
    for _ in 0..2 {
        daemon.process.wait_for("connected");
    }
    Some((daemon, second))
}

/// Asks a daemon for the addresses of a name.
const LOOKS_UP: &str = "
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.settimeout(60)
s.connect(sys.argv[1])
s.send(b'\\x01\\x01mine')
assert s.recv(100) == b'\\x01\\x81'
s.send(b'\\x01\\x07\\0\\0\\0\\1' + sys.argv[2].encode())
answer = s.recv(1000)
print(hex(answer[1]), b'\\x04\\x7f\\0\\0\\1' in answer)";

fn look_up(daemon: &Daemon, name: &str) -> String {
    let output = Command::new("python3").args(["-c", LOOKS_UP]).arg(&daemon.socket).arg(name).output();
    let (status, output, errors) = texts(output.expect("it starts"));
    assert_eq!(status, 0, "{errors}");
    output
}

/// Asserts that programs reach a far address through the daemon.
fn assert_reached(daemon: &Daemon, ip: &str) {
    let port = daemon.world.serve(ip, echo);
    let script = format!("exec 3<>/dev/tcp/{ip}/{port}; echo connected");
    let (status, output, errors) = daemon.run(&["bash", "-c", &script]);
    assert_eq!((status, &*output), (0, "connected\n"), "{ip} {errors}");
}

/// The states of the servers.
fn states(daemon: &Daemon) -> Vec<String> {
    let status = daemon.status();
    let servers = status["servers"].as_array().expect("a list").iter();
    servers.map(|server| server["state"].as_str().expect("a state").to_owned()).collect()
}

#[test]
fn a_daemon_begins_without_its_servers_and_connects_to_each_when_it_appears() {
    let Some((mut world, mut second)) = two_servers() else { return };
    world.stop();
    second.process.kill();
    let mut daemon = Daemon::with_servers(world, SERVERS);
    daemon.process.wait_for("serving");
    let mut untold = vec!["first", "second"];
    while !untold.is_empty() {
        let retrying = daemon.process.wait_for("retrying");
        assert!(retrying["message"].as_str().is_some_and(|why| why.contains("cannot reach the server")), "{retrying}");
        untold.retain(|name| retrying["server"] != *name);
    }
    assert_eq!(states(&daemon), ["connecting", "connecting"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    let shown = command.args(["daemon", "status", "--socket"]).arg(&daemon.socket).output();
    let (_, shown, errors) = texts(shown.expect("it starts"));
    assert!(shown.contains("second: not connected, trying again: cannot reach the server"), "{shown} {errors}");
    // No server has a rule with this name, and none that is away is waited for.
    assert_eq!(look_up(&daemon, "db.example"), "0x84 False\n");
    daemon.world.start();
    daemon.process.wait_until(|event| event["event"] == "connected" && event["server"] == "first");
    assert_reached(&daemon, FAR);
    assert_eq!(states(&daemon), ["connected", "connecting"]);
    let _second = serve_in(&daemon.world.far, &second.arguments);
    daemon.process.wait_until(|event| event["event"] == "connected" && event["server"] == "second");
    assert_reached(&daemon, OTHER);
    assert_eq!(states(&daemon), ["connected", "connected"]);
    assert!(daemon.ask("stop").status.success());
    assert_eq!(daemon.process.finish("error"), (0, None));
}

#[test]
fn a_server_that_refuses_the_ticket_is_given_up_and_another_one_is_not() {
    let Some((world, _second)) = two_servers() else { return };
    // A ticket belongs to the first client that uses it.
    let mut command = world.near.command(env!("CARGO_BIN_EXE_litz"));
    command.arg("run").arg("--state-dir").arg(world.place.path("state-other"));
    let first = command.arg("--ticket-file").arg(world.place.path("second.ticket")).args(["--", "true"]).output();
    let (status, _, errors) = texts(first.expect("it starts"));
    assert_eq!(status, 0, "{errors}");
    let mut daemon = Daemon::with_servers(world, SERVERS);
    let given_up = daemon.process.wait_for("given_up");
    assert!(given_up["server"] == "second" && given_up["message"].as_str().is_some(), "{given_up}");
    if !daemon.process.seen.iter().any(|event| event["event"] == "connected") {
        daemon.process.wait_for("connected");
    }
    assert_reached(&daemon, FAR);
    assert_eq!(states(&daemon), ["connected", "given_up"]);
    // There is nothing to wait for.
    let (status, _, errors) = daemon.run(&["bash", "-c", &format!("exec 3<>/dev/tcp/{OTHER}/1")]);
    assert!(status == 1 && errors.contains("the server was given up: second: "), "{status} {errors}");
    // When none is left, the daemon ends.
    std::fs::copy(daemon.world.place.path("second.ticket"), daemon.world.place.path("first.ticket")).expect("a file");
    assert!(daemon.ask("stop").status.success());
    let mut daemon = Daemon::with_servers(daemon.world, SERVERS);
    daemon.process.fail(2, "no server is left: first: ");
}

#[test]
fn a_request_goes_to_the_first_server_with_a_rule_for_it() {
    let Some((daemon, _second)) = daemon_of_two() else { return };
    let status = daemon.status();
    let names: Vec<_> = status["servers"].as_array().expect("a list").iter().map(|server| &server["name"]).collect();
    assert_eq!(names, ["first", "second"], "{status:#}");
    assert!(status["servers"].as_array().expect("a list").iter().all(|server| server["is_connected"] == true));
    // Each server refuses what is for the other one.
    [FAR, OTHER].into_iter().for_each(|ip| assert_reached(&daemon, ip));
    let (status, _, errors) = daemon.run(&["bash", "-c", "exec 3<>/dev/tcp/10.82.0.1/1"]);
    assert!(status == 1 && errors.contains("no server of the daemon is for 10.82.0.1:1"), "{status} {errors}");
    assert!(errors.contains("Permission denied"), "{errors}");
    assert_eq!(look_up(&daemon, "localhost"), "0x88 True\n");
    // Only the second server listens on all addresses.
    let mut server = publish(&daemon, &format!("*:{PORT}"), &["python3", "-c", ECHO]);
    assert_served(daemon.world.far.inside(|| TcpStream::connect((OTHER, 8080))).expect("it listens"), 1000, 1);
    end(&mut server);
    let output = daemon.command_with(&["--publish", "8090"], &["true"]).output().expect("it starts");
    let (status, _, errors) = texts(output);
    assert!(status == 125 && errors.contains("no server of the daemon is for localhost:8090"), "{status} {errors}");
}

#[test]
fn a_server_that_is_lost_does_not_disturb_another_one() {
    let Some((mut daemon, mut second)) = daemon_of_two() else { return };
    second.process.kill();
    let retrying = daemon.process.wait_for("retrying");
    assert_eq!(retrying["server"], "second");
    let mut server = publish(&daemon, PORT, &["python3", "-c", ECHO]);
    assert_served(dial(&daemon.world).expect("it listens"), 1000, 1);
    end(&mut server);
    let servers = &daemon.status()["servers"];
    assert!(servers[0]["is_connected"] == true && servers[1]["is_connected"] == false, "{servers:#}");
    assert!(daemon.ask("stop").status.success());
    assert_eq!(daemon.process.finish("error"), (0, None));
}

#[test]
fn a_status_that_fills_several_messages_is_whole() {
    let Some(world) = World::new() else { return };
    std::fs::write(world.place.path("first.ticket"), &world.ticket).expect("a file");
    // Longer than a message. A daemon with 16 servers, of which each has four paths, has a status as long.
    let name = "ü".repeat(40_000);
    let servers = format!("[[server]]\nname = \"{name}\"\nticket-file = \"first.ticket\"\ntarget = [\"*:*\"]\n");
    let mut daemon = Daemon::with_servers(world, &servers);
    daemon.process.wait_for("connected");
    let status = daemon.status();
    assert!(status["servers"][0]["name"] == name.as_str(), "another name, or none");
    assert_eq!(status["servers"][0]["is_connected"], true);
}
