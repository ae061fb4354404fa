//! Tables of interfaces, one after the other.

use net::InterfaceAddress;
use proptest::prelude::{Strategy as _, any, prop, prop_assert, prop_assert_eq, proptest};

use super::*;

const IP: &str = "192.0.2.1";

fn card(index: u32) -> Interface {
    let address = InterfaceAddress { ip: IP.parse().unwrap(), prefix_len: 24, scope_id: 0 };
    Interface {
        name: "eth0".into(),
        index,
        is_up: true,
        is_running: true,
        is_loopback: false,
        is_dummy: false,
        is_point_to_point: false,
        is_litz_tunnel: false,
        addresses: vec![address],
    }
}

fn follower() -> LinkFollower {
    let mut follower = LinkFollower::new();
    assert_eq!(follower.add("eth0", IP.parse().unwrap(), 2), 0);
    follower
}

#[test]
fn each_state_is_reported_once() {
    let mut follower = follower();
    assert_eq!(follower.on_interfaces(&[card(2)]), []);
    let off = |reason| [LinkAction::SwitchOff { socket: 0, reason }];
    let states = [
        (Interface { is_running: false, ..card(2) }, LinkDown::NoCarrier),
        (Interface { is_up: false, is_running: false, ..card(2) }, LinkDown::SwitchedOff),
        (Interface { addresses: Vec::new(), ..card(2) }, LinkDown::NoAddress),
        (Interface { name: "eth1".into(), ..card(2) }, LinkDown::Removed),
    ];
    for (table, reason) in states {
        assert_eq!(follower.on_interfaces(std::slice::from_ref(&table)), off(reason));
        assert_eq!(follower.on_interfaces(&[table]), []);
    }
    assert_eq!(follower.on_interfaces(&[card(2)]), [LinkAction::SwitchOn { socket: 0 }]);
    assert_eq!(follower.on_interfaces(&[card(2)]), []);
}

#[test]
fn a_device_that_was_made_again_is_bound_again_until_that_succeeds() {
    let mut follower = follower();
    let reopen = [LinkAction::Reopen { socket: 0, index: 7 }];
    assert_eq!(follower.on_interfaces(&[]), [LinkAction::SwitchOff { socket: 0, reason: LinkDown::Removed }]);
    // Its address comes later.
    let bare = Interface { addresses: Vec::new(), ..card(7) };
    assert_eq!(follower.on_interfaces(&[bare]), [LinkAction::SwitchOff { socket: 0, reason: LinkDown::NoAddress }]);
    assert_eq!(follower.on_interfaces(&[card(7)]), reopen);
    assert_eq!(follower.on_interfaces(&[card(7)]), reopen);
    follower.on_reopened(0, 7);
    assert_eq!(follower.on_interfaces(&[card(7)]), []);
    // Removed and made again between two looks.
    assert_eq!(follower.on_interfaces(&[card(9)]), [LinkAction::Reopen { socket: 0, index: 9 }]);
}

proptest! {
    /// Whatever happened before: a usable device ends in a socket that is bound to it and on.
    #[test]
    fn actions_follow_the_table(
        tables in prop::collection::vec(
            (any::<[bool; 4]>(), 1_u32..4).prop_map(|([exists, is_up, is_running, has_address], index)| {
                let mut card = Interface { is_up, is_running, ..card(index) };
                if !has_address {
                    card.addresses.clear();
                }
                exists.then_some(card)
            }),
            1..20,
        ),
    ) {
        let mut follower = LinkFollower::new();
        follower.add("eth0", IP.parse().unwrap(), 1);
        // What the socket is bound to, and whether it is on.
        let (mut bound, mut is_on) = (1, true);
        for table in tables {
            let table: Vec<Interface> = table.into_iter().collect();
            for action in follower.on_interfaces(&table) {
                match action {
                    LinkAction::Reopen { socket, index } => {
                        (bound, is_on) = (index, true);
                        follower.on_reopened(socket, index);
                    }
                    LinkAction::SwitchOff { .. } => is_on = false,
                    LinkAction::SwitchOn { .. } => {
                        prop_assert!(!is_on);
                        is_on = true;
                    }
                }
            }
            let usable = table.first().filter(|card| card.is_up && card.is_running && !card.addresses.is_empty());
            prop_assert_eq!(is_on, usable.is_some());
            if let Some(card) = usable {
                prop_assert_eq!(bound, card.index);
            }
        }
    }
}
