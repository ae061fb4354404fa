//! iperf3, in both directions, with several connections at a time.

use super::forward::Forwarder;
use super::world::{Place, REMOTE, World, faulty, stack_addresses, with_port};

const PORT: u16 = 5201;

#[test]
fn iperf3_measures_through_the_stack_in_either_role() {
    for (seed, congestion) in [(11, "cubic"), (12, "bbr")] {
        let Some(world) = World::new(&["iperf3"], seed, &faulty(2, 5, 2), congestion) else { return };
        let server = |place| world.serve(place, "iperf3", &["-s"], &with_port("127.0.0.1", PORT));
        let _servers = [server(Place::Host), server(Place::Remote)];
        let target = with_port(REMOTE[seed as usize % 2], PORT).parse().expect("an address");
        let forwarder = Forwarder::start(&world, 1, PORT, target);
        let [v4, v6] = stack_addresses(1).map(|address| address.to_string());
        let kernel_port = forwarder.kernel_port.to_string();
        let ways = [
            (Place::Remote, vec!["-c", &v4]),
            (Place::Remote, vec!["-c", &v6]),
            (Place::Host, vec!["-c", "127.0.0.1", "-p", &kernel_port]),
        ];
        for (place, to) in ways {
            // Not both directions at a time: iperf3 has one thread before version 3.16, so that both of
            // its sides may wait for the other to read.
            for direction in [&["-t", "1"][..], &["-t", "1", "-R", "-P", "4"]] {
                let arguments = [&to[..], direction, &["--json"]].concat();
                let output = world.succeed(place, "iperf3", &arguments, &[]);
                let result: serde_json::Value = serde_json::from_slice(&output).expect("a JSON object");
                assert!(result["error"].is_null(), "{congestion}: {arguments:?}: {}", result["error"]);
                let received = result["end"]["sum_received"]["bytes"].as_u64();
                assert!(received > Some(0), "{congestion}: {arguments:?}: {}", result["end"]);
            }
        }
    }
}
