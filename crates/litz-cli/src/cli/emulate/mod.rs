//! `litz emulate`: emulates links with rate, delay and faults, for unmodified programs.

mod limits;
mod options;
mod show;

use std::process::ExitCode;

use emulate::{Relay, Running};
use net::MonotonicClock;
use serde_json::json;
use units::{Duration, Instant};

use super::warning::Warning;
use super::{exit, out, signals};
use options::{Form, RelayOptions, RunOptions, TunOptions};

pub(crate) use options::{EmulateOptions, HELP};

/// How often to check for an interrupt, a fault and the end.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Interval of progress lines.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Where `ip netns` keeps the named network namespaces.
#[cfg(target_os = "linux")]
const NAMESPACES: &str = "/var/run/netns";

pub(crate) fn run(options: &EmulateOptions) -> ExitCode {
    match &options.form {
        Form::Relay(options) => relay(options).unwrap_or_else(|message| fail(&options.run, &message)),
        Form::Tun(options) => tun(options).unwrap_or_else(|message| fail(&options.run, &message)),
        Form::Limits(options) => limits::run(options),
    }
}

fn fail(options: &RunOptions, message: &str) -> ExitCode {
    exit::fail(options.json, exit::FAILED, message)
}

fn relay(options: &RelayOptions) -> Result<ExitCode, String> {
    let links = options.links()?;
    let places: Vec<_> = links.iter().map(|link| (link.name.clone(), link.server)).collect();
    let relay = Relay::start(links, options.run.seed).map_err(|error| error.to_string())?;
    let lines: Vec<_> = places
        .into_iter()
        .enumerate()
        .map(|(index, (name, server))| {
            let (listen, server) = (relay.local_addr(index), server.map(|server| server.to_string()));
            let text = format!("link {name}: {listen} to {}", server.as_deref().unwrap_or("nowhere"));
            (text, json!({ "name": name, "listen": listen.to_string(), "to": server }))
        })
        .collect();
    emulate_until_the_end(&options.run, relay.into_running(), &lines, "")
}

#[cfg(target_os = "linux")]
fn tun(options: &TunOptions) -> Result<ExitCode, String> {
    let links = options.links()?;
    options.check_namespaces(std::path::Path::new(NAMESPACES))?;
    let lines: Vec<_> = links.iter().map(show::tun_link).collect();
    let running = emulate::Tunnels::start(links, options.run.seed).map_err(|error| error.to_string())?;
    emulate_until_the_end(&options.run, running, &lines, " (was its device removed?)")
}

#[cfg(not(target_os = "linux"))]
fn tun(_options: &TunOptions) -> Result<ExitCode, String> {
    Err("links between network namespaces need Linux: use `litz emulate relay`".to_owned())
}

/// Emulates until an interrupt, the end of the time, the failure of a link or a closed output; then
/// prints the statistics. `hint` is appended to the error of a link.
fn emulate_until_the_end(
    options: &RunOptions,
    running: Running,
    lines: &[(String, serde_json::Value)],
    hint: &str,
) -> Result<ExitCode, String> {
    let cancel = signals::cancel_token().map_err(|error| format!("cannot handle interrupts: {error}"))?;
    let clock = MonotonicClock::start();
    if options.json {
        let links: Vec<_> = lines.iter().map(|(_, json)| json).collect();
        out::json(&json!({ "event": "running", "seed": options.seed, "links": links }));
    } else {
        lines.iter().for_each(|(text, _)| out::note(text));
    }
    let end = options.span.map_or(Instant::FAR_FUTURE, |span| Instant::ZERO + span);
    let mut progress = options.progress.then(|| show::Progress::new(options.json, running.stats()));
    let (mut told_at, mut has_warned) = (Instant::ZERO, false);
    while !cancel.is_cancelled() && !running.has_fault() && clock.now() < end && !out::has_failed() {
        let now = clock.now();
        if now >= told_at + PROGRESS_INTERVAL {
            let reports = running.stats();
            if let Some(note) = show::clients_not_served(&reports).filter(|_| !has_warned) {
                Warning::ClientsNotServed.print(options.json, false, &note);
                has_warned = true;
            }
            if let Some(progress) = &mut progress {
                progress.show(now, reports);
            }
            // Scheduled from the previous time, so that delays do not accumulate.
            told_at += PROGRESS_INTERVAL;
        }
        let left = end.saturating_since(clock.now());
        #[expect(
            clippy::disallowed_methods,
            reason = "the command waits for its end; the links run on their own threads"
        )]
        std::thread::sleep(left.min(LOOK_INTERVAL).into());
    }
    let (span, is_interrupted) = (clock.now().since_start(), cancel.is_cancelled());
    let ended = running.stop();
    show::statistics(options.json, span, &ended.reports);
    if let Some((link, error)) = ended.fault {
        let name = &ended.reports[link].name;
        return Err(format!("link {name} stopped: {error}{hint}"));
    }
    Ok(ExitCode::from(if is_interrupted { exit::INTERRUPTED } else { exit::DONE }))
}
