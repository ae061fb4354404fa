//! iperf3, in both directions, with several connections at a time.

use super::forward::Forwarder;
use super::world::{Place, REMOTE, World, faulty, stack_addresses, with_port};

pub(super) const PORT: u16 = 5201;

/// Measures from the kernel of the remote host to the stack at `number`, and from the stack to the remote
/// host through the forwarder, in both directions, as `amount` says how much.
pub(super) fn measure(world: &World, number: u32, forwarder: &Forwarder, amount: [&str; 2]) {
    let [v4, v6] = stack_addresses(number).map(|address| address.to_string());
    let kernel_port = forwarder.kernel_port.to_string();
    let ways = [
        (Place::Remote, Place::Host, vec!["-c", &v4]),
        (Place::Remote, Place::Host, vec!["-c", &v6]),
        (Place::Host, Place::Remote, vec!["-c", "127.0.0.1", "-p", &kernel_port]),
    ];
    for (place, server_place, to) in ways {
        // Not both directions at a time: iperf3 has one thread before version 3.16, so that both of
        // its sides may wait for the other to read.
        for direction in [&[][..], &["-R", "-P", "4"]] {
            // A server that serves several runs closes its port after each, and resets a client that comes then.
            let _server = world.serve_one(server_place, "iperf3", &["-s", "-1"], PORT);
            let arguments = [&to[..], &amount, direction, &["--json"]].concat();
            let output = world.succeed(place, "iperf3", &arguments, &[]);
            let result: serde_json::Value = serde_json::from_slice(&output).expect("a JSON object");
            assert!(result["error"].is_null(), "{arguments:?}: {}", result["error"]);
            let received = result["end"]["sum_received"]["bytes"].as_u64();
            assert!(received > Some(0), "{arguments:?}: {}", result["end"]);
        }
    }
}

#[test]
fn iperf3_measures_through_the_stack_in_either_role() {
    for (seed, congestion) in [(11, "cubic"), (12, "bbr")] {
        let Some(world) = World::new(&["iperf3", "ss"], seed, &faulty(2, 5, 2), congestion) else { return };
        let target = with_port(REMOTE[seed as usize % 2], PORT).parse().expect("an address");
        let forwarder = Forwarder::start(&world, 1, PORT, target);
        measure(&world, 1, &forwarder, ["-t", "1"]);
    }
}
