//! Both sides at once: one thread of the application writes while another reads, and the scripted
//! peer acknowledges and sends packets that it has sealed in advance. Document 002 splits a
//! connection for this case. A run is a sequence of rounds, as on the receive side. In each round
//! both directions transfer the same amount, and the clock runs until both have finished, so that
//! every placement does the same work. The scripted peer sends at the pace at which it receives
//! ([`AckTiming::Duplex`]), so both directions are busy until the faster one has finished. In the
//! first round, which does not count, every byte of both directions is checked.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use litz::{Costs, StreamId};
use net::MonotonicClock;
use quic::{Dir, Side as QuicSide};
use scripted_peer::channel::Channel;
use scripted_peer::pattern::{PATTERN_LEN, Pattern};
use scripted_peer::receive_side::{ACK_EVERY, AckTiming};
use scripted_peer::round::{ROUND_BYTES, ROUND_TIME_MAX, Step, Writing, batch_len, request_few_acks, seal_all};
use transfer::CancelToken;
use units::{Duration, Instant};

use super::failure::Failure;
use super::pins::{Work, thread_time};
use super::run::{Directions, Outcome, Span};
use super::streams::Streams;
use super::test_bed::{Setup, TestBed};

/// Number of chunks written in a round.
const CHUNKS: u64 = ROUND_BYTES / PATTERN_LEN as u64;

/// Number of packets in either direction after which the scripted peer updates the keys, at the
/// next round. The measured end would do so at 2^21 packets, in the middle of a round, in which
/// packets are already sealed. A round has about 2^16 packets.
const KEY_UPDATE_EVERY: u64 = 1 << 20;

/// How often to check for an interrupt, and whether the scripted peer has missed that an
/// acknowledgement is due because the last packet of a round was full-sized.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// A batch of this size makes the driver detach the receive half.
const BULK_FROM: usize = 8 << 10;

/// Maximum time to detach the receive half.
const DETACH_TIME_MAX: Duration = Duration::from_secs(5);

/// One direction of a round has finished.
struct Done {
    work: Work,
    at: Instant,
    /// CPU time of its thread so far.
    application: Duration,
}

/// The task of the reading thread in a round.
struct ToRead {
    /// Offset in the stream to read up to.
    until: u64,
    /// Whether to check each byte.
    is_checked: bool,
}

pub(super) fn run(setup: &Setup, span: Span, cancel: &CancelToken) -> Result<Outcome, Failure> {
    run_updating(setup, span, KEY_UPDATE_EVERY, cancel)
}

/// As `run`, with a key update after `key_update_every` packets in either direction.
pub(super) fn run_updating(
    setup: &Setup,
    span: Span,
    key_update_every: u64,
    cancel: &CancelToken,
) -> Result<Outcome, Failure> {
    let test_bed = TestBed::new(setup, cancel)?;
    let (clock, pattern) = (MonotonicClock::start(), Pattern::new());
    let ((reports, results), (to_write, writes), (to_read, reads)) = (channel(), channel(), channel());
    let (measured, ended) = std::thread::scope(|scope| {
        let app_thread = |reports| AppThread { test_bed: &test_bed, clock: &clock, pattern: &pattern, reports };
        let (writer, reader) = (app_thread(reports.clone()), app_thread(reports));
        let threads = [
            scope.spawn(move || writer.report_failure(writer.write(&writes))),
            scope.spawn(move || reader.report_failure(reader.read(&reads))),
        ];
        let (test_bed, clock, pattern) = (&test_bed, &clock, &pattern);
        let runner = RoundRunner { test_bed, clock, pattern, key_update_every, results, to_write, to_read };
        let measured = runner.run(setup, span, cancel);
        // Threads that wait for the connection get an error; those that wait for work find the
        // channel closed.
        test_bed.endpoint.close();
        (measured, threads.map(|thread| thread.join()))
    });
    if ended.iter().any(Result::is_err) {
        return Err(Failure::Error("a thread of the application panicked".to_owned()));
    }
    let mut outcome = measured?;
    outcome.stage = test_bed.endpoint.worker_pool_stats();
    Ok(outcome)
}

/// A thread of the application.
struct AppThread<'a> {
    test_bed: &'a TestBed,
    clock: &'a MonotonicClock,
    pattern: &'a Pattern,
    /// The result of each round, or the error that ended the thread.
    reports: Sender<Result<Done, String>>,
}

impl AppThread<'_> {
    /// Reports a finished round; false if the receiver of the results is gone.
    fn report_done(&self, work: Work) -> bool {
        self.reports.send(Ok(Done { work, at: self.clock.now(), application: thread_time() })).is_ok()
    }

    fn report_failure(&self, ended: Result<(), String>) {
        if let Err(message) = ended {
            // At the end the receiver may be gone.
            let _gone = self.reports.send(Err(message));
        }
    }

    /// Writes a stream in each round, and reports when all of it is acknowledged.
    fn write(&self, work: &Receiver<()>) -> Result<(), String> {
        self.test_bed.pin_thread(Work::Writing)?;
        let to_message = |error: &dyn std::fmt::Display| format!("the connection failed: {error}");
        let open = || self.test_bed.connection.open_uni().map_err(|error| to_message(&error));
        // Before the clock starts.
        let mut stream = open()?;
        while work.recv().is_ok() {
            for _ in 0..CHUNKS {
                stream.write_chunk(self.pattern.bytes().clone()).map_err(|error| to_message(&error))?;
            }
            let finished = stream.finish().and_then(|()| stream.wait_finished());
            finished.map_err(|error| to_message(&error))?;
            if !self.report_done(Work::Writing) {
                break;
            }
            stream = open()?;
        }
        Ok(())
    }

    /// Reads the scripted peer's stream, and reports when a round is complete.
    fn read(&self, work: &Receiver<ToRead>) -> Result<(), String> {
        self.test_bed.pin_thread(Work::Reading)?;
        let mut streams = Streams::accept(&self.test_bed.connection, 1)?;
        let mut offset = 0;
        while let Ok(ToRead { until, is_checked }) = work.recv() {
            while offset < until {
                let chunk = streams.read_strided().map_err(|error| format!("the connection failed: {error}"))?;
                let chunk = chunk.ok_or("the scripted peer ended a stream")?;
                let mut at = offset;
                for piece in chunk.pieces().filter(|_| is_checked) {
                    if !self.pattern.matches(at, piece) {
                        return Err(format!(
                            "the data read at offset {at} of the stream is not what the scripted peer sent"
                        ));
                    }
                    at += piece.len() as u64;
                }
                offset += chunk.len() as u64;
            }
            if !self.report_done(Work::Reading) {
                break;
            }
        }
        Ok(())
    }
}

/// Runs the rounds.
struct RoundRunner<'a> {
    test_bed: &'a TestBed,
    clock: &'a MonotonicClock,
    pattern: &'a Pattern,
    /// Number of packets in either direction.
    key_update_every: u64,
    results: Receiver<Result<Done, String>>,
    to_write: Sender<()>,
    to_read: Sender<ToRead>,
}

/// The progress of a run.
#[derive(Default)]
struct Progress {
    /// Bytes of the scripted peer's stream planned so far.
    offset: u64,
    /// Packets since the last key update, of the scripted peer and of the measured end.
    sealed_in_phase: u64,
    sent_in_phase: u64,
    /// CPU time of both threads so far.
    writing: Duration,
    reading: Duration,
}

/// The result of a round.
struct Round {
    sent_packets: u64,
    time: Duration,
    directions: Directions,
    costs: Option<Costs>,
}

impl RoundRunner<'_> {
    /// Runs to the end, and closes the channels to the threads.
    fn run(self, setup: &Setup, span: Span, cancel: &CancelToken) -> Result<Outcome, Failure> {
        let channel = &self.test_bed.link.channels[0];
        let mut progress = Progress::default();
        self.detach_receive_half(channel, setup, &mut progress)?;
        let mut warm = self.checked_round(channel, setup, &mut progress, cancel)?;
        while warm < span.warm_up {
            warm += self.round(channel, setup, &mut progress, false, cancel)?.time;
        }
        let mut sum = Outcome::default();
        let mut directions = Directions::default();
        while sum.time.is_zero() || sum.time < span.time {
            let round = self.round(channel, setup, &mut progress, false, cancel)?;
            sum.packets += round.sent_packets as f64 + round.directions.received_packets;
            sum.bytes += round.directions.sent_bytes + round.directions.received_bytes;
            sum.time += round.time;
            sum.application += round.directions.writing + round.directions.reading;
            sum.costs.extend(round.costs);
            directions.add(&round.directions);
        }
        sum.directions = Some(directions);
        let stats = self.test_bed.connection.stats();
        sum.packets_lost = stats.send.packets_lost;
        match stats.receive.packets_unauthentic {
            0 => Ok(sum),
            count => Err(Failure::Error(format!("{count} packets of the scripted peer failed authentication"))),
        }
    }

    /// Sends a first batch by itself. With `split` it makes the driver detach the receive half.
    /// Packets that arrive during this may be lost, and the scripted peer does not retransmit.
    fn detach_receive_half(&self, channel: &Channel, setup: &Setup, progress: &mut Progress) -> Result<(), Failure> {
        channel.set_ack_timing(AckTiming::InPlace);
        request_few_acks(channel).map_err(Failure::Error)?;
        // The first bytes of a stream fill a packet, the next ones a batch: the first large batch
        // is the last one.
        let bytes = if setup.datagram_size < BULK_FROM { setup.datagram_size as u64 } else { 1 };
        let steps = self.plan(channel, setup, progress, bytes).map_err(Failure::Error)?;
        channel.feed(seal_all(steps, Vec::new()));
        let until = self.clock.now() + DETACH_TIME_MAX;
        while self.test_bed.endpoint.receive_worker_stats().is_some_and(|stats| stats.detached == 0) {
            // The threads have no work yet, so they can report only failures.
            if let Ok(Err(message)) = self.results.recv_timeout(Duration::from_millis(1).into()) {
                return Err(Failure::Error(message));
            }
            self.test_bed.check()?;
            if self.clock.now() > until {
                return Err(Failure::Error("the receive half of the connection was not detached".to_owned()));
            }
        }
        Ok(())
    }

    /// The first round: opens the streams, fills the caches, and checks every byte. Returns how
    /// long it took.
    fn checked_round(
        &self,
        channel: &Channel,
        setup: &Setup,
        progress: &mut Progress,
        cancel: &CancelToken,
    ) -> Result<Duration, Failure> {
        channel.begin_check(self.pattern).map_err(Failure::Error)?;
        let round = self.round(channel, setup, progress, true, cancel)?;
        let sent_bytes = channel.end_check().map_err(Failure::Error)?;
        if sent_bytes != CHUNKS * PATTERN_LEN as u64 {
            return Err(Failure::Error(format!("{sent_bytes} bytes were sent, which differs from what was written")));
        }
        Ok(round.time)
    }

    fn round(
        &self,
        channel: &Channel,
        setup: &Setup,
        progress: &mut Progress,
        is_checked: bool,
        cancel: &CancelToken,
    ) -> Result<Round, Failure> {
        if cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        // No packet may be sent with a number between those that are planned now.
        channel.set_ack_timing(AckTiming::InPlace);
        self.maybe_update_keys(progress)?;
        let (from, sent) = (progress.offset, channel.packets_sent());
        let steps = self.plan(channel, setup, progress, CHUNKS * PATTERN_LEN as u64).map_err(Failure::Error)?;
        let received_packets = steps.iter().map(Step::packets).sum::<u64>();
        let items = seal_all(steps, channel.take_spare());
        channel.set_ack_timing(AckTiming::Duplex);
        let busy = || self.test_bed.endpoint.receive_worker_stats().map_or(Duration::ZERO, |stats| stats.busy);
        let (costs, busy_before) = (self.test_bed.endpoint.costs(), busy());
        let began_at = self.clock.now();
        channel.feed(items);
        // A thread that has ended has reported its error.
        let _sent = (self.to_write.send(()), self.to_read.send(ToRead { until: progress.offset, is_checked }));
        let mut directions = Directions {
            sent_bytes: (CHUNKS * PATTERN_LEN as u64) as f64,
            received_bytes: (progress.offset - from) as f64,
            received_packets: received_packets as f64,
            ..Directions::default()
        };
        let mut ends = [began_at; 2];
        for end in &mut ends {
            let Done { work, at, application } = self.wait(channel, began_at, cancel)?;
            *end = at;
            let (so_far, spent) = match work {
                Work::Writing => (&mut progress.writing, &mut directions.writing),
                Work::Reading => (&mut progress.reading, &mut directions.reading),
            };
            *spent = application.saturating_sub(std::mem::replace(so_far, application));
        }
        let costs = self.test_bed.endpoint.costs().zip(costs).map(|(end, begin)| end.since(&begin));
        directions.receiver = busy().saturating_sub(busy_before);
        let [first, last] = if ends[0] <= ends[1] { ends } else { [ends[1], ends[0]] };
        directions.one_way = last.saturating_since(first);
        let sent_packets = channel.packets_sent() - sent;
        progress.sealed_in_phase += received_packets;
        progress.sent_in_phase += sent_packets;
        Ok(Round { sent_packets, time: last.saturating_since(began_at), directions, costs })
    }

    fn maybe_update_keys(&self, progress: &mut Progress) -> Result<(), Failure> {
        let is_due = progress.sealed_in_phase.max(progress.sent_in_phase) >= self.key_update_every;
        if is_due && self.test_bed.link.update_keys().map_err(Failure::Error)? {
            (progress.sealed_in_phase, progress.sent_in_phase) = (0, 0);
        }
        Ok(())
    }

    /// Plans how the scripted peer sends at least `bytes` more bytes.
    fn plan(&self, channel: &Channel, setup: &Setup, progress: &mut Progress, bytes: u64) -> Result<Vec<Step>, String> {
        let mut writing = Writing {
            id: StreamId::new(QuicSide::Server, Dir::Uni, 0),
            offset: &mut progress.offset,
            pattern: self.pattern.bytes(),
            size: setup.datagram_size,
            // About as often as the measured end sends acknowledgements.
            batches_per_ack: (ACK_EVERY as usize).div_ceil(batch_len(setup.datagram_size)),
        };
        channel.with_script(|script| writing.plan(script, bytes))
    }

    /// A description of the state, for an error.
    fn describe(&self, channel: &Channel) -> String {
        let stats = self.test_bed.connection.stats();
        format!(
            "scripted peer: {}; {} bytes are not acknowledged, {} of them in flight; {} packets were received; {:?}",
            channel.describe(),
            stats.send.held_bytes,
            stats.in_flight_bytes,
            stats.receive.packets_received,
            self.test_bed.endpoint.receive_worker_stats()
        )
    }

    fn wait(&self, channel: &Channel, began_at: Instant, cancel: &CancelToken) -> Result<Done, Failure> {
        loop {
            match self.results.recv_timeout(LOOK_INTERVAL.into()) {
                Ok(done) => return done.map_err(|message| Failure::Error(channel.failure().unwrap_or(message))),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Error("the application's threads have ended".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            self.test_bed.check()?;
            channel.acknowledge_now();
            if self.clock.now().saturating_since(began_at) > ROUND_TIME_MAX {
                return Err(Failure::Error(format!("the transfer stalled: {}", self.describe(channel))));
            }
        }
    }
}
