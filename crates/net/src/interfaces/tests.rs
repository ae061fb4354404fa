use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn address(ip: &str, prefix_len: u8) -> InterfaceAddress {
    InterfaceAddress { ip: ip.parse().unwrap(), prefix_len, scope_id: 0 }
}

#[test]
fn interfaces_include_loopback() {
    let table = interfaces().unwrap();
    let loopback = table.iter().find(|interface| interface.is_loopback).expect("a loopback interface");
    assert!(loopback.is_up && loopback.is_running && loopback.index > 0 && !loopback.is_point_to_point, "{loopback:?}");
    let localhost = InterfaceAddress { ip: Ipv4Addr::LOCALHOST.into(), prefix_len: 8, scope_id: 0 };
    assert!(loopback.addresses.contains(&localhost), "{loopback:?}");
    assert!(table.is_sorted_by_key(|interface| interface.index));
}

#[test]
fn subnets_are_compared_by_prefix() {
    let ours = address("10.1.2.3", 20);
    assert!(ours.shares_subnet_with("10.1.15.255".parse().unwrap()));
    assert!(!ours.shares_subnet_with("10.1.16.0".parse().unwrap()));
    assert!(address("10.1.2.3", 0).shares_subnet_with("192.0.2.1".parse().unwrap()));
    assert!(!address("10.1.2.3", 32).shares_subnet_with("10.1.2.2".parse().unwrap()));
    assert!(address("fd00::1", 64).shares_subnet_with("fd00::ffff:1".parse().unwrap()));
    assert!(!address("fd00::1", 64).shares_subnet_with("fd00:0:0:1::1".parse().unwrap()));
    assert!(!address("0.0.0.1", 0).shares_subnet_with("::1".parse().unwrap()), "families never share a subnet");
}

#[test]
fn labels_are_removed_from_device_names() {
    assert_eq!(device_name("eth0:1"), "eth0");
    assert_eq!(device_name("br-12ab"), "br-12ab");
}

#[test]
fn with_port_keeps_the_scope_of_a_link_local_address() {
    let ip = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    let local = InterfaceAddress { ip: ip.into(), prefix_len: 64, scope_id: 7 };
    assert_eq!(local.with_port(5), SocketAddrV6::new(ip, 5, 0, 7).into());
}

#[test]
fn unreachable_errors_say_what_to_do() {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    reachable(local, None, None, remote).unwrap();
    let foreign = reachable((Ipv4Addr::new(203, 0, 113, 7), 0).into(), None, None, remote).unwrap_err();
    assert_eq!(foreign.kind(), io::ErrorKind::AddrNotAvailable, "{foreign}");
    assert!(foreign.to_string().contains("ip address"), "{foreign}");
    let nosuch = reachable(local, Some("nosuch0"), None, remote).unwrap_err();
    assert!(nosuch.to_string().contains("ip link"), "{nosuch}");
}

proptest! {
    /// Compared with the definition: the first bits are equal, one by one.
    #[test]
    fn sharing_a_subnet_means_equal_prefix_bits(ours: u32, flip in 0..33_u32, prefix_len in 0..33_u8) {
        let theirs = if flip == 32 { ours } else { ours ^ (1 << (31 - flip)) };
        let ours = InterfaceAddress { ip: Ipv4Addr::from_bits(ours).into(), prefix_len, scope_id: 0 };
        let agrees = flip == 32 || flip >= u32::from(prefix_len);
        prop_assert_eq!(ours.shares_subnet_with(Ipv4Addr::from_bits(theirs).into()), agrees);
    }

    #[test]
    fn sharing_a_subnet_works_for_ipv6(ours: u128, flip in 0..129_u32, prefix_len in 0..129_u8) {
        let theirs = if flip == 128 { ours } else { ours ^ (1 << (127 - flip)) };
        let ours = InterfaceAddress { ip: Ipv6Addr::from_bits(ours).into(), prefix_len, scope_id: 0 };
        let agrees = flip == 128 || flip >= u32::from(prefix_len);
        prop_assert_eq!(ours.shares_subnet_with(Ipv6Addr::from_bits(theirs).into()), agrees);
    }
}
