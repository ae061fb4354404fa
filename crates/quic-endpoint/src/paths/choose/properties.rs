//! Properties that hold for every host and every ticket.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::tests::World;
use super::*;

/// Two octets at most, so that subnets and hosts meet often.
fn arb_ip() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (0..3_u8, 0..3_u8).prop_map(|(net, host)| format!("10.{net}.0.{host}")),
        2 => (0..3_u8, 1..4_u8).prop_map(|(net, host)| format!("fd0{net}::{host}")),
        1 => (1..3_u8).prop_map(|host| format!("fe80::{host}")),
        1 => (1..3_u8).prop_map(|host| format!("203.0.113.{host}")),
        1 => (1..3_u8).prop_map(|host| format!("2001:db8::{host}")),
        1 => Just("127.0.0.1".to_owned()),
    ]
}

fn arb_interface() -> impl Strategy<Value = String> {
    let state = prop_oneof![8 => Just(""), 1 => Just("down"), 1 => Just("idle")];
    (prop::collection::vec(arb_ip(), 0..4), state).prop_map(|(ips, state)| {
        let prefix_of = |ip: &String| if ip.contains(':') { 64 } else { 24 };
        let ips: Vec<String> = ips.iter().map(|ip| format!("{ip}/{}", prefix_of(ip))).collect();
        format!("{} {state}", ips.join(" "))
    })
}

prop_compose! {
    fn arb_world()(
        lines in prop::collection::vec(arb_interface(), 0..5),
        blocked in prop::collection::vec((0..5_usize, arb_ip()), 0..12),
    ) -> World {
        let named: Vec<String> = lines.iter().enumerate().map(|(index, line)| format!("e{index} {line}")).collect();
        let mut world = World::new(&named.iter().map(String::as_str).collect::<Vec<_>>());
        world.blocked = blocked.into_iter().map(|(index, ip)| (format!("e{index}"), ip)).collect();
        world
    }
}

/// Interfaces between which and some remote address packets can flow, derived from the chosen and
/// the spare paths.
fn usable(choice: &Choice) -> BTreeSet<String> {
    let chosen = choice.candidates.iter().filter_map(|path| path.device.clone());
    let spare = choice.rejected.iter().filter(|rejected| rejected.why.is_spare());
    chosen.chain(spare.filter_map(|rejected| rejected.device.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_choice_is_bounded_distinct_repeatable_and_leaves_nothing_idle(
        world in arb_world(),
        remotes in prop::collection::vec(arb_ip(), 0..6),
        limit in prop::option::of(1..12_usize),
    ) {
        let remotes: Vec<&str> = remotes.iter().map(String::as_str).collect();
        let choice = world.choose(&remotes, &[], limit).unwrap();
        let most = limit.unwrap_or(PATHS_DEFAULT);
        prop_assert!(choice.candidates.len() <= most);
        prop_assert_eq!(&world.choose(&remotes, &[], limit).unwrap(), &choice, "deterministic");

        // With ports chosen by the system, 4-tuples differ; the same addresses recur only on
        // request.
        let mut seen = BTreeSet::new();
        for path in &choice.candidates {
            prop_assert_eq!(path.local.port(), 0);
            let is_new = seen.insert((path.local, path.device.clone(), path.remote));
            prop_assert_eq!(is_new, path.why.turn != Turn::OtherPort, "{:?}", path);
            prop_assert!(limit.is_some() || matches!(path.why.turn, Turn::Pair | Turn::IdleInterface | Turn::IdleRemote));
        }

        // Each candidate could really be used.
        for path in &choice.candidates {
            prop_assert_eq!(path.local.is_ipv4(), path.remote.is_ipv4());
            let Some(device) = &path.device else { continue };
            let interface = world.interfaces.iter().find(|interface| interface.name == *device).unwrap();
            prop_assert!(interface.is_up && interface.is_running);
            prop_assert!(interface.addresses.iter().any(|address| address.ip == path.local.ip()));
            prop_assert!(!world.blocked.contains(&(device.clone(), path.remote.ip().to_string())));
            prop_assert!(!path.remote.ip().is_loopback());
        }

        // Every usable interface works before one works twice.
        let usable = usable(&choice);
        let uses = |device: &String| choice.candidates.iter().filter(|path| path.device.as_ref() == Some(device)).count();
        if most >= usable.len() {
            prop_assert!(usable.iter().all(|device| uses(device) >= 1), "{:#?}", choice);
        } else {
            prop_assert!(usable.iter().all(|device| uses(device) <= 1), "{:#?}", choice);
        }
        // With a requested number of paths, ports fill the gap up to it.
        if let (Some(limit), false) = (limit, choice.candidates.is_empty()) {
            prop_assert_eq!(choice.candidates.len(), limit);
        }
        // If nothing was chosen, no spare path exists either.
        if choice.candidates.is_empty() {
            prop_assert!(usable.is_empty(), "{:#?}", choice);
        }
    }

    /// Against a slow search: no choice of distinct cards is larger than the one that rule 1 finds,
    /// within one class.
    #[test]
    fn the_choice_uses_as_many_cards_as_possible(usable in prop::collection::vec(prop::collection::vec(any::<bool>(), 4), 4)) {
        let mut world = World::new(&["e0 10.0.0.1/24", "e1 10.0.1.1/24", "e2 10.0.2.1/24", "e3 10.0.3.1/24"]);
        let remotes = ["203.0.113.1", "203.0.113.2", "203.0.113.3", "203.0.113.4"];
        for (index, row) in usable.iter().enumerate() {
            for (remote, _) in remotes.iter().zip(row).filter(|(_, is_open)| !**is_open) {
                world.blocked.insert((format!("e{index}"), (*remote).to_owned()));
            }
        }
        let choice = world.choose(&remotes, &[], None).unwrap();
        let paired = choice.candidates.iter().filter(|path| path.why.turn == Turn::Pair).count();
        prop_assert_eq!(paired, most_distinct(&usable, 0, &mut [false; 4]));
    }

    #[test]
    fn each_requested_path_is_chosen_once_at_most(
        world in arb_world(),
        remotes in prop::collection::vec(arb_ip(), 1..5),
        requests in prop::collection::vec((0..5_usize, 0..3_u16, any::<bool>()), 1..6),
    ) {
        let remotes: Vec<&str> = remotes.iter().map(String::as_str).collect();
        let text = |(index, port, backup): &(usize, u16, bool)| {
            let port = if *port == 0 { String::new() } else { format!(":{port}") };
            format!("e{}{port}{}", index % world.interfaces.len(), if *backup { ",backup" } else { "" })
        };
        prop_assume!(!world.interfaces.is_empty());
        let paths: Vec<String> = requests.iter().map(text).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let choice = world.choose(&remotes, &paths, None).unwrap();
        prop_assert!(choice.candidates.len() <= paths.len());
        let mut bound = BTreeSet::new();
        for path in choice.candidates.iter().filter(|path| path.local.port() != 0) {
            prop_assert!(bound.insert(path.local), "{:#?}", choice.candidates);
        }
        prop_assert!(choice.candidates.is_sorted_by_key(|path| path.backup));
    }
}

fn most_distinct(usable: &[Vec<bool>], row: usize, taken: &mut [bool; 4]) -> usize {
    let Some(open) = usable.get(row) else { return 0 };
    let mut best = most_distinct(usable, row + 1, taken);
    for column in 0..4 {
        if open[column] && !taken[column] {
            taken[column] = true;
            best = best.max(1 + most_distinct(usable, row + 1, taken));
            taken[column] = false;
        }
    }
    best
}
