//! A connection that is lost.

use std::io::ErrorKind;
use std::process::{Command, Stdio};

use super::*;

#[test]
fn the_client_reconnects_to_a_server_that_was_started_again() {
    let target = late_echo();
    let (rule, local, remote) = (target.to_string(), format!("0:{target}"), format!("{}:{target}", free_port()));
    let serve = ["--target", &rule, "--permit-listen=*"];
    let mut forwarder = Forwarder::start(&serve, &["-L", &local, "-R", &remote, "--idle-timeout=5s"]);
    assert_echo(forwarder.connect(0), 1000, 1);
    let mut open = forwarder.connect(0);
    open.write_all(b"hello").expect("it is read");
    forwarder.server.wait_until(|event| event["event"] == "opened" && event["number"] == 2);
    forwarder.server.kill();
    forwarder.client.wait_for("retrying");
    let error = open.read(&mut [0]).expect_err("a connection that was lost is reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    // It waits until the client is connected again.
    let waiting = forwarder.connect(0);
    let port = forwarder.server.port;
    let (server, ticket) = serve_at(&forwarder.place, &format!("127.0.0.1:{port}"), &serve);
    assert_eq!(ticket, forwarder.ticket);
    forwarder.server = server;
    forwarder.client.wait_for("connected");
    assert_echo(waiting, 1000, 2);
    assert_echo(forwarder.connect(0), 1000, 3);
    let port = remote.split(':').next().and_then(|port| port.parse::<u16>().ok()).expect("a port");
    assert_echo(connect(SocketAddr::from(([127, 0, 0, 1], port))), 1000, 4);
}

/// Longer than a test may wait.
const PATIENT: &str = "--idle-timeout=600s";

#[test]
fn a_client_notices_by_the_closed_port_that_its_server_is_gone() {
    let target = late_echo();
    let (rule, local) = (target.to_string(), format!("0:{target}"));
    let mut forwarder = Forwarder::start(&["--target", &rule, PATIENT], &["-L", &local, PATIENT]);
    assert_echo(forwarder.connect(0), 1000, 1);
    let mut open = forwarder.connect(0);
    forwarder.server.wait_until(|event| event["event"] == "opened" && event["number"] == 2);
    forwarder.server.kill();
    // The reset of an idle connection would come with the next keep-alive.
    open.write_all(b"hello").expect("the client is there");
    let retrying = forwarder.client.wait_for("retrying");
    let message = retrying["message"].as_str().expect("text");
    assert!(message.contains("server has ended") && message.contains("the port is closed"), "{message}");
    let error = open.read(&mut [0]).expect_err("a connection that was lost is reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn standard_input_and_output_end_when_the_servers_port_is_closed() {
    let place = Place::new();
    let target = late_echo();
    let (mut server, ticket) = serve_at(&place, "127.0.0.1:0", &["--target", &target.to_string(), PATIENT]);
    let state = format!("--state-dir={}", place.path("state-out").display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    command.args(["forward", &state, PATIENT, "--stdio", &target.to_string(), &ticket]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = piped.spawn().expect("litz starts");
    server.wait_for("opened");
    server.kill();
    // Dropped only at the end: the end of the input would be another reason to end.
    let mut input = client.stdin.take().expect("it is piped");
    input.write_all(b"hello").expect("the client is there");
    let mut text = String::new();
    client.stderr.take().expect("it is piped").read_to_string(&mut text).expect("text");
    assert!(!client.wait().expect("it was started").success(), "{text}");
    assert!(text.contains("server has ended") && text.contains("the port is closed"), "{text}");
    drop(input);
}

#[test]
fn a_client_gives_up_when_its_user_wants_that() {
    let mut forwarder = Forwarder::start(&["--target=*:*"], &["-L", "0:localhost:1", "--retry-for=0s"]);
    let waiting = forwarder.connect(0);
    forwarder.server.signal("INT");
    assert_eq!(forwarder.server.finish("error").0, 130);
    forwarder.client.fail(2, "the server ends");
    drop(waiting);
}

#[test]
fn a_server_that_is_not_there_is_an_error_at_once() {
    let place = Place::new();
    let (mut server, ticket) = serve_at(&place, "127.0.0.1:0", &["--target=*:*"]);
    server.kill();
    client(&place, &ticket, &["-L", "0:localhost:1"]).fail(2, "cannot reach the server");
}
