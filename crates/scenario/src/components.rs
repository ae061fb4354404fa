//! Utilisation and waiting times of links, sockets, threads and processors.

use std::fmt::Write;

use netem::{Link, Packet};
use serde_json::{Value as Json, json};
use sim::ComponentReport;
use units::{Duration, Instant};

/// The statistics of one queueing component over a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Component {
    /// Kind: `link`, `processors`, `thread`, `socket`, or `places` (a bounded queue).
    pub kind: &'static str,
    /// The name, unique within a run.
    pub name: String,
    /// The number of served packets, batches or steps.
    pub served: u64,
    /// The busy share of its capacity, or the occupied share of its space, 0 to 1. `None` for a
    /// link without a rate (no bound) and for a link with a trace (not measured).
    pub utilisation: Option<f64>,
    /// The mean number of waiting items, over time. By Little's law this is the sum of waiting
    /// times divided by the duration of the run.
    pub mean_queue: f64,
    /// The mean waiting time.
    pub mean_wait: Duration,
}

/// The counters of a serving component: served items, service time and waiting time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceStats {
    pub(crate) served: u64,
    pub(crate) busy: Duration,
    pub(crate) waited: Duration,
}

impl ServiceStats {
    /// Adds an item that was served for `busy` after waiting for `waited`.
    pub(crate) fn add(&mut self, waited: Duration, busy: Duration) {
        self.served += 1;
        self.waited += waited;
        self.busy += busy;
    }

    /// Returns the statistics of the component of this kind and name, for a run that lasted until
    /// `now`.
    pub(crate) fn component(
        self,
        kind: &'static str,
        name: String,
        utilisation: Option<f64>,
        now: Instant,
    ) -> Component {
        let mean_wait = self.waited / self.served.max(1);
        Component { kind, name, served: self.served, utilisation, mean_queue: share(self.waited, now), mean_wait }
    }

    /// Returns the share of the time until `now` that one server was busy.
    pub(crate) fn utilisation(self, now: Instant) -> f64 {
        share(self.busy, now)
    }
}

/// Returns `span` divided by the time until `now`; 0 at the beginning.
fn share(span: Duration, now: Instant) -> f64 {
    let run = now.since_start();
    if run.is_zero() { 0.0 } else { span.as_nanos() as f64 / run.as_nanos() as f64 }
}

impl Component {
    /// Returns the statistics of one direction of a link: packets whose transmission began, and the
    /// time that the line was busy with completed ones.
    pub(crate) fn link<P: Packet>(name: &str, direction: &str, link: &Link<P>, now: Instant) -> Self {
        let stats = link.stats();
        let service = ServiceStats { served: stats.carried, busy: stats.on_line, waited: stats.queue_delay_sum };
        // A trace delivers a packet instantly at an opportunity, so busy time does not measure
        // utilisation.
        let (has_rate, has_trace) = (link.config().rate.is_some(), link.config().trace.is_some());
        // A scheduled change may have removed the rate again.
        let utilisation = (!has_trace && (has_rate || !stats.on_line.is_zero())).then(|| service.utilisation(now));
        service.component("link", format!("link {name}, {direction}"), utilisation, now)
    }

    /// Returns the statistics of processors. Each served item occupies one processor.
    pub(crate) fn processors(report: &ComponentReport) -> Self {
        let busy = report.utilisation * report.capacity.unwrap_or(1) as f64;
        Self {
            kind: "processors",
            name: report.name.clone(),
            served: report.served,
            utilisation: Some(report.utilisation),
            mean_queue: (report.mean_number - busy).max(0.0),
            mean_wait: report.mean_wait,
        }
    }

    /// Returns the statistics of a bounded queue of the simulator. All items in it are waiting.
    pub(crate) fn bounded_queue(report: &ComponentReport) -> Self {
        Self {
            kind: "places",
            name: report.name.clone(),
            served: report.served,
            utilisation: Some(report.utilisation),
            mean_queue: report.mean_number,
            mean_wait: report.mean_wait,
        }
    }

    /// Returns the JSON object defined in `docs/spec/scenario.md`.
    pub(crate) fn json(&self) -> Json {
        json!({
            "kind": self.kind,
            "name": self.name,
            "served": self.served,
            "utilisation": self.utilisation,
            "mean_queue": self.mean_queue,
            "mean_wait_ns": self.mean_wait.as_nanos(),
        })
    }
}

/// Returns a table of the components as aligned text. Components without served items are omitted.
pub fn components_table(components: &[Component]) -> String {
    let used: Vec<_> = components.iter().filter(|component| component.served > 0).collect();
    let width = used.iter().map(|component| component.name.chars().count()).max().unwrap_or(0).max(9);
    let mut out = format!("  {:<width$}  utilisation  mean queue   mean wait     served\n", "component");
    for Component { name, served, utilisation, mean_queue, mean_wait, .. } in used {
        let utilisation = utilisation.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0));
        let wait_us = mean_wait.as_nanos() as f64 / 1e3;
        // Writing to a string cannot fail.
        let _written =
            writeln!(out, "  {name:<width$}  {utilisation:>11}  {mean_queue:>10.2}  {wait_us:>9.1} us  {served:>7}");
    }
    out
}

#[cfg(test)]
mod tests {
    use netem::{LengthOnly, LinkConfig};
    use units::{Rate, Rng};

    use super::*;

    /// Every four milliseconds, two packets of one millisecond each arrive: the second waits for
    /// one millisecond.
    #[test]
    fn a_link_is_busy_half_the_time_and_every_other_packet_waits() {
        let config = LinkConfig { rate: Some(Rate::from_mbps(10)), ..LinkConfig::default() };
        let mut link: Link<LengthOnly> = Link::new(config, Rng::from_seed(1));
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        for round in 0..25 {
            for _ in 0..2 {
                link.send(at(4 * round), LengthOnly::new(1250));
            }
            while link.poll_deliver(at(4 * round + 3)).is_some() {}
        }
        let component = Component::link("wifi", "forward", &link, at(100));
        assert_eq!((component.name.as_str(), component.served), ("link wifi, forward", 50));
        assert!((component.utilisation.unwrap() - 0.5).abs() < 1e-9, "{component:?}");
        // 25 packets waited for a millisecond each, in 100 ms.
        assert!((component.mean_queue - 0.25).abs() < 1e-9, "{component:?}");
        assert_eq!(component.mean_wait, Duration::from_micros(500));
        let table = components_table(&[component]);
        assert!(table.contains("50.0 %") && table.contains("0.25") && table.contains("500.0 us"), "{table}");
    }

    #[test]
    fn a_link_without_a_rate_has_no_utilisation() {
        let mut link: Link<LengthOnly> = Link::new(LinkConfig::default(), Rng::from_seed(1));
        link.send(Instant::ZERO, LengthOnly::new(1250));
        let component = Component::link("wifi", "back", &link, Instant::from_nanos(5));
        assert_eq!((component.utilisation, component.served, component.mean_wait), (None, 1, Duration::ZERO));
    }
}
