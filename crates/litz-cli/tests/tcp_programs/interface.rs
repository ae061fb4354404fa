//! iperf3 and curl, with our stack as a host on the link of an Ethernet interface.

use litz::tcp::{EthernetConfig, IpDevice, PacketSocket};

use super::forward::Forwarder;
use super::http::nginx;
use super::iperf::{PORT, measure};
use super::world::{Place, World, assert_same, kernel_addresses, stack_addresses};

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
    let Some(world) = World::on_a_veth(&["iperf3", "ss"]) else { return };
    let forwarder = forwarder(&world, PORT);
    measure(&world, 0, &forwarder, ["-n", "8M"]);
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
