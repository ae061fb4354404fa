//! Traces of a run: activities of components and processes and levels of queues over virtual time.
//!
//! [`Trace::write`] writes the Chrome trace event format, which Perfetto
//! (<https://ui.perfetto.dev>) opens. A simulation records only after [`Simulation::record`] or
//! [`Simulation::record_into`]; otherwise each instrumented place costs a branch. Recording does
//! not affect the run, and the same seed gives the same file.
//!
//! A trace is kept in memory up to a limit, or streamed to a writer during the run
//! ([`Trace::streaming`]); then only a bounded number of entries is in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use serde::Serialize;
use units::Instant;

use crate::kernel::{Sim, Simulation};

/// Entries of a streamed trace that are buffered in memory: about 128 KiB.
const PIECE_ENTRIES: usize = 4096;

/// Maximum number of distinct names in a streamed trace. Models have hundreds; the limit stops a
/// model that creates a name per packet.
const NAMES_MAX: usize = 1 << 16;

/// The trace of one run: a limited number of entries in memory, or all entries in a file.
#[derive(Debug)]
pub struct Trace {
    entries: Vec<Entry>,
    entries_max: usize,
    left_out: u64,
    /// Names of tracks and activities; entries refer to them by index.
    names: Vec<String>,
    numbers: BTreeMap<String, u32>,
    /// The destination of entries once the buffer is full.
    file: Option<File>,
}

/// A trace that is being streamed to a writer.
struct File {
    out: Box<dyn io::Write>,
    /// A description of the run.
    about: String,
    /// The first error; nothing is written after it.
    error: Option<io::Error>,
    is_begun: bool,
    /// Tracks whose names have been written.
    named: Vec<bool>,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("error", &self.error).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Span { track: u32, name: u32, from: Instant, until: Instant },
    Level { track: u32, at: Instant, value: u64 },
    Mark { track: u32, name: u32, at: Instant },
}

/// An event in the file format. Times are in microseconds, with fractions.
#[derive(Serialize)]
struct Shown<'a> {
    ph: &'static str,
    pid: u32,
    tid: u32,
    name: &'a str,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// Scope of an instant event: "t" for its track.
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
    /// Creates a trace of up to `entries_max` entries of about 32 bytes each. Later entries are
    /// counted and dropped.
    pub const fn new(entries_max: usize) -> Self {
        Self { entries: Vec::new(), entries_max, left_out: 0, names: Vec::new(), numbers: BTreeMap::new(), file: None }
    }

    /// Creates a trace without a limit that is streamed to `out` in the format of
    /// [`write`](Self::write). `about` describes the run. [`finish_file`](Self::finish_file)
    /// completes the file.
    ///
    /// # Errors
    /// Fails if `out` fails.
    pub fn streaming(mut out: Box<dyn io::Write>, about: &str) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let file = File { out, about: about.to_owned(), error: None, is_begun: false, named: Vec::new() };
        Ok(Self { file: Some(file), ..Self::new(PIECE_ENTRIES) })
    }

    /// Writes the remaining entries and completes the file, if this is a streamed trace.
    ///
    /// # Errors
    /// Fails if a write failed, now or earlier.
    pub fn finish_file(mut self) -> io::Result<()> {
        self.write_piece();
        let Some(mut file) = self.file else { return Ok(()) };
        match file.error {
            Some(error) => Err(error),
            None => {
                let about = serde_json::to_string(&file.about)?;
                let left_out = self.left_out;
                write!(file.out, "\n],\"otherData\":{{\"about\":{about},\"left_out\":{left_out}}}}}\n")?;
                file.out.flush()
            }
        }
    }

    /// Returns the first write error of a streamed trace.
    pub fn failure(&self) -> Option<&io::Error> {
        self.file.as_ref()?.error.as_ref()
    }

    /// Records that `name` took place on `track` from `from` until `until`. Spans of one track must
    /// not overlap unless one contains the other.
    pub fn span(&mut self, track: &str, name: &str, from: Instant, until: Instant) {
        let (track, name) = (self.number(track), self.number(name));
        self.add(track.zip(name).map(|(track, name)| Entry::Span { track, name, from, until }));
    }

    /// Records that the level of `track` is `value` from `at` on.
    pub fn level(&mut self, track: &str, at: Instant, value: u64) {
        let track = self.number(track);
        self.add(track.map(|track| Entry::Level { track, at, value }));
    }

    /// Records the instantaneous event `name` on `track` at `at`.
    pub fn mark(&mut self, track: &str, name: &str, at: Instant) {
        let (track, name) = (self.number(track), self.number(name));
        self.add(track.zip(name).map(|(track, name)| Entry::Mark { track, name, at }));
    }

    /// Returns the number of entries in memory.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no entries in memory.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of entries that were dropped.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Writes the trace in the Chrome trace event format, one event per line.
    ///
    /// # Errors
    /// Fails if `out` fails.
    pub fn write(&self, mut out: impl io::Write) -> io::Result<()> {
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"left_out\":{}}},\"traceEvents\":[", self.left_out)?;
        self.write_entries(&mut out, &mut Vec::new(), &mut false)?;
        out.write_all(b"\n]}\n")
    }

    /// Writes the buffered entries to the file, if there is one, and clears the buffer.
    fn write_piece(&mut self) {
        let Some(mut file) = self.file.take() else { return };
        if file.error.is_none() {
            file.error = self.write_entries(&mut file.out, &mut file.named, &mut file.is_begun).err();
        }
        self.entries.clear();
        self.file = Some(file);
    }

    /// Writes all entries, preceded by the names of tracks that are not yet in `named`.
    fn write_entries(&self, out: &mut dyn io::Write, named: &mut Vec<bool>, is_begun: &mut bool) -> io::Result<()> {
        let mut write = |shown: &Shown<'_>| {
            let separator = if std::mem::replace(is_begun, true) { ",\n" } else { "\n" };
            out.write_all(separator.as_bytes())?;
            serde_json::to_writer(&mut *out, shown).map_err(io::Error::from)
        };
        named.resize(self.names.len(), false);
        // Names that do not belong to a track need no entry.
        for number in self.entries.iter().filter_map(Entry::track_to_name) {
            if !std::mem::replace(&mut named[number as usize], true) {
                let args = Some(Arguments::Name { name: &self.names[number as usize] });
                let name = "thread_name";
                write(&Shown { ph: "M", pid: 1, tid: number, name, ts: 0.0, dur: None, s: None, args })?;
            }
        }
        self.entries.iter().try_for_each(|entry| write(&self.shown(entry)))
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

    /// Returns the index of a name; `None` if the limit of names is reached.
    fn number(&mut self, name: &str) -> Option<u32> {
        if let Some(&number) = self.numbers.get(name) {
            return Some(number);
        }
        let has_space =
            if self.file.is_some() { self.names.len() < NAMES_MAX } else { self.entries.len() < self.entries_max };
        if !has_space {
            return None;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        Some(number)
    }

    /// Adds an entry, unless its names exceeded the limit.
    fn add(&mut self, entry: Option<Entry>) {
        if self.entries.len() >= self.entries_max {
            self.write_piece();
        }
        match entry {
            Some(entry) if self.entries.len() < self.entries_max => self.entries.push(entry),
            _ => self.left_out += 1,
        }
    }
}

impl Entry {
    /// Returns the track if its name must be written: level events contain theirs.
    const fn track_to_name(&self) -> Option<u32> {
        match *self {
            Self::Span { track, .. } | Self::Mark { track, .. } => Some(track),
            Self::Level { .. } => None,
        }
    }
}

/// Converts a time to microseconds, exact to a nanosecond for a hundred days.
fn micros(at: Instant) -> f64 {
    at.as_nanos() as f64 / 1e3
}

impl Simulation {
    /// Starts recording, with at most `entries_max` entries. Discards an earlier recording.
    pub fn record(&self, entries_max: usize) {
        self.sim().set_trace(Some(Trace::new(entries_max)));
    }

    /// Starts recording into `trace`. Discards an earlier recording.
    pub fn record_into(&self, trace: Trace) {
        self.sim().set_trace(Some(trace));
    }

    /// Stops recording and returns the trace; returns `None` if there is none.
    pub fn take_trace(&self) -> Option<Trace> {
        self.sim().set_trace(None)
    }
}

impl Sim {
    /// Begins a span called `name` on `track`. It ends when the returned value is dropped.
    pub fn begin_span(&self, track: &str, name: &str) -> Span {
        let is_traced = self.is_traced();
        // The names are stored only if the run is recorded.
        let kept = |text: &str| if is_traced { text.to_owned() } else { String::new() };
        Span { sim: self.clone(), from: self.now(), track: kept(track), name: kept(name), is_traced }
    }
}

/// An activity that ends when this is dropped.
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

    /// Runs a model with all kinds of entries, recorded on request. Returns the file, the end of
    /// the run and the number of events.
    fn run(entries_max: Option<usize>) -> (Option<String>, u64, u64) {
        let mut simulation = Simulation::new(4, 0);
        if let Some(entries_max) = entries_max {
            simulation.record(entries_max);
        }
        let sim = simulation.sim();
        let (server, store) = (Facility::new(&sim, "desk", 1), Store::new(&sim, "store", 4));
        let ring = Ring::new(&sim, "ring", RingConfig::even(4, 1_000)).unwrap();
        ring.deliver_into(2, store.clone());
        let (clock, customers) = (sim, server);
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
        let file = simulation.take_trace().map(|trace| {
            let mut out = Vec::new();
            trace.write(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        });
        (file, simulation.events(), now)
    }

    #[test]
    fn recording_does_not_change_the_run_and_gives_the_same_file() {
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
        assert_eq!(levels.len(), 40, "twenty increments and twenty decrements");
        assert_eq!((levels[0]["args"]["value"].as_u64(), levels[1]["args"]["value"].as_u64()), (Some(1), Some(0)));
        let last = levels.last().unwrap()["ts"].as_f64().unwrap();
        assert!((last * 1e3 - now as f64).abs() < 0.5, "{last} us, the run ended at {now} ns");
    }

    /// A buffer that the test can inspect while the trace writes to it.
    #[derive(Clone, Default)]
    struct Shared(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);

    impl io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_streamed_trace_has_all_entries_and_bounded_memory() {
        let out = Shared::default();
        let mut trace = Trace::streaming(Box::new(out.clone()), "a \"test\"").unwrap();
        let count = 10 * PIECE_ENTRIES as u64 + 7;
        for number in 0..count {
            let at = Instant::from_nanos(number);
            match number % 3 {
                0 => trace.level("queue", at, number),
                1 => trace.mark("marks", "m", at),
                // A track that first appears late is named, too.
                _ => trace.span(if number > count / 2 { "late" } else { "spans" }, "s", at, at),
            }
            assert!(trace.len() <= PIECE_ENTRIES);
        }
        assert!(out.0.borrow().len() > 1_000_000, "most entries are written before the end");
        trace.finish_file().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out.0.borrow()).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        let named: Vec<_> =
            events.iter().filter(|event| event["ph"] == "M").map(|event| event["args"]["name"].clone()).collect();
        assert_eq!(named, ["marks", "spans", "late"]);
        assert_eq!(events.len() as u64, count + 3);
        assert_eq!((&json["otherData"]["about"], &json["otherData"]["left_out"]), (&"a \"test\"".into(), &0.into()));
    }

    #[test]
    fn a_write_error_is_reported_at_once_and_at_the_end() {
        let full = io::Cursor::new([0; 1000]);
        let mut trace = Trace::streaming(Box::new(full), "full").unwrap();
        assert!(trace.failure().is_none());
        for number in 0..=PIECE_ENTRIES as u64 {
            trace.level("queue", Instant::from_nanos(number), number);
        }
        assert!(trace.failure().is_some() && trace.len() == 1);
        assert!(trace.finish_file().is_err());
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let mut trace = Trace::streaming(Box::new(io::sink()), "names").unwrap();
        for number in 0..NAMES_MAX as u64 + 10 {
            trace.level(&format!("packet {number}"), Instant::from_nanos(number), number);
        }
        assert_eq!((trace.names.len(), trace.left_out()), (NAMES_MAX, 10));
        trace.finish_file().unwrap();
    }

    #[test]
    fn dropped_entries_are_counted() {
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
