//! Forwarding over two links, one of which fails (root). The programs use UNIX sockets, which all
//! network namespaces share.

use std::os::unix::net::UnixStream;

use super::*;
use crate::links::{Network, RECEIVER, SENDER, SWITCH};

#[test]
fn a_connection_goes_on_when_one_of_two_links_is_cut() {
    let Some(network) = Network::new("forward") else { return };
    network.plug(SENDER, 1);
    let place = Place::new();
    let path = |name: &str| place.path(name).display().to_string();
    let listener = UnixListener::bind(place.path("target")).expect("a path");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut reader = stream.try_clone().expect("a socket");
        std::io::copy(&mut reader, &mut stream).expect("it is read");
        stream.shutdown(Shutdown::Write).expect("it is open");
    });
    let state = |name: &str| format!("--state-dir={}", path(name));
    let target = format!("--target={}", path("target"));
    let serve = ["forward", "serve", "--json", &state("state-in"), &target].map(str::to_owned);
    let mut server = network.litz(RECEIVER, &serve);
    let ticket = server.wait_for("listening")["ticket"].as_str().expect("a ticket").to_owned();
    let local = format!("-L{}:{}", path("here"), path("target"));
    let forward = ["forward", "--json", &state("state-out"), &local, &ticket].map(str::to_owned);
    let mut client = network.litz(SENDER, &forward);
    assert_eq!(client.wait_for("connected")["paths_wanted"], 2);

    let mut stream = UnixStream::connect(place.path("here")).expect("it listens");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a socket");
    let bytes = random(60_000_000, 1);
    let (mut writer, to_write) = (stream.try_clone().expect("a socket"), bytes.clone());
    let writing = std::thread::spawn(move || {
        writer.write_all(&to_write).expect("it is read");
        writer.shutdown(Shutdown::Write).expect("it is open");
    });
    let mut answer = vec![0; 3_000_000];
    stream.read_exact(&mut answer).expect("an answer");
    // While data are under way.
    network.ip(SWITCH, "link set ms0 down");
    stream.read_to_end(&mut answer).expect("the rest");
    writing.join().expect("no panic");
    assert!(answer == bytes, "{} bytes", answer.len());
    let cut = client.wait_until(|event| event["event"] == "link" && event["usable"] == false);
    assert_eq!(cut["device"], "s0");
    assert!(client.seen.iter().all(|event| event["event"] != "retrying"), "{:#?}", client.seen);
}
