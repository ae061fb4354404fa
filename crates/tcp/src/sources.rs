//! Addresses that are invalid as a packet's source (RFC 1122, section 3.2.1.3; RFC 4291, section
//! 2): such a packet is forged, and an answer would go to another host, or to many.

use std::net::{IpAddr, Ipv4Addr};

/// Returns whether an address stands for several hosts: multicast, or the limited broadcast
/// address.
pub fn is_group(ip: IpAddr) -> bool {
    ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// Returns whether a host may send packets from `source` to `destination`. Loopback addresses never
/// leave a host, so a packet has either two of them or none. The caller checks for the host's own
/// addresses and the broadcast addresses of its networks, which are not known here.
pub fn is_valid_source(source: IpAddr, destination: IpAddr) -> bool {
    match source {
        IpAddr::V4(ip) => match ip.octets()[0] {
            // This network, whose hosts do not know their addresses yet, and groups of hosts.
            0 | 224..=239 => false,
            127 => destination.is_loopback(),
            255 if ip == Ipv4Addr::BROADCAST => false,
            _ => !destination.is_loopback(),
        },
        IpAddr::V6(ip) => match ip.segments()[0] {
            0 if ip.is_loopback() => destination.is_loopback(),
            // An IPv4 address in an IPv6 header would mean another host to an application.
            0 if ip.is_unspecified() || ip.to_ipv4_mapped().is_some() => false,
            0xff00..=0xffff => false,
            _ => !destination.is_loopback(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_single_hosts_send_packets() {
        let is_valid = |source: &str, destination: &str| {
            let parse = |text: &str| text.parse::<IpAddr>().expect("an address");
            is_valid_source(parse(source), parse(destination))
        };
        for source in
            ["10.0.0.1", "1.0.0.0", "126.255.255.255", "128.0.0.1", "192.0.2.255", "223.255.255.255", "240.0.0.1"]
        {
            assert!(is_valid(source, "10.0.0.2") && !is_valid(source, "127.0.0.1"), "{source}");
        }
        for source in [
            "0.0.0.0",
            "0.0.0.1",
            "0.255.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "224.0.0.1",
            "239.255.255.255",
            "255.255.255.255",
        ] {
            assert!(!is_valid(source, "10.0.0.2"), "{source}");
        }
        assert!(is_valid("127.0.0.1", "127.9.9.9") && is_valid("::1", "::1"), "a device of the host itself");
        for source in ["fd00::1", "2001:db8::1", "fe80::1"] {
            assert!(is_valid(source, "fd00::2") && !is_valid(source, "::1"), "{source}");
        }
        for source in ["::", "::1", "ff02::1", "ff00::", "::ffff:10.0.0.1", "::ffff:127.0.0.1"] {
            assert!(!is_valid(source, "fd00::2"), "{source}");
        }
    }
}
