use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;

use net::{Interface, InterfaceAddress};

use super::*;
use crate::paths::spec::PathSpec;

/// A host: its interfaces, and which remote addresses it cannot reach over which device.
#[derive(Debug)]
pub(super) struct World {
    pub(super) interfaces: Vec<Interface>,
    pub(super) blocked: BTreeSet<(String, String)>,
}

impl World {
    /// From lines like `eth0 10.0.0.1/24 fd00::1/64`; `down`, `idle` (no carrier), `loopback`
    /// and `tunnel` (of Litz) may stand among the addresses.
    pub(super) fn new(lines: &[&str]) -> Self {
        let interfaces = lines.iter().zip(1..).map(|(line, index)| interface(line, index)).collect();
        Self { interfaces, blocked: BTreeSet::new() }
    }

    /// No route leads from `device` to `ip`.
    pub(super) fn without_route(mut self, device: &str, ip: &str) -> Self {
        self.blocked.insert((device.to_owned(), ip.to_owned()));
        self
    }

    pub(super) fn choose(&self, remotes: &[&str], paths: &[&str], limit: Option<usize>) -> Result<Choice, ChooseError> {
        let remotes: Vec<SocketAddr> = remotes.iter().map(|text| socket(text)).collect();
        let paths: Vec<PathSpec> = paths.iter().map(|text| text.parse().unwrap()).collect();
        let request = Request { interfaces: &self.interfaces, remotes: &remotes, paths: &paths, limit };
        choose(&request, &mut |_, device, remote| {
            let route = (device.unwrap_or_default().to_owned(), remote.ip().to_string());
            if self.blocked.contains(&route) { Err(io::ErrorKind::NetworkUnreachable.into()) } else { Ok(()) }
        })
    }

    /// The paths as short texts.
    fn paths(&self, remotes: &[&str], paths: &[&str], limit: Option<usize>) -> Vec<String> {
        let choice = self.choose(remotes, paths, limit).unwrap();
        choice.candidates.iter().map(short).collect()
    }
}

fn interface(line: &str, index: u32) -> Interface {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap().to_owned();
    let rest: Vec<&str> = words.collect();
    let has = |word| rest.contains(&word);
    let addresses = rest.iter().filter_map(|word| word.split_once('/')).map(|(ip, prefix_len)| {
        let ip = ip.parse().unwrap();
        let scope_id = if crate::paths::binding::is_link_local(ip) && ip.is_ipv6() { index } else { 0 };
        InterfaceAddress { ip, prefix_len: prefix_len.parse().unwrap(), scope_id }
    });
    Interface {
        name,
        index,
        is_up: !has("down"),
        is_running: !has("down") && !has("idle"),
        is_loopback: has("loopback"),
        is_dummy: false,
        is_point_to_point: has("tunnel"),
        is_litz_tunnel: has("tunnel"),
        addresses: addresses.collect(),
    }
}

/// An address of the ticket; port 4433 unless it has another.
fn socket(text: &str) -> SocketAddr {
    text.parse().unwrap_or_else(|_| SocketAddr::new(text.parse().unwrap(), 4433))
}

fn short(path: &Candidate) -> String {
    let device = path.device.as_deref().unwrap_or("-");
    let backup = if path.backup { " backup" } else { "" };
    format!("{device} {} > {}{backup}", path.local.ip(), path.remote.ip())
}

fn why_not<'a>(choice: &'a Choice, device: &str, remote: &str) -> &'a Unused {
    let remote = (!remote.is_empty()).then(|| remote.parse().unwrap());
    let about = |rejected: &&Rejected| {
        rejected.device.as_deref().unwrap_or_default() == device && rejected.remote.map(|remote| remote.ip()) == remote
    };
    let found = choice.rejected.iter().find(about);
    &found.unwrap_or_else(|| panic!("{device} {remote:?} in {:#?}", choice.rejected)).why
}

fn two_subnets() -> World {
    World::new(&["lo 127.0.0.1/8 loopback", "a 10.1.0.1/24", "b 10.2.0.1/24"])
        .without_route("a", "10.2.0.2")
        .without_route("b", "10.1.0.2")
}

fn one_subnet() -> World {
    World::new(&["a 10.1.0.1/24", "b 10.1.0.2/24"])
}

#[test]
fn two_cards_each_in_two_subnets_make_two_paths() {
    let remotes = ["10.1.0.2", "10.2.0.2"];
    let straight = ["a 10.1.0.1 > 10.1.0.2", "b 10.2.0.1 > 10.2.0.2"];
    assert_eq!(two_subnets().paths(&remotes, &[], None), straight);
    // The same where a gateway would carry the cross pairs, until more is asked for.
    let routed = World::new(&["a 10.1.0.1/24", "b 10.2.0.1/24"]);
    assert_eq!(routed.paths(&remotes, &[], None), straight);
    let four = routed.paths(&remotes, &[], Some(4));
    assert_eq!(four, [straight[0], straight[1], "a 10.1.0.1 > 10.2.0.2", "b 10.2.0.1 > 10.1.0.2"]);
    let choice = routed.choose(&remotes, &[], None).unwrap();
    assert_eq!(why_not(&choice, "a", "10.2.0.2"), &Unused::EndsUsed);
}

#[test]
fn two_cards_each_in_one_subnet_make_two_paths_by_order() {
    let paths = one_subnet().paths(&["10.1.0.11", "10.1.0.12"], &[], None);
    assert_eq!(paths, ["a 10.1.0.1 > 10.1.0.11", "b 10.1.0.2 > 10.1.0.12"]);
}

#[test]
fn two_cards_to_one_and_one_to_two_make_two_paths() {
    let paths = one_subnet().paths(&["10.1.0.11"], &[], None);
    assert_eq!(paths, ["a 10.1.0.1 > 10.1.0.11", "b 10.1.0.2 > 10.1.0.11"]);
    let single = World::new(&["a 10.1.0.1/24"]);
    let paths = single.paths(&["10.1.0.11", "10.1.0.12"], &[], None);
    assert_eq!(paths, ["a 10.1.0.1 > 10.1.0.11", "a 10.1.0.1 > 10.1.0.12"]);
}

#[test]
fn a_slot_with_an_alternative_yields_to_one_without() {
    // In order alone, `a` would take the only card that `b` reaches.
    let world = World::new(&["a 10.1.0.1/16", "b 10.2.0.1/16"]).without_route("b", "192.0.2.2");
    let world = World { interfaces: vec![interface("a 10.9.0.1/24", 1), interface("b 10.8.0.1/24", 2)], ..world };
    let paths = world.paths(&["192.0.2.1", "192.0.2.2"], &[], None);
    assert_eq!(paths, ["a 10.9.0.1 > 192.0.2.2", "b 10.8.0.1 > 192.0.2.1"]);
}

#[test]
fn a_subnet_pair_is_not_replaced_to_get_one_more_routed_pair() {
    // `b` reaches 10.1.0.2 by route only; `a` is in its subnet and also has a route to the other
    // one.
    let world = World::new(&["a 10.1.0.1/24", "b 10.2.0.1/24"]).without_route("b", "192.0.2.1");
    let choice = world.choose(&["10.1.0.2", "192.0.2.1"], &[], None).unwrap();
    assert_eq!(short(&choice.candidates[0]), "a 10.1.0.1 > 10.1.0.2");
    assert_eq!(choice.candidates[0].why, Reason { link: Link::SameSubnet { prefix_len: 24 }, turn: Turn::Pair });
    let rest: Vec<String> = choice.candidates[1..].iter().map(short).collect();
    assert_eq!(rest, ["b 10.2.0.1 > 10.1.0.2", "a 10.1.0.1 > 192.0.2.1"]);
    assert_eq!(choice.candidates[1].why.turn, Turn::IdleInterface);
    assert_eq!(choice.candidates[2].why.turn, Turn::IdleRemote);
}

#[test]
fn ipv4_and_ipv6_between_two_cards_are_one_path_until_more_is_asked_for() {
    let world = World::new(&["a 10.1.0.1/24 fd01::1/64 fe80::1/64"]);
    let remotes = ["10.1.0.2", "fd01::2"];
    assert_eq!(world.paths(&remotes, &[], None), ["a 10.1.0.1 > 10.1.0.2"]);
    assert_eq!(world.paths(&remotes, &[], Some(2)), ["a 10.1.0.1 > 10.1.0.2", "a fd01::1 > fd01::2"]);
    let choice = world.choose(&remotes, &[], None).unwrap();
    assert_eq!(why_not(&choice, "a", "fd01::2"), &Unused::PairUsed);
    assert!(why_not(&choice, "a", "fd01::2").is_spare());
}

#[test]
fn cards_in_one_subnet_pair_their_families_by_order() {
    let world = World::new(&["a 10.1.0.1/24 fd01::1/64", "b 10.1.0.2/24 fd01::2/64"]);
    let paths = world.paths(&["10.1.0.11", "fd01::11", "10.1.0.12", "fd01::12"], &[], None);
    assert_eq!(paths, ["a 10.1.0.1 > 10.1.0.11", "b 10.1.0.2 > 10.1.0.12"]);
    let paths = world.paths(&["fd01::11", "fd01::12", "10.1.0.12"], &[], None);
    assert_eq!(paths, ["a 10.1.0.1 > 10.1.0.12", "b fd01::2 > fd01::12"]);
}

#[test]
fn over_routes_an_address_that_needs_no_translator_goes_first() {
    let world = World::new(&["a 192.168.0.5/24 2001:db8::5/64"]);
    assert_eq!(world.paths(&["203.0.113.9", "2001:db8:9::9"], &[], None), ["a 2001:db8::5 > 2001:db8:9::9"]);
    // A private address behind a route usually belongs to another network.
    assert_eq!(world.paths(&["192.168.7.9", "2001:db8:9::9"], &[], None), ["a 2001:db8::5 > 2001:db8:9::9"]);
    let public = World::new(&["a 198.51.100.5/24 2001:db8::5/64"]);
    assert_eq!(public.paths(&["203.0.113.9", "2001:db8:9::9"], &[], None), ["a 198.51.100.5 > 203.0.113.9"]);
    // Unique local addresses do not leave their site.
    let local = World::new(&["a fd00::5/64 2001:db8::5/64"]);
    assert_eq!(local.paths(&["2001:db8:9::9"], &[], None), ["a 2001:db8::5 > 2001:db8:9::9"]);
}

#[test]
fn paths_beyond_the_number_of_pairs_use_other_ports() {
    let world = World::new(&["a 10.1.0.1/24"]);
    let choice = world.choose(&["10.1.0.2"], &[], Some(3)).unwrap();
    assert_eq!(choice.candidates.len(), 3);
    assert!(choice.candidates.iter().all(|path| path.local.port() == 0 && short(path) == "a 10.1.0.1 > 10.1.0.2"));
    let turns: Vec<Turn> = choice.candidates.iter().map(|path| path.why.turn).collect();
    assert_eq!(turns, [Turn::Pair, Turn::OtherPort, Turn::OtherPort]);
    let paths = one_subnet().paths(&["10.1.0.11"], &[], Some(4));
    assert_eq!(paths[2..], paths[..2], "in turn");
    assert_eq!(world.paths(&["10.1.0.2"], &[], Some(1000)).len(), PATHS_MAX);
}

#[test]
fn a_limit_keeps_the_best() {
    let choice = one_subnet().choose(&["10.1.0.11", "10.1.0.12"], &[], Some(1)).unwrap();
    assert_eq!(choice.candidates.iter().map(short).collect::<Vec<_>>(), ["a 10.1.0.1 > 10.1.0.11"]);
    assert_eq!(why_not(&choice, "b", "10.1.0.12"), &Unused::BeyondLimit(1));
    let many: Vec<String> = (0..20).map(|index| format!("e{index} 10.{index}.0.1/24")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(World::new(&many).paths(&["192.0.2.1"], &[], None).len(), PATHS_DEFAULT);
}

#[test]
fn unusable_interfaces_and_addresses_are_listed_with_the_reason() {
    let world = World::new(&[
        "lo 127.0.0.1/8 loopback",
        "off 10.1.0.5/24 down",
        "docker0 172.17.0.1/16 idle",
        "wire",
        "six fd01::1/64",
        "virbr0 192.168.122.1/24",
        "eth0 10.1.0.1/24",
    ])
    .without_route("virbr0", "10.1.0.2");
    let choice = world.choose(&["10.1.0.2", "192.168.122.1", "127.0.0.1", "0.0.0.0", "224.0.0.1"], &[], None).unwrap();
    assert_eq!(choice.candidates.iter().map(short).collect::<Vec<_>>(), ["eth0 10.1.0.1 > 10.1.0.2"]);
    let reasons = [
        ("lo", "", Unused::Loopback),
        ("off", "", Unused::Down),
        ("docker0", "", Unused::NoCarrier),
        ("wire", "", Unused::NoAddress),
        ("six", "10.1.0.2", Unused::OtherFamily),
        ("", "192.168.122.1", Unused::OwnAddress),
        ("", "127.0.0.1", Unused::Loopback),
        ("", "0.0.0.0", Unused::NotAHost),
        ("", "224.0.0.1", Unused::NotAHost),
    ];
    for (device, remote, why) in reasons {
        assert_eq!(why_not(&choice, device, remote), &why);
    }
    let no_route = why_not(&choice, "virbr0", "10.1.0.2");
    assert!(matches!(no_route, Unused::NoRoute(_)) && no_route.to_string().contains("unreachable"), "{no_route}");
    assert!(choice.rejected.iter().all(|rejected| !rejected.why.is_spare()), "{:#?}", choice.rejected);
}

#[test]
fn a_ticket_of_this_very_host_makes_one_path_on_no_device() {
    let world = World::new(&["lo 127.0.0.1/8 ::1/128 loopback", "a 10.1.0.1/24", "b 10.2.0.1/24"]);
    for (remotes, path) in [
        (&["127.0.0.1"][..], "- 127.0.0.1 > 127.0.0.1"),
        (&["127.0.0.9", "127.0.0.1"], "- 127.0.0.9 > 127.0.0.9"),
        (&["::1"], "- ::1 > ::1"),
        (&["10.1.0.1", "10.2.0.1"], "- 10.1.0.1 > 10.1.0.1"),
    ] {
        assert_eq!(world.paths(remotes, &[], None), [path]);
    }
    assert_eq!(world.paths(&["127.0.0.1"], &[], Some(3)), ["- 127.0.0.1 > 127.0.0.1"; 3]);
    assert_eq!(world.paths(&["127.0.0.1"], &["lo"], None), ["lo 127.0.0.1 > 127.0.0.1"]);
}

#[test]
fn link_local_addresses_are_paired_on_one_link() {
    let world = World::new(&["a 10.1.0.1/24 fe80::1/64", "b fe80::2/64"]);
    let choice = world.choose(&["fe80::9"], &[], None).unwrap();
    let scopes: Vec<(String, SocketAddr)> = choice.candidates.iter().map(|path| (short(path), path.remote)).collect();
    assert_eq!(
        scopes,
        [
            ("a fe80::1 > fe80::9".to_owned(), "[fe80::9%1]:4433".parse().unwrap()),
            ("b fe80::2 > fe80::9".to_owned(), "[fe80::9%2]:4433".parse().unwrap())
        ]
    );
    let choice = world.choose(&["2001:db8::9"], &[], None).unwrap();
    assert!(choice.candidates.is_empty());
    assert_eq!(why_not(&choice, "b", "2001:db8::9"), &Unused::LinkLocal);
}

#[test]
fn each_path_that_is_asked_for_is_one_path_and_nothing_else_is_used() {
    let world = one_subnet();
    let remotes = ["10.1.0.11", "10.1.0.12"];
    assert_eq!(world.paths(&remotes, &["b"], None), ["b 10.1.0.2 > 10.1.0.11"]);
    assert_eq!(world.paths(&remotes, &["b", "a"], None), ["b 10.1.0.2 > 10.1.0.11", "a 10.1.0.1 > 10.1.0.12"]);
    assert_eq!(world.paths(&remotes, &["a", "a"], None), ["a 10.1.0.1 > 10.1.0.11", "a 10.1.0.1 > 10.1.0.12"]);
    assert_eq!(world.paths(&remotes, &["a,backup", "b"], None)[1], "a 10.1.0.1 > 10.1.0.11 backup");
    assert_eq!(world.paths(&remotes, &["10.1.0.2-10.1.0.12", "a"], None)[1], "a 10.1.0.1 > 10.1.0.11");
    assert_eq!(world.paths(&remotes, &["a"], Some(3)), ["a 10.1.0.1 > 10.1.0.11"; 3]);
    let choice = world.choose(&remotes, &["a:5000-10.1.0.77"], None).unwrap();
    assert_eq!(choice.candidates[0].local, socket("10.1.0.1:5000"));
    assert_eq!(choice.candidates[0].remote, socket("10.1.0.77:4433"));
    assert_eq!(choice.candidates[0].why.turn, Turn::Asked);
    assert_eq!(choice.candidates.len(), 1);
}

#[test]
fn a_port_is_bound_once() {
    let choice = one_subnet().choose(&["10.1.0.11", "10.1.0.12"], &["a:5000", "10.1.0.1:5000"], Some(4)).unwrap();
    assert_eq!(choice.candidates.len(), 1, "{:#?}", choice.candidates);
    assert!(choice.rejected.iter().any(|rejected| rejected.why == Unused::PortTaken));
}

#[test]
fn an_impossible_request_is_rejected_with_the_alternatives() {
    let world = World::new(&["lo 127.0.0.1/8 loopback", "eth0 10.1.0.1/24", "wlan0 down"]);
    let error =
        |paths: &[&str], limit| world.choose(&["10.1.0.2:1", "10.1.0.3:2"], paths, limit).unwrap_err().to_string();
    assert!(error(&["eth1"], None).contains("lo, eth0, wlan0"));
    assert!(error(&["10.1.0.7"], None).contains("10.1.0.1"));
    assert!(error(&["eth0-10.1.0.9"], None).contains("port"));
    assert!(error(&["eth0", "eth0"], Some(1)).contains("--paths allows 1"));
    assert!(error(&["eth0"; 33], None).contains("32"));
    let choice = world.choose(&["10.1.0.2"], &["wlan0", "lo"], None).unwrap();
    assert!(choice.candidates.is_empty());
    assert_eq!((why_not(&choice, "wlan0", ""), why_not(&choice, "lo", "")), (&Unused::Down, &Unused::Loopback));
}

#[test]
fn too_many_addresses_of_a_ticket_are_left_out_and_reported() {
    let remotes: Vec<String> = (1..=70).map(|last| format!("192.0.2.{last}")).collect();
    let remotes: Vec<&str> = remotes.iter().map(String::as_str).collect();
    let choice = World::new(&["a 10.1.0.1/24"]).choose(&remotes, &[], Some(32)).unwrap();
    assert_eq!(choice.candidates.len(), 32);
    assert_eq!(why_not(&choice, "", "192.0.2.65"), &Unused::TooMany);
}

#[test]
fn an_address_given_with_two_prefixes_is_one_address() {
    let world = World::new(&["a 10.1.0.1/32 10.1.0.1/24"]);
    let choice = world.choose(&["10.1.0.2"], &[], Some(2)).unwrap();
    let reasons: Vec<Reason> = choice.candidates.iter().map(|path| path.why).collect();
    let link = Link::SameSubnet { prefix_len: 24 };
    assert_eq!(reasons, [Reason { link, turn: Turn::Pair }, Reason { link, turn: Turn::OtherPort }]);
}

#[test]
fn a_hyphen_before_a_bad_address_is_explained() {
    let world = World::new(&["eth0 10.0.0.1/24", "br-1.20 10.1.0.1/24"]);
    let error = |path: &str| world.choose(&["10.0.0.2"], &[path], None).unwrap_err().to_string();
    assert!(error("eth0-1.2.3").ends_with("If a path from eth0 is meant, 1.2.3 must be an IP address"));
    assert!(error("br-1.20-9").contains("a path from br-1.20 is meant, 9 must be"));
    assert!(error("eth1-1.2.3").ends_with("there are eth0, br-1.20"));
}

#[test]
fn a_tunnel_over_the_same_links_is_no_further_link() {
    let world = World::new(&["a 10.1.0.1/24", "b 10.2.0.1/24", "litz0 10.76.0.2/24 tunnel"])
        .without_route("a", "10.2.0.2")
        .without_route("b", "10.1.0.2");
    let remotes = ["10.1.0.2", "10.2.0.2", "10.76.0.1"];
    let straight = ["a 10.1.0.1 > 10.1.0.2", "b 10.2.0.1 > 10.2.0.2"];
    let blocked = world.without_route("a", "10.76.0.1").without_route("b", "10.76.0.1");
    assert_eq!(blocked.paths(&remotes, &[], None), straight);
    assert_eq!(blocked.paths(&remotes, &[], Some(3))[..2], straight, "nor with --paths");
    let choice = blocked.choose(&remotes, &[], None).unwrap();
    assert_eq!(why_not(&choice, "litz0", "10.76.0.1"), &Unused::Tunnel);
    assert!(choice.rejected.iter().all(|rejected| rejected.device.as_deref() != Some("litz0") || {
        matches!(rejected.why, Unused::Tunnel | Unused::OtherFamily)
    }));
    // The user wants it.
    assert_eq!(blocked.paths(&remotes, &["litz0"], None), ["litz0 10.76.0.2 > 10.76.0.1"]);
    assert_eq!(blocked.paths(&remotes, &["10.76.0.2-10.76.0.1"], None), ["litz0 10.76.0.2 > 10.76.0.1"]);
    // Nothing else leads there.
    assert_eq!(blocked.paths(&["10.76.0.1"], &[], None), ["litz0 10.76.0.2 > 10.76.0.1"]);
}
