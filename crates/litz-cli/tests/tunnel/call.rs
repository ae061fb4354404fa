//! A call beside a bulk transfer, over unlike links.

use std::process::Stdio;

use serde_json::Value;

use super::{Running, SERVER, World};

/// Packets that each side sends, 50 a second, as a call with sound does.
const PACKETS: u64 = 250;

/// Sends numbered packets of 160 bytes to PEER, one each 20 ms, receives those of the peer, and writes to FILE
/// what it has counted once the peer says that it has sent all: OWN PEER COUNT FILE. Both ends have one clock.
/// It says so itself until FILE.stop is there.
const CALL: &str = "
import json, os, socket, struct, sys, threading, time
own, peer, count, file, other = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((own, 5006))
open(file + '.ready', 'w').close()
def receive():
    seen, newest, reordered, repeated, delays = set(), -1, 0, 0, []
    while True:
        number, at = struct.unpack('!qq', s.recv(2000)[:16])
        if number < 0:
            break
        if number in seen:
            repeated += 1
            continue
        seen.add(number)
        reordered += number < newest
        newest = max(newest, number)
        delays.append((time.monotonic_ns() - at) / 1e6)
    delays.sort()
    report = {'lost': count - len(seen), 'reordered': reordered, 'repeated': repeated}
    if delays:
        report |= {'median_ms': delays[len(delays) // 2], 'p99_ms': delays[len(delays) * 99 // 100], 'max_ms': delays[-1]}
    json.dump(report, open(file + '.new', 'w'))
    os.rename(file + '.new', file)
threading.Thread(target=receive, daemon=True).start()
def send(number):
    s.sendto(struct.pack('!qq', number, time.monotonic_ns()).ljust(160, b'x'), (peer, 5006))
# What comes before the other side listens would be lost.
while not os.path.exists(other + '.ready'):
    time.sleep(0.01)
for number in range(count):
    send(number)
    time.sleep(0.02)
while not os.path.exists(file + '.stop'):
    time.sleep(0.05)
    send(-1)
";

impl World {
    /// Starts one side of a call at `name`; the name of its file.
    fn call(&self, name: &str, own: &str, peer: &str) -> (Running, String) {
        let [file, other] = [own, peer].map(|side| self.path(&format!("call-{side}")).display().to_string());
        let arguments = ["-c", CALL, own, peer, &PACKETS.to_string(), &file, &other];
        let command = Self::in_namespace(name, "python3", &arguments).stdout(Stdio::null()).spawn();
        (Running(command.expect("python3 starts")), file)
    }

    /// Waits until the client's end of the tunnel has taken so many bytes.
    fn await_bytes(&self, bytes: u64) {
        while self.status()["peers"][0]["in"]["bytes"].as_u64() < Some(bytes) {
            std::thread::yield_now();
        }
    }
}

/// Waits until packets of `bulk` wait in the queues of the client's end, and in its connection.
fn await_waiting(world: &World, bulk: &mut Running) {
    let is_waiting = |counts: &Value, name: &str| counts[name].as_u64().expect("a number") > 0;
    loop {
        let counts = &world.status()["peers"][0]["in"];
        if is_waiting(counts, "queued_bytes") && is_waiting(counts, "connection_bytes") {
            return;
        }
        assert!(bulk.0.try_wait().expect("it was started").is_none(), "nothing has waited: {}", world.status());
    }
}

/// The report of a side, once it is there.
fn report(side: &mut Running, file: &str) -> Value {
    loop {
        if let Ok(text) = std::fs::read_to_string(file) {
            return serde_json::from_str(&text).expect("JSON");
        }
        assert!(side.0.try_wait().expect("it was started").is_none(), "a side of the call ended");
        std::thread::yield_now();
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a measurement")]
fn a_call_arrives_in_order_beside_a_bulk_transfer_over_unlike_links() {
    let links = ["rate=20Mb/s,delay=5ms,queue=60ms", "rate=8Mb/s,delay=25ms,queue=100ms"];
    let Some((world, _links)) = World::emulated("call", &links, &["python3", "iperf3", "ss"]) else { return };
    let (client, server) = world.tunnel();
    world.await_paths(2);
    let _iperf = world.start("iperf3", &["-s"]);
    world.await_port(5201);
    // The first window of a connection may fit into the paths, and it grows late on a busy machine. Those of eight
    // connections do not.
    let mut bulk = World::in_namespace(&world.client, "iperf3", &["-c", SERVER[0], "-t", "600", "-P", "8"]);
    let mut bulk = Running(bulk.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("iperf3 starts"));
    world.await_bytes(2_000_000);
    await_waiting(&world, &mut bulk);
    let own = "10.76.0.2";
    let mut sides = [world.call(&world.server, SERVER[0], own), world.call(&world.client, own, SERVER[0])];
    let reports = sides.each_mut().map(|(side, file)| report(side, file));
    for (mut side, file) in sides {
        std::fs::write(format!("{file}.stop"), "").expect("a file");
        assert!(side.0.wait().expect("it was started").success());
    }
    drop(bulk);
    let (sent, received) = World::end(client, server);
    eprintln!("at the server {}, at the client {}", reports[0], reports[1]);
    for (report, order) in reports.iter().zip([&received["order"], &sent["order"]]) {
        let count = |name: &str| report[name].as_u64().expect("a number");
        assert_eq!(count("repeated"), 0, "{report}");
        // One that was given up is delivered late. A busy machine may make it so.
        assert!(count("reordered") <= order["late"].as_u64().expect("a number"), "{report} {order}");
        assert!(count("lost") + count("reordered") <= PACKETS / 20, "{report} {order}");
    }
    let bytes = |path: usize| sent["paths"][path]["bytes_sent"].as_u64().expect("a number");
    assert!(bytes(0).min(bytes(1)) > 10_000, "both carry the transfer: {sent}");
}
