//! Many clients of one server.

use std::collections::BTreeSet;

use super::{SERVER, World};

/// Clients of the usual test, and of the long one (`make test-long`).
const CLIENTS: usize = 12;
const CLIENTS_LONG: usize = 200;

/// Sends datagrams over each of the first N devices called t0, t1, ... until FILE is there: N ADDRESS FILE.
const SEND_EACH: &str = "
import os, socket, sys, time
count, to = int(sys.argv[1]), (sys.argv[2], 5005)
while not os.path.exists(sys.argv[3]):
    for number in range(count):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b't%d' % number)
            s.sendto(b'here', to)
    time.sleep(0.05)
";

/// Receives datagrams until N sources have sent one, and writes these to a file: N FILE.
const LISTEN_TO_ALL: &str = "
import os, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('0.0.0.0', 5005))
sources = set()
while len(sources) < int(sys.argv[1]):
    sources.add(s.recvfrom(2000)[1][0])
open(sys.argv[2] + '.new', 'w').write(' '.join(sources))
os.rename(sys.argv[2] + '.new', sys.argv[2])
";

#[test]
fn each_of_many_clients_has_its_own_address_and_reaches_the_server() {
    let Some(world) = World::new("many", 1, &["python3"]) else { return };
    let is_long = std::env::var("LITZ_TEST_SHARE").is_ok_and(|share| share == "100");
    let count = if is_long { CLIENTS_LONG } else { CLIENTS };
    let keys = world.path("keys");
    let states: Vec<String> =
        (0..count).map(|number| format!("--state-dir={}", world.path(&format!("many-{number}")).display())).collect();
    let listed: String = states.iter().map(|state| World::key_in(state) + "\n").collect();
    std::fs::write(&keys, listed).expect("a file");
    let (mut server, ticket) = world.serve(&["--allow", keys.to_str().expect("text")]);
    let mut clients: Vec<_> = (0..count)
        .map(|number| {
            let device = format!("t{number}");
            let mut command = world.command(&world.client);
            command.args(["up", "--by-key", "--tun", &device, "--path", "c0", &ticket, &states[number], "--json"]);
            crate::support::Litz::of(&mut command)
        })
        .collect();
    let addresses: BTreeSet<String> =
        clients.iter_mut().map(|client| client.wait_for("up")["addresses"][0].to_string()).collect();
    assert_eq!(addresses.len(), count);
    for _ in 0..count {
        server.wait_for("client");
    }
    let seen = world.path("seen").display().to_string();
    let mut listener = world.start("python3", &["-c", LISTEN_TO_ALL, &count.to_string(), &seen]);
    world.succeed("python3", &["-c", SEND_EACH, &count.to_string(), SERVER[0], &seen]);
    assert!(listener.0.wait().expect("it was started").success());
    let sources = std::fs::read_to_string(&seen).expect("a file");
    let sources: BTreeSet<String> = sources.split(' ').map(|source| format!("\"{source}/24\"")).collect();
    assert_eq!(sources, addresses);
}
