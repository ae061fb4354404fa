//! The receive side: the scripted peer sends packets that it has sealed in advance, and an
//! application reads and discards the data. Sealing is not measured, so a run is a sequence of rounds.
//! In each round the scripted peer seals packets, sends them as fast as they are received, and measures
//! the time, until the rounds add up to the requested time. If both directions are measured, the time
//! ends before the packets do, so that both are busy until then.

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
    /// When it had read what is measured.
    mark: Mark,
    /// CPU time of its thread so far.
    application: Duration,
}

/// The state of the measured end at one time.
struct Mark {
    at: Instant,
    /// Bytes of the application that were read so far.
    read: u64,
    /// CPU time of the reading thread so far.
    application: Duration,
    costs: Option<Costs>,
    /// Busy time so far of the processors other than the driver's.
    busy: Vec<Duration>,
    /// What was sent so far, if that is measured.
    sent: Option<Sent>,
}

/// The measured end, and the bytes that the application reads before it reports.
struct Reading<'a> {
    end: &'a dyn ReceiveEnd,
    opposite: Option<&'a dyn Opposite>,
    clock: MonotonicClock,
    /// Bytes after which the measured part of the round ends.
    measured: AtomicU64,
    /// Bytes after which the round ends.
    target: AtomicU64,
}

impl Reading<'_> {
    /// The state now. The thread that reads takes the mark that ends a round, because meanwhile the
    /// directions still keep step.
    fn mark(&self, read: u64, application: Duration) -> Mark {
        let sent = self.opposite.map(Opposite::sent);
        let (at, costs, busy) = (self.clock.now(), self.end.costs(), busy(self.end.workers()));
        Mark { at, read, application, costs, busy, sent }
    }
}

/// What the measured end sends in the meantime.
pub(super) trait Opposite: Sync {
    /// Begins to send.
    fn begin_round(&self);

    /// Sends no more.
    fn end_round(&self);

    /// What was sent so far.
    fn sent(&self) -> Sent;
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
    let [measured, target] = [u64::MAX; 2].map(AtomicU64::new);
    let reading = Reading { end, opposite, clock: MonotonicClock::start(), measured, target };
    let (reports, results) = channel();
    let (measured, read) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&reading, &reports));
        let rounds =
            |source| Rounds { source, reading: &reading, results: &results, read: 0, application: Duration::ZERO };
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
fn read(reading: &Reading<'_>, reports: &Sender<Done>) -> Result<(), String> {
    reading.end.pins().pin_thread(Work::Reading)?;
    let is_over = || reading.target.load(Ordering::Relaxed) == 0;
    let mut read = match reading.end.reader() {
        Ok(read) => read,
        Err(_) if is_over() => return Ok(()),
        Err(error) => return Err(error),
    };
    let (mut read_bytes, mut told_bytes, mut mark) = (0, 0, None);
    loop {
        match read() {
            Ok(bytes) => read_bytes += bytes as u64,
            Err(_) if is_over() => return Ok(()),
            Err(error) => return Err(format!("the connection failed: {error}")),
        }
        let target = reading.target.load(Ordering::Acquire);
        if mark.is_none() && read_bytes >= reading.measured.load(Ordering::Relaxed) {
            mark = Some(reading.mark(read_bytes, thread_time()));
        }
        if read_bytes == target && told_bytes < target {
            told_bytes = target;
            let mark = mark.take().expect("what is measured is a part of the round");
            if reports.send(Done { mark, application: thread_time() }).is_err() {
                return Ok(());
            }
        }
    }
}

/// The scripted peer's part of a run.
struct Rounds<'a> {
    source: Box<dyn Source<'a> + 'a>,
    reading: &'a Reading<'a>,
    results: &'a Receiver<Done>,
    /// Bytes of the application in all rounds.
    read: u64,
    /// CPU time of the reading thread in all rounds.
    application: Duration,
}

/// The costs of the measured part of a round.
struct Measured {
    packets: f64,
    begin: Mark,
    end: Mark,
}

impl Rounds<'_> {
    fn run(&mut self, span: Span, cancel: &CancelToken) -> Result<Outcome, Failure> {
        let mut warm = Duration::ZERO;
        // At least one round opens the stream and fills the caches.
        while warm.is_zero() || warm < span.warm_up {
            warm += self.round(cancel)?.time();
        }
        let mut sum = Outcome::default();
        while sum.time.is_zero() || sum.time < span.time {
            let round = self.round(cancel)?;
            add_busy(&mut sum.busy, &round.begin.busy, &round.end.busy);
            sum.packets += round.packets;
            sum.bytes += round.bytes();
            sum.time += round.time();
            sum.application += round.application();
            if let Some(sent) = round.sent() {
                sum.packets += sent.packets as f64;
                sum.bytes += sent.bytes as f64;
                sum.application += sent.writing;
                sum.directions.get_or_insert_default().add(&round.directions(&sent));
            }
            let (begin, end) = (round.begin.costs, round.end.costs);
            sum.costs.extend(end.zip(begin).map(|(late, begin)| late.since(&begin)));
        }
        Ok(sum)
    }

    fn round(&mut self, cancel: &CancelToken) -> Result<Measured, Failure> {
        let round = self.source.make()?;
        let reading = self.reading;
        // The one before the round began. Nothing of it is read or sent yet.
        let begin = reading.mark(self.read, self.application);
        if let Some(opposite) = reading.opposite {
            opposite.begin_round();
        }
        reading.measured.store(self.read + round.measured_bytes, Ordering::Relaxed);
        self.read += round.bytes;
        reading.target.store(self.read, Ordering::Release);
        (round.feed)();
        let done = self.wait(begin.at, cancel)?;
        if let Some(opposite) = reading.opposite {
            opposite.end_round();
        }
        self.application = done.application;
        let share = (done.mark.read - begin.read) as f64 / round.bytes as f64;
        Ok(Measured { packets: round.packets as f64 * share, begin, end: done.mark })
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
            self.reading.end.check()?;
            if self.reading.end.workers().is_some_and(|stats| stats.batches_lost > 0) {
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
    fn bytes(&self) -> f64 {
        (self.end.read - self.begin.read) as f64
    }

    fn time(&self) -> Duration {
        self.end.at.saturating_since(self.begin.at)
    }

    /// CPU time of the reading thread.
    fn application(&self) -> Duration {
        self.end.application.saturating_sub(self.begin.application)
    }

    /// What was sent in the meantime, if that is measured.
    fn sent(&self) -> Option<Sent> {
        self.end.sent.zip(self.begin.sent).map(|(late, begin)| late.since(&begin))
    }

    /// Both directions.
    fn directions(&self, sent: &Sent) -> Directions {
        Directions {
            sent_bytes: sent.bytes as f64,
            received_bytes: self.bytes(),
            received_packets: self.packets,
            writing: sent.writing,
            reading: self.application(),
            receiver: sent.receiver,
            one_way: Duration::ZERO,
        }
    }
}
