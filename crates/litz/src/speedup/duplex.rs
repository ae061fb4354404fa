//! Both sides at once: an application writes while another thread of it reads, the script acknowledges and hands out what was
//! sealed before. This is what document 002's split of a connection is for.
//!
//! A run is a row of stretches, as on the receive side. In each the same amount goes either way, and the clock runs until both
//! ways are through: whatever the placement, it has the same work to do. What is handed out keeps step with what is sent
//! ([`Manner::BothWays`]), so both ways are busy until the faster one is through.
//!
//! In the first stretch, which does not count, every byte is looked at, either way.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use litz::transfer::CancelToken;
use litz::{Costs, StreamId};
use net::MonotonicClock;
use quic::{Dir, Side as QuicSide};
use units::{Duration, Instant};

use super::Failure;
use super::channel::Channel;
use super::hearing::{ACK_EVERY, Manner};
use super::pattern::{PATTERN_LEN, Pattern};
use super::run::{Outcome, Span, Ways};
use super::streams::Streams;
use super::stretch::{STRETCH_BYTES, STRETCH_TIME_MAX, Step, Writing, ask_for_few_acks, batch_len, seal_all};
use super::world::{Stand, Work, World, thread_time};

/// Chunks that are written in a stretch.
const CHUNKS: u64 = STRETCH_BYTES / PATTERN_LEN as u64;

/// Packets sealed with the same keys, either way, before the script updates them at the next stretch. The measured end does it by
/// itself at 2^21, in the middle of a stretch, where what is sealed in advance cannot follow. A stretch is some 2^16 packets.
const KEY_UPDATE_EVERY: u64 = 1 << 20;

/// How often somebody looks whether the user has interrupted, and whether the last packet of a stretch was no shorter than the
/// others, so that the script has not seen that an acknowledgement is due.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// A batch of so many bytes makes a receive half part.
const BULK_FROM: usize = 8 << 10;

/// How long a receive half may take to its processor.
const PART_TIME_MAX: Duration = Duration::from_secs(5);

/// One way of a stretch is through.
struct Done {
    work: Work,
    at: Instant,
    /// Processor time of its thread so far.
    application: Duration,
}

/// What the reading thread is to do in a stretch.
struct ToRead {
    /// Bytes of the stream since its beginning.
    until: u64,
    /// Look at each.
    is_checked: bool,
}

pub(super) fn run(stand: &Stand, span: Span, cancel: &CancelToken) -> Result<Outcome, Failure> {
    run_updating(stand, span, KEY_UPDATE_EVERY, cancel)
}

/// As `run`; keys are updated once so many packets were sealed with them, either way.
pub(super) fn run_updating(
    stand: &Stand,
    span: Span,
    key_update_every: u64,
    cancel: &CancelToken,
) -> Result<Outcome, Failure> {
    let world = World::new(stand, cancel)?;
    let (clock, pattern) = (MonotonicClock::start(), Pattern::new());
    let ((tell, told), (to_write, writes), (to_read, reads)) = (channel(), channel(), channel());
    let (measured, ended) = std::thread::scope(|scope| {
        let hand = |tell| Hand { world: &world, clock: &clock, pattern: &pattern, tell };
        let (writer, reader) = (hand(tell.clone()), hand(tell));
        let threads = [
            scope.spawn(move || writer.tell_failure(writer.write(&writes))),
            scope.spawn(move || reader.tell_failure(reader.read(&reads))),
        ];
        let (world, clock, pattern) = (&world, &clock, &pattern);
        let conductor = Conductor { world, clock, pattern, key_update_every, told, to_write, to_read };
        let measured = conductor.conduct(stand, span, cancel);
        // Threads that wait for the connection get an error; those that wait for work have found that there is none.
        world.endpoint.close();
        (measured, threads.map(|thread| thread.join()))
    });
    if ended.iter().any(Result::is_err) {
        return Err(Failure::Error("a thread of the application panicked".to_owned()));
    }
    let mut outcome = measured?;
    outcome.stage = world.endpoint.stage_stats();
    Ok(outcome)
}

/// A thread of the application.
struct Hand<'a> {
    world: &'a World,
    clock: &'a MonotonicClock,
    pattern: &'a Pattern,
    /// What came of each stretch, or why there will be no more.
    tell: Sender<Result<Done, String>>,
}

impl Hand<'_> {
    /// False if nobody wants to know any more.
    fn tell_done(&self, work: Work) -> bool {
        self.tell.send(Ok(Done { work, at: self.clock.now(), application: thread_time() })).is_ok()
    }

    fn tell_failure(&self, ended: Result<(), String>) {
        if let Err(words) = ended {
            // At the end nobody wants to know.
            let _gone = self.tell.send(Err(words));
        }
    }

    /// Writes a stream in each stretch, and tells when all of it was acknowledged.
    fn write(&self, work: &Receiver<()>) -> Result<(), String> {
        self.world.take_place(Work::Writing)?;
        let words = |error: &dyn std::fmt::Display| format!("the connection broke off: {error}");
        let open = || self.world.connection.open_uni().map_err(|error| words(&error));
        // Before the clock runs.
        let mut stream = open()?;
        while work.recv().is_ok() {
            for _ in 0..CHUNKS {
                stream.write_chunk(self.pattern.bytes().clone()).map_err(|error| words(&error))?;
            }
            let finished = stream.finish().and_then(|()| stream.wait_finished());
            finished.map_err(|error| words(&error))?;
            if !self.tell_done(Work::Writing) {
                break;
            }
            stream = open()?;
        }
        Ok(())
    }

    /// Reads the script's stream, and tells when all of a stretch is there.
    fn read(&self, work: &Receiver<ToRead>) -> Result<(), String> {
        self.world.take_place(Work::Reading)?;
        let mut streams = Streams::accept(&self.world.connection, 1)?;
        let mut offset = 0;
        while let Ok(ToRead { until, is_checked }) = work.recv() {
            while offset < until {
                let strip = streams.read_strip().map_err(|error| format!("the connection broke off: {error}"))?;
                let strip = strip.ok_or("the script does not end streams")?;
                let mut at = offset;
                for piece in strip.pieces().filter(|_| is_checked) {
                    if !self.pattern.matches(at, piece) {
                        return Err(format!("what was read at {at} of the stream is not what the script sent"));
                    }
                    at += piece.len() as u64;
                }
                offset += strip.len() as u64;
            }
            if !self.tell_done(Work::Reading) {
                break;
            }
        }
        Ok(())
    }
}

/// Lets stretch follow stretch.
struct Conductor<'a> {
    world: &'a World,
    clock: &'a MonotonicClock,
    pattern: &'a Pattern,
    /// In packets, either way.
    key_update_every: u64,
    told: Receiver<Result<Done, String>>,
    to_write: Sender<()>,
    to_read: Sender<ToRead>,
}

/// Where a run stands.
#[derive(Default)]
struct Progress {
    /// Bytes of the script's stream that were planned so far.
    offset: u64,
    /// Packets since the last key update, by the script and by the measured end.
    sealed_in_phase: u64,
    sent_in_phase: u64,
    /// Of both threads, so far.
    writing: Duration,
    reading: Duration,
}

/// What came of a stretch.
struct Stretch {
    sent_packets: u64,
    time: Duration,
    ways: Ways,
    costs: Option<Costs>,
}

impl Conductor<'_> {
    /// Ends with the channels to the threads.
    fn conduct(self, stand: &Stand, span: Span, cancel: &CancelToken) -> Result<Outcome, Failure> {
        let channel = &self.world.link.channels[0];
        let mut progress = Progress::default();
        self.part_halves(channel, stand, &mut progress)?;
        let mut warm = self.checked_stretch(channel, stand, &mut progress, cancel)?;
        while warm < span.warm_up {
            warm += self.stretch(channel, stand, &mut progress, false, cancel)?.time;
        }
        let mut sum = Outcome::default();
        let mut ways = Ways::default();
        while sum.time.is_zero() || sum.time < span.time {
            let stretch = self.stretch(channel, stand, &mut progress, false, cancel)?;
            sum.packets += stretch.sent_packets as f64 + stretch.ways.received_packets;
            sum.bytes += stretch.ways.sent_bytes + stretch.ways.received_bytes;
            sum.time += stretch.time;
            sum.application += stretch.ways.writing + stretch.ways.reading;
            sum.costs.extend(stretch.costs);
            ways.add(&stretch.ways);
        }
        sum.ways = Some(ways);
        let stats = self.world.connection.stats();
        sum.packets_lost = stats.send.packets_lost;
        match stats.receive.packets_unauthentic {
            0 => Ok(sum),
            count => Err(Failure::Error(format!("{count} packets of the script did not authenticate"))),
        }
    }

    /// A first batch comes alone. With `split` it sends the receive half to its processor, and what arrives while a half is on its
    /// way may be lost, which a script cannot repair.
    fn part_halves(&self, channel: &Channel, stand: &Stand, progress: &mut Progress) -> Result<(), Failure> {
        channel.set_manner(Manner::InPlace);
        ask_for_few_acks(channel).map_err(Failure::Error)?;
        // The first bytes of a stream fill a packet, those that follow a batch: the first one of some size is the last.
        let bytes = if stand.datagram_size < BULK_FROM { stand.datagram_size as u64 } else { 1 };
        let steps = self.plan(channel, stand, progress, bytes).map_err(Failure::Error)?;
        channel.feed(seal_all(steps, Vec::new()));
        let until = self.clock.now() + PART_TIME_MAX;
        while self.world.endpoint.split_stats().is_some_and(|stats| stats.departed == 0) {
            // Nobody is asked for anything yet, so nobody tells of anything but a failure.
            if let Ok(Err(words)) = self.told.recv_timeout(Duration::from_millis(1).into()) {
                return Err(Failure::Error(words));
            }
            self.world.check()?;
            if self.clock.now() > until {
                return Err(Failure::Error("the receive half of the connection does not part".to_owned()));
            }
        }
        Ok(())
    }

    /// The first one: opens the streams, fills the caches, and shows that every byte is in its place. How long it took.
    fn checked_stretch(
        &self,
        channel: &Channel,
        stand: &Stand,
        progress: &mut Progress,
        cancel: &CancelToken,
    ) -> Result<Duration, Failure> {
        channel.begin_check(self.pattern).map_err(Failure::Error)?;
        let stretch = self.stretch(channel, stand, progress, true, cancel)?;
        let sent_bytes = channel.heard().end_check().map_err(Failure::Error)?;
        if sent_bytes != CHUNKS * PATTERN_LEN as u64 {
            return Err(Failure::Error(format!("{sent_bytes} bytes were sent, not what was written")));
        }
        Ok(stretch.time)
    }

    fn stretch(
        &self,
        channel: &Channel,
        stand: &Stand,
        progress: &mut Progress,
        is_checked: bool,
        cancel: &CancelToken,
    ) -> Result<Stretch, Failure> {
        if cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        // Nothing may be said between the numbers that are planned now.
        channel.set_manner(Manner::InPlace);
        self.maybe_update_keys(progress)?;
        let (from, sent) = (progress.offset, channel.packets_sent());
        let steps = self.plan(channel, stand, progress, CHUNKS * PATTERN_LEN as u64).map_err(Failure::Error)?;
        let received_packets = steps.iter().map(Step::packets).sum::<u64>();
        let items = seal_all(steps, channel.take_spare());
        channel.set_manner(Manner::BothWays);
        let busy = || self.world.endpoint.split_stats().map_or(Duration::ZERO, |stats| stats.busy);
        let (costs, busy_before) = (self.world.endpoint.costs(), busy());
        let began_at = self.clock.now();
        channel.feed(items);
        // A thread that has ended has told why.
        let _told = (self.to_write.send(()), self.to_read.send(ToRead { until: progress.offset, is_checked }));
        let mut ways = Ways {
            sent_bytes: (CHUNKS * PATTERN_LEN as u64) as f64,
            received_bytes: (progress.offset - from) as f64,
            received_packets: received_packets as f64,
            ..Ways::default()
        };
        let mut ends = [began_at; 2];
        for end in &mut ends {
            let Done { work, at, application } = self.wait(channel, began_at, cancel)?;
            *end = at;
            let (so_far, spent) = match work {
                Work::Writing => (&mut progress.writing, &mut ways.writing),
                Work::Reading => (&mut progress.reading, &mut ways.reading),
            };
            *spent = application.saturating_sub(std::mem::replace(so_far, application));
        }
        let costs = self.world.endpoint.costs().zip(costs).map(|(end, begin)| end.since(&begin));
        ways.receiver = busy().saturating_sub(busy_before);
        let [first, last] = if ends[0] <= ends[1] { ends } else { [ends[1], ends[0]] };
        ways.one_way = last.saturating_since(first);
        let sent_packets = channel.packets_sent() - sent;
        progress.sealed_in_phase += received_packets;
        progress.sent_in_phase += sent_packets;
        Ok(Stretch { sent_packets, time: last.saturating_since(began_at), ways, costs })
    }

    fn maybe_update_keys(&self, progress: &mut Progress) -> Result<(), Failure> {
        let is_due = progress.sealed_in_phase.max(progress.sent_in_phase) >= self.key_update_every;
        if is_due && self.world.link.update_keys().map_err(Failure::Error)? {
            (progress.sealed_in_phase, progress.sent_in_phase) = (0, 0);
        }
        Ok(())
    }

    /// Decides how at least so many bytes more are handed out.
    fn plan(&self, channel: &Channel, stand: &Stand, progress: &mut Progress, bytes: u64) -> Result<Vec<Step>, String> {
        let mut writing = Writing {
            id: StreamId::new(QuicSide::Server, Dir::Uni, 0),
            offset: &mut progress.offset,
            pattern: self.pattern.bytes(),
            size: stand.datagram_size,
            // About as often as the measured end acknowledges.
            batches_per_ack: (ACK_EVERY as usize).div_ceil(batch_len(stand.datagram_size)),
        };
        channel.with_script(|script| writing.plan(script, bytes))
    }

    /// Where everything is, in words.
    fn describe(&self, channel: &Channel) -> String {
        let stats = self.world.connection.stats();
        format!(
            "the script has {}; {} bytes are not acknowledged, {} of them in flight; {} packets were received; {:?}",
            channel.describe(),
            stats.send.held_bytes,
            stats.in_flight_bytes,
            stats.receive.packets_received,
            self.world.endpoint.split_stats()
        )
    }

    fn wait(&self, channel: &Channel, began_at: Instant, cancel: &CancelToken) -> Result<Done, Failure> {
        loop {
            match self.told.recv_timeout(LOOK_INTERVAL.into()) {
                Ok(done) => return done.map_err(|words| Failure::Error(channel.failure().unwrap_or(words))),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Error("the application's threads have ended".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            self.world.check()?;
            channel.heard().hurry();
            if self.clock.now().saturating_since(began_at) > STRETCH_TIME_MAX {
                return Err(Failure::Error(format!("the two ways came to a stop: {}", self.describe(channel))));
            }
        }
    }
}

impl Ways {
    fn add(&mut self, other: &Self) {
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.received_packets += other.received_packets;
        self.writing += other.writing;
        self.reading += other.reading;
        self.receiver += other.receiver;
        self.one_way += other.one_way;
    }
}
