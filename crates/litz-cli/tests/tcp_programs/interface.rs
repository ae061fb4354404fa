//! iperf3 and curl, with our stack as a host on the link of an Ethernet interface.

use litz::tcp::{EthernetConfig, IpDevice, PacketSocket};

use super::forward::Forwarder;
use super::http::nginx;
use super::world::{Place, World, assert_same, kernel_addresses, stack_addresses};

const IPERF: u16 = 5201;
const HTTP: u16 = 80;

/// Our stack on `ours`. It carries connections to `port` to a program of the namespace `host`, and those
/// to the forwarder's other port to one of the namespace `remote`.
fn forwarder(world: &World, port: u16) -> Forwarder {
    let [v4, v6] = stack_addresses(0);
    let device = move || {
        let config = EthernetConfig::new(&[(v4, 24), (v6, 64)]).expect("random bytes");
        IpDevice::interface(PacketSocket::open("ours").expect("root"), &config).expect("few routes")
    };
    Forwarder::start_on(world, 0, device, port, (kernel_addresses(0)[0], port).into())
}

#[test]
fn iperf3_measures_through_the_stack_on_an_interface_in_either_role() {
    let Some(world) = World::on_a_veth(&["iperf3"]) else { return };
    let server = |place| world.serve(place, "iperf3", &["-s"], &format!("127.0.0.1:{IPERF}"));
    let _servers = [server(Place::Host), server(Place::Remote)];
    let forwarder = forwarder(&world, IPERF);
    let [v4, v6] = stack_addresses(0).map(|address| address.to_string());
    let kernel_port = forwarder.kernel_port.to_string();
    let ways = [
        (Place::Remote, vec!["-c", &v4]),
        (Place::Remote, vec!["-c", &v6]),
        (Place::Host, vec!["-c", "127.0.0.1", "-p", &kernel_port]),
    ];
    for (place, to) in ways {
        for direction in [&["-n", "8M"][..], &["-n", "8M", "-R", "-P", "4"]] {
            let arguments = [&to[..], direction, &["--json"]].concat();
            let output = world.succeed(place, "iperf3", &arguments, &[]);
            let result: serde_json::Value = serde_json::from_slice(&output).expect("a JSON object");
            assert!(result["error"].is_null(), "{arguments:?}: {}", result["error"]);
            let received = result["end"]["sum_received"]["bytes"].as_u64();
            assert!(received > Some(0), "{arguments:?}: {}", result["end"]);
        }
    }
}

#[test]
fn curl_gets_and_puts_through_the_stack_on_an_interface() {
    let Some(world) = World::on_a_veth(&["nginx", "curl"]) else { return };
    let sent = world.file("down", 3_000_000);
    let _servers = [nginx(&world, Place::Host), nginx(&world, Place::Remote)];
    let forwarder = forwarder(&world, HTTP);
    let [v4, v6] = stack_addresses(0);
    let ways = [
        (Place::Remote, format!("http://{v4}")),
        (Place::Remote, format!("http://[{v6}]")),
        (Place::Host, format!("http://127.0.0.1:{}", forwarder.kernel_port)),
    ];
    for (number, (place, url)) in ways.into_iter().enumerate() {
        let got = world.succeed(place, "curl", &["-sSf", &format!("{url}/down")], &[]);
        assert_same(&got, &sent, &url);
        let put = format!("up/{number}");
        let file = world.path("down").to_str().expect("a plain path").to_owned();
        world.succeed(place, "curl", &["-sSf", "-T", &file, &format!("{url}/{put}")], &[]);
        assert_same(&std::fs::read(world.path(&put)).expect("it was uploaded"), &sent, &put);
    }
}
