//! Links of veth pairs with a token bucket at each end.

use serde::Deserialize;

use super::{Carried, Hosts, address, command, device, ip};
use crate::contender::Failure;
use crate::multipath::case::Line;

/// Bytes of a token bucket: the largest batch of segments with their headers, so that batches pass
/// whole, as with a device that segments them itself. At 100 Mb/s these are 6 ms, which an idle
/// link may carry faster.
const BURST_BYTES: u32 = 72_000;

/// Creates the links.
pub fn make(hosts: &Hosts, lines: &[Line]) -> Result<(), Failure> {
    for (index, line) in lines.iter().enumerate() {
        let device = device(index);
        ip(&["link", "add", &device, "netns", &hosts.a, "type", "veth", "peer", "name", &device, "netns", &hosts.b])?;
        for (host, is_b) in [(&hosts.a, false), (&hosts.b, true)] {
            let cidr = format!("{}/24", address(index, is_b));
            ip(&["-n", host, "address", "add", &cidr, "dev", &device])?;
            if let Some(rate_mbps) = line.rate_mbps {
                let (rate, burst) = (format!("{rate_mbps}mbit"), format!("{BURST_BYTES}b"));
                let latency = format!("{}ms", line.queue_ms);
                let words = ["-n", host, "qdisc", "add", "dev", &device, "root", "tbf", "rate", &rate, "burst", &burst];
                command("tc", &[&words[..], &["latency", &latency]].concat())?;
            }
            ip(&["-n", host, "link", "set", &device, "up"])?;
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Qdisc {
    dev: String,
    kind: String,
    bytes: u64,
    packets: u64,
    drops: u64,
}

#[derive(Deserialize)]
struct Interface {
    ifname: String,
    stats64: Stats64,
}

#[derive(Deserialize)]
struct Stats64 {
    tx: Sent,
}

#[derive(Deserialize)]
struct Sent {
    bytes: u64,
    packets: u64,
    dropped: u64,
}

/// The bytes that the links have carried from a to b: from the counters of their token buckets, or
/// of the devices where there are none.
pub fn carried(hosts: &Hosts, count: usize) -> Result<Vec<Carried>, Failure> {
    let qdiscs: Vec<Qdisc> = serde_json::from_str(&command("tc", &["-n", &hosts.a, "-s", "-j", "qdisc", "show"])?)?;
    let interfaces: Vec<Interface> = serde_json::from_str(&ip(&["-n", &hosts.a, "-s", "-j", "link", "show"])?)?;
    let of = |index| {
        let device = device(index);
        if let Some(found) = qdiscs.iter().find(|qdisc| qdisc.dev == device && qdisc.kind == "tbf") {
            return Carried { bytes: found.bytes, packets: found.packets, dropped: found.drops };
        }
        let found = interfaces.iter().find(|interface| interface.ifname == device);
        found.map_or_else(Carried::default, |Interface { stats64: Stats64 { tx }, .. }| Carried {
            bytes: tx.bytes,
            packets: tx.packets,
            dropped: tx.dropped,
        })
    };
    Ok((0..count).map(of).collect())
}
