//! The answer of a running tunnel as text.

use serde_json::Value;
use units::{Duration, Rate};

use quic_endpoint::local_ends::path_text;

/// A counter: its name in an object of JSON, and in words.
type Counter = (&'static str, &'static str);

/// The counters of packets into the tunnel, out of it, and of the order of flows. Those that are zero are not shown.
const COUNTERS: [(&str, &str, &[Counter]); 3] = [
    (
        "in",
        "into the tunnel",
        &[
            ("dropped", "dropped by the queue"),
            ("marked", "marked as congested"),
            ("too_large", "too large, their senders were told"),
            ("urgent", "urgent, sent twice"),
        ],
    ),
    (
        "out",
        "out of the tunnel",
        &[
            ("spoofed", "dropped: foreign source"),
            ("malformed", "dropped: malformed"),
            ("incomplete", "dropped: a piece is missing"),
            ("over_rate", "dropped: above the rate"),
            ("too_large", "dropped: too large"),
        ],
    ),
    (
        "order",
        "order of flows",
        &[
            ("held", "waited for earlier ones"),
            ("lost", "missing on every path"),
            ("expired", "missing when the wait was over"),
            ("late", "late"),
            ("dropped", "copies dropped"),
        ],
    ),
];

/// Words of the text that need an explanation, each with it.
const LEGEND: [(&str, &str); 6] = [
    ("latest packet", "the time since anything came from that host, which answers a PING every 2 s"),
    ("left out", "what the server assigns and this host does not take, or a path that no flow keeps to, and why"),
    ("round trip", "smoothed, on this path"),
    ("backup", "a path that is used only while no other one works"),
    ("silent", "a path whose acknowledgements are overdue: others carry its packets"),
    ("waited for earlier ones", "packets of one flow come on several paths, and leave in order"),
];

/// The lines for a user.
pub(super) fn lines(status: &Value) -> Vec<String> {
    let mut lines = vec![first_line(status)];
    lines.extend(of_list(&status["left_out"], |left_out| format!("  left out: {}", text(&left_out["message"]))));
    lines.extend(of_list(&status["missing"], |missing| {
        format!("  missing, and cannot be made again: {}", text(missing))
    }));
    let packets = status["counters"].as_object().into_iter().flatten().filter(|(_, count)| **count != 0);
    let packets: Vec<String> = packets
        .map(|(name, count)| match name.as_str() {
            "refused" => format!("{count} packets refused by the kernel"),
            "malformed" => format!("{count} malformed packets from the kernel"),
            "clients_refused" => format!("{count} clients refused"),
            other => format!("{other} {count}"),
        })
        .collect();
    lines.extend((!packets.is_empty()).then(|| format!("  {}", packets.join(", "))));
    for peer in status["peers"].as_array().into_iter().flatten() {
        lines.extend(of_peer(peer));
    }
    lines
}

/// Explains the words of these lines.
pub(super) fn legend(lines: &[String]) -> Vec<String> {
    let has = |word: &str| lines.iter().any(|line| line.contains(word));
    let words: Vec<_> = LEGEND.iter().filter(|(word, _)| has(word)).collect();
    let explained = words.iter().map(|(word, meaning)| format!("  {word}: {meaning}"));
    if words.is_empty() { Vec::new() } else { std::iter::once(String::new()).chain(explained).collect() }
}

fn first_line(status: &Value) -> String {
    let state = match (&status["state"], &status["reason"]) {
        (Value::String(state), Value::String(reason)) => format!(", {state}: {reason}"),
        (Value::String(state), _) => format!(", {state}"),
        _ => String::new(),
    };
    let age = status["up_us"].as_u64().map(|age| format!(" for {}", time(age))).unwrap_or_default();
    format!("{} ({}{state}{age})", text(&status["device"]), text(&status["role"]))
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
    // A label comes from a file that others may have written.
    let label = peer["label"].as_str().map(|label| format!(" ({})", label.replace(char::is_control, "\u{fffd}")));
    let since = match (peer["up_us"].as_u64(), peer["silent_us"].as_u64()) {
        (Some(age), Some(silence)) => format!(": up for {}, latest packet {} ago", time(age), time(silence)),
        _ => String::new(),
    };
    let mut lines = vec![format!("  {}{}{since}", text(&peer["remote"]), label.unwrap_or_default())];
    lines.push(format!("    key: {}", text(&peer["key"])));
    let networks = of_list(&peer["networks"], text).join(", ");
    lines.push(format!("    networks: {networks}; packets of up to {} bytes", peer["mtu"]));
    lines.push(format!("    all paths: {}{} of packets lost", rates(peer), percent(&peer["loss_percent"])));
    lines.extend(of_list(&peer["paths"], of_path));
    for (object, name, counters) in COUNTERS {
        lines.extend(of_counters(&peer[object], name, counters));
    }
    let flows = &peer["terminated"];
    if flows["begun"] != 0 || flows["failed"] != 0 {
        lines.push(format!(
            "    terminated connections: {} open, {} in all, {} failed; {} in, {} out",
            flows["open"],
            flows["begun"],
            flows["failed"],
            bytes(&flows["bytes_in"]),
            bytes(&flows["bytes_out"]),
        ));
    }
    lines
}

fn of_path(path: &Value) -> String {
    let backup = if path["backup"] == true { ", backup" } else { "" };
    format!(
        "    path {} {}: {}{backup}, {}round trip {}, {} sent, {} packets lost ({}){}",
        path["path"],
        path_text(path["device"].as_str(), path["local"].as_str(), &text(&path["remote"])),
        text(&path["state"]),
        rates(path),
        Duration::from_micros(path["round_trip_us"].as_u64().unwrap_or(0)),
        bytes(&path["bytes_sent"]),
        path["packets_lost"],
        percent(&path["loss_percent"]),
        flows_of(path),
    )
}

/// The counters of one object, if any is not zero.
fn of_counters(counts: &Value, name: &str, counters: &[Counter]) -> Option<String> {
    let mut words = Vec::new();
    if !counts["packets"].is_null() {
        words.push(format!("{} packets, {}", counts["packets"], bytes(&counts["bytes"])));
    }
    let set = counters.iter().filter(|(name, _)| counts[*name].as_u64().is_some_and(|count| count != 0));
    words.extend(set.map(|(name, meaning)| format!("{} {meaning}", counts[*name])));
    let waiting = ["queued_bytes", "connection_bytes"].iter().filter_map(|name| counts[*name].as_u64()).sum::<u64>();
    if waiting > 0 {
        words.push(format!("{} of {} flows wait", bytes(&waiting.into()), counts["queued_flows"]));
    }
    (!words.is_empty()).then(|| format!("    {name}: {}", words.join("; ")))
}

fn of_list(list: &Value, words: impl Fn(&Value) -> String) -> Vec<String> {
    list.as_array().into_iter().flatten().map(words).collect()
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

/// A number of bytes in the largest unit of which there is one.
fn bytes(value: &Value) -> String {
    let count = value.as_u64().unwrap_or(0);
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let unit = units.into_iter().find(|(size, _)| count as f64 >= *size);
    unit.map_or_else(|| format!("{count} bytes"), |(size, name)| format!("{:.1} {name}", count as f64 / size))
}

/// A time in its two largest units.
fn time(us: u64) -> String {
    let seconds = us / 1_000_000;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) if seconds < 10 => format!("{:.1} s", us as f64 / 1e6),
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
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

    fn peer() -> Value {
        let path = json!({
            "path": 1, "device": "eth0", "local": "192.0.2.9", "remote": "192.0.2.1:4433", "state": "active",
            "round_trip_us": 12_000, "bytes_sent": 5_000_000,
            "packets_lost": 3, "loss_percent": 0.25, "rate_sent_bps": 12_500_000, "rate_received_bps": 900,
        });
        json!({
            "remote": "192.0.2.1:4433", "key": "sha256:abc", "label": "laptop\n", "mtu": 1400, "up_us": 7_983_000_000_u64,
            "silent_us": 400_000, "networks": ["10.76.0.0/24", "fd76::/64"], "paths": [path], "loss_percent": 1.0,
            "rate_sent_bps": 12_500_000, "rate_received_bps": 900,
            "in": { "packets": 7, "bytes": 700, "queued_bytes": 3000, "queued_flows": 2, "connection_bytes": 1000 },
            "out": { "packets": 8, "bytes": 8_400_000_000_u64 }, "order": {},
            "terminated": { "open": 0, "begun": 0, "failed": 0 },
        })
    }

    #[test]
    fn the_text_has_units_and_only_counters_that_are_not_zero() {
        let left_out = json!([{ "what": "10.9.0.0/24", "reason": "own_network", "message": "packets to it: why" }]);
        let mut status = json!({
            "device": "litz0", "role": "client", "state": "up", "reason": null, "left_out": left_out,
            "missing": ["the address 10.76.0.2/24 of litz0: why"],
            "counters": { "refused": 3, "malformed": 0 }, "peers": [peer()],
        });
        assert_eq!(
            lines(&status),
            [
                "litz0 (client, up)",
                "  left out: packets to it: why",
                "  missing, and cannot be made again: the address 10.76.0.2/24 of litz0: why",
                "  3 packets refused by the kernel",
                "  192.0.2.1:4433 (laptop\u{fffd}): up for 2 h 13 min, latest packet 0.4 s ago",
                "    key: sha256:abc",
                "    networks: 10.76.0.0/24, fd76::/64; packets of up to 1400 bytes",
                "    all paths: 12.5 Mb/s sent, 900 b/s received, 1.00 % of packets lost",
                "    path 1 over eth0 (192.0.2.9) to 192.0.2.1:4433: active, 12.5 Mb/s sent, 900 b/s received, round trip \
                 12.0 ms, 5.0 MB sent, 3 packets lost (0.25 %)",
                "    into the tunnel: 7 packets, 700 bytes; 4.0 kB of 2 flows wait",
                "    out of the tunnel: 8 packets, 8.4 GB",
            ]
        );
        for (number, (object, _, counters)) in COUNTERS.iter().enumerate() {
            counters.iter().for_each(|(counter, _)| status["peers"][0][*object][*counter] = (number + 1).into());
        }
        let shown = lines(&status).join("\n");
        for (number, (_, name, counters)) in COUNTERS.iter().enumerate() {
            let has = |meaning: &str| shown.contains(&format!("{} {meaning}", number + 1));
            assert!(shown.contains(name) && counters.iter().all(|(_, meaning)| has(meaning)), "{shown}");
        }
        let connecting =
            json!({ "device": "litz0", "role": "client", "state": "connecting", "reason": "why", "peers": [] });
        assert_eq!(lines(&connecting), ["litz0 (client, connecting: why)"]);
        let server = json!({ "device": "litz1", "role": "server", "state": "up", "up_us": 90_000_000, "peers": [] });
        assert_eq!(lines(&server), ["litz1 (server, up for 1 min 30 s)"]);
    }

    #[test]
    fn the_legend_explains_the_words_that_are_shown_and_no_others() {
        let of = |status: &Value| legend(&lines(status)).iter().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
        let peer = json!({ "device": "litz0", "role": "client", "state": "up", "peers": [peer()] });
        let words: Vec<_> = of(&peer).iter().filter_map(|line| line.split(':').next().map(str::to_owned)).collect();
        assert_eq!(words, ["", "latest packet", "round trip"]);
        assert_eq!(of(&json!({ "device": "litz0", "role": "client", "state": "up", "peers": [] })), [""; 0]);
    }

    #[test]
    fn times_and_sizes_have_the_units_that_fit() {
        for (us, shown) in [
            (30_000, "0.0 s"),
            (9_500_000, "9.5 s"),
            (59_900_000, "59 s"),
            (3_599_000_000, "59 min 59 s"),
            (86_399_000_000, "23 h 59 min"),
            (90_000_000_000, "1 d 1 h"),
        ] {
            assert_eq!(time(us), shown);
        }
        let sizes = [999, 1000, 1_500_000, 2_000_000_000_000_u64].map(|count| bytes(&count.into()));
        assert_eq!(sizes, ["999 bytes", "1.0 kB", "1.5 MB", "2.0 TB"]);
    }
}
