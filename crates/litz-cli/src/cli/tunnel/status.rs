//! `litz tunnel status` and `litz tunnel down`, and what a running tunnel tells about itself.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use litz::PathStats;
use serde_json::{Value, json};
use tunnel::intake::IntakeTotals;
use tunnel_end::device::DeviceCounters;
use tunnel_end::peers::Peer;
use tunnel_end::rates::{Both, SPAN_MIN};
use tunnel_end::terminate::flows::Flow;
use units::Rate;

use super::changes::changed_devices;
use super::control_socket::{Answer, ask, devices_in, folder, folder_of_root, request};
use super::host_network::{has_left, left_in_words, undo_device};
use super::settings::DEVICE_DEFAULT;
use super::status_text;
use crate::cli::{exit, out, path_report};

/// How often `down` looks whether the command has ended, and how many times.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
const LOOKS_MAX: u32 = 200;

/// Pause between two looks of `status --watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Clears a terminal, and begins at its top (ECMA-48, 8.3.57 and 8.3.39).
const CLEAR: &str = "\x1b[H\x1b[J";

#[derive(Args, Debug)]
pub(crate) struct StatusOptions {
    /// Name of the network device [default: those of all tunnels]
    #[arg(long, value_name = "NAME")]
    tun: Option<String>,

    /// Print one JSON object for each tunnel
    #[arg(long)]
    json: bool,

    /// Show it again each second, until an interrupt
    #[arg(long)]
    watch: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DownOptions {
    /// Name of the network device
    #[arg(long, value_name = "NAME", default_value = DEVICE_DEFAULT)]
    tun: String,
}

pub(super) fn run(options: &StatusOptions) -> ExitCode {
    loop {
        if let Err(message) = show(options) {
            return exit::fail(options.json, exit::FAILED, &message);
        }
        if !options.watch {
            return ExitCode::from(exit::DONE);
        }
        if let Err(message) = out::check() {
            return exit::fail(options.json, exit::FAILED, &message);
        }
        #[expect(clippy::disallowed_methods, reason = "the command is above the engine: it asks again later")]
        std::thread::sleep(WATCH_INTERVAL);
    }
}

/// Shows one tunnel or all, and what commands that were killed or have failed have left.
fn show(options: &StatusOptions) -> Result<(), String> {
    let devices = options.tun.as_ref().map_or_else(devices, |device| vec![device.clone()]);
    let (mut answers, mut failed) = (Vec::new(), Vec::new());
    for device in &devices {
        match request(device, "status").and_then(with_rates)? {
            Some(answer) => answers.push(answer.value),
            // The command answers nothing, and may have left a kill switch.
            None => failed.extend(left_by(device).map(|left| (device, left))),
        }
    }
    if answers.is_empty() {
        return Err(match (failed.is_empty(), &options.tun) {
            (false, _) => failed.into_iter().map(|(_, left)| left).collect::<Vec<_>>().join("\n"),
            (true, None) if devices.len() > 1 => "no tunnel of this host runs".to_owned(),
            (true, _) => format!("no tunnel of this host has the device {}", devices.join(" or ")),
        });
    }
    answers.extend(failed.into_iter().map(
        |(device, left)| json!({ "device": device, "role": "client", "state": "failed", "reason": left, "peers": [] }),
    ));
    if options.json {
        answers.iter().for_each(out::json);
        return Ok(());
    }
    let mut lines: Vec<String> = Vec::new();
    for answer in &answers {
        lines.extend((!lines.is_empty()).then(String::new));
        lines.extend(status_text::lines(answer));
    }
    lines.extend(status_text::legend(&lines));
    if options.watch {
        // A terminal is cleared; elsewhere an empty line separates the answers.
        lines.insert(0, if std::io::stdout().is_terminal() { CLEAR.to_owned() } else { String::new() });
    }
    out::line(&lines.join("\n"));
    Ok(())
}

/// What a command that runs no more has left, in words with the remedy; none if there is nothing.
fn left_by(device: &str) -> Option<String> {
    let own = left_in_words(&folder(), device).unwrap_or_else(Some);
    own.or_else(|| folder_of_root().filter(|folder| has_left(folder, device)).map(|_| roots(device)))
}

/// The devices of tunnels of this user and of root, and those with changes of commands that run no
/// more; the default one if there are none.
fn devices() -> Vec<String> {
    let folders = [Some(folder()), folder_of_root()].into_iter().flatten();
    let in_folder = |folder: PathBuf| [devices_in(&folder), changed_devices(&folder)].concat();
    let mut devices: Vec<String> = folders.flat_map(in_folder).collect();
    devices.sort();
    devices.dedup();
    if devices.is_empty() { vec![DEVICE_DEFAULT.to_owned()] } else { devices }
}

/// The answer with rates: a tunnel that has not been asked lately has no sample to compute them from, so it is asked
/// again. If it has ended meanwhile, the first answer counts.
fn with_rates(answer: Option<Answer>) -> Result<Option<Answer>, String> {
    let lacks = |answer: &Answer| {
        answer.value["peers"].as_array().into_iter().flatten().any(|peer| peer["rate_sent_bps"].is_null())
    };
    let Some(first) = answer else { return Ok(None) };
    if !lacks(&first) {
        return Ok(Some(first));
    }
    #[expect(clippy::disallowed_methods, reason = "the command is above the engine: a rate is that over some time")]
    std::thread::sleep(SPAN_MIN.into());
    let value = ask(&first.socket, "status")?.unwrap_or(first.value);
    Ok(Some(Answer { value, socket: first.socket }))
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
            Some(folder) if has_left(&folder, &options.tun) => Err(roots(&options.tun)),
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

/// Says that root's command has left changes.
fn roots(device: &str) -> String {
    format!("root's tunnel {device} was killed or has failed, and has left changes: run this command as root")
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

/// A terminated connection.
fn flow_json(flow: &Flow) -> Value {
    let (bytes_in, bytes_out) = flow.bytes();
    json!({
        "source": flow.source.to_string(), "target": flow.target.to_string(),
        "bytes_in": bytes_in, "bytes_out": bytes_out,
    })
}

/// The counters of a device, of all peers together.
pub(super) fn device_json(counters: &DeviceCounters) -> Value {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let IntakeTotals { read, carried, terminated, too_large, no_peer, malformed, .. } = counters.intake.totals();
    json!({
        "refused": get(&counters.refused), "read": read, "carried": carried, "terminated": terminated,
        "too_large": too_large, "no_peer": no_peer, "malformed": malformed,
    })
}

/// The key, the counters and the paths of a peer.
pub(super) fn peer_json(peer: &Peer) -> Value {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counters = &peer.counters;
    let stats = peer.connection.stats();
    let flows = peer.flows.totals();
    let listed: Vec<_> = peer.flows.oldest().iter().map(flow_json).collect();
    let (rates, paths) = paths_json(peer, &stats.paths);
    let (age, silence) = peer.contact(&stats.paths);
    json!({
        "remote": peer.connection.remote_addr().to_string(),
        "key": peer.identity.key.to_string(),
        "label": peer.identity.label,
        "up_us": age.as_micros(),
        "silent_us": silence.as_micros(),
        "mtu": peer.mtu,
        "networks": peer.networks().iter().map(ToString::to_string).collect::<Vec<_>>(),
        "rate_sent_bps": rates.map(|rates| rates.sent.as_bps()),
        "rate_received_bps": rates.map(|rates| rates.received.as_bps()),
        "loss_percent": path_report::loss_percent_of(&stats.paths),
        "in": {
            "packets": get(&counters.packets_in), "bytes": get(&counters.bytes_in),
            "dropped": get(&counters.dropped), "marked": get(&counters.marked),
            "too_large": get(&counters.too_large), "urgent": get(&counters.urgent),
            "queued_flows": get(&counters.queued_flows), "queued_bytes": get(&counters.queued_bytes),
            "connection_bytes": stats.send.datagram_bytes_waiting,
        },
        "out": {
            "packets": get(&counters.packets_out), "bytes": get(&counters.bytes_out),
            "spoofed": get(&counters.spoofed), "malformed": get(&counters.malformed),
            "incomplete": get(&counters.incomplete), "over_rate": get(&counters.over_rate),
            "too_large": get(&counters.too_large_out),
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
        "paths": paths,
    })
}

/// The rates of all paths together, and the paths. There are no rates without a recent request.
fn paths_json(peer: &Peer, paths: &[PathStats]) -> (Option<Both<Rate>>, Vec<Value>) {
    let bytes = paths.iter().map(|path| (path.id.0, Both { sent: path.bytes_sent, received: path.bytes_received }));
    let rates = peer.rates.read(bytes.collect());
    let sum = rates.as_ref().map(|rates| {
        let sum = |of: fn(&Both<Rate>) -> Rate| {
            Rate::from_bps(rates.values().fold(0, |sum: u64, rates| sum.saturating_add(of(rates).as_bps())))
        };
        Both { sent: sum(|rates| rates.sent), received: sum(|rates| rates.received) }
    });
    let uses = peer.paths.uses();
    let path_json = |path: &PathStats| {
        let path_use = uses.iter().find(|path_use| path_use.id == path.id.0);
        let rates = rates.as_ref().and_then(|rates| rates.get(&path.id.0));
        let mut json = path_report::as_json(path, &peer.ends);
        json["rate_sent_bps"] = rates.map(|rates| rates.sent.as_bps()).into();
        json["rate_received_bps"] = rates.map(|rates| rates.received.as_bps()).into();
        json["loss_percent"] = path_report::loss_percent_of(std::slice::from_ref(path)).into();
        json["flows"] = path_use.map(|path_use| path_use.flows).into();
        json["left_out"] = path_use.and_then(|path_use| path_use.left_out).map(|why| why.to_string()).into();
        json
    };
    (sum, paths.iter().map(path_json).collect())
}
