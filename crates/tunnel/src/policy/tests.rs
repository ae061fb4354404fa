use proptest::prelude::*;

use super::*;
use crate::own_networks::Origin;

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn own(networks: &[(&str, Origin)]) -> OwnNetworks {
    let network = |(text, origin): &(&str, Origin)| OwnNetwork {
        prefix: prefix(text),
        origin: *origin,
        device: Some("eth0".to_owned()),
    };
    networks.iter().map(network).collect()
}

/// A host at home.
fn home() -> OwnNetworks {
    own(&[
        ("127.0.0.0/8", Origin::Link),
        ("192.168.1.0/24", Origin::Link),
        ("192.168.1.1", Origin::Router),
        ("0.0.0.0/0", Origin::Route),
        ("172.17.0.0/16", Origin::Link),
        ("10.200.0.0/16", Origin::Route),
        ("fd11::/64", Origin::Link),
    ])
}

fn offered(addresses: &[&str], routes: &[&str], name_servers: &[&str]) -> Accepted {
    let address = |text: &&str| {
        let (address, bits) = text.split_once('/').unwrap();
        (address.parse().unwrap(), bits.parse().unwrap())
    };
    Accepted {
        mtu: 1400,
        addresses: addresses.iter().map(address).collect(),
        routes: routes.iter().map(|route| prefix(route)).collect(),
        name_servers: name_servers.iter().map(|server| server.parse().unwrap()).collect(),
        ..Accepted::default()
    }
}

fn policy(all: bool, asked: &[&str]) -> Policy {
    Policy { all, asked: asked.iter().map(|asked| prefix(asked)).collect(), mtu_max: 9000 }
}

fn routes(terms: &Terms) -> Vec<String> {
    terms.routes.iter().map(|route| route.prefix.to_string()).collect()
}

/// The reason for which a route is left out.
fn left_out(terms: &Terms) -> Vec<(String, &'static str)> {
    terms.left_out.iter().map(|left_out| (left_out.item.to_string(), left_out.reason.label())).collect()
}

#[test]
fn a_server_gets_its_own_network_and_private_networks_that_the_host_does_not_have() {
    let offered = offered(&["10.76.0.2/24", "fd76::2/64"], &["192.168.7.0/24", "fd09::/48"], &["10.76.0.1"]);
    let terms = policy(false, &[]).terms(&offered, &home());
    assert_eq!(terms.addresses, offered.addresses);
    assert_eq!(routes(&terms), ["192.168.7.0/24", "fd09::/48"]);
    assert_eq!((terms.name_servers.len(), terms.mtu, &terms.left_out[..]), (1, 1400, &[][..]));
}

#[test]
fn networks_of_the_host_and_of_the_internet_are_left_out_each_with_its_reason() {
    let named = [
        ("192.168.1.77", "own_network"),
        ("192.168.0.0/16", "own_network"),
        ("172.17.0.0/16", "own_network"),
        ("10.200.3.0/24", "own_network"),
        ("169.254.169.254", "local"),
        ("224.0.0.251", "local"),
        ("8.8.8.8", "public"),
        ("8.0.0.0/8", "public"),
        ("64:ff9b::/96", "public"),
        ("128.0.0.0/1", "large"),
        ("0.0.0.0/0", "large"),
        ("10.0.0.0/9", "sum"),
    ];
    let terms = policy(false, &[]).terms(&offered(&["10.76.0.2/24"], &named.map(|(route, _)| route), &[]), &home());
    assert_eq!(routes(&terms), [""; 0]);
    let expected: Vec<_> = named.map(|(route, label)| (prefix(route).to_string(), label)).into_iter().collect();
    assert_eq!(left_out(&terms), expected);
    let text = terms.left_out[0].to_string();
    assert!(text.contains("the network 192.168.1.0/24 of eth0") || text.contains("router"), "{text}");
    assert!(text.ends_with("; --accept-route 192.168.1.77/32 sends them there"), "{text}");
}

#[test]
fn what_the_user_asks_for_is_taken_but_never_what_stays_on_a_link() {
    let offer = offered(&["10.76.0.2/24"], &["192.168.1.0/24", "8.8.0.0/16", "10.0.0.0/8"], &[]);
    let terms = policy(false, &["192.168.1.128/25", "8.8.8.0/24", "10.0.0.0/8"]).terms(&offer, &home());
    assert_eq!(routes(&terms), ["192.168.1.128/25", "8.8.8.0/24", "10.0.0.0/8"]);
    assert!(terms.routes.iter().all(|route| route.is_asked) && terms.left_out.is_empty(), "{terms:?}");
    let half = offered(&["10.76.0.2/24"], &["128.0.0.0/1"], &[]);
    let terms = policy(false, &["128.0.0.0/1"]).terms(&half, &home());
    assert!(terms.routes.iter().all(|route| route.is_asked) && terms.left_out.is_empty(), "{terms:?}");
    let has = |address: &str| terms.prefixes().any(|taken| taken.contains(address.parse().unwrap()));
    assert!(has("130.0.0.5") && !has("169.254.169.254") && !has("224.0.0.251") && !has("255.255.255.255"));
}

#[test]
fn with_all_packets_the_hosts_networks_stay_its_own() {
    let offer =
        offered(&["130.0.0.5/24"], &["192.168.1.7", "192.168.0.0/16", "0.0.0.0/1", "8.8.8.0/24", "10.200.0.0/16"], &[]);
    let terms = policy(true, &[]).terms(&offer, &home());
    assert_eq!((terms.addresses.len(), routes(&terms)), (1, vec!["8.8.8.0/24".to_owned()]));
    let expected = ["192.168.1.7/32", "10.200.0.0/16"].map(|route| (route.to_owned(), "own_network"));
    assert_eq!(left_out(&terms), expected);
}

#[test]
fn an_address_that_no_tunnel_may_have_is_refused_with_what_to_do() {
    for (address, asked, label, words) in [
        ("192.168.1.7/32", &[][..], "own_network", "this host has the network 192.168.1.0/24 of eth0"),
        ("192.168.1.7/32", &["192.168.1.0/24"], "own_network", "in another network"),
        ("192.168.0.2/16", &[], "own_network", "192.168.1."),
        ("172.17.5.2/24", &[], "own_network", "172.17.0.0/16"),
        ("10.200.0.2/24", &[], "own_network", "use --accept-route 10.200.0.0/24"),
        ("10.0.0.2/8", &[], "own_network", "10.200.0.0/16"),
        ("130.0.0.5/1", &[], "own_network", "this host has"),
        ("1.2.3.4/6", &[], "large", "--all"),
        ("1.2.3.4/6", &["1.0.0.0/8"], "large", "--all"),
        ("8.8.8.8/32", &[], "public", "--accept-route 8.8.8.8/32"),
        ("10.76.0.0/24", &[], "no_host", "another --address"),
        ("10.76.0.255/24", &[], "no_host", "broadcast"),
        ("169.254.169.254/32", &["169.254.0.0/16"], "local", "of the link alone"),
        ("127.0.0.2/8", &[], "local", "loopback"),
        ("fe80::2/64", &[], "local", "of the link alone"),
        ("::ffff:192.168.1.7/128", &[], "public", "--accept-route"),
    ] {
        let terms = policy(false, asked).terms(&offered(&[address], &[], &[]), &home());
        let refusal = terms.refusal().unwrap_or_else(|| panic!("{address} was taken"));
        assert!(refusal.reason.label() == label && refusal.to_string().contains(words), "{address}: {refusal}");
        assert_eq!((terms.addresses.len(), terms.prefixes().count()), (0, 0));
    }
    let asked = policy(false, &["10.200.0.0/24"]).terms(&offered(&["10.200.0.2/24"], &[], &[]), &home());
    assert_eq!(asked.refusal(), None, "no link is there");
    let at_another =
        policy(false, &[]).terms(&offered(&["10.76.0.2/24"], &[], &[]), &own(&[("10.0.0.0/8", Origin::Link)]));
    assert!(at_another.refusal().is_some());
}

#[test]
fn name_servers_of_this_host_alone_and_of_groups_are_left_out() {
    let servers =
        ["10.76.0.1", "127.0.0.53", "169.254.169.253", "224.0.0.1", "255.255.255.255", "::1", "fe80::1", "9.9.9.9"];
    let terms = policy(false, &[]).terms(&offered(&["10.76.0.2/24"], &[], &servers), &home());
    let taken: Vec<_> = terms.name_servers.iter().map(ToString::to_string).collect();
    assert_eq!((taken, terms.left_out.len()), (vec!["10.76.0.1".to_owned(), "9.9.9.9".to_owned()], 6));
}

#[test]
fn the_mtu_is_at_most_what_the_user_wants_and_at_least_what_ipv6_needs() {
    for (server, user, mtu) in [(1400, 9000, 1400), (9000, 1300, 1300), (0, 9000, 1280), (65_535, 65_535, 65_535)] {
        let offer = Accepted { mtu: server, ..Accepted::default() };
        assert_eq!(Policy { mtu_max: user, ..policy(false, &[]) }.terms(&offer, &home()).mtu, mtu);
    }
}

#[test]
fn many_networks_are_bounded_in_sum() {
    let routes: Vec<_> = (0..128).map(|number| format!("10.{number}.0.0/16")).collect();
    let routes: Vec<_> = routes.iter().map(String::as_str).collect();
    let terms = policy(false, &[]).terms(&offered(&["10.200.0.2/24"], &routes, &[]), &OwnNetworks::default());
    // One /24, and as many /16 as fit a /12 with it.
    assert_eq!((terms.routes.len(), terms.left_out.len()), (15, 113));
    assert!(terms.left_out.iter().all(|left_out| left_out.reason == Reason::Sum));
}

/// Addresses near each other, private, public and local, so that networks meet.
fn address() -> impl Strategy<Value = IpAddr> {
    let four = (
        prop::sample::select(vec![
            [10, 0],
            [10, 76],
            [172, 17],
            [172, 32],
            [192, 168],
            [8, 8],
            [130, 0],
            [169, 254],
            [224, 0],
            [127, 0],
            [255, 255],
            [100, 64],
        ]),
        0..3_u8,
        prop::sample::select(vec![0, 1, 2, 127, 254, 255_u8]),
    );
    let four = four.prop_map(|([a, b], c, d)| IpAddr::from([a, b, c, d]));
    let six = (prop::sample::select(vec![0xfd76_u16, 0xfd11, 0x2001, 0xfe80, 0xff02, 0]), 0..3_u16, 0..3_u16);
    let six = six.prop_map(|(a, b, d)| IpAddr::from([a, b, 0, 0, 0, 0, 0, d]));
    prop_oneof![3 => four, 1 => six]
}

fn network() -> impl Strategy<Value = Prefix> {
    (address(), 0..=128_u8).prop_map(|(address, bits)| {
        let width = Prefix::host(address).bits();
        Prefix::new(address, bits.min(width)).unwrap()
    })
}

fn networks(count: usize) -> impl Strategy<Value = Vec<Prefix>> {
    prop::collection::vec(network(), 0..count)
}

fn hosts() -> impl Strategy<Value = Vec<OwnNetwork>> {
    let origin = prop::sample::select(vec![Origin::Link, Origin::Router, Origin::Route]);
    let network = (network(), origin).prop_map(|(prefix, origin)| OwnNetwork { prefix, origin, device: None });
    prop::collection::vec(network, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Whatever a server sends. Compared with the rules, address by address.
    #[test]
    fn no_packet_that_the_host_could_send_goes_into_the_tunnel_unless_the_user_asked(
        addresses in prop::collection::vec((address(), 0..=128_u8), 0..4),
        routes in networks(12),
        name_servers in prop::collection::vec(address(), 0..3),
        mtu: u16,
        hosts in hosts(),
        (all, asked) in (any::<bool>(), networks(3)),
        probes in prop::collection::vec(address(), 20),
    ) {
        let bits = |(address, bits): (IpAddr, u8)| (address, bits.min(Prefix::host(address).bits()));
        let offered =
            Accepted { mtu, addresses: addresses.into_iter().map(bits).collect(), routes, name_servers, ..Accepted::default() };
        let own: OwnNetworks = hosts.iter().cloned().collect();
        let policy = Policy { all, asked, mtu_max: 9000 };
        let terms = policy.terms(&offered, &own);
        let taken: Vec<Prefix> = terms.prefixes().collect();

        // The edges of all networks that meet, and other addresses.
        let edges = taken.iter().chain(own.iter().map(|own| &own.prefix)).flat_map(|prefix| [prefix.address(), prefix.last()]);
        let edges: Vec<IpAddr> = edges.chain(probes).collect();
        for packet in edges {
            if !taken.iter().any(|taken| taken.contains(packet)) {
                continue;
            }
            let host = Prefix::host(packet);
            prop_assert_eq!(local_kind(&host), None, "{} stays on a link", packet);
            let is_asked = policy.asked.iter().any(|asked| asked.contains(packet));
            let is_own = own.iter().any(|own| own.prefix.contains(packet));
            prop_assert!(is_asked || !is_own, "{} is the host's own", packet);
            prop_assert!(is_asked || all || is_private(&host), "{} is reached by the default route", packet);
        }
        for (address, bits) in &terms.addresses {
            let network = Prefix::new(*address, *bits).unwrap();
            prop_assert!(own.link_of(*address).is_none(), "neighbours would ask for {}", address);
            prop_assert_eq!(host_address::refusal(*address, &network), None);
        }
        if !all {
            for version in [false, true] {
                let unasked = taken.iter().filter(|taken| taken.address().is_ipv6() == version && !policy.asks_for(taken));
                // Parts of what was asked for, which are without what is local, are asked for.
                let max = 1_u128 << (if version { 128 } else { 32 } - SUM_BITS[usize::from(version)]);
                let mut apart: Vec<Prefix> = Vec::new();
                for taken in unasked {
                    if !apart.iter().any(|other| other.covers(taken)) {
                        apart.retain(|other| !taken.covers(other));
                        apart.push(*taken);
                    }
                }
                let sum: u128 = apart.iter().map(|taken| 1_u128 << (taken.width() - taken.bits())).sum();
                prop_assert!(sum <= max, "{} addresses", sum);
            }
        }
        // Everything is taken, whole or in part, or shown.
        for route in &offered.routes {
            let is_shown = terms.left_out.iter().any(|left_out| left_out.item == Item::Route(*route));
            let is_taken = taken.iter().any(|taken| taken.overlaps(route));
            let goes_anyway = all && (route.bits() < ROUTE_BITS_MIN || own.overlapping(route).is_some());
            prop_assert!(is_shown || is_taken || goes_anyway, "{}", route);
        }
        let is_shown = |item: Item| terms.left_out.iter().any(|left_out| left_out.item == item);
        for (address, bits) in &offered.addresses {
            let is_taken = terms.addresses.contains(&(*address, *bits));
            prop_assert!(is_taken || is_shown(Item::Address(*address, *bits)), "{}", address);
        }
        for server in &offered.name_servers {
            prop_assert!(terms.name_servers.contains(server) != is_shown(Item::NameServer(*server)), "{}", server);
        }
        prop_assert!((MTU_MIN..=9000).contains(&terms.mtu));
        prop_assert!(terms.left_out.iter().all(|left_out| left_out.to_string().len() < 400));
    }
}
