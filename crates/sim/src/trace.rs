//! What happened when, for people to look at: spans of components and processes, levels of queues, on the one clock of the run.
//!
//! [`Trace::write`] gives the Chrome trace event format, which Perfetto (<https://ui.perfetto.dev>) opens. A simulation records only
//! if [`Simulation::record`] asked for it; otherwise each place that could costs a branch. Recording changes nothing of
//! the run, and the same seed gives the same file.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use units::Instant;

use crate::kernel::{Sim, Simulation};

/// What a trace shows of one run: at most as many entries as it was made for.
#[derive(Clone, Debug)]
pub struct Trace {
    entries: Vec<Entry>,
    entries_max: usize,
    left_out: u64,
    /// Names of tracks and of what happens there; entries have their numbers.
    names: Vec<String>,
    numbers: BTreeMap<String, u32>,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Span { track: u32, name: u32, from: Instant, until: Instant },
    Level { track: u32, at: Instant, value: u64 },
    Mark { track: u32, name: u32, at: Instant },
}

/// An event as the viewers read it. Times are in microseconds, with fractions.
#[derive(Serialize)]
struct Shown<'a> {
    ph: &'static str,
    pid: u32,
    tid: u32,
    name: &'a str,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// How wide a mark is drawn: "t" for its track.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Arguments<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Arguments<'a> {
    Name { name: &'a str },
    Value { value: u64 },
}

impl Trace {
    /// Room for `entries_max` entries, of some 32 bytes each; later ones are counted and left out.
    pub const fn new(entries_max: usize) -> Self {
        Self { entries: Vec::new(), entries_max, left_out: 0, names: Vec::new(), numbers: BTreeMap::new() }
    }

    /// `name` happened on `track` from `from` until `until`. Spans of one track should not overlap but for those that hold others.
    pub fn span(&mut self, track: &str, name: &str, from: Instant, until: Instant) {
        let (track, name) = (self.number(track), self.number(name));
        self.add(Entry::Span { track, name, from, until });
    }

    /// The level of `track` is `value` from `at` on.
    pub fn level(&mut self, track: &str, at: Instant, value: u64) {
        let track = self.number(track);
        self.add(Entry::Level { track, at, value });
    }

    /// `name` happened on `track` at `at`, in no time.
    pub fn mark(&mut self, track: &str, name: &str, at: Instant) {
        let (track, name) = (self.number(track), self.number(name));
        self.add(Entry::Mark { track, name, at });
    }

    /// Entries in it.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if nothing was recorded.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entries for which there was no room.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Writes it in the Chrome trace event format, one event a line.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write(&self, mut out: impl io::Write) -> io::Result<()> {
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"left_out\":{}}},\"traceEvents\":[", self.left_out)?;
        let mut separator = "\n";
        for (number, name) in (0..).zip(&self.names) {
            // Names that are no track's show nothing.
            let args = Some(Arguments::Name { name });
            let named = Shown { ph: "M", pid: 1, tid: number, name: "thread_name", ts: 0.0, dur: None, s: None, args };
            if self.entries.iter().any(|entry| entry.is_on(number)) {
                out.write_all(separator.as_bytes())?;
                serde_json::to_writer(&mut out, &named)?;
                separator = ",\n";
            }
        }
        for entry in &self.entries {
            out.write_all(separator.as_bytes())?;
            serde_json::to_writer(&mut out, &self.shown(entry))?;
            separator = ",\n";
        }
        out.write_all(b"\n]}\n")
    }

    fn shown(&self, entry: &Entry) -> Shown<'_> {
        let name = |number: u32| self.names[number as usize].as_str();
        let shown = |ph, tid, name, at| Shown { ph, pid: 1, tid, name, ts: micros(at), dur: None, s: None, args: None };
        match *entry {
            Entry::Span { track, name: what, from, until } => {
                let dur = Some(until.saturating_since(from).as_nanos() as f64 / 1e3);
                Shown { dur, ..shown("X", track, name(what), from) }
            }
            Entry::Level { track, at, value } => {
                Shown { args: Some(Arguments::Value { value }), ..shown("C", track, name(track), at) }
            }
            Entry::Mark { track, name: what, at } => Shown { s: Some("t"), ..shown("i", track, name(what), at) },
        }
    }

    fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        if self.entries.len() >= self.entries_max {
            // Its entry will be left out, so its name is not needed: names do not grow without bound.
            return 0;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    fn add(&mut self, entry: Entry) {
        if self.entries.len() < self.entries_max {
            self.entries.push(entry);
        } else {
            self.left_out += 1;
        }
    }
}

impl Entry {
    /// True if track `number` shows spans or marks; levels name themselves.
    const fn is_on(&self, number: u32) -> bool {
        match *self {
            Self::Span { track, .. } | Self::Mark { track, .. } => track == number,
            Self::Level { .. } => false,
        }
    }
}

/// Exact to a nanosecond for a hundred days.
fn micros(at: Instant) -> f64 {
    at.as_nanos() as f64 / 1e3
}

impl Simulation {
    /// Records from now on what components and processes say of themselves, at most `entries_max` entries. What was recorded before
    /// is forgotten.
    pub fn record(&self, entries_max: usize) {
        self.sim().set_trace(Some(Trace::new(entries_max)));
    }

    /// Ends the recording and returns it; `None` if there was none.
    pub fn recorded(&self) -> Option<Trace> {
        self.sim().set_trace(None)
    }
}

impl Sim {
    /// Begins a span that ends when what is returned is dropped: `name` happens on `track`.
    pub fn begin_span(&self, track: &str, name: &str) -> Span {
        let is_traced = self.is_traced();
        // Names are kept only if somebody will see them.
        let kept = |text: &str| if is_traced { text.to_owned() } else { String::new() };
        Span { sim: self.clone(), from: self.now(), track: kept(track), name: kept(name), is_traced }
    }
}

/// Something that goes on. Dropped, it has ended.
#[must_use = "a span ends when it is dropped"]
pub struct Span {
    sim: Sim,
    from: Instant,
    track: String,
    name: String,
    is_traced: bool,
}

impl Drop for Span {
    fn drop(&mut self) {
        if self.is_traced {
            let now = self.sim.now();
            self.sim.trace(|trace| trace.span(&self.track, &self.name, self.from, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use units::Duration;

    use super::*;
    use crate::hardware::fddi::{Ring, RingConfig};
    use crate::{Facility, Store};

    /// A little of everything, recorded if asked. Returns the file, and when the run ended.
    fn run(entries_max: Option<usize>) -> (Option<String>, u64, u64) {
        let mut simulation = Simulation::new(4, 0);
        if let Some(entries_max) = entries_max {
            simulation.record(entries_max);
        }
        let sim = simulation.sim();
        let (desk, store) = (Facility::new(&sim, "desk", 1), Store::new(&sim, "store", 4));
        let ring = Ring::new(&sim, "ring", RingConfig::even(4, 1_000)).unwrap();
        ring.deliver_into(2, store.clone());
        let (clock, customers) = (sim, desk);
        simulation.spawn(async move {
            for number in 0..20_u64 {
                let span = clock.begin_span("source", "customer");
                customers.serve(Duration::from_nanos(1_234)).await;
                drop(span);
                ring.send(0, 2, 100 + number, number).await;
                store.take().await;
            }
        });
        simulation.run();
        let now = simulation.sim().now().as_nanos();
        let file = simulation.recorded().map(|trace| {
            let mut out = Vec::new();
            trace.write(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        });
        (file, simulation.events(), now)
    }

    #[test]
    fn a_recorded_run_is_the_same_run_and_the_same_file_each_time() {
        let (silent, recorded) = (run(None), run(Some(10_000)));
        assert_eq!(silent.0, None);
        assert_eq!((silent.1, silent.2), (recorded.1, recorded.2));
        assert_eq!(recorded, run(Some(10_000)));
    }

    #[test]
    fn viewers_find_spans_levels_and_names_of_tracks_with_nanoseconds() {
        let (file, _, now) = run(Some(10_000));
        let json: serde_json::Value = serde_json::from_str(&file.unwrap()).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        let of = |ph: &str| events.iter().filter(|event| event["ph"] == ph).collect::<Vec<_>>();
        let tracks: BTreeMap<u64, &str> = of("M")
            .iter()
            .map(|event| (event["tid"].as_u64().unwrap(), event["args"]["name"].as_str().unwrap()))
            .collect();
        let on = |track: &str| {
            of("X").into_iter().filter(|event| tracks[&event["tid"].as_u64().unwrap()] == track).collect::<Vec<_>>()
        };
        assert_eq!([on("source").len(), on("desk 0").len(), on("ring").len()], [20, 20, 20]);
        assert_eq!((on("desk 0")[0]["dur"].as_f64(), &on("ring")[0]["name"]), (Some(1.234), &"0 to 2".into()));
        let levels: Vec<_> = of("C").into_iter().filter(|event| event["name"] == "store").collect();
        assert_eq!(levels.len(), 40, "twenty up, twenty down");
        assert_eq!((levels[0]["args"]["value"].as_u64(), levels[1]["args"]["value"].as_u64()), (Some(1), Some(0)));
        let last = levels.last().unwrap()["ts"].as_f64().unwrap();
        assert!((last * 1e3 - now as f64).abs() < 0.5, "{last} us, the run ended at {now} ns");
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let mut trace = Trace::new(2);
        for number in 0..1_000_u64 {
            trace.level(&format!("queue {number}"), Instant::from_nanos(number), number);
        }
        assert_eq!((trace.len(), trace.left_out(), trace.names.len()), (2, 998, 2));
        let mut out = Vec::new();
        trace.write(&mut out).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json["otherData"]["left_out"], 998);
    }
}
