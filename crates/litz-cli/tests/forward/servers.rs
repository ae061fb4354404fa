//! A daemon with several servers (`--servers`).

use std::process::Command;

use super::daemon::Daemon;
use super::publish::{ECHO, PORT, assert_served, dial, end, publish};
use super::run::{FAR, World, echo, serve_in, texts};
use super::*;

/// An address of the far host that only the second server may reach.
const OTHER: &str = "10.81.0.1";

/// A far host with two servers, and a daemon that uses both. The second one also allows the loopback of its host,
/// and listens on all addresses.
fn two_servers() -> Option<(Daemon, Litz)> {
    let world = World::with(&["10.79.0.0/16:*"], &[], |_, far| far.ip(&format!("addr add {OTHER}/32 dev lo")))?;
    let state = format!("--state-dir={}", world.place.path("state-second").display());
    let arguments = ["forward", "serve", "--json", &state, "--permit-listen", "*:8080", "--target", "10.81.0.0/16:*"];
    let arguments: Vec<_> = arguments.into_iter().chain(["--target", "localhost:*"]).map(str::to_owned).collect();
    let (second, ticket) = serve_in(&world.far, &arguments);
    std::fs::write(world.place.path("first.ticket"), &world.ticket).expect("a file");
    std::fs::write(world.place.path("second.ticket"), ticket).expect("a file");
    let servers = "
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
    let mut daemon = Daemon::with_servers(world, servers);
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

#[test]
fn a_request_goes_to_the_first_server_with_a_rule_for_it() {
    let Some((daemon, _second)) = two_servers() else { return };
    let status = daemon.status();
    let names: Vec<_> = status["servers"].as_array().expect("a list").iter().map(|server| &server["name"]).collect();
    assert_eq!(names, ["first", "second"], "{status:#}");
    assert!(status["servers"].as_array().expect("a list").iter().all(|server| server["is_connected"] == true));
    // Each server refuses what is for the other one.
    for ip in [FAR, OTHER] {
        let port = daemon.world.serve(ip, echo);
        let script = format!("exec 3<>/dev/tcp/{ip}/{port}; echo connected");
        let (status, output, errors) = daemon.run(&["bash", "-c", &script]);
        assert_eq!((status, &*output), (0, "connected\n"), "{ip} {errors}");
    }
    let (status, _, errors) = daemon.run(&["bash", "-c", "exec 3<>/dev/tcp/10.82.0.1/1"]);
    assert!(status == 1 && errors.contains("no server of the daemon is for 10.82.0.1:1"), "{status} {errors}");
    assert!(errors.contains("Permission denied"), "{errors}");
    let output = Command::new("python3").args(["-c", LOOKS_UP]).arg(&daemon.socket).arg("localhost").output();
    let (_, output, errors) = texts(output.expect("it starts"));
    assert_eq!(output, "0x88 True\n", "{errors}");
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
    let Some((mut daemon, mut second)) = two_servers() else { return };
    second.kill();
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
