//! Progress and statistics of the links, as text and as JSON.

use emulate::{DirectionReport, LinkReport};
use serde_json::{Value, json};
use units::{ByteSize, Duration, Instant, Rate};

use crate::cli::out;

/// The announcement of a link between namespaces.
#[cfg(target_os = "linux")]
pub(super) fn tun_link(link: &emulate::TunLink) -> (String, Value) {
    let side = |side: &emulate::Side| {
        let addresses: Vec<_> = side.addresses.iter().map(ToString::to_string).collect();
        let place = side.namespace.clone().unwrap_or_else(|| "here".to_owned());
        (format!("{place} {}", addresses.join(" ")), json!({ "namespace": side.namespace, "addresses": addresses }))
    };
    let ((left_text, left), (right_text, right)) = (side(&link.left), side(&link.right));
    let text = format!("link {}: {} to {}", link.name, left_text.trim_end(), right_text.trim_end());
    (text, json!({ "name": link.name, "mtu": link.mtu, "left": left, "right": right }))
}

/// Shows the progress since the last report.
pub(super) struct Progress {
    json: bool,
    last: Vec<LinkReport>,
    last_at: Instant,
}

impl Progress {
    pub(super) const fn new(json: bool, reports: Vec<LinkReport>) -> Self {
        Self { json, last: reports, last_at: Instant::ZERO }
    }

    /// Prints a line for each link: rates and dropped packets since the last report.
    pub(super) fn show(&mut self, now: Instant, reports: Vec<LinkReport>) {
        let span = now.saturating_since(self.last_at);
        if span.is_zero() {
            return;
        }
        if self.json {
            let links: Vec<_> = reports.iter().map(link_json).collect();
            out::json(&json!({ "event": "progress", "at_us": now.since_start().as_micros(), "links": links }));
        } else {
            for (report, last) in reports.iter().zip(&self.last) {
                let direction = |now: &DirectionReport, last: &DirectionReport| {
                    let bytes = now.link.delivered_bytes - last.link.delivered_bytes;
                    let gone = now.link.undelivered() - last.link.undelivered();
                    let rate = Rate::from_transfer(bytes, span).unwrap_or_default();
                    format!("{rate:>10} dropped {gone:>5} queued {:>5}", now.held)
                };
                out::note(&format!(
                    "{:>6.1}s  {:<16} forward {}   back {}",
                    now.since_start().as_secs_f64(),
                    report.name,
                    direction(&report.forward, &last.forward),
                    direction(&report.backward, &last.backward)
                ));
            }
        }
        (self.last, self.last_at) = (reports, now);
    }
}

/// Prints the final statistics.
pub(super) fn statistics(json: bool, span: Duration, reports: &[LinkReport]) {
    if json {
        let links: Vec<_> = reports.iter().map(link_json).collect();
        out::json(&json!({ "event": "stats", "span_us": span.as_micros(), "links": links }));
        return;
    }
    for report in reports {
        out::line(&format!("link {}, {span}", report.name));
        for (name, direction) in [("forward", &report.forward), ("back", &report.backward)] {
            direction_lines(name, direction, span).iter().for_each(|line| out::line(line));
        }
        if report.turned_away > 0 {
            out::line(&format!(
                "  {} datagrams were refused: a relay serves at most {} clients",
                report.turned_away,
                emulate::CLIENTS_MAX
            ));
        }
        if let Some(message) = unserved(report) {
            out::line(&format!("  {message}"));
        }
    }
}

/// A message about clients for which no socket could be opened, if there are any.
fn unserved(report: &LinkReport) -> Option<String> {
    let why = report.unserved_why.as_deref()?;
    Some(format!(
        "{} datagrams were dropped, because no socket could be opened for their clients: {why}",
        report.unserved
    ))
}

/// A warning about the first link that does not serve every client.
pub(super) fn clients_not_served(reports: &[LinkReport]) -> Option<String> {
    reports.iter().find_map(|report| {
        let message = match unserved(report) {
            Some(message) => message,
            None if report.turned_away > 0 => {
                format!("it serves at most {} clients and refuses others", emulate::CLIENTS_MAX)
            }
            None => return None,
        };
        Some(format!("link {}: {message}", report.name))
    })
}

fn direction_lines(name: &str, report: &DirectionReport, span: Duration) -> Vec<String> {
    let link = &report.link;
    let rate = Rate::from_transfer(link.delivered_bytes, span).unwrap_or_default();
    let mut lines = vec![format!(
        "  {name:<8} {} of {} packets, {}, {rate} on average",
        link.delivered,
        link.offered,
        ByteSize::from_bytes(link.delivered_bytes)
    )];
    let counted: Vec<_> = [
        ("lost", link.lost),
        ("lost in bursts", link.lost_in_bursts),
        ("lost in outages", link.vanished),
        ("dropped by a full queue", link.overflowed),
        ("dropped by CoDel", link.dropped_by_codel),
        ("ECN-marked", link.marked),
        ("reordered", link.reordered),
        ("duplicated", link.duplicated),
        ("corrupted", link.corrupted),
        ("refused by the system", report.refused),
        ("ignored", report.ignored),
        ("still in the link", report.held as u64),
    ]
    .into_iter()
    .filter(|&(_, count)| count > 0)
    .map(|(what, count)| format!("{count} {what}"))
    .collect();
    if !counted.is_empty() {
        lines.push(format!("           {}", counted.join(", ")));
    }
    if link.carried > 0 && !link.queue_delay_max.is_zero() {
        lines.push(format!(
            "           queueing delay {} mean, {} max; queue {} max",
            link.queue_delay_mean(),
            link.queue_delay_max,
            ByteSize::from_bytes(link.queue_bytes_max)
        ));
    }
    let lateness = &report.lateness;
    if lateness.count > 0 {
        lines.push(format!(
            "           departures late by {} mean, {} max; {} late by {} or more",
            lateness.mean(),
            lateness.max,
            lateness.late,
            emulate::LATE_THRESHOLD
        ));
    }
    lines
}

fn link_json(report: &LinkReport) -> Value {
    json!({
        "name": report.name,
        "forward": direction_json(&report.forward),
        "backward": direction_json(&report.backward),
        "clients": report.clients,
        "turned_away": report.turned_away,
        "unserved": report.unserved,
        "unserved_why": report.unserved_why,
    })
}

fn direction_json(report: &DirectionReport) -> Value {
    let (link, lateness) = (&report.link, &report.lateness);
    json!({
        "offered": link.offered,
        "offered_bytes": link.offered_bytes,
        "delivered": link.delivered,
        "delivered_bytes": link.delivered_bytes,
        "lost": link.lost,
        "lost_in_bursts": link.lost_in_bursts,
        "vanished": link.vanished,
        "overflowed": link.overflowed,
        "dropped_by_codel": link.dropped_by_codel,
        "marked": link.marked,
        "reordered": link.reordered,
        "duplicated": link.duplicated,
        "corrupted": link.corrupted,
        "held": report.held,
        "refused": report.refused,
        "ignored": report.ignored,
        "queue_bytes_max": link.queue_bytes_max,
        "queue_delay_mean_us": link.queue_delay_mean().as_micros(),
        "queue_delay_max_us": link.queue_delay_max.as_micros(),
        "late_mean_ns": lateness.mean().as_nanos(),
        "late_max_ns": lateness.max.as_nanos(),
        "late_over_1ms": lateness.late,
    })
}

#[cfg(test)]
mod tests {
    use netem::LinkStats;

    use super::*;

    #[test]
    fn zero_counters_are_not_shown() {
        let mut report = DirectionReport::default();
        assert_eq!(direction_lines("back", &report, Duration::from_secs(1)).len(), 1);
        report.link = LinkStats { offered: 3, delivered: 1, delivered_bytes: 1000, lost: 2, ..LinkStats::default() };
        let lines = direction_lines("forward", &report, Duration::from_secs(1));
        assert!(lines[0].contains("1 of 3 packets") && lines[0].contains("8.0 kb/s"), "{lines:?}");
        assert_eq!(lines[1].trim(), "2 lost");
    }
}
