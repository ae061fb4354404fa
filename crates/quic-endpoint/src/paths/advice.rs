//! Settings of this host that silently break paths: those that matter to hosts with two interfaces,
//! above all in one IPv4 subnet.
//!
//! On Linux, addresses belong to the host and not to an interface. Each interface answers ARP for
//! the addresses of the others (`arp_ignore` 0), so packets arrive at the wrong interface and miss
//! the sockets bound to the right one. With a strict reverse path filter (`rp_filter` 1), packets
//! that arrive at an interface that the routes to their sender do not prefer are dropped, even in
//! different subnets if the sender is beyond gateways. In all cases this host only sees a path that
//! does not work.

use std::net::IpAddr;

use net::{Interface, InterfaceAddress};

/// Reads a setting of an interface (`all` stands for the host): `net.ipv4.conf.INTERFACE.KEY`.
/// Returns `None` if it cannot be read.
pub type Setting<'a> = dyn FnMut(&str, &str) -> Option<u32> + 'a;

/// Returns the settings to change so that sockets on all these devices and addresses work, one
/// sentence each; empty if no problem is known.
#[must_use]
pub fn advise(interfaces: &[Interface], used: &[(&str, IpAddr)], setting: &mut Setting<'_>) -> Vec<String> {
    let mut advice = Vec::new();
    for (interface, shares) in several(interfaces, used) {
        // The kernel takes the larger of the two (ip-sysctl: rp_filter, arp_ignore).
        let mut effective = |key| Some(setting("all", key)?.max(setting(interface, key)?));
        if effective("rp_filter") == Some(STRICT) {
            let (why, which) = if shares {
                ("shares a subnet with another interface", "")
            } else {
                ("is not the only interface", ", if the routes prefer another one")
            };
            advice.push(format!(
                "{interface} {why}, and the strict reverse path filter drops packets that arrive there{which}: \
                 `sysctl -w net.ipv4.conf.{interface}.rp_filter=2`"
            ));
        }
        if !shares {
            continue;
        }
        if effective("arp_ignore") == Some(ANY_CARD_ANSWERS) {
            advice.push(format!(
                "{interface} shares a subnet with another interface and answers for its address, so that packets arrive at the wrong \
                 one: `sysctl -w net.ipv4.conf.{interface}.arp_ignore=1 net.ipv4.conf.{interface}.arp_announce=2`"
            ));
        }
    }
    advice
}

/// Advises like [`advise`] on the settings of this host; empty where the system has no such
/// settings.
#[must_use]
pub fn advise_here(interfaces: &[Interface], used: &[(&str, IpAddr)]) -> Vec<String> {
    advise(interfaces, used, &mut |interface, key| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{interface}/{key}")).ok()?;
        text.trim().parse().ok()
    })
}

/// Returns the used interfaces with IPv4, if there are several, in the table's order, and whether
/// each shares a subnet with another one.
fn several<'a>(interfaces: &'a [Interface], used: &[(&str, IpAddr)]) -> Vec<(&'a str, bool)> {
    let used_addresses = |interface: &'a Interface| {
        let is_used = |ip| used.iter().any(|(device, address)| *device == interface.name && *address == ip);
        let four = interface.addresses.iter().filter(|address| address.ip.is_ipv4());
        four.filter(move |address| is_used(address.ip)).copied().collect::<Vec<InterfaceAddress>>()
    };
    let cards = interfaces.iter().map(|interface| (interface.name.as_str(), used_addresses(interface)));
    let cards: Vec<_> = cards.filter(|(_, own)| !own.is_empty()).collect();
    if cards.len() < 2 {
        return Vec::new();
    }
    let shares = |name: &str, own: &[InterfaceAddress]| {
        let others = cards.iter().filter(|(other, _)| *other != name).flat_map(|(_, addresses)| addresses);
        others.into_iter().any(|other| own.iter().any(|mine| mine.shares_subnet_with(other.ip)))
    };
    cards.iter().map(|(name, own)| (*name, shares(name, own))).collect()
}

/// Value of `rp_filter` for the strict mode (RFC 3704, section 2.2). 2 is loose, 0 is off.
const STRICT: u32 = 1;

/// Default value of `arp_ignore`.
const ANY_CARD_ANSWERS: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    fn card(name: &str, ip: &str, prefix_len: u8) -> Interface {
        let address = InterfaceAddress { ip: ip.parse().unwrap(), prefix_len, scope_id: 0 };
        Interface {
            name: name.to_owned(),
            index: 1,
            is_up: true,
            is_running: true,
            is_loopback: false,
            is_dummy: false,
            is_point_to_point: false,
            is_litz_tunnel: false,
            addresses: vec![address],
        }
    }

    fn advice_for(cards: &[Interface], setting: &mut Setting<'_>) -> Vec<String> {
        let used: Vec<_> = cards.iter().map(|card| (card.name.as_str(), card.addresses[0].ip)).collect();
        advise(cards, &used, setting)
    }

    #[test]
    fn two_cards_in_one_subnet_need_more_settings_than_two_in_two() {
        let shared = [card("a", "10.0.0.1", 24), card("b", "10.0.0.2", 24), card("c", "10.0.1.1", 24)];
        let strict = &mut |interface: &str, key: &str| Some(u32::from(interface == "all" && key == "rp_filter"));
        let advice = advice_for(&shared, strict);
        assert_eq!(advice.len(), 5, "{advice:#?}");
        for (sentence, words) in
            advice.iter().zip(["a.rp_filter=2", "a.arp_ignore=1", "b.rp_filter=2", "b.arp_ignore=1", "c.rp_filter=2"])
        {
            assert!(sentence.contains(words), "{sentence}");
        }
        let advice = advice_for(&shared[1..], strict);
        assert_eq!(advice.len(), 2, "{advice:#?}");
        assert!(advice.iter().all(|sentence| sentence.contains("if the routes prefer another")), "{advice:#?}");
        assert_eq!(advice_for(&shared[1..], &mut |_, _| Some(0)), Vec::<String>::new());
        assert_eq!(advice_for(&shared[..1], strict), Vec::<String>::new());
    }

    #[test]
    fn settings_that_are_right_or_unknown_cause_no_advice() {
        let shared = [card("a", "10.0.0.1", 24), card("b", "10.0.0.2", 24)];
        assert!(advice_for(&shared, &mut |_, _| None).is_empty());
        assert!(advice_for(&shared, &mut |interface, _| Some(if interface == "all" { 1 } else { 2 })).is_empty());
        let six = [card("a", "fd00::1", 64), card("b", "fd00::2", 64)];
        assert!(advice_for(&six, &mut |_, _| Some(0)).is_empty(), "IPv6 cards answer for themselves only");
        // An unused card in the same subnet does no harm.
        assert!(advise(&shared, &[("a", shared[0].addresses[0].ip)], &mut |_, _| Some(0)).is_empty());
    }
}
