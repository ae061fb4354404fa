//! The final report of the demo.

use emulate::{Lateness, LinkReport};
use serde_json::{Value, json};
use units::{ByteSize, Rate};

use super::files::Comparison;
use super::links::{self, DemoLink};
use super::transfer::Outcome;
use crate::cli::out;
use crate::cli::wrap::wrap;

/// If more than this share of packets, in permille, left the emulator at least a millisecond late,
/// the machine did not keep up with the links.
const LATE_PERMILLE_MAX: u64 = 10;

/// If the processors were busy for at least this share of the time, in percent, they may have been
/// the bottleneck instead of the links.
const BUSY_PERCENT_MIN: u64 = 95;

/// Width of the report in columns: that of the narrowest usual terminal.
const WIDTH: usize = 80;

/// The maximum length of a link's name.
const NAME_MAX: usize = 15;

/// The results of the demo.
pub(super) struct DemoReport {
    pub(super) seed: u64,
    pub(super) links: Vec<DemoLink>,
    /// The rate that this machine carries, if the demo measured it to choose the links.
    pub(super) carried: Option<Rate>,
    /// The transfers over each link alone, in the order of `links`.
    pub(super) alone: Vec<Outcome>,
    pub(super) together: Outcome,
    pub(super) files: Comparison,
}

impl DemoReport {
    pub(super) fn print(&self, as_json: bool) {
        if as_json {
            out::json(&self.json());
        } else {
            self.lines().iter().for_each(|line| out::line(line));
        }
    }

    /// Bytes that the links could carry during the transfer, without the outage.
    fn capacity_bytes(&self) -> u64 {
        let together = &self.together;
        let down = together.cut.as_ref().map_or(0, |cut| self.links[cut.link].rate.bytes_in(together.down));
        links::sum(&self.links).bytes_in(together.span).saturating_sub(down)
    }

    /// Goodput as a share of the capacity of the links while they were up.
    fn share_percent(&self) -> f64 {
        self.together.bytes as f64 * 100.0 / self.capacity_bytes().max(1) as f64
    }

    /// Goodput as a share of the total rate of the links, as if none had been cut.
    fn share_of_whole_percent(&self) -> f64 {
        percent_of(self.together.goodput(), links::sum(&self.links))
    }

    /// The emulator's timing error in the transfer over all links.
    fn lateness(&self) -> Lateness {
        let directions = self.together.links.iter().flat_map(|link| [&link.forward, &link.backward]);
        directions.fold(Lateness::default(), |sum, direction| Lateness {
            count: sum.count + direction.lateness.count,
            sum: sum.sum + direction.lateness.sum,
            max: sum.max.max(direction.lateness.max),
            late: sum.late + direction.lateness.late,
        })
    }

    /// Packets that the links dropped in both directions, by cause.
    fn gone(&self, what: impl Fn(&netem::LinkStats) -> u64) -> u64 {
        let of = |link: &LinkReport| what(&link.forward.link) + what(&link.backward.link);
        self.together.links.iter().map(of).sum()
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = self.table();
        lines.push(String::new());
        lines.extend(self.rows().into_iter().map(|(name, value)| wrap(&format!("  {name:<17}  {value}"), WIDTH)));
        lines.extend(
            self.overload_reasons()
                .into_iter()
                .map(|message| wrap(&format!("\n  this machine was too busy: {message}"), WIDTH)),
        );
        lines
    }

    /// Why this machine, and not the links, may have limited the transfer.
    fn overload_reasons(&self) -> Vec<String> {
        let lateness = self.lateness();
        let late = is_too_late(&lateness).then(|| {
            format!(
                "packets left the emulated links up to {} late, {} of {} of them by {} or more",
                lateness.max,
                lateness.late,
                lateness.count,
                emulate::LATE_THRESHOLD
            )
        });
        let busy = self.together.busy_percent.filter(|&percent| percent >= BUSY_PERCENT_MIN).map(|percent| {
            format!(
                "its processors were busy {percent} % of the time, so the transfer may not have used the links fully"
            )
        });
        late.into_iter().chain(busy).collect()
    }

    /// One line per link.
    fn table(&self) -> Vec<String> {
        let line = |name: &str, link: &str, alone: &str, share: &str, together: &str| {
            format!("  {name:<NAME_MAX$} {link:<31} {alone:>11} {share:>5}  {together:>9}").trim_end().to_owned()
        };
        let mut lines = vec![line("", "link", "alone", "", "together")];
        for (index, (link, alone)) in self.links.iter().zip(&self.alone).enumerate() {
            let carried = self.together.link_bytes.get(index).copied().unwrap_or(0);
            lines.push(line(
                &link.name,
                &link.text(),
                &alone.goodput().to_string(),
                &format!("{:.0} %", percent_of(alone.goodput(), link.rate)),
                &ByteSize::from_bytes(carried).to_string(),
            ));
        }
        lines
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let together = &self.together;
        let sum = links::sum(&self.links);
        let lost_percent = together.packets_lost as f64 * 100.0 / together.packets_sent.max(1) as f64;
        let gone = [
            ("lost in the outage", self.gone(|link| link.vanished)),
            ("dropped by full queues", self.gone(|link| link.overflowed + link.dropped_by_codel)),
            ("lost at random", self.gone(|link| link.lost + link.lost_in_bursts)),
        ];
        let gone: Vec<_> =
            gone.iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{count} {what}")).collect();
        let short_hash = self.files.hash.get(..16).unwrap_or_default();
        vec![
            (
                "all together",
                format!("{}: {} in {}", together.goodput(), ByteSize::from_bytes(together.bytes), together.span),
            ),
            ("share of capacity", self.share_text(sum)),
            ("outage", self.cut_text()),
            ("longest gap", format!("{} in which the receiver got no data", together.longest_gap)),
            (
                "bytes lost",
                if self.files.is_same {
                    format!("0: the files are identical, BLAKE3 {short_hash}…")
                } else {
                    format!("{}: THE FILES DIFFER", self.files.bytes_lost)
                },
            ),
            (
                "retransmissions",
                format!(
                    "{} of {} packets ({lost_percent:.2} %){}{}",
                    together.packets_lost,
                    together.packets_sent,
                    if gone.is_empty() { "" } else { "; on the links: " },
                    gone.join(", ")
                ),
            ),
            ("handshake", format!("{}  {}, {}", together.handshake, together.key_exchange, together.cipher)),
        ]
    }

    fn share_text(&self, sum: Rate) -> String {
        if self.together.down.is_zero() {
            return format!("{:.0} % of {sum}", self.share_of_whole_percent());
        }
        format!(
            "{:.0} % of the links' capacity while they were up; {:.0} % of {sum}, the sum without an outage",
            self.share_percent(),
            self.share_of_whole_percent()
        )
    }

    fn cut_text(&self) -> String {
        let Some(cut) = &self.together.cut else { return "none".to_owned() };
        let Some(began) = cut.began() else {
            return "none: the file was complete before the outage was due".to_owned();
        };
        format!(
            "{}, silent in both directions, {} after the start, at {} %, {}",
            self.links[cut.link].name,
            began.saturating_since(self.together.connected_at),
            cut.percent,
            if cut.is_restored() { format!("for {}", self.together.down) } else { "until the end".to_owned() }
        )
    }

    fn json(&self) -> Value {
        let together = &self.together;
        let lateness = self.lateness();
        let cut = together.cut.as_ref().and_then(|cut| {
            let began = cut.began()?.saturating_since(together.connected_at);
            Some(json!({
                "link": self.links[cut.link].name, "at_percent": cut.percent, "at_us": began.as_micros(),
                "down_us": together.down.as_micros(), "restored": cut.is_restored(),
            }))
        });
        let links: Vec<_> = (0..self.links.len()).map(|index| self.link_json(index)).collect();
        json!({
            "bytes": together.bytes,
            "seed": self.seed,
            "links": links,
            "sum_bps": links::sum(&self.links).as_bps(),
            "machine_bps": self.carried.map(Rate::as_bps),
            "span_us": together.span.as_micros(),
            "goodput_bps": together.goodput().as_bps(),
            "share_percent": self.share_percent(),
            "share_of_whole_percent": self.share_of_whole_percent(),
            "longest_gap_us": together.longest_gap.as_micros(),
            "bytes_lost": self.files.bytes_lost,
            "cut": cut,
            "handshake_us": together.handshake.as_micros(),
            "cipher": together.cipher,
            "key_exchange": together.key_exchange,
            "packets_sent": together.packets_sent,
            "packets_lost": together.packets_lost,
            "late_max_us": lateness.max.as_micros(),
            "late_count": lateness.late,
            "departures": lateness.count,
            "cpu_us": together.processor_time.as_micros(),
            "busy_percent": together.busy_percent,
            "too_busy": !self.overload_reasons().is_empty(),
            "blake3": self.files.hash,
            "verified": self.files.is_same,
        })
    }

    fn link_json(&self, index: usize) -> Value {
        let (link, alone) = (&self.links[index], &self.alone[index]);
        let report = &self.together.links[index];
        let both = |what: fn(&netem::LinkStats) -> u64| what(&report.forward.link) + what(&report.backward.link);
        json!({
            "name": link.name,
            "rate_bps": link.rate.as_bps(),
            "delay_us": link.config().delay.as_micros(),
            "delay_back_us": link.delay_back().as_micros(),
            "alone_bytes": alone.bytes,
            "alone_goodput_bps": alone.goodput().as_bps(),
            "alone_share_percent": percent_of(alone.goodput(), link.rate),
            "alone_packets_lost": alone.packets_lost,
            "together_bytes": self.together.link_bytes[index],
            "lost": both(|link| link.lost + link.lost_in_bursts),
            "vanished": both(|link| link.vanished),
            "overflowed": both(|link| link.overflowed),
        })
    }
}

const fn is_too_late(lateness: &Lateness) -> bool {
    lateness.late.saturating_mul(1000) > lateness.count.saturating_mul(LATE_PERMILLE_MAX)
}

fn percent_of(part: Rate, whole: Rate) -> f64 {
    if whole.is_zero() { 0.0 } else { part.as_bps() as f64 * 100.0 / whole.as_bps() as f64 }
}

#[cfg(test)]
mod tests;
