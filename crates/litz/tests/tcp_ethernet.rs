//! Stacks as hosts on an Ethernet link: with each other in memory, and with the kernel over a TAP device,
//! which is skipped without root.

use std::net::IpAddr;
use std::process::Command;

use emulate::Namespace;
use litz::Placement;
use litz::tcp::{Closed, Count, EthernetConfig, IpDevice, MemoryTun, PacketSocket, Tap, TcpConfig, TcpStackConfig};
use net::tun::{TUN_BUFFER_BYTES, TunDevice};

use crate::listening::Listening;
use crate::tcp_host::echo;
use crate::tcp_stack::{KERNEL, STACK, exchange, exchange_in_either_role};
use crate::world::pattern;

/// Returns the networks of both ends.
fn networks(ends: [IpAddr; 2]) -> [(IpAddr, u8); 2] {
    ends.map(|ip| (ip, if ip.is_ipv4() { 24 } else { 64 }))
}

#[test]
fn two_stacks_find_each_other_on_a_link() {
    let [one, other] = MemoryTun::pair();
    let stack = |tun, ends: [IpAddr; 2]| {
        let config = EthernetConfig::new(&networks(ends)).expect("random bytes");
        let device = IpDevice::memory_ethernet(tun, &config).expect("few routes");
        Listening::start(TcpStackConfig::new(device, &ends))
    };
    let (client, server) = (stack(one, KERNEL), stack(other, STACK));
    for address in STACK {
        let (there, back) = (pattern(1 << 20, 1), pattern(1 << 19, 2));
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| exchange(&server.accept().expect("a client"), &back));
            let stream = client.connect((address, 80).into()).expect("connected");
            assert!(exchange(&stream, &there) == back, "{address}");
            assert!(serving.join().expect("served") == there, "{address}");
        });
    }
}

/// RFC 9293, section 3.9.1.1, MUST-46. The networks are those of the link.
#[test]
fn there_is_no_connection_to_several_hosts() {
    let [tun, mut link] = MemoryTun::pair();
    let config = EthernetConfig::new(&networks(STACK)).expect("random bytes");
    let device = IpDevice::memory_ethernet(tun, &config).expect("few routes");
    let stack = Listening::start(TcpStackConfig::new(device, &STACK));
    for remote in ["10.77.0.255", "255.255.255.255", "224.0.0.1", "0.0.0.0", "::", "ff02::1"] {
        let remote: IpAddr = remote.parse().expect("an address");
        match stack.connect((remote, 80).into()) {
            Err(Closed::Configuration(reason)) => assert!(reason.contains("no single host"), "{reason}"),
            other => panic!("{remote}: {:?}", other.err()),
        }
    }
    let error = link.read(&mut [0; TUN_BUFFER_BYTES]).expect_err("nothing was sent");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

/// Runs `test` with a stack and the kernel on a link in a namespace of its own.
fn on_a_link(name: &str, mtu: u16, placement: Placement, test: impl FnOnce(Listening) + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let namespace = Namespace::create(&format!("litz-eth-{}-{name}", std::process::id())).expect("a namespace");
    let inside = move || {
        let tap = Tap::open_up("tap0", &networks(KERNEL), mtu).expect("a device");
        let config = EthernetConfig::new(&networks(STACK)).expect("random bytes");
        let device = IpDevice::tap(tap, &config).expect("few routes");
        let tcp = TcpConfig { mtu: mtu.into(), ..TcpConfig::default() };
        let config = TcpStackConfig::new(device, &STACK).with_placement(placement);
        test(Listening::start(config.with_tcp(tcp)));
    };
    namespace.run(inside).expect("a thread").join().expect("the test passes").expect("the namespace exists");
}

#[test]
fn the_kernel_and_a_stack_on_its_link_exchange_megabytes_in_either_role() {
    // Ethernet, FDDI and ATM.
    let cases = [
        (1500, Placement::Thread),
        (4352, Placement::Inline),
        (9180, Placement::Packet(2)),
        (1500, Placement::Split),
        (1500, Placement::Pipeline),
    ];
    for (number, (mtu, placement)) in cases.into_iter().enumerate() {
        on_a_link(&number.to_string(), mtu, placement, move |stack| {
            exchange_in_either_role(&stack, &format!("{placement}, {mtu}"));
        });
    }
}

/// Runs `ip` in the namespace of this thread.
fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip is installed");
    assert!(status.success(), "ip {arguments}");
}

/// Runs `test` with a stack on one end of a veth pair; the kernel has the other end.
fn on_a_veth(name: &str, placement: Placement, test: impl FnOnce(Listening) + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let namespace = Namespace::create(&format!("litz-veth-{}-{name}", std::process::id())).expect("a namespace");
    let inside = move || {
        ip("link add ours type veth peer name theirs");
        for (ip_address, len) in networks(KERNEL) {
            let nodad = if ip_address.is_ipv6() { "nodad" } else { "" };
            ip(&format!("address add {ip_address}/{len} dev theirs {nodad}"));
        }
        let down = PacketSocket::open("theirs").expect_err("the interface is down").to_string();
        assert!(down.contains("ip link set"), "{down}");
        ip("link set theirs up");
        ip("link set ours up");
        let config = EthernetConfig::new(&networks(STACK)).expect("random bytes");
        let device = IpDevice::interface(PacketSocket::open("ours").expect("root"), &config).expect("few routes");
        test(Listening::start(TcpStackConfig::new(device, &STACK).with_placement(placement)));
    };
    namespace.run(inside).expect("a thread").join().expect("the test passes").expect("the namespace exists");
}

#[test]
fn the_kernel_and_a_stack_on_an_interface_exchange_megabytes_in_either_role() {
    let placements =
        [Placement::Thread, Placement::Inline, Placement::Packet(2), Placement::Split, Placement::Pipeline];
    for (number, placement) in placements.into_iter().enumerate() {
        on_a_veth(&number.to_string(), placement, move |stack| {
            exchange_in_either_role(&stack, &placement.to_string());
        });
    }
}

#[test]
fn super_packets_cross_an_interface_in_both_directions() {
    on_a_veth("super", Placement::Thread, |stack| {
        // Read the frames that arrive at either end, until their memory is full.
        let mut ends = ["ours", "theirs"].map(|name| PacketSocket::open(name).expect("root"));
        exchange_in_either_role(&stack, "super-packets");
        for end in &mut ends {
            let mut frame = vec![0; TUN_BUFFER_BYTES];
            let frames = std::iter::from_fn(|| end.read(&mut frame).ok());
            let longest = frames.max().expect("frames have arrived");
            assert!(longest > 2 * 1500, "{}: {longest} bytes", end.interface());
        }
    });
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let error = PacketSocket::open("nowhere9").expect_err("there is none").to_string();
    assert!(error.contains("nowhere9") && error.contains("ip link"), "{error}");
}

#[test]
fn fragments_cross_a_link() {
    on_a_link("fragments", 1500, Placement::Thread, |stack| {
        for family in 0..2 {
            let data = pattern(20_000, 1);
            assert!(echo(STACK[family], KERNEL[family], &data) == data, "{family}");
        }
        assert_eq!(stack.count_of(Count::Reassembled), 2);
    });
}
