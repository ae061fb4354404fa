//! The rate of a client, for packets and for terminated connections.

use super::{SERVER, World};

/// The rate of the client.
const RATE: &str = "--client-rate=20Mb/s";

/// Bits a second above which the rate does not hold: a receiver measures from its first byte on, and what waits at the
/// beginning, such as the quantum of the meter, arrives at once.
const MOST_BPS: f64 = 22e6;

/// Counts the datagrams that arrive, in the file.
const COUNT: &str = "
import os, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 7007))
for count in range(1 << 30):
    with open(sys.argv[2] + '.new', 'w') as new:
        new.write(str(count))
    os.rename(sys.argv[2] + '.new', sys.argv[2])
    s.recv(2000)
";

/// Sends bursts of datagrams, each when the last one has arrived: meanwhile this host sends nothing.
const BURSTS: &str = "
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for burst in range(1, 61):
    for _ in range(40):
        s.sendto(bytes(1000), (sys.argv[1], 7007))
    deadline = time.monotonic() + 60
    while (seen := int(open(sys.argv[2]).read())) < burst * 40:
        assert time.monotonic() < deadline, f'{seen} datagrams of burst {burst} arrived'
        time.sleep(0.001)
";

/// The data that iperf3 receives in a second, in bits.
fn received(world: &World, congestion: &str, direction: &[&str]) -> f64 {
    let report = world.iperf(&[&["-c", SERVER[0], "-t", "3", "-C", congestion], direction].concat());
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
    rate.unwrap_or_else(|| panic!("no rate: {report}"))
}

#[test]
#[expect(clippy::print_stderr, reason = "a measurement")]
fn a_rate_holds_for_packets_and_for_terminated_connections() {
    for mode in [&[][..], &["--terminate=all"]] {
        let Some(world) = World::new("rates", 1, &["python3", "iperf3", "ss"]) else { return };
        let (mut server, ticket) = world.serve(&[RATE]);
        let mut client = world.litz(&world.client, &[&["up"], mode, &[&ticket]].concat());
        client.wait_for("up");
        server.wait_for("client");
        for direction in [&[][..], &["-R"]] {
            let rate = received(&world, "cubic", direction);
            eprintln!("{mode:?} {direction:?}: {rate:.0} b/s");
            // How much less it is depends on the load of this host. `bench/tunnel/rates` measures that.
            assert!(rate < MOST_BPS, "{mode:?} {direction:?}: {rate}");
        }
        for status in [world.status(), world.status_of(&world.server)] {
            let count = |name: &str| status["counters"][name].as_u64().expect("a number");
            let counted = ["carried", "terminated", "too_large", "no_peer", "malformed"].map(count);
            assert_eq!(count("read"), counted.iter().sum::<u64>(), "{status}");
            assert!(count("read") > 100, "{status}");
        }
        let (sent, got) = World::end(client, server);
        for counts in [&sent["in"], &got["in"]] {
            let count = |name: &str| counts[name].as_u64().expect("a number");
            // A super-packet is one packet, and each of its segments is dropped by itself.
            let segments = count("bytes") / 1400;
            assert!(count("dropped") * 10 <= segments + 100, "TCP finds the rate with few losses: {counts}");
        }
        assert_eq!(got["out"]["over_rate"], 0, "a client that keeps to the rate is not policed");
        let terminated = sent["terminated"]["bytes_in"].as_u64().expect("a number");
        assert_eq!(terminated > 1_000_000, !mode.is_empty(), "{sent}");
    }
}

#[test]
fn what_waits_for_a_rate_leaves_although_nothing_follows_it() {
    let Some(world) = World::new("bursts", 1, &["python3"]) else { return };
    let (mut server, ticket) = world.serve(&[RATE]);
    let mut client = world.litz(&world.client, &["up", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    let seen = world.path("seen");
    let mut counter = world.start("python3", &["-c", COUNT, SERVER[0], seen.to_str().expect("UTF-8")]);
    while !seen.exists() {
        assert!(counter.0.try_wait().expect("it was started").is_none(), "the counter ended");
        std::thread::yield_now();
    }
    world.succeed("python3", &["-c", BURSTS, SERVER[0], seen.to_str().expect("UTF-8")]);
    World::end(client, server);
}
