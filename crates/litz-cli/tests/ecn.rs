//! ECN as a user has it: a link of the emulator marks packets instead of dropping them.

use std::net::{Ipv4Addr, SocketAddr};

use emulate::{Relay, RelayLink};
use netem::{CoDel, Discipline, LinkConfig};
use serde_json::Value;
use units::{Duration, Rate};

use crate::support::{Place, assert_same};

/// Sends 1.5 MB over a link of 5 Mb/s, which any machine fills, with a managed queue; returns the path in the sender's
/// statistics.
fn path_over_codel(ecn: bool, more: &[&str]) -> Value {
    let place = Place::new();
    let file = place.file("file", 1_500_000, 1);
    let link = LinkConfig {
        rate: Some(Rate::from_mbps(5)),
        delay: Duration::from_millis(5),
        queue_bytes: 2 << 20,
        discipline: Discipline::CoDel(CoDel { ecn, ..CoDel::default() }),
        ..LinkConfig::default()
    };
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let link = RelayLink { name: "link".into(), listen, server: None, forward: link.clone(), backward: link };
    let relay = Relay::start(vec![link], 1).expect("a relay");
    let (mut receiver, ticket) = place.recv(&[&format!("--advertise={}", relay.local_addr(0))]);
    relay.set_server(0, SocketAddr::from((Ipv4Addr::LOCALHOST, receiver.port))).expect("one link");
    let arguments: Vec<&str> = ["--congestion=cubic"].iter().chain(more).copied().collect();
    let mut sender = place.send(&[&file], &ticket, &arguments);
    sender.succeed();
    receiver.succeed();
    assert_same(&file, &place.inbox().join("file"));
    let stats = sender.seen.iter().find(|event| event["event"] == "stats").expect("statistics");
    stats["paths"][0].clone()
}

#[test]
fn a_link_that_marks_is_slowed_down_by_marks() {
    let path = path_over_codel(true, &[]);
    assert_eq!(path["ecn"], "capable", "{path}");
    assert!(path["packets_marked"].as_u64() > Some(0), "{path}");
}

#[test]
fn without_ecn_the_same_link_drops() {
    let path = path_over_codel(true, &["--no-ecn"]);
    assert_eq!((&path["ecn"], &path["packets_marked"]), (&"off".into(), &0.into()), "{path}");
    assert!(path["packets_lost"].as_u64() > Some(0), "{path}");
}
