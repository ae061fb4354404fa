//! Urgent packets leave on two paths.

use super::{SERVER, World};

/// Sends datagrams with the DSCP EF from an address, numbered: ADDRESS COUNT. The last says `end`, several
/// times in case that one is lost.
const CALL: &str = "
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 46 << 2)
to = (sys.argv[1], 5005)
for number in range(int(sys.argv[2])):
    s.sendto(str(number).encode(), to)
    time.sleep(0.002)
for _ in range(3):
    s.sendto(b'end', to)
    time.sleep(0.1)
";

#[test]
fn urgent_packets_arrive_once_over_two_paths() {
    let Some(world) = World::new("urgent", 2, &["python3"]) else { return };
    let (mut server, ticket) = world.serve(&[]);
    let mut client = world.litz(&world.client, &["up", "--redundant", "ef", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    world.await_paths(2);
    let seen = world.path("seen").display().to_string();
    let mut listener = world.listener(&seen);
    world.succeed("python3", &["-c", CALL, SERVER[0], "100"]);
    assert!(listener.0.wait().expect("it was started").success());
    let expected: String = (0..100).map(|number| format!("{number} 10.76.0.2\n")).collect();
    assert_eq!(std::fs::read_to_string(&seen).expect("a file"), expected + "end 10.76.0.2");
    let (sent, received) = World::end(client, server);
    let copies = received["order"]["dropped"].as_u64().expect("a number");
    assert_eq!(sent["in"]["urgent"], 103, "{sent}");
    assert!((90..=103).contains(&copies), "nearly each arrived twice: {received}");
    assert_eq!(received["order"]["lost"], 0, "{received}");
}
