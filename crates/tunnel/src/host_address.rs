//! Addresses that a host can have.

use std::net::IpAddr;

use crate::prefix::Prefix;

/// Returns why no host may have this address of the network, if that is so.
#[must_use]
pub fn refusal(address: IpAddr, network: &Prefix) -> Option<&'static str> {
    if address.is_loopback() || address.is_multicast() || address.is_unspecified() {
        return Some("is no address of a host");
    }
    if is_limited_broadcast(address) {
        return Some("is the broadcast address of all networks");
    }
    // In a network of one address, this is the host's; in one of two, both are hosts' (RFC 3021, section 2.1; RFC 6164,
    // section 6).
    if network.width() - network.bits() <= 1 {
        return None;
    }
    if address == network.address() {
        return Some("is the address of the network, and not of a host in it");
    }
    // RFC 919, section 7. IPv6 has no broadcast.
    (address.is_ipv4() && address == network.last()).then_some("is the broadcast address of the network")
}

/// RFC 919, section 7.
fn is_limited_broadcast(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.is_broadcast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_address_of_a_network_are_no_hosts_unless_it_is_tiny() {
        let refused = |address: &str, network: &str| refusal(address.parse().unwrap(), &network.parse().unwrap());
        for (address, network) in [
            ("10.8.0.1", "10.8.0.0/24"),
            ("10.8.0.0", "10.8.0.0/31"),
            ("10.8.0.1", "10.8.0.0/31"),
            ("10.8.0.7", "10.8.0.7/32"),
            ("fd08::1", "fd08::/64"),
            ("fd08::ffff:ffff:ffff:ffff", "fd08::/64"),
            ("fd08::", "fd08::/127"),
        ] {
            assert_eq!(refused(address, network), None, "{address} of {network}");
        }
        for (address, network) in [
            ("10.8.0.0", "10.8.0.0/24"),
            ("10.8.0.255", "10.8.0.0/24"),
            ("fd08::", "fd08::/64"),
            ("127.0.0.1", "127.0.0.0/8"),
            ("0.0.0.0", "0.0.0.0/32"),
            ("224.0.0.5", "224.0.0.0/4"),
            ("255.255.255.255", "255.255.255.255/32"),
            ("::1", "::1/128"),
            ("ff02::1", "ff02::/64"),
        ] {
            assert!(refused(address, network).is_some(), "{address} of {network}");
        }
    }
}
