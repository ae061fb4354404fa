//! `litz tunnel status` and `litz tunnel down`, and what a running tunnel tells about itself.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::control_socket::{ask, folder, folder_of_root, request};
use super::host_network::{has_left, undo_device};
use super::settings::DEVICE_DEFAULT;
use crate::cli::{exit, out, path_report};
use crate::tunnel::peers::Peer;
use crate::tunnel::terminate::flows::Flow;

/// How often `down` looks whether the command has ended, and how many times.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
const LOOKS_MAX: u32 = 200;

#[derive(Args, Debug)]
pub(crate) struct StatusOptions {
    /// Name of the network device
    #[arg(long, value_name = "NAME", default_value = DEVICE_DEFAULT)]
    tun: String,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DownOptions {
    /// Name of the network device
    #[arg(long, value_name = "NAME", default_value = DEVICE_DEFAULT)]
    tun: String,
}

pub(super) fn run(options: &StatusOptions) -> ExitCode {
    match request(&options.tun, "status") {
        Ok(Some(answer)) if options.json => out::json(&answer.value),
        Ok(Some(answer)) => print(&answer.value),
        Ok(None) => {
            let message = format!("no tunnel of this host has the device {}", options.tun);
            return exit::fail(options.json, exit::FAILED, &message);
        }
        Err(message) => return exit::fail(options.json, exit::FAILED, &message),
    }
    ExitCode::from(exit::DONE)
}

pub(super) fn run_down(options: &DownOptions) -> ExitCode {
    let ended = request(&options.tun, "down").and_then(|answer| {
        if let Some(answer) = &answer {
            await_end(&answer.socket)?;
        }
        // Of a command that was killed.
        if undo_device(&folder(), &options.tun)? || answer.is_some() {
            return Ok(true);
        }
        match folder_of_root() {
            Some(folder) if has_left(&folder, &options.tun) => {
                Err(format!("root's tunnel {} was killed and has left changes: run this command as root", options.tun))
            }
            _ => Ok(false),
        }
    });
    match ended {
        Ok(true) => ExitCode::from(exit::DONE),
        Ok(false) => {
            let message = format!("no tunnel of this host has the device {}, and nothing is to be undone", options.tun);
            exit::fail(false, exit::FAILED, &message)
        }
        Err(message) => exit::fail(false, exit::FAILED, &message),
    }
}

#[expect(clippy::disallowed_methods, reason = "the command is above the engine: it waits for another one")]
fn await_end(socket: &Path) -> Result<(), String> {
    for _ in 0..LOOKS_MAX {
        if ask(socket, "status").is_ok_and(|answer| answer.is_none()) {
            return Ok(());
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Err("the tunnel has not ended".to_owned())
}

/// The status as text.
fn print(status: &Value) {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let state = match (&status["state"], &status["reason"]) {
        (Value::String(state), Value::String(reason)) => format!(", {state}: {reason}"),
        (Value::String(state), _) => format!(", {state}"),
        _ => String::new(),
    };
    out::line(&format!("{} ({}{state})", text(&status["device"]), text(&status["role"])));
    for peer in status["peers"].as_array().into_iter().flatten() {
        let networks: Vec<String> = peer["networks"].as_array().into_iter().flatten().map(text).collect();
        out::line(&format!("  {}: {}", text(&peer["remote"]), networks.join(", ")));
        let kinds = [
            ("in", &["dropped", "marked", "queued_bytes", "connection_bytes"][..]),
            ("out", &["spoofed", "malformed", "incomplete"]),
        ];
        for (name, more) in kinds {
            let counts = &peer[name];
            let more: Vec<String> = more.iter().map(|name| format!("{name} {}", counts[*name])).collect();
            let (packets, bytes) = (&counts["packets"], &counts["bytes"]);
            out::line(&format!("    {name}: {packets} packets, {bytes} bytes; {}", more.join(", ")));
        }
        let flows = &peer["terminated"];
        if flows["begun"] != 0 || flows["failed"] != 0 {
            out::line(&format!(
                "    terminated: {} connections, {} in all, {} failed; {} bytes in, {} bytes out",
                flows["open"], flows["begun"], flows["failed"], flows["bytes_in"], flows["bytes_out"],
            ));
        }
        for path in peer["paths"].as_array().into_iter().flatten() {
            let (remote, state) = (text(&path["remote"]), text(&path["state"]));
            out::line(&format!(
                "    path {} to {remote}: {state}, round trip {} us, {} bytes sent, {} packets lost",
                path["path"], path["round_trip_us"], path["bytes_sent"], path["packets_lost"],
            ));
        }
    }
}

/// A terminated connection.
fn flow_json(flow: &Flow) -> Value {
    let (bytes_in, bytes_out) = flow.bytes();
    json!({
        "source": flow.source.to_string(), "target": flow.target.to_string(),
        "bytes_in": bytes_in, "bytes_out": bytes_out,
    })
}

/// The counters of a peer and its paths.
pub(super) fn peer_json(peer: &Peer) -> Value {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counters = &peer.counters;
    let stats = peer.connection.stats();
    let flows = peer.flows.totals();
    let listed: Vec<_> = peer.flows.oldest().iter().map(flow_json).collect();
    json!({
        "remote": peer.connection.remote_addr().to_string(),
        "mtu": peer.mtu,
        "networks": peer.networks.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "in": {
            "packets": get(&counters.packets_in), "bytes": get(&counters.bytes_in),
            "dropped": get(&counters.dropped), "marked": get(&counters.marked),
            "too_large": get(&counters.too_large), "urgent": get(&counters.urgent),
            "queued_bytes": get(&counters.queued_bytes), "connection_bytes": stats.send.datagram_bytes_waiting,
        },
        "out": {
            "packets": get(&counters.packets_out), "bytes": get(&counters.bytes_out),
            "spoofed": get(&counters.spoofed), "malformed": get(&counters.malformed),
            "incomplete": get(&counters.incomplete), "over_rate": get(&counters.over_rate),
        },
        "order": {
            "held": get(&counters.held), "lost": get(&counters.lost), "expired": get(&counters.expired),
            "late": get(&counters.late), "dropped": get(&counters.duplicates), "wait_us": get(&counters.wait_us),
        },
        "terminated": {
            "open": flows.open, "begun": flows.begun, "failed": flows.failed,
            "bytes_in": flows.bytes_in, "bytes_out": flows.bytes_out, "flows": listed,
        },
        "datagrams_lost": stats.send.datagrams_lost,
        "datagrams_dropped": stats.receive.datagrams_dropped,
        "paths": stats.paths.iter().map(path_report::as_json).collect::<Vec<_>>(),
    })
}
