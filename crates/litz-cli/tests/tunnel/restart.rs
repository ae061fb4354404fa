//! One end is killed and started again. Connections whose packets travel in datagrams go on; terminated ones
//! are reset at both ends, because what their streams held is lost.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::stream::Stream;
use super::underlay::give_default_routes;
use super::{Running, SERVER, World};
use crate::support::Litz;

/// How long an end is away.
const AWAY: Duration = Duration::from_secs(10);

/// The port of connections that are terminated.
const PORT: &str = "8001";

/// Writes a byte each 50 ms and reads all that comes, on a connection to ADDRESS, or on the first one that is
/// accepted, until it breaks: ADDRESS|listen PORT FILE. Makes FILE.ready when data come, and writes to FILE
/// how it ended. The kernel reports a reset once: if that was to the writer, the reader sees an end.
const TALK: &str = "
import errno, os, socket, sys, threading, time
to, port, file = sys.argv[1:4]
if to == 'listen':
    listener = socket.create_server(('::', int(port)), family=socket.AF_INET6, dualstack_ipv6=True)
    s, _ = listener.accept()
else:
    s = socket.create_connection((to, int(port)))
broke = []
def write():
    try:
        while True:
            s.sendall(b'a')
            time.sleep(0.05)
    except OSError as error:
        broke.append(error.errno)
writer = threading.Thread(target=write, daemon=True)
writer.start()
try:
    while s.recv(1000):
        open(file + '.ready', 'w').close()
    try:
        s.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # it is reset
    writer.join()
    ended = os.strerror(broke[0]) if broke[0] == errno.ECONNRESET else 'ended in order'
except OSError as error:
    ended = os.strerror(error.errno)
open(file + '.new', 'w').write(ended)
os.rename(file + '.new', file)
";

/// One end of a terminated connection.
struct Talk {
    _program: Running,
    file: PathBuf,
}

impl Talk {
    fn start(world: &World, name: &str, to: &str) -> Self {
        let file = world.path(&format!("talk-{to}"));
        let mut command = World::in_namespace(name, "python3", &["-c", TALK, to, PORT, &file.display().to_string()]);
        let program = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("python3 starts");
        Self { _program: Running(program), file }
    }

    fn await_data(&self) {
        await_file(&PathBuf::from(format!("{}.ready", self.file.display())));
    }

    /// Waits for its end; returns how it was.
    fn end(&self) -> String {
        await_file(&self.file);
        std::fs::read_to_string(&self.file).expect("a file")
    }
}

fn await_file(path: &Path) {
    while !path.exists() {
        std::thread::yield_now();
    }
}

#[expect(clippy::disallowed_methods, reason = "the time for which connections survive is what is tested")]
fn be_away() {
    std::thread::sleep(AWAY);
}

/// Begins a connection in datagrams and a terminated one; `restart` kills an end and starts it again after a
/// while; then the first goes on, and the other is reset at both ends.
fn restart_of(test: &str, restart: impl FnOnce(&World, &str, &mut Litz, &mut Litz)) {
    let Some(world) = World::new(test, 1, &["python3", "ss"]) else { return };
    let _echo = world.echo();
    let (mut server, ticket) = world.serve(&[]);
    let mut client = world.litz(&world.client, &["up", "--terminate", PORT, &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    let mut stream = Stream::start(&world, SERVER[0]);
    stream.await_progress(50);
    let answering = Talk::start(&world, &world.server, "listen");
    world.await_port(PORT.parse().expect("a port"));
    let asking = Talk::start(&world, &world.client, SERVER[0]);
    asking.await_data();
    answering.await_data();
    restart(&world, &ticket, &mut client, &mut server);
    stream.await_progress(100);
    assert_eq!([asking.end(), answering.end()], ["Connection reset by peer"; 2]);
    stream.finish();
    World::end(client, server);
}

#[test]
fn inner_connections_survive_ten_seconds_without_the_server_and_terminated_ones_are_reset() {
    restart_of("again", |world, _, client, server| {
        server.kill();
        be_away();
        // The same ticket, and therefore the same port and addresses.
        *server = world.serve(&[]).0;
        client.wait_for("retrying");
        client.wait_for("up");
        server.wait_for("client");
    });
}

#[test]
fn inner_connections_survive_ten_seconds_without_the_client_and_terminated_ones_are_reset() {
    restart_of("back", |world, ticket, client, server| {
        client.kill();
        be_away();
        *client = world.litz(&world.client, &["up", "--terminate", PORT, ticket]);
        client.wait_for("up");
        server.wait_for("client");
        // The connection of the command that was killed, which has not timed out yet.
        let gone = server.wait_for("gone");
        assert_eq!(gone["peer"]["terminated"]["begun"], 1, "{gone}");
    });
}

#[test]
fn a_client_notices_by_the_closed_port_that_its_server_is_gone() {
    // With a kill switch, the question leaves only if it has the mark of the tunnel.
    for (test, more) in [("closed", &[][..]), ("closed-all", &["--all", "--kill-switch"][..])] {
        let Some(world) = World::new(test, 1, &["ping"]) else { return };
        give_default_routes(&world);
        // Longer than a test may wait.
        let patient = "--idle-timeout=600s";
        let (mut server, ticket) = world.serve(&[patient]);
        let mut client = world.litz(&world.client, &[&["up", patient], more, &[&ticket]].concat());
        client.wait_for("up");
        server.wait_for("client");
        server.kill();
        // What waits for an acknowledgement.
        let ping = World::in_namespace(&world.client, "ping", &["-c", "1", "-W", "1", SERVER[0]]).output();
        assert!(!ping.expect("ping").status.success(), "the server is gone");
        let down = client.wait_for("down");
        let reason = down["reason"].as_str().expect("text");
        assert!(reason.contains("server has ended") && reason.contains("the port is closed"), "{test}: {reason}");
        client.wait_for("retrying");
        let mut server = world.serve(&[patient]).0;
        client.wait_for("up");
        server.wait_for("client");
        World::end(client, server);
    }
}

#[test]
fn a_command_ends_if_another_one_of_the_same_host_takes_its_addresses() {
    let Some(world) = World::new("twice", 1, &[]) else { return };
    let (mut server, ticket) = world.serve(&[]);
    let mut first = world.litz(&world.client, &["up", &ticket]);
    first.wait_for("up");
    server.wait_for("client");
    let mut second = world.litz(&world.client, &["up", "--tun", "litz1", &ticket]);
    second.wait_for("up");
    first.fail(2, "has taken over");
    server.wait_for("client");
    server.wait_for("gone");
    World::end(second, server);
}

#[test]
fn a_server_ends_its_tunnel_when_the_ticket_is_revoked() {
    let Some(world) = World::new("revoke", 1, &[]) else { return };
    let (mut client, mut server) = world.tunnel();
    let state = format!("--state-dir={}", world.path("state-false").display());
    let revoked = Command::new(env!("CARGO_BIN_EXE_litz")).args(["tickets", "revoke", "--all", &state]).output();
    assert!(revoked.expect("it starts").status.success());
    server.fail(2, "the ticket was revoked");
    client.wait_for("down");
}

#[test]
fn a_client_makes_a_removed_device_again_and_a_server_ends_without_one() {
    let Some(world) = World::new("removed", 1, &["python3", "ss"]) else { return };
    let _echo = world.echo();
    let (mut client, mut server) = world.tunnel();
    let remove = |name: &str| super::ip(&format!("-n {name} link del litz0"));
    remove(&world.client);
    client.wait_for("up");
    server.wait_for("client");
    let mut stream = Stream::start(&world, SERVER[0]);
    stream.await_progress(100);
    stream.finish();
    remove(&world.server);
    server.fail(2, "the device litz0 is gone");
    client.kill();
}

#[test]
fn what_a_killed_command_has_left_is_undone_although_its_process_number_is_used_again() {
    let Some(world) = World::new("reused", 1, &[]) else { return };
    let (server, ticket) = world.serve(&[]);
    let mut client = world.litz(&world.client, &["up", "--all", "--kill-switch", &ticket]);
    client.wait_for("up");
    client.kill();
    let file = world.path("run-true").join("litz0.routes");
    let text = std::fs::read_to_string(&file).expect("the kill switch is in force");
    let mut changes: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    // Another command of Litz.
    changes["process"] = server.id().into();
    std::fs::write(&file, changes.to_string()).expect("ours");
    world.down();
    assert!(!file.exists());
}
