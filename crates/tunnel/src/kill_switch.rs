//! The packet filter of a kill switch: a table of nftables that refuses what leaves a host outside its tunnel,
//! whatever its rules and routes are.
//!
//! Rules and routes choose a device by address. A socket may name the device itself, and another program
//! may change the routes: the filter looks at the packet when its device is known.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::prefix::Prefix;

/// The name of the table. Only one tunnel of a host gets all packets, so there is one table.
pub const TABLE: &str = "litz_kill_switch";

/// Networks in the table, at most: the text has a place for each. A host with more (with all routes of the
/// Internet) reaches the others through the tunnel only.
pub const NETWORKS_MAX: usize = 4096;

/// The packets that a kill switch lets out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KillSwitch {
    device: String,
    mark: u32,
    /// The networks that are reached over each other device.
    networks: BTreeMap<String, Vec<Prefix>>,
}

/// The name of a device cannot be written in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadName;

impl KillSwitch {
    /// Lets out what enters the tunnel over `device`, its own packets, which have this mark, and packets to
    /// `networks` over their devices. Of more than [`NETWORKS_MAX`], the first are taken. A device whose name
    /// cannot be written has none.
    ///
    /// # Errors
    /// If the name of the tunnel's device cannot be written.
    pub fn new<'a>(
        device: &str,
        mark: u32,
        networks: impl Iterator<Item = (&'a str, Prefix)>,
    ) -> Result<Self, BadName> {
        if !is_name(device) {
            return Err(BadName);
        }
        let mut lists: BTreeMap<String, Vec<Prefix>> = BTreeMap::new();
        let others = networks.filter(|(name, _)| *name != device && is_name(name));
        for (name, network) in others.take(NETWORKS_MAX) {
            lists.entry(name.to_owned()).or_default().push(network);
        }
        for list in lists.values_mut() {
            // A set has no two networks with a common address: a larger one comes before those inside it.
            list.sort_by_key(|network| (network.bits(), *network));
            let mut largest: Vec<Prefix> = Vec::new();
            for network in list.drain(..) {
                if !largest.iter().any(|larger| larger.overlaps(&network)) {
                    largest.push(network);
                }
            }
            *list = largest;
        }
        Ok(Self { device: device.to_owned(), mark, networks: lists })
    }

    /// The script for `nft -f` that makes the table, or replaces it, without a moment between.
    #[must_use]
    pub fn script(&self) -> String {
        let (device, mark) = (&self.device, self.mark);
        let mut networks = String::new();
        for (name, list) in &self.networks {
            for (version, is_ipv4) in [("ip", true), ("ip6", false)] {
                let list: Vec<String> =
                    list.iter().filter(|of| of.address().is_ipv4() == is_ipv4).map(ToString::to_string).collect();
                if !list.is_empty() {
                    let _infallible =
                        writeln!(networks, "    oifname \"{name}\" {version} daddr {{ {} }} accept", list.join(", "));
                }
            }
        }
        // Refused and not only dropped, so that programs fail at once. A chain of the hook `output`
        // sees the device of the first lookup: one that marks packets has the kernel look again
        // without a word to the others. So `postrouting`, where the device is the last one, holds
        // the same rules; the kernel refuses nothing there, it only drops. Its priority is the last
        // one, so that no change of a packet comes after the look.
        let refuse = "reject with icmpx type admin-prohibited";
        // Lines of `networks`: packets with options or a routing header may name a router, not
        // their end. Lines of `own`: neighbours and their groups (RFC 4861, RFC 3810) and DHCP (RFC
        // 2131, RFC 8415), without which the links fail; their types and ports are refused to
        // programs without privileges. Packets that are forwarded have passed `forward` when they
        // come to `postrouting`.
        format!(
            "table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
  chain networks {{
    ip hdrlength > 5 return
    exthdr rt exists return
{networks}  }}
  chain own {{
    oifname {{ \"lo\", \"{device}\" }} accept
    meta mark {mark:#x} meta l4proto udp accept
    icmpv6 type {{ 130, 131, 132, 133, 135, 136, 143 }} accept
    ip daddr 255.255.255.255 udp sport 68 udp dport 67 accept
    ip6 daddr ff02::1:2 udp sport 546 udp dport 547 accept
  }}
  chain output {{
    type filter hook output priority 2147483647; policy accept;
    jump own
    jump networks
    {refuse}
  }}
  chain forward {{
    type filter hook forward priority 2147483647; policy accept;
    oifname \"{device}\" accept
    jump networks
    {refuse}
  }}
  chain postrouting {{
    type filter hook postrouting priority 2147483647; policy accept;
    jump own
    jump networks
    drop
  }}
}}
"
        )
    }
}

/// Whether the name of a device can stand between quotes, and stands for itself: a star at the end would
/// stand for all that begin so.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|letter| letter.is_ascii_graphic() && !['"', '\\', '*', '$'].contains(&letter))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("a prefix")
    }

    #[test]
    fn networks_are_let_out_over_their_devices_only() {
        let networks =
            [("eth0", "10.9.0.0/24"), ("eth0", "10.9.0.128/25"), ("eth0", "fe80::/64"), ("litz0", "10.76.0.0/24")];
        let networks = networks.map(|(device, network)| (device, prefix(network)));
        let script = KillSwitch::new("litz0", 0x6c69_747a, networks.into_iter()).expect("a name").script();
        assert!(script.contains("oifname \"eth0\" ip daddr { 10.9.0.0/24 } accept"), "{script}");
        assert!(script.contains("oifname \"eth0\" ip6 daddr { fe80::/64 } accept"), "{script}");
        assert!(!script.contains("10.76.0.0"), "{script}");
        assert!(script.contains("meta mark 0x6c69747a meta l4proto udp accept"), "{script}");
    }

    #[test]
    fn a_name_never_becomes_another_word_of_the_script() {
        for name in ["", "a\"b", "a b", "eth*", "a\nb", "a\\b", "$x"] {
            assert_eq!(KillSwitch::new(name, 1, std::iter::empty()), Err(BadName), "{name}");
            let networks = [(name, prefix("10.0.0.0/8"))];
            let script = KillSwitch::new("litz0", 1, networks.into_iter()).expect("a name").script();
            assert!(!script.contains("10.0.0.0"), "{script}");
        }
    }

    proptest! {
        #[test]
        fn the_networks_of_a_set_have_no_address_in_common_and_lose_none(
            networks in proptest::collection::vec((any::<u32>(), 1..=32_u8), 0..40),
        ) {
            let networks: Vec<Prefix> = networks
                .iter()
                .map(|(address, bits)| Prefix::new(std::net::Ipv4Addr::from(*address).into(), *bits).expect("32 bits"))
                .collect();
            let switch = KillSwitch::new("litz0", 1, networks.iter().map(|network| ("eth0", *network))).expect("a name");
            let kept = switch.networks.get("eth0").cloned().unwrap_or_default();
            for (place, network) in kept.iter().enumerate() {
                prop_assert!(!kept[..place].iter().any(|other| other.overlaps(network)));
            }
            for network in &networks {
                prop_assert!(kept.iter().any(|larger| larger.contains(network.address()) && larger.bits() <= network.bits()));
            }
            prop_assert!(kept.iter().all(|network| networks.contains(network)));
        }
    }
}
