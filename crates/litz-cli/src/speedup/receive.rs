//! The receive side: the scripted peer sends packets that it has sealed in advance, and an
//! application reads and discards the data. Sealing is not measured, so a run is a sequence of rounds.
//! In each round the scripted peer seals packets, sends them as fast as they are received, and measures
//! the time, until the rounds add up to the requested time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use litz::Costs;
use net::MonotonicClock;
use scripted_peer::round::ROUND_TIME_MAX;
use transfer::CancelToken;
use units::{Duration, Instant};

use super::end::{ReceiveEnd, Source};
use super::failure::Failure;
use super::pins::{Work, thread_time};
use super::run::{Directions, LOOK_INTERVAL, Outcome, Span, add_busy, busy};

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

/// What the measured end sends in the meantime.
pub(super) trait Opposite: Sync {
    /// Begins to send. Returns what was sent so far.
    fn begin_round(&self) -> Sent;

    /// Sends no more. Returns what was sent so far.
    fn end_round(&self) -> Sent;
}

/// What was sent, and what that took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sent {
    pub(super) packets: u64,
    /// Bytes of the application.
    pub(super) bytes: u64,
    /// CPU time of the writing thread.
    pub(super) writing: Duration,
    /// Active time of the receiving processor, if that is not the driver's.
    pub(super) receiver: Duration,
}

/// Measures one run of `end`.
pub(super) fn run(end: &dyn ReceiveEnd, span: Span, cancel: &CancelToken) -> Result<Outcome, Failure> {
    run_beside(end, None, span, cancel)
}

/// Measures one run of `end`, and what it sends in the meantime.
pub(super) fn run_beside(
    end: &dyn ReceiveEnd,
    opposite: Option<&dyn Opposite>,
    span: Span,
    cancel: &CancelToken,
) -> Result<Outcome, Failure> {
    let reading = Reading { clock: MonotonicClock::start(), target: AtomicU64::new(u64::MAX) };
    let (reports, results) = channel();
    let (measured, read) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(end, &reading, &reports));
        let rounds = |source| Rounds {
            end,
            opposite,
            source,
            reading: &reading,
            results: &results,
            read: 0,
            application: Duration::ZERO,
        };
        let measured = end.source().map(rounds).and_then(|mut all| all.run(span, cancel));
        let unauthentic = end.unauthentic();
        reading.target.store(0, Ordering::Relaxed);
        end.close();
        (measured.map(|measured| (measured, unauthentic)), reader.join())
    });
    let read = read.map_err(|_| Failure::Error("the reading thread panicked".to_owned()))?;
    let (mut outcome, unauthentic) = measured?;
    read.map_err(Failure::Error)?;
    if unauthentic > 0 {
        return Err(Failure::Error(format!("{unauthentic} packets of the scripted peer failed authentication")));
    }
    outcome.stage = end.workers();
    Ok(outcome)
}

/// Reads and discards data, and reports each complete round.
fn read(end: &dyn ReceiveEnd, reading: &Reading, reports: &Sender<Done>) -> Result<(), String> {
    end.pins().pin_thread(Work::Reading)?;
    let is_over = || reading.target.load(Ordering::Relaxed) == 0;
    let mut read = match end.reader() {
        Ok(read) => read,
        Err(_) if is_over() => return Ok(()),
        Err(error) => return Err(error),
    };
    let (mut read_bytes, mut told_bytes) = (0, 0);
    loop {
        match read() {
            Ok(bytes) => read_bytes += bytes as u64,
            Err(_) if is_over() => return Ok(()),
            Err(error) => return Err(format!("the connection failed: {error}")),
        }
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
    end: &'a dyn ReceiveEnd,
    opposite: Option<&'a dyn Opposite>,
    source: Box<dyn Source<'a> + 'a>,
    reading: &'a Reading,
    results: &'a Receiver<Done>,
    /// Bytes of the application in all rounds.
    read: u64,
    application: Duration,
}

/// The costs of a round.
struct Measured {
    packets: u64,
    bytes: u64,
    time: Duration,
    application: Duration,
    costs: Option<Costs>,
    /// What was sent in the meantime, if that is measured.
    sent: Option<Sent>,
}

impl Rounds<'_> {
    fn run(&mut self, span: Span, cancel: &CancelToken) -> Result<Outcome, Failure> {
        let mut warm = Duration::ZERO;
        // At least one round opens the stream and fills the caches.
        while warm.is_zero() || warm < span.warm_up {
            warm += self.round(cancel)?.time;
        }
        let mut sum = Outcome::default();
        while sum.time.is_zero() || sum.time < span.time {
            let begin = busy(self.end.workers());
            let round = self.round(cancel)?;
            add_busy(&mut sum.busy, &begin, &busy(self.end.workers()));
            sum.packets += round.packets as f64;
            sum.bytes += round.bytes as f64;
            sum.time += round.time;
            sum.application += round.application;
            if let Some(sent) = &round.sent {
                sum.packets += sent.packets as f64;
                sum.bytes += sent.bytes as f64;
                sum.application += sent.writing;
                sum.directions.get_or_insert_default().add(&round.directions(sent));
            }
            sum.costs.extend(round.costs);
        }
        Ok(sum)
    }

    fn round(&mut self, cancel: &CancelToken) -> Result<Measured, Failure> {
        let round = self.source.make()?;
        let (packets, bytes) = (round.packets, round.bytes);
        self.read += bytes;
        let costs = self.end.costs();
        let sent_before = self.opposite.map(|opposite| opposite.begin_round());
        self.reading.target.store(self.read, Ordering::Release);
        let began_at = self.reading.clock.now();
        (round.feed)();
        let done = self.wait(began_at, cancel)?;
        let application = done.application.saturating_sub(self.application);
        self.application = done.application;
        let costs = self.end.costs().zip(costs).map(|(late, begin)| late.since(&begin));
        let time = done.at.saturating_since(began_at);
        let sent =
            self.opposite.map(|opposite| opposite.end_round()).zip(sent_before).map(|(late, begin)| late.since(&begin));
        Ok(Measured { packets, bytes, time, application, costs, sent })
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
            self.end.check()?;
            if self.end.workers().is_some_and(|stats| stats.batches_lost > 0) {
                let message = "a processor was interrupted for so long that its work was abandoned: \
                                 stop other programs and repeat";
                return Err(Failure::Error(message.to_owned()));
            }
            if self.reading.clock.now().saturating_since(began_at) > ROUND_TIME_MAX {
                return Err(Failure::Error("some bytes of the scripted peer were not received".to_owned()));
            }
        }
    }
}

impl Sent {
    fn since(&self, begin: &Self) -> Self {
        Self {
            packets: self.packets - begin.packets,
            bytes: self.bytes - begin.bytes,
            writing: self.writing.saturating_sub(begin.writing),
            receiver: self.receiver.saturating_sub(begin.receiver),
        }
    }
}

impl Measured {
    /// Both directions of the round.
    fn directions(&self, sent: &Sent) -> Directions {
        Directions {
            sent_bytes: sent.bytes as f64,
            received_bytes: self.bytes as f64,
            received_packets: self.packets as f64,
            writing: sent.writing,
            reading: self.application,
            receiver: sent.receiver,
            one_way: Duration::ZERO,
        }
    }
}
