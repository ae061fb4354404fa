//! The answer of a running tunnel as text.

use serde_json::Value;
use units::Rate;

use crate::cli::local_ends::path_text;

/// The counters of packets into the tunnel, out of it, and of the order of flows, as the object of JSON names them.
const COUNTERS: [(&str, &[&str]); 3] = [
    ("in", &["dropped", "marked", "too_large", "urgent", "queued_flows", "queued_bytes", "connection_bytes"]),
    ("out", &["spoofed", "malformed", "incomplete", "over_rate", "too_large"]),
    ("order", &["held", "lost", "expired", "late", "dropped", "wait_us"]),
];

/// The lines for a user.
pub(super) fn lines(status: &Value) -> Vec<String> {
    let state = match (&status["state"], &status["reason"]) {
        (Value::String(state), Value::String(reason)) => format!(", {state}: {reason}"),
        (Value::String(state), _) => format!(", {state}"),
        _ => String::new(),
    };
    let first = format!("{} ({}{state})", text(&status["device"]), text(&status["role"]));
    let counts = status["counters"].as_object().into_iter().map(|counters| {
        let counts: Vec<String> = counters.iter().map(|(name, count)| format!("{name} {count}")).collect();
        format!("  counters: {}", counts.join(", "))
    });
    let peers = status["peers"].as_array().into_iter().flatten();
    std::iter::once(first).chain(counts).chain(peers.flat_map(of_peer)).collect()
}

/// Flows that keep to a path, or why none does.
fn flows_of(path: &Value) -> String {
    match (&path["flows"], &path["left_out"]) {
        (_, Value::String(why)) => format!("; left out: {why}"),
        (Value::Number(flows), _) => format!("; flows that keep to it: {flows}"),
        _ => String::new(),
    }
}

fn of_peer(peer: &Value) -> Vec<String> {
    let networks: Vec<String> = peer["networks"].as_array().into_iter().flatten().map(text).collect();
    // A label comes from a file that others may have written.
    let label = peer["label"].as_str().map(|label| format!(" ({})", label.replace(char::is_control, "\u{fffd}")));
    let mut lines = vec![
        format!("  {}: {}; MTU {}", text(&peer["remote"]), networks.join(", "), peer["mtu"]),
        format!("    key: {}{}", text(&peer["key"]), label.unwrap_or_default()),
        format!("    all paths: {}{} lost", rates(peer), percent(&peer["loss_percent"])),
    ];
    for path in peer["paths"].as_array().into_iter().flatten() {
        lines.push(format!(
            "    path {} {}: {}, {}round trip {} us, {} bytes sent, {} packets lost ({}){}",
            path["path"],
            path_text(path["device"].as_str(), path["local"].as_str(), &text(&path["remote"])),
            text(&path["state"]),
            rates(path),
            path["round_trip_us"],
            path["bytes_sent"],
            path["packets_lost"],
            percent(&path["loss_percent"]),
            flows_of(path),
        ));
    }
    for (name, counters) in COUNTERS {
        let counts = &peer[name];
        let more: Vec<String> = counters.iter().map(|name| format!("{name} {}", counts[*name])).collect();
        let more = more.join(", ");
        lines.push(match &counts["packets"] {
            Value::Null => format!("    {name}: {more}"),
            packets => format!("    {name}: {packets} packets, {} bytes; {more}", counts["bytes"]),
        });
    }
    let flows = &peer["terminated"];
    if flows["begun"] != 0 || flows["failed"] != 0 {
        lines.push(format!(
            "    terminated: {} connections, {} in all, {} failed; {} bytes in, {} bytes out",
            flows["open"], flows["begun"], flows["failed"], flows["bytes_in"], flows["bytes_out"],
        ));
    }
    lines
}

/// The rates of a path, or of all; empty if they are not known yet.
fn rates(of: &Value) -> String {
    match (of["rate_sent_bps"].as_u64(), of["rate_received_bps"].as_u64()) {
        (Some(sent), Some(received)) => {
            format!("{} sent, {} received, ", Rate::from_bps(sent), Rate::from_bps(received))
        }
        _ => String::new(),
    }
}

fn percent(value: &Value) -> String {
    format!("{:.2} %", value.as_f64().unwrap_or(0.0))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_has_the_rates_the_losses_and_all_counters() {
        let path = json!({
            "path": 1, "device": "eth0", "local": "192.0.2.9", "remote": "192.0.2.1:4433", "state": "active",
            "round_trip_us": 12_000, "bytes_sent": 5000,
            "packets_lost": 3, "loss_percent": 0.25, "rate_sent_bps": 12_500_000, "rate_received_bps": 900,
        });
        let mut peer = json!({
            "remote": "192.0.2.1:4433", "key": "sha256:abc", "label": "laptop\n", "mtu": 1400, "networks": ["10.76.0.0/24", "fd76::/64"], "paths": [path],
            "loss_percent": 1.0, "rate_sent_bps": 12_500_000, "rate_received_bps": 900,
            "in": { "packets": 7, "bytes": 700 }, "out": { "packets": 8, "bytes": 800 }, "order": {},
            "terminated": { "open": 0, "begun": 0, "failed": 0 },
        });
        for (number, (name, counters)) in COUNTERS.iter().enumerate() {
            counters.iter().for_each(|counter| peer[*name][*counter] = number.into());
        }
        let counters = json!({ "refused": 3, "malformed": 4 });
        let status = json!({
            "device": "litz0", "role": "client", "state": "up", "reason": null, "counters": counters, "peers": [peer],
        });
        assert_eq!(
            lines(&status),
            [
                "litz0 (client, up)",
                "  counters: malformed 4, refused 3",
                "  192.0.2.1:4433: 10.76.0.0/24, fd76::/64; MTU 1400",
                "    key: sha256:abc (laptop\u{fffd})",
                "    all paths: 12.5 Mb/s sent, 900 b/s received, 1.00 % lost",
                "    path 1 over eth0 (192.0.2.9) to 192.0.2.1:4433: active, 12.5 Mb/s sent, 900 b/s received, round trip \
                 12000 us, 5000 bytes sent, 3 packets lost (0.25 %)",
                "    in: 7 packets, 700 bytes; dropped 0, marked 0, too_large 0, urgent 0, queued_flows 0, \
                 queued_bytes 0, connection_bytes 0",
                "    out: 8 packets, 800 bytes; spoofed 1, malformed 1, incomplete 1, over_rate 1, too_large 1",
                "    order: held 2, lost 2, expired 2, late 2, dropped 2, wait_us 2",
            ]
        );
        let status =
            json!({ "device": "litz0", "role": "client", "state": "connecting", "reason": "why", "peers": [] });
        assert_eq!(lines(&status), ["litz0 (client, connecting: why)"]);
    }
}
