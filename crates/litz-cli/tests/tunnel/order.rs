//! The TCP of the kernel in the tunnel: it must not take the unlike delays of the paths for losses.

use std::collections::BTreeMap;

use super::{SERVER, World};

/// Bytes of each transfer.
const BYTES: &str = "8M";

/// Packets that the kernel sends again without a loss, at most: probes, and a few after a timeout.
const FOR_DELAYS_MAX: u64 = 20;

/// Counters of the kernel that differ after `run` in a namespace, with the differences.
fn counted(name: &str, run: impl FnOnce()) -> BTreeMap<String, u64> {
    let read = || -> BTreeMap<String, u64> {
        let output = World::in_namespace(name, "nstat", &["-asz"]).output().expect("nstat");
        let text = String::from_utf8(output.stdout).expect("text");
        let fields = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        });
        fields.collect()
    };
    let before = read();
    run();
    let grown = |(name, value): (String, u64)| {
        let more = value - before.get(&name).copied().unwrap_or(0);
        (more > 0).then_some((name, more))
    };
    read().into_iter().filter_map(grown).collect()
}

#[test]
#[expect(clippy::print_stderr, reason = "a measurement")]
fn the_kernel_retransmits_nothing_for_the_unlike_delays_of_paths() {
    for (what, links) in [
        ("delays", ["rate=20Mb/s,delay=2ms,queue=2MiB", "rate=10Mb/s,delay=9ms,queue=2MiB"]),
        (
            "rates",
            [
                "rate=20Mb/s,delay=2ms,queue=2MiB,at=700ms rate=6Mb/s,at=1400ms rate=20Mb/s,every=2s",
                "rate=10Mb/s,delay=9ms,queue=2MiB,at=900ms rate=25Mb/s,at=1700ms rate=10Mb/s,every=2s",
            ],
        ),
    ] {
        let programs = ["iperf3", "ss", "nstat"];
        let Some((world, _links)) = World::emulated(what, &links, &programs) else { return };
        for name in [&world.client, &world.server] {
            // The queue of the tunnel marks packets then, and does not drop them.
            let set = World::in_namespace(name, "sysctl", &["-qw", "net.ipv4.tcp_ecn=1"]).status();
            assert!(set.expect("sysctl").success());
        }
        let (client, server) = world.tunnel();
        world.await_paths(2);
        let mut receiver = BTreeMap::new();
        let sender = counted(&world.client, || {
            receiver = counted(&world.server, || {
                world.iperf(&["-C", "cubic", "-c", SERVER[0], "-n", BYTES]);
            });
        });
        let (_, received) = World::end(client, server);
        let of = |counters: &BTreeMap<String, u64>, name: &str| counters.get(name).copied().unwrap_or(0);
        let (retransmitted, repeats) = (of(&sender, "TcpRetransSegs"), of(&sender, "TcpExtTCPDSACKRecv"));
        let out_of_order = of(&receiver, "TcpExtTCPOFOQueue");
        let order = &received["order"];
        eprintln!("{what}: retransmitted {retransmitted}, repeats {repeats}, out of order {out_of_order}; {order}");
        assert!(order["held"].as_u64() > Some(100), "packets of one path arrived before those of the other: {order}");
        // An item was given up because a link lost it or was later than the bound, as when its rate falls, or
        // because this machine was too busy.
        let given_up = ["lost", "expired"].map(|name| order[name].as_u64().expect("a number")).iter().sum::<u64>();
        let packets = received["out"]["packets"].as_u64().expect("a number");
        if given_up == 0 {
            assert_eq!(out_of_order, 0, "{sender:?} {receiver:?} {received}");
        }
        assert!(50 * given_up <= packets, "{sender:?} {receiver:?} {received}");
        // The kernel sends a few more again because of a delay: probes, and after a timeout.
        let for_delays = retransmitted.saturating_sub(given_up);
        assert!(for_delays <= FOR_DELAYS_MAX, "{for_delays}: {sender:?} {receiver:?} {received}");
    }
}
