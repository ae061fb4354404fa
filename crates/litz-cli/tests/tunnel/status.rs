//! `litz tunnel status` and `down` answer whatever the tunnel waits for, and say whose it is.

use std::net::SocketAddr;
use std::process::Command;

use litz::identity::{KeyPair, server_config};
use litz::{Endpoint, EndpointConfig, TransportConfig};
use serde_json::Value;
use transfer::{Secret, Ticket, TicketAddress};

use super::{Running, SEND_ALWAYS, SERVER, World, ip};
use crate::support::{Litz, Place, TEST_TIMEOUT};

#[test]
fn a_client_answers_and_ends_while_it_connects_and_while_it_connects_again() {
    let Some(world) = World::new("asked", 1, &[]) else { return };
    // Packets to this address leave, and nothing comes back.
    ip(&format!("-n {} neigh add 10.9.0.77 lladdr 02:00:00:00:00:01 dev c0 nud permanent", world.client));
    let (mut server, ticket) = world.serve(&["--advertise", "10.9.0.77:4433"]);
    let mut client = world.litz(&world.client, &["up", &ticket]);
    client.wait_for("unanswered");
    let status = world.status();
    assert_eq!((&status["state"], &status["peers"]), (&"connecting".into(), &Value::Array(vec![])), "{status}");
    assert!(status["reason"].as_str().is_some_and(|reason| reason.contains("10.9.0.77:4433")), "{status}");
    world.down();
    assert_eq!(client.finish("down"), (130, None));
    assert_eq!(world.status_of(&world.server)["state"], "up");
    server.kill();

    let (client, mut server) = world.tunnel();
    let mut client = client;
    assert_eq!(world.status()["state"], "up");
    server.kill();
    let retrying = client.wait_for("retrying");
    let status = world.status();
    assert_eq!(status["state"], "connecting", "{status}");
    assert!(status["reason"].is_string() && retrying["message"].is_string(), "{status} {retrying}");
    let output = world.command(&world.client).arg("status").output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("litz0 (client, connecting: "), "{text}");
    world.down();
    assert_eq!(client.finish("down").0, 130);
}

#[test]
fn a_client_ends_while_a_server_that_it_has_reached_says_nothing() {
    let place = Place::new();
    let key = KeyPair::generate().expect("random bytes");
    let tls = server_config(&key, [tunnel::PROTOCOL]).expect("a key");
    let transport = transfer::transport(TransportConfig::default());
    let config = EndpointConfig::at(SocketAddr::from(([127, 0, 0, 1], 0))).with_transport(transport);
    let server = Endpoint::bind(config.with_server_tls(tls)).expect("a port");
    let addresses = vec![TicketAddress::Socket(server.local_addr())];
    let secret = Secret::generate().expect("random bytes");
    let ticket = Ticket::new(addresses, key.public().fingerprint(), secret, (1 << 40) - 1).to_text().expect("a ticket");

    let command = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
        command.env("RUNTIME_DIRECTORY", place.path("run")).arg("tunnel");
        command
    };
    let state = format!("--state-dir={}", place.path("state").display());
    let mut client = Litz::of(command().args(["up", "--userspace", "--json", &state, &ticket]));
    let connection = server.accept().expect("the client connects");
    let (_send, mut hello) = connection.accept_bi().expect("its control stream");
    std::io::Read::read_exact(&mut hello, &mut [0; 2]).expect("a Hello");

    let status = command().args(["status", "--json"]).output().expect("it starts");
    let status: Value = serde_json::from_slice(&status.stdout).expect("an answer");
    assert_eq!(status["state"], "connecting", "{status}");
    let down = command().arg("down").output().expect("it starts");
    assert!(down.status.success(), "{down:?}");
    assert_eq!(client.finish("down"), (130, None));
    let closed = connection.closed_timeout(TEST_TIMEOUT).expect("the client has closed it");
    assert!(closed.to_string().contains("the client ends"), "{closed}");
}

/// Runs a tunnel of root where `/run` has nothing else, and asks for it as a user without rights, while it runs and
/// when there is none: PROGRAM STATE.
const ASK_AS_USER: &str = r#"
program=$1
mount -t tmpfs none /run
"$program" tunnel serve --json "--state-dir=$2" > /run/events 2>&1 &
until grep -q '"listening"' /run/events; do kill -0 $!; done
export HOME=/nonexistent
unset XDG_RUNTIME_DIR XDG_STATE_HOME RUNTIME_DIRECTORY
user() { setpriv --reuid 65534 --regid 65534 --clear-groups "$program" tunnel "$@" 2>&1 || echo "status $?"; }
user status
user down
"$program" tunnel down
user status
user down
"#;

#[test]
fn a_user_is_told_that_a_tunnel_is_roots() {
    let Some(world) = World::new("roots", 1, &["setpriv", "mount"]) else { return };
    let program = world.path_for_all("litz");
    std::fs::copy(env!("CARGO_BIN_EXE_litz"), &program).expect("there is space");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &world.server, "sh", "-e", "-c", ASK_AS_USER, "sh"]).arg(&program);
    let output = command.arg(world.path("state")).env_remove("RUNTIME_DIRECTORY").output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // The folder is root's alone.
    let one = "litz: only root can see whether there is a tunnel at /run/litz/litz0.sock: run this command as root\n\
               status 2\n";
    let expected = one.repeat(4);
    assert_eq!(text, expected, "{output:?}");
}

#[test]
fn systemd_is_told_when_an_end_is_ready() {
    let Some(world) = World::new("ready", 1, &[]) else { return };
    // As systemd starts it, with Type=notify.
    #[expect(clippy::disallowed_methods, reason = "stands for systemd")]
    let notify = std::os::unix::net::UnixDatagram::bind(world.path("notify")).expect("a socket");
    notify.set_read_timeout(Some(TEST_TIMEOUT)).expect("a time");
    let mut command = world.command(&world.server);
    let mut start = |arguments: &[&str], state: &str, event: &str| {
        let state = format!("--state-dir={}", world.path(state).display());
        let mut litz =
            Litz::of(command.env("NOTIFY_SOCKET", world.path("notify")).args(arguments).args([&state, "--json"]));
        let event = litz.wait_for(event);
        let mut said = [0; 64];
        let len = notify.recv(&mut said).expect("the command says that it is ready");
        assert_eq!(said[..len].trim_ascii(), b"READY=1", "{arguments:?}");
        command = world.command(&world.client);
        (litz, event)
    };
    let (_server, listening) = start(&["serve"], "state-false", "listening");
    start(&["up", listening["ticket"].as_str().expect("a ticket")], "state-true", "up");
}

#[test]
fn a_ticket_that_only_this_host_can_use_is_warned_of() {
    let Some(world) = World::new("alone", 0, &[]) else { return };
    let (server, _) = world.serve(&[]);
    let warnings: Vec<_> = server.seen.iter().filter(|event| event["event"] == "warning").collect();
    assert!(warnings.iter().any(|warning| warning["kind"] == "loopback_only"), "{warnings:?}");
}

#[test]
fn the_status_has_the_rates_of_each_path_and_of_all() {
    let Some(world) = World::new("shown-rates", 1, &["python3"]) else { return };
    let (client, server) = world.tunnel();
    let sender = ["-c", SEND_ALWAYS, SERVER[0]];
    let mut sender = World::in_namespace(&world.client, "python3", &sender);
    let _sender = Running(sender.spawn().expect("python3 starts"));
    let mut statuses = (0..10_000).map(|_| world.status());
    let status = statuses.find(|status| status["peers"][0]["rate_sent_bps"].as_u64() > Some(10_000));
    let status = status.expect("it has the rate");
    let peer = &status["peers"][0];
    let path = &peer["paths"][0];
    assert_eq!((&path["rate_sent_bps"], &path["loss_percent"]), (&peer["rate_sent_bps"], &peer["loss_percent"]));
    assert!(peer["rate_received_bps"].is_u64() && peer["in"]["queued_flows"].is_u64(), "{peer}");
    assert!(peer["loss_percent"].is_number(), "{peer}");
    World::end(client, server);
}

#[test]
fn the_status_without_a_name_has_all_tunnels_and_can_be_watched() {
    let Some(world) = World::new("all", 1, &[]) else { return };
    let state = format!("--state-dir={}", world.path("state-other").display());
    let (_first, ticket) = world.serve(&[]);
    let mut second = Litz::of(world.command(&world.server).args(["serve", "--tun=litz5", "--json", &state]));
    let listening = second.wait_for("listening");
    assert_eq!(listening["tunnel_addresses"][0], "10.77.0.1/24", "litz0 has the first network");
    let mut client = world.litz(&world.client, &["up", &ticket]);
    client.wait_for("up");
    let of = |name: &str, arguments: &[&str]| {
        let output = world.command(name).arg("status").args(arguments).output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let devices: Vec<Value> = of(&world.server, &["--json"])
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("an object a line")["device"].clone())
        .collect();
    assert_eq!(devices, ["litz0", "litz5"]);
    let text = of(&world.server, &[]);
    let expected = ["litz0 (server, up for ", "\nlitz5 (server, up for ", ", latest packet ", "\n  round trip: "];
    assert!(expected.iter().all(|words| text.contains(words)), "{text}");
    assert!(!of(&world.server, &["--tun=litz5"]).contains("litz0"));

    let mut watch = world.command(&world.client);
    watch.args(["status", "--watch", "--json"]).stdout(std::process::Stdio::piped());
    let mut watch = Running(watch.spawn().expect("it starts"));
    let lines = std::io::BufReader::new(watch.0.stdout.take().expect("a pipe"));
    let states = std::io::BufRead::lines(lines).map(|line| serde_json::from_str::<Value>(&line.expect("text")));
    let states: Vec<Value> = states.take(2).map(|status| status.expect("JSON")["state"].clone()).collect();
    assert_eq!(states, ["up", "up"]);
}
