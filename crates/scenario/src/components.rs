//! How busy everything was that packets and batches wait for: links, sockets, threads, processors.

use std::fmt::Write;

use netem::{Link, Packet};
use serde_json::{Value as Json, json};
use sim::Report;
use units::{Duration, Instant};

/// Something that is waited for, and what it did from the beginning of a run to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Component {
    /// `link`, `processors`, `thread`, `socket`, or `places`, which those who come later find taken.
    pub kind: &'static str,
    /// Its name, unique in its run.
    pub name: String,
    /// Those who were served: packets, batches, steps.
    pub served: u64,
    /// Share of its capacity that was busy, or of its room that was taken, 0 to 1. `None` where nothing bounds it, a link without a
    /// rate, or where that is not measured, a link by a trace.
    pub utilisation: Option<f64>,
    /// How many waited, on average over time, of those who were served. By Little's law that is their waiting over the time of the
    /// run.
    pub mean_queue: f64,
    /// How long each of them waited, on average.
    pub mean_wait: Duration,
}

/// What is counted of a component that serves: how many, how long it took, and how long they had waited before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Books {
    pub(crate) served: u64,
    pub(crate) busy: Duration,
    pub(crate) waited: Duration,
}

impl Books {
    /// Somebody was served for so long after so long.
    pub(crate) fn add(&mut self, waited: Duration, busy: Duration) {
        self.served += 1;
        self.waited += waited;
        self.busy += busy;
    }

    /// What `kind` called `name` says of them when the run has lasted until `now`.
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

    /// The share of the time until `now` that one server was busy.
    pub(crate) fn utilisation(self, now: Instant) -> f64 {
        share(self.busy, now)
    }
}

/// Of the time until `now`; 0 if none has passed.
fn share(span: Duration, now: Instant) -> f64 {
    let run = now.since_start();
    if run.is_zero() { 0.0 } else { span.as_nanos() as f64 / run.as_nanos() as f64 }
}

impl Component {
    /// One direction of a link: those that its line began to carry, and how long it was taken by those that have left it.
    pub(crate) fn link<P: Packet>(name: &str, direction: &str, link: &Link<P>, now: Instant) -> Self {
        let stats = link.stats();
        let books = Books { served: stats.carried, busy: stats.on_line, waited: stats.queue_delay_sum };
        // A trace carries a packet in no time when its moment has come: that says nothing of how much it could have carried.
        let (has_rate, has_trace) = (link.config().rate.is_some(), link.config().trace.is_some());
        // A change of the link in time may have taken the rate away again.
        let utilisation = (!has_trace && (has_rate || !stats.on_line.is_zero())).then(|| books.utilisation(now));
        books.component("link", format!("link {name}, {direction}"), utilisation, now)
    }

    /// Processors: whoever is served has one for himself.
    pub(crate) fn processors(report: &Report) -> Self {
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

    /// A bounded queue of the simulator: all who are in it wait.
    pub(crate) fn places(report: &Report) -> Self {
        Self {
            kind: "places",
            name: report.name.clone(),
            served: report.served,
            utilisation: Some(report.utilisation),
            mean_queue: report.mean_number,
            mean_wait: report.mean_wait,
        }
    }

    /// As `docs/spec/scenario.md` has it.
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

/// Components as aligned text, with a line at the end of each; those that served nobody are left out.
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

    /// A packet of a millisecond each, two at once, every four milliseconds: the second waits for one.
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
        // 25 of them for a millisecond, in a hundred.
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
