//! The records of a file: a JSON text sequence in chronological order.

use std::io::{self, Write};

use serde_json::{Value, json};
use units::Instant;
use wire::quic::PathId;

/// Record separator of a JSON text sequence (RFC 7464, section 2.2).
const RECORD_SEPARATOR: u8 = 0x1e;

/// Writer of the events of a file.
pub(crate) struct Events<W> {
    out: W,
    began_at: Instant,
    /// Time of the last event. Times never decrease in a file.
    last: Instant,
    count: u64,
}

impl<W: Write> Events<W> {
    /// Writes the header. Times count from `began_at`.
    pub(crate) fn begin(out: W, began_at: Instant, header: &Value) -> io::Result<Self> {
        let mut events = Self { out, began_at, last: began_at, count: 0 };
        events.record(header)?;
        Ok(events)
    }

    /// Writes one event. `path` is its group: qvis shows each path as a separate connection.
    pub(crate) fn put(&mut self, at: Instant, path: PathId, name: &str, data: &Value) -> io::Result<()> {
        self.last = self.last.max(at);
        let time = self.last.saturating_since(self.began_at).as_nanos() as f64 / 1e6;
        let event = json!({ "time": time, "name": name, "group_id": path.0.to_string(), "data": data });
        self.count += 1;
        self.record(&event)
    }

    fn record(&mut self, value: &Value) -> io::Result<()> {
        self.out.write_all(&[RECORD_SEPARATOR])?;
        serde_json::to_writer(&mut self.out, value).map_err(io::Error::from)?;
        self.out.write_all(b"\n")
    }

    /// Flushes the file. Returns the number of its events.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        self.out.flush()?;
        Ok(self.count)
    }
}
