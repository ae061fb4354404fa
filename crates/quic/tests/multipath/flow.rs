//! A stream with unlimited data, and the progress of its reader over time.

use bytes::Bytes;
use quic::{Dir, Side, WriteError};
use units::{Duration, Instant};

use crate::support::apps::{Reader, pattern_byte};
use crate::support::{Node, Pair};

/// One endless ordered stream.
pub(crate) struct Flow {
    from: Side,
    id: quic::StreamId,
    written: u64,
    /// The next chunk to write.
    pending: Bytes,
    reader: Option<Reader>,
    /// Bytes read in order by each moment at which the count rose.
    log: Vec<(Instant, u64)>,
}

impl Flow {
    /// Opens a stream from `from` to the other side.
    pub(crate) fn new(pair: &mut Pair, from: Side) -> Self {
        let id = node(pair, from).connection(0).open(Dir::Uni).expect("a stream is allowed");
        Self { from, id, written: 0, pending: Bytes::new(), reader: None, log: vec![(pair.now, 0)] }
    }

    /// Keeps the stream busy for `span`.
    pub(crate) fn run(&mut self, pair: &mut Pair, span: Duration) {
        run_all(pair, &mut [self], span);
    }

    /// Writes and reads as much as possible.
    pub(crate) fn pump(&mut self, pair: &mut Pair) {
        const CHUNK: u64 = 16 * 1024;
        let connection = node(pair, self.from).connection(0);
        loop {
            if self.pending.is_empty() {
                self.pending =
                    (self.written..self.written + CHUNK).map(|offset| pattern_byte(self.id, offset)).collect();
            }
            match connection.write(self.id, self.pending.clone()) {
                Ok(()) => self.written += std::mem::take(&mut self.pending).len() as u64,
                Err(WriteError::Blocked) => break,
                Err(error) => {
                    let last = std::iter::from_fn(|| connection.poll_event()).last();
                    panic!("stream {}: {error}: {last:?}", self.id);
                }
            }
        }
        let now = pair.now;
        let connection = node(pair, other(self.from)).connection(0);
        if self.reader.is_none() {
            self.reader = connection.accept(Dir::Uni).map(Reader::new);
        }
        let Some(reader) = &mut self.reader else { return };
        reader.pump(now, connection);
        if reader.read > self.log.last().map_or(0, |last| last.1) {
            self.log.push((now, reader.read));
        }
    }

    /// Bytes read in order so far.
    pub(crate) fn read(&self) -> u64 {
        self.log.last().map_or(0, |last| last.1)
    }

    /// Bytes read in order by `at`.
    fn read_by(&self, at: Instant) -> u64 {
        self.log.iter().rev().find(|(then, _)| *then <= at).map_or(0, |(_, read)| *read)
    }

    /// The rate of in-order reads between two moments.
    pub(crate) fn mbps(&self, from: Instant, to: Instant) -> f64 {
        let bytes = self.read_by(to) - self.read_by(from);
        bytes as f64 * 8_000.0 / to.saturating_since(from).as_nanos() as f64
    }

    /// The rate of in-order reads in the last second.
    pub(crate) fn mbps_lately(&self, pair: &Pair) -> f64 {
        let ago = pair.now.saturating_since(Instant::ZERO).saturating_sub(Duration::from_secs(1));
        self.mbps(Instant::ZERO + ago, pair.now)
    }

    /// The longest time without an in-order byte between two moments, and when it began.
    pub(crate) fn longest_gap(&self, from: Instant, to: Instant) -> (Duration, Instant) {
        let inside = self.log.iter().map(|(at, _)| *at).filter(|at| *at > from && *at < to);
        let times: Vec<Instant> = [from].into_iter().chain(inside).chain([to]).collect();
        let gaps = times.windows(2).map(|pair| (pair[1].saturating_since(pair[0]), pair[0]));
        gaps.max_by_key(|(gap, _)| *gap).expect("there are two moments")
    }
}

/// Keeps several streams busy for `span`.
pub(crate) fn run_all(pair: &mut Pair, flows: &mut [&mut Flow], span: Duration) {
    let done = pair.run_until(span, |pair| {
        flows.iter_mut().for_each(|flow| flow.pump(pair));
        false
    });
    debug_assert!(!done, "the data are unlimited");
}

pub(crate) fn node(pair: &mut Pair, side: Side) -> &mut Node {
    match side {
        Side::Client => &mut pair.client,
        Side::Server => &mut pair.server,
    }
}

pub(crate) fn other(side: Side) -> Side {
    match side {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    }
}
