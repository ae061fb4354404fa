//! Measures when file data arrives at the application, and the longest gap between arrivals.

use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use net::MonotonicClock;
use transfer::{ConnectionLink, Link, Revision, SendStream};
use units::{Duration, Instant};

/// A connection that records when file streams deliver bytes. Arrivals are recorded where bytes are
/// read. The transfer's own events come in steps of a megabyte, and the last one comes when the
/// file is on disk, so they would include the disk's time.
pub(super) struct TimedLink {
    link: ConnectionLink,
    log: Arc<ArrivalLog>,
}

/// Times since the connection was accepted. Zero if nothing has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrivals {
    /// When the first bytes arrived.
    pub(super) first: Duration,
    /// When the last bytes arrived.
    pub(super) last: Duration,
    /// The longest time between two successive arrivals, over all streams.
    pub(super) longest_gap: Duration,
}

struct ArrivalLog {
    clock: MonotonicClock,
    arrivals: Mutex<Option<Arrivals>>,
}

impl TimedLink {
    /// Starts the clock now.
    pub(super) fn new(link: ConnectionLink) -> Self {
        Self { link, log: Arc::new(ArrivalLog { clock: MonotonicClock::start(), arrivals: Mutex::default() }) }
    }

    /// The arrivals so far.
    pub(super) fn arrivals(&self) -> Arrivals {
        self.log.arrivals.lock().map_or(None, |arrivals| *arrivals).unwrap_or_default()
    }
}

impl Link for TimedLink {
    fn open_uni(&self) -> io::Result<Box<dyn SendStream>> {
        self.link.open_uni()
    }

    fn accept_uni(&self) -> io::Result<Box<dyn Read + Send>> {
        let stream = self.link.accept_uni()?;
        Ok(Box::new(TimedStream { stream, log: Arc::clone(&self.log), bytes: 0 }))
    }

    fn close(&self, reason: &str) {
        self.link.close(reason);
    }

    fn revision(&self) -> Revision {
        self.link.revision()
    }
}

struct TimedStream {
    stream: Box<dyn Read + Send>,
    log: Arc<ArrivalLog>,
    /// Bytes read so far.
    bytes: usize,
}

/// The first byte of a stream is its type and not data. The last stream consists only of it, and
/// arrives after the files were written to disk.
const KIND_BYTES: usize = 1;

impl Read for TimedStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.bytes = self.bytes.saturating_add(count);
        if count > 0
            && self.bytes > KIND_BYTES
            && let Ok(mut arrivals) = self.log.arrivals.lock()
        {
            // The clock is read under the lock, so that the records of several threads are in
            // order.
            Arrivals::record(&mut arrivals, self.log.clock.now());
        }
        Ok(count)
    }
}

impl Arrivals {
    /// Records that bytes arrived at `now`.
    fn record(arrivals: &mut Option<Self>, now: Instant) {
        let at = now.since_start();
        let Some(so_far) = arrivals else {
            *arrivals = Some(Self { first: at, last: at, longest_gap: Duration::ZERO });
            return;
        };
        so_far.longest_gap = so_far.longest_gap.max(at.saturating_sub(so_far.last));
        so_far.last = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Arc<ArrivalLog> {
        Arc::new(ArrivalLog { clock: MonotonicClock::start(), arrivals: Mutex::default() })
    }

    #[test]
    fn the_type_byte_of_a_stream_is_not_data() {
        let log = log();
        let mut stream = TimedStream { stream: Box::new(&[1_u8, 2, 3][..]), log: Arc::clone(&log), bytes: 0 };
        stream.read_exact(&mut [0]).unwrap();
        assert_eq!(*log.arrivals.lock().unwrap(), None);
        stream.read_exact(&mut [0]).unwrap();
        let first = log.arrivals.lock().unwrap().expect("data");
        stream.read_exact(&mut [0]).unwrap();
        let second = log.arrivals.lock().unwrap().expect("data");
        assert!(first.first == second.first && second.last > first.last, "{first:?} {second:?}");
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        assert_eq!(log.arrivals.lock().unwrap().expect("data"), second, "the end of a stream is not data either");
    }

    #[test]
    fn the_longest_gap_lies_between_the_first_byte_and_the_last() {
        let mut arrivals = None;
        for at_ms in [500, 510, 590, 600] {
            Arrivals::record(&mut arrivals, Instant::ZERO + Duration::from_millis(at_ms));
        }
        let expected = Arrivals {
            first: Duration::from_millis(500),
            last: Duration::from_millis(600),
            longest_gap: Duration::from_millis(80),
        };
        assert_eq!(arrivals, Some(expected), "the time before the first byte is not a gap");
    }
}
