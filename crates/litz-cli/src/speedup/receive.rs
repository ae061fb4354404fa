//! The receive side: the scripted peer sends packets that it has sealed in advance, and an
//! application reads and discards the data. Each path has its own stream, so that no data waits for
//! another path. Sealing is not measured, so a run is a sequence of rounds. In each round the
//! scripted peer seals packets, sends them as fast as they are received, and measures the time,
//! until the rounds add up to the requested time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use bytes::Bytes;
use litz::{Costs, StreamId};
use net::MonotonicClock;
use quic::{Dir, Side as QuicSide};
use scripted_peer::channel::Channel;
use scripted_peer::receive_side::AckTiming;
use scripted_peer::round::{ROUND_BYTES, ROUND_TIME_MAX, Step, Writing, request_few_acks, seal_all};
use transfer::CancelToken;
use units::{Duration, Instant};

use super::failure::Failure;
use super::run::{CHUNK_LEN, LOOK_INTERVAL, Outcome, Span, add_busy, busy};
use super::streams::Streams;
use super::test_bed::{Setup, TestBed, Work, thread_time};

/// Batches between two packet numbers reserved for the scripted peer's acknowledgements, so that
/// the receiver gets answers.
const BATCHES_PER_ACK: usize = 64;

/// Packets on all paths before a key update: the value of the library's send half.
const KEY_UPDATE_EVERY: u64 = 1 << 21;

/// The application has read all data of a round.
struct Done {
    at: Instant,
    /// CPU time of its thread so far.
    application: Duration,
}

/// The bytes that the application reads before it reports.
struct Reading {
    clock: MonotonicClock,
    target: AtomicU64,
}

pub(super) fn run(setup: &Setup, span: Span, cancel: &CancelToken) -> Result<Outcome, Failure> {
    let test_bed = TestBed::new(setup, cancel)?;
    let reading = Reading { clock: MonotonicClock::start(), target: AtomicU64::new(u64::MAX) };
    let (reports, results) = channel();
    let (measured, read) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&test_bed, setup.paths, &reading, &reports));
        let measured = Rounds::new(&test_bed, setup, &reading, &results).and_then(|mut all| all.run(span, cancel));
        let unauthentic = test_bed.connection.stats().receive.packets_unauthentic;
        reading.target.store(0, Ordering::Relaxed);
        test_bed.endpoint.close();
        (measured.map(|measured| (measured, unauthentic)), reader.join())
    });
    let read = read.map_err(|_| Failure::Error("the reading thread panicked".to_owned()))?;
    let (mut outcome, unauthentic) = measured?;
    read.map_err(Failure::Error)?;
    if unauthentic > 0 {
        return Err(Failure::Error(format!("{unauthentic} packets of the scripted peer failed authentication")));
    }
    outcome.stage = test_bed.endpoint.worker_pool_stats();
    Ok(outcome)
}

/// Reads and discards data, and reports each complete round.
fn read(test_bed: &TestBed, paths: u16, reading: &Reading, reports: &Sender<Done>) -> Result<(), String> {
    test_bed.pin_thread(Work::Reading)?;
    let is_over = || reading.target.load(Ordering::Relaxed) == 0;
    let mut streams = match Streams::accept(&test_bed.connection, paths) {
        Ok(streams) => streams,
        Err(_) if is_over() => return Ok(()),
        Err(error) => return Err(error),
    };
    let (mut read_bytes, mut told_bytes) = (0, 0);
    loop {
        let chunk = match streams.read_strided() {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Err("the scripted peer ended a stream".to_owned()),
            Err(_) if is_over() => return Ok(()),
            Err(error) => return Err(format!("the connection failed: {error}")),
        };
        read_bytes += chunk.len() as u64;
        drop(chunk);
        let target = reading.target.load(Ordering::Acquire);
        if read_bytes == target && told_bytes < target {
            told_bytes = target;
            if reports.send(Done { at: reading.clock.now(), application: thread_time() }).is_err() {
                return Ok(());
            }
        }
    }
}

/// The scripted peer's part of a run.
struct Rounds<'a> {
    test_bed: &'a TestBed,
    setup: &'a Setup,
    reading: &'a Reading,
    results: &'a Receiver<Done>,
    pattern: Bytes,
    /// Bytes planned so far of each path's stream.
    offsets: Vec<u64>,
    /// Packets since the last key update.
    sealed_in_phase: u64,
    application: Duration,
}

/// The costs of a round.
struct Round {
    packets: u64,
    bytes: u64,
    time: Duration,
    application: Duration,
    costs: Option<Costs>,
}

impl<'a> Rounds<'a> {
    fn new(
        test_bed: &'a TestBed,
        setup: &'a Setup,
        reading: &'a Reading,
        results: &'a Receiver<Done>,
    ) -> Result<Self, Failure> {
        let channels = &test_bed.link.channels;
        channels.iter().for_each(|channel| channel.set_ack_timing(AckTiming::InPlace));
        let pattern = Bytes::from(vec![7; CHUNK_LEN]);
        let (application, offsets, sealed_in_phase) = (Duration::ZERO, vec![0; channels.len()], 0);
        // One path is the send side of all.
        request_few_acks(&channels[0]).map_err(Failure::Error)?;
        Ok(Self { test_bed, setup, reading, results, pattern, offsets, sealed_in_phase, application })
    }

    fn run(&mut self, span: Span, cancel: &CancelToken) -> Result<Outcome, Failure> {
        let mut warm = Duration::ZERO;
        // At least one round opens the stream and fills the caches.
        while warm.is_zero() || warm < span.warm_up {
            warm += self.round(cancel)?.time;
        }
        let mut sum = Outcome::default();
        while sum.time.is_zero() || sum.time < span.time {
            let begin = busy(&self.test_bed.endpoint);
            let round = self.round(cancel)?;
            add_busy(&mut sum.busy, &begin, &busy(&self.test_bed.endpoint));
            sum.packets += round.packets as f64;
            sum.bytes += round.bytes as f64;
            sum.time += round.time;
            sum.application += round.application;
            sum.costs.extend(round.costs);
        }
        Ok(sum)
    }

    fn round(&mut self, cancel: &CancelToken) -> Result<Round, Failure> {
        let written = |offsets: &[u64]| offsets.iter().sum::<u64>();
        let from = written(&self.offsets);
        let channels = &self.test_bed.link.channels;
        if self.sealed_in_phase >= KEY_UPDATE_EVERY && self.test_bed.link.update_keys().map_err(Failure::Error)? {
            self.sealed_in_phase = 0;
        }
        let (mut packets, mut all) = (0, Vec::with_capacity(channels.len()));
        for (path, channel) in channels.iter().enumerate() {
            let steps = self.plan(path, channel).map_err(Failure::Error)?;
            packets += steps.iter().map(Step::packets).sum::<u64>();
            all.push((channel, seal_all(steps, channel.take_spare())));
        }
        self.sealed_in_phase += packets;
        let to = written(&self.offsets);
        let costs = self.test_bed.endpoint.costs();
        self.reading.target.store(to, Ordering::Release);
        let began_at = self.reading.clock.now();
        all.into_iter().for_each(|(channel, items)| channel.feed(items));
        let done = self.wait(began_at, cancel)?;
        let application = done.application.saturating_sub(self.application);
        self.application = done.application;
        let costs = self.test_bed.endpoint.costs().zip(costs).map(|(end, begin)| end.since(&begin));
        let time = done.at.saturating_since(began_at);
        Ok(Round { packets, bytes: to - from, time, application, costs })
    }

    fn wait(&self, began_at: Instant, cancel: &CancelToken) -> Result<Done, Failure> {
        loop {
            match self.results.recv_timeout(LOOK_INTERVAL.into()) {
                Ok(done) => return Ok(done),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Error("the reading thread has ended".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            self.test_bed.check()?;
            if self.test_bed.endpoint.worker_pool_stats().is_some_and(|stats| stats.batches_lost > 0) {
                let message = "a processor was interrupted for so long that its work was abandoned: \
                                 stop other programs and repeat";
                return Err(Failure::Error(message.to_owned()));
            }
            if self.reading.clock.now().saturating_since(began_at) > ROUND_TIME_MAX {
                return Err(Failure::Error("some bytes of the scripted peer were not received".to_owned()));
            }
        }
    }

    /// Plans a round on one path; all paths have the same amount.
    fn plan(&mut self, path: usize, channel: &Channel) -> Result<Vec<Step>, String> {
        let share = ROUND_BYTES / self.offsets.len() as u64;
        let mut writing = Writing {
            id: StreamId::new(QuicSide::Server, Dir::Uni, path as u64),
            offset: &mut self.offsets[path],
            pattern: &self.pattern,
            size: self.setup.datagram_size,
            batches_per_ack: BATCHES_PER_ACK,
        };
        channel.with_script(|script| writing.plan(script, share))
    }
}
