use std::collections::BTreeMap;

use super::*;

fn card(name: &str, index: u32, addresses: &[&str]) -> Interface {
    let addresses = addresses.iter().map(|text| {
        let (ip, prefix_len) = text.split_once('/').unwrap();
        InterfaceAddress { ip: ip.parse().unwrap(), prefix_len: prefix_len.parse().unwrap(), scope_id: 0 }
    });
    Interface {
        name: name.to_owned(),
        index,
        is_up: true,
        is_running: true,
        is_loopback: name == "lo",
        is_dummy: false,
        is_point_to_point: false,
        is_litz_tunnel: false,
        addresses: addresses.collect(),
    }
}

fn host() -> Vec<Interface> {
    vec![
        card("lo", 1, &["127.0.0.1/8", "::1/128"]),
        card("a", 2, &["10.1.0.1/24", "10.9.0.1/24", "fd01::1/64", "fe80::1/64"]),
        card("b", 3, &["10.1.0.2/24", "169.254.0.9/16"]),
        Interface { is_running: false, ..card("off", 4, &["10.3.0.1/24"]) },
    ]
}

fn short(places: &[Place]) -> Vec<String> {
    places.iter().map(|place| format!("{} {}", place.device.as_deref().unwrap_or("-"), place.address.ip)).collect()
}

#[test]
fn addresses_are_listed_card_by_card_in_turn() {
    assert_eq!(short(&plan(&host(), None)), ["a 10.1.0.1", "a fd01::1", "b 10.1.0.2", "a 10.9.0.1"]);
    let wildcard = |ip: &str| short(&plan(&host(), Some(ip.parse().unwrap())));
    assert_eq!(wildcard("0.0.0.0"), ["a 10.1.0.1", "b 10.1.0.2", "a 10.9.0.1"]);
    assert_eq!(wildcard("::"), ["a fd01::1"]);
    assert_eq!(wildcard("10.1.0.2"), ["b 10.1.0.2"]);
    assert_eq!(wildcard("127.0.0.1"), ["- 127.0.0.1"]);
    assert_eq!(wildcard("192.0.2.77"), ["- 192.0.2.77"], "opening it says what is wrong");
}

#[test]
fn without_other_addresses_link_local_and_then_loopback_count() {
    assert_eq!(short(&plan(&[card("lo", 1, &["127.0.0.1/8"])], None)), ["- 127.0.0.1"]);
    assert_eq!(short(&plan(&host()[..1], Some("::".parse().unwrap()))), ["- ::1"]);
    let only_link_local = [card("a", 2, &["169.254.0.9/16", "fe80::1/64"])];
    assert_eq!(short(&plan(&only_link_local, None)), ["a 169.254.0.9"]);
}

#[test]
fn a_tunnel_over_the_same_links_is_listened_on_only_if_it_is_all_there_is_or_named() {
    let tunnel = Interface { is_litz_tunnel: true, ..card("litz0", 5, &["10.76.0.1/24", "fd76::1/64"]) };
    let host = [host(), vec![tunnel]].concat();
    assert_eq!(short(&plan(&host, None)), ["a 10.1.0.1", "a fd01::1", "b 10.1.0.2", "a 10.9.0.1"]);
    assert_eq!(short(&plan(&host, Some("::".parse().unwrap()))), ["a fd01::1"]);
    assert_eq!(short(&plan(&host, Some("10.76.0.1".parse().unwrap()))), ["litz0 10.76.0.1"]);
    assert_eq!(short(&plan(&host[4..], None)), ["litz0 10.76.0.1", "litz0 fd76::1"]);
}

#[test]
fn an_address_of_loopback_or_a_dummy_takes_packets_from_all_cards() {
    let host = [
        card("lo", 1, &["127.0.0.1/8", "10.9.9.9/32"]),
        card("a", 2, &["10.1.0.1/24"]),
        Interface { is_dummy: true, ..card("dummy0", 3, &["10.9.9.8/32"]) },
    ];
    assert_eq!(short(&plan(&host, None)), ["a 10.1.0.1", "- 10.9.9.8"]);
    for ip in ["10.9.9.9", "10.9.9.8"] {
        assert_eq!(short(&plan(&host, Some(ip.parse().unwrap()))), [format!("- {ip}")]);
    }
}

#[test]
fn a_limited_list_of_many_addresses_includes_each_card() {
    let many: Vec<String> = (1..30).map(|last| format!("10.1.0.{last}/24")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let places = plan(&[card("a", 2, &many), card("b", 3, &["10.2.0.1/24"])], None);
    assert_eq!(places.len(), PLACES_MAX);
    assert_eq!(short(&places)[..2], ["a 10.1.0.1", "b 10.2.0.1"]);
}

/// A host with the given ports taken; closed sockets are not tracked, because every search opens
/// anew.
struct Ports {
    next: u16,
    taken: BTreeMap<IpAddr, Vec<u16>>,
    opened: usize,
}

impl Ports {
    fn settle(&mut self, places: &[Place], port: u16) -> Result<Listening<SocketAddr>, io::Error> {
        settle(places, port, io::Error::kind, &mut |place, port| {
            self.opened += 1;
            let ip = place.address.ip;
            if ip == "fd01::1".parse::<IpAddr>().unwrap() {
                return Err(io::ErrorKind::AddrNotAvailable.into());
            }
            let port = if port == 0 { self.next } else { port };
            if self.taken.get(&ip).is_some_and(|taken| taken.contains(&port)) {
                self.next += 1;
                return Err(io::ErrorKind::AddrInUse.into());
            }
            Ok((SocketAddr::new(ip, port), port))
        })
    }
}

#[test]
fn the_search_ends_at_the_first_port_that_is_free_everywhere() {
    let taken =
        BTreeMap::from([("10.1.0.2".parse().unwrap(), vec![5000, 5001]), ("10.9.0.1".parse().unwrap(), vec![5002])]);
    let mut ports = Ports { next: 5000, taken, opened: 0 };
    let listening = ports.settle(&plan(&host(), None), 0).unwrap();
    assert_eq!(listening.port, 5003);
    assert!(listening.sockets.iter().all(|(place, at)| at.port() == 5003 && at.ip() == place.address.ip));
    assert_eq!(short(&listening.skipped.iter().map(|(place, _)| place.clone()).collect::<Vec<_>>()), ["a fd01::1"]);
    let named: Vec<String> = listening.addresses().iter().map(ToString::to_string).collect();
    assert_eq!(named, ["10.1.0.1:5003", "10.1.0.2:5003", "10.9.0.1:5003"], "what was skipped is not named");
}

#[test]
fn a_chosen_port_that_is_taken_is_an_error_and_so_is_a_search_without_end() {
    let taken = BTreeMap::from([("10.1.0.2".parse().unwrap(), (5000..6000).collect())]);
    let mut ports = Ports { next: 5000, taken, opened: 0 };
    assert_eq!(ports.settle(&plan(&host(), None), 5000).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    ports.opened = 0;
    assert_eq!(ports.settle(&plan(&host(), None), 0).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    assert_eq!(ports.opened, PORT_ATTEMPTS * 3, "two places that work and the one that does not");
    let only_skipped = plan(&host(), Some("::".parse().unwrap()));
    assert_eq!(ports.settle(&only_skipped, 0).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
}

#[test]
fn real_sockets_share_a_real_port() {
    let loopback = |last: u8| Place {
        address: InterfaceAddress { ip: Ipv4Addr::new(127, 0, 0, last).into(), prefix_len: 8, scope_id: 0 },
        device: None,
    };
    let places = [loopback(1), loopback(2), loopback(3)];
    let listening = open(&places, 0).unwrap();
    assert_ne!(listening.port, 0);
    for (place, socket) in &listening.sockets {
        assert_eq!(socket.local_addr().unwrap(), SocketAddr::new(place.address.ip, listening.port));
    }
    let error = open(&places, listening.port).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}
