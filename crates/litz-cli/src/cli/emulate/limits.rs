//! `litz emulate limits`.

use std::process::ExitCode;

use emulate::limits::{
    self, BATCH_DATAGRAMS, DATAGRAM_BYTES, IsCancelled, Limits, LimitsError, PROBED_DELAY, Percentiles,
};
use serde_json::{Value, json};
use units::Duration;

use super::options::LimitsOptions;
use crate::cli::{exit, out, signals};

pub(super) fn run(options: &LimitsOptions) -> ExitCode {
    let fail = |status, message: &str| exit::fail(options.json, status, message);
    let cancel = match signals::cancel_token() {
        Ok(cancel) => cancel,
        Err(error) => return fail(exit::FAILED, &format!("cannot handle interrupts: {error}")),
    };
    if !options.json {
        out::note("measuring: do not use the machine meanwhile");
    }
    let (baseline, relay, tunnels) = match measure(options.span, &|| cancel.is_cancelled()) {
        Ok(measured) => measured,
        // A child process may have received the interrupt first.
        Err(_) if cancel.is_cancelled() => return fail(exit::INTERRUPTED, "interrupted; no result was printed"),
        Err(error) => return fail(exit::FAILED, &format!("cannot measure: {error}")),
    };
    if options.json {
        out::json(&json!({
            "event": "limits",
            "datagram_bytes": DATAGRAM_BYTES,
            "batch_datagrams": BATCH_DATAGRAMS,
            "probed_delay_us": PROBED_DELAY.as_micros(),
            "baseline": percentiles_json(&baseline),
            "relay": limits_json(&relay),
            "tun": tunnels.as_ref().map(limits_json),
        }));
    } else {
        out::print(&render(&baseline, &relay, tunnels.as_ref()));
    }
    ExitCode::from(exit::DONE)
}

/// The baseline, the limits of a relay, and those of links between namespaces.
type Measured = (Percentiles, Limits, Option<Limits>);

fn measure(span: Duration, is_cancelled: IsCancelled<'_>) -> Result<Measured, LimitsError> {
    let (baseline, relay) = (limits::baseline(is_cancelled)?, limits::relay(span, is_cancelled)?);
    Ok((baseline, relay, tunnels(span, is_cancelled).transpose()?))
}

/// The limits of links between namespaces; none without root.
#[cfg(target_os = "linux")]
fn tunnels(span: Duration, is_cancelled: IsCancelled<'_>) -> Option<Result<Limits, LimitsError>> {
    rustix::process::geteuid().is_root().then(|| limits::tunnels(span, is_cancelled))
}

#[cfg(not(target_os = "linux"))]
fn tunnels(_span: Duration, _is_cancelled: IsCancelled<'_>) -> Option<Result<Limits, LimitsError>> {
    None
}

fn render(baseline: &Percentiles, relay: &Limits, tunnels: Option<&Limits>) -> String {
    let mut lines = vec![
        format!("Datagrams of {DATAGRAM_BYTES} bytes; both ends and the link run on this machine"),
        String::new(),
        format!("{:<38} {:>14} {:>14} {:>14}", "", "loopback alone", "relay", "tun"),
    ];
    let mut row = |name: String, bare: Option<String>, figure: &dyn Fn(&Limits) -> String| {
        let tun = tunnels.map_or_else(|| "needs root".to_owned(), figure);
        lines.push(format!("{name:<38} {:>14} {:>14} {tun:>14}", bare.unwrap_or_default(), figure(relay)));
    };
    row(format!("packets/s, {BATCH_DATAGRAMS} per call"), None, &|limits| {
        limits.packets_per_second_batched.to_string()
    });
    row("packets/s, one per call".to_owned(), None, &|limits| limits.packets_per_second_single.to_string());
    for (name, pick) in PERCENTILES {
        row(format!("added delay, {name}"), Some(pick(baseline).to_string()), &|limits| {
            pick(&limits.added_delay).to_string()
        });
    }
    row("lateness of departures, mean".to_owned(), None, &|limits| limits.lateness.mean().to_string());
    row("lateness of departures, max".to_owned(), None, &|limits| limits.lateness.max.to_string());
    lines.push(String::new());
    lines.push(format!(
        "Added delay: delay of {} single datagrams between the applications, less the {PROBED_DELAY} of the link.\n\
         It includes the delay of loopback alone, for sending and waking the receiver.\n",
        baseline.count
    ));
    lines.join("\n")
}

type Pick = fn(&Percentiles) -> Duration;

const PERCENTILES: [(&str, Pick); 4] = [
    ("median", |percentiles| percentiles.p50),
    ("90th percentile", |percentiles| percentiles.p90),
    ("99th percentile", |percentiles| percentiles.p99),
    ("maximum", |percentiles| percentiles.max),
];

fn limits_json(limits: &Limits) -> Value {
    json!({
        "packets_per_second_batched": limits.packets_per_second_batched,
        "packets_per_second_single": limits.packets_per_second_single,
        "added_delay": percentiles_json(&limits.added_delay),
        "late_mean_ns": limits.lateness.mean().as_nanos(),
        "late_max_ns": limits.lateness.max.as_nanos(),
    })
}

fn percentiles_json(percentiles: &Percentiles) -> Value {
    json!({
        "count": percentiles.count,
        "p50_ns": percentiles.p50.as_nanos(),
        "p90_ns": percentiles.p90.as_nanos(),
        "p99_ns": percentiles.p99.as_nanos(),
        "max_ns": percentiles.max.as_nanos(),
    })
}
