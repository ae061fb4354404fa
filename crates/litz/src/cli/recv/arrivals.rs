//! When file data arrive at the application: how long it waited for them, at most.

use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use litz::transfer::{Link, SendStream};
use net::MonotonicClock;
use units::{Duration, Instant};

use crate::cli::link::ConnectionLink;

/// A connection that notes when the streams of files bring bytes.
///
/// Noted where they are read, because the transfer's own events come in steps of a megabyte, and the last one only when the
/// file is on disk: that would measure the disk as well.
pub(super) struct NotedLink {
    link: ConnectionLink,
    notes: Arc<Notes>,
}

/// What was noted: spans since the connection was accepted. Zero where nothing has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrivals {
    /// When the first bytes came.
    pub(super) first: Duration,
    /// When the last bytes came.
    pub(super) last: Duration,
    /// The longest time between two successive arrivals, on whichever streams.
    pub(super) longest_gap: Duration,
}

struct Notes {
    clock: MonotonicClock,
    arrivals: Mutex<Option<Arrivals>>,
}

impl NotedLink {
    /// Counts from now.
    pub(super) fn new(link: ConnectionLink) -> Self {
        Self { link, notes: Arc::new(Notes { clock: MonotonicClock::start(), arrivals: Mutex::default() }) }
    }

    /// What has arrived so far.
    pub(super) fn arrivals(&self) -> Arrivals {
        self.notes.arrivals.lock().map_or(None, |arrivals| *arrivals).unwrap_or_default()
    }
}

impl Link for NotedLink {
    fn open_uni(&self) -> io::Result<Box<dyn SendStream>> {
        self.link.open_uni()
    }

    fn accept_uni(&self) -> io::Result<Box<dyn Read + Send>> {
        let stream = self.link.accept_uni()?;
        Ok(Box::new(NotedStream { stream, notes: Arc::clone(&self.notes), bytes: 0 }))
    }

    fn close(&self, reason: &str) {
        self.link.close(reason);
    }
}

struct NotedStream {
    stream: Box<dyn Read + Send>,
    notes: Arc<Notes>,
    /// Read so far.
    bytes: usize,
}

/// The first byte of a stream says what follows, and is no data. The last stream has nothing else, and comes only after the
/// files were written to disk.
const KIND_BYTES: usize = 1;

impl Read for NotedStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.bytes = self.bytes.saturating_add(count);
        if count > 0
            && self.bytes > KIND_BYTES
            && let Ok(mut arrivals) = self.notes.arrivals.lock()
        {
            // Under the lock, so that what several threads note is in order.
            Arrivals::note(&mut arrivals, self.notes.clock.now());
        }
        Ok(count)
    }
}

impl Arrivals {
    /// Bytes come at `now`.
    fn note(arrivals: &mut Option<Self>, now: Instant) {
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

    fn notes() -> Arc<Notes> {
        Arc::new(Notes { clock: MonotonicClock::start(), arrivals: Mutex::default() })
    }

    #[test]
    fn what_says_the_kind_of_a_stream_is_no_data() {
        let notes = notes();
        let mut stream = NotedStream { stream: Box::new(&[1_u8, 2, 3][..]), notes: Arc::clone(&notes), bytes: 0 };
        stream.read_exact(&mut [0]).unwrap();
        assert_eq!(*notes.arrivals.lock().unwrap(), None);
        stream.read_exact(&mut [0]).unwrap();
        let first = notes.arrivals.lock().unwrap().expect("data");
        stream.read_exact(&mut [0]).unwrap();
        let second = notes.arrivals.lock().unwrap().expect("data");
        assert!(first.first == second.first && second.last > first.last, "{first:?} {second:?}");
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        assert_eq!(notes.arrivals.lock().unwrap().expect("data"), second, "the end of a stream is no data either");
    }

    #[test]
    fn the_longest_gap_lies_between_the_first_byte_and_the_last() {
        let mut arrivals = None;
        for at_ms in [500, 510, 590, 600] {
            Arrivals::note(&mut arrivals, Instant::ZERO + Duration::from_millis(at_ms));
        }
        let expected = Arrivals {
            first: Duration::from_millis(500),
            last: Duration::from_millis(600),
            longest_gap: Duration::from_millis(80),
        };
        assert_eq!(arrivals, Some(expected), "the time before the first byte is no gap");
    }
}
