//! The receive side: the script hands out what was sealed before, and an application reads and drops it. Each path has a stream
//! of its own, so that nothing waits for another path.
//!
//! Sealing is not measured, so a run is a row of stretches: seal some, hand them out as fast as they are taken, note how long
//! that took, until the stretches add up to the time that was asked for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use bytes::Bytes;
use litz::transfer::CancelToken;
use litz::{Costs, StreamId};
use net::MonotonicClock;
use quic::{Dir, Side as QuicSide};
use units::{Duration, Instant};

use super::Failure;
use super::channel::Channel;
use super::hearing::Manner;
use super::run::{CHUNK_LEN, LOOK_INTERVAL, Outcome, Span, add_busy, busy};
use super::streams::Streams;
use super::stretch::{STRETCH_BYTES, STRETCH_TIME_MAX, Step, Writing, ask_for_few_acks, seal_all};
use super::world::{Stand, Work, World, thread_time};

/// Batches between two numbers kept for the script's own acknowledgements, so that the receiver is not left without an answer.
const BATCHES_PER_ACK: usize = 64;

/// Packets sealed before the keys are updated, on all paths: as our own send half does.
const KEY_UPDATE_EVERY: u64 = 1 << 21;

/// The application has read all of a stretch.
struct Done {
    at: Instant,
    /// Its processor time so far.
    application: Duration,
}

/// What the application is to read before it tells.
struct Reading {
    clock: MonotonicClock,
    target: AtomicU64,
}

pub(super) fn run(stand: &Stand, span: Span, cancel: &CancelToken) -> Result<Outcome, Failure> {
    let world = World::new(stand, cancel)?;
    let reading = Reading { clock: MonotonicClock::start(), target: AtomicU64::new(u64::MAX) };
    let (tell, told) = channel();
    let (measured, read) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&world, stand.paths, &reading, &tell));
        let measured = Stretches::new(&world, stand, &reading, &told).and_then(|mut all| all.run(span, cancel));
        let unauthentic = world.connection.stats().receive.packets_unauthentic;
        reading.target.store(0, Ordering::Relaxed);
        world.endpoint.close();
        (measured.map(|measured| (measured, unauthentic)), reader.join())
    });
    let read = read.map_err(|_| Failure::Error("the reading thread panicked".to_owned()))?;
    let (mut outcome, unauthentic) = measured?;
    read.map_err(Failure::Error)?;
    if unauthentic > 0 {
        return Err(Failure::Error(format!("{unauthentic} packets of the script did not authenticate")));
    }
    outcome.stage = world.endpoint.stage_stats();
    Ok(outcome)
}

/// Reads and drops, and tells of each stretch when all of it is there.
fn read(world: &World, paths: u16, reading: &Reading, tell: &Sender<Done>) -> Result<(), String> {
    world.take_place(Work::Reading)?;
    let is_over = || reading.target.load(Ordering::Relaxed) == 0;
    let mut streams = match Streams::accept(&world.connection, paths) {
        Ok(streams) => streams,
        Err(_) if is_over() => return Ok(()),
        Err(error) => return Err(error),
    };
    let (mut read_bytes, mut told_bytes) = (0, 0);
    loop {
        let strip = match streams.read_strip() {
            Ok(Some(strip)) => strip,
            Ok(None) => return Err("the script does not end streams".to_owned()),
            Err(_) if is_over() => return Ok(()),
            Err(error) => return Err(format!("the connection broke off: {error}")),
        };
        read_bytes += strip.len() as u64;
        drop(strip);
        let target = reading.target.load(Ordering::Acquire);
        if read_bytes == target && told_bytes < target {
            told_bytes = target;
            if tell.send(Done { at: reading.clock.now(), application: thread_time() }).is_err() {
                return Ok(());
            }
        }
    }
}

/// The script's part of a run.
struct Stretches<'a> {
    world: &'a World,
    stand: &'a Stand,
    reading: &'a Reading,
    told: &'a Receiver<Done>,
    pattern: Bytes,
    /// Bytes that were planned so far of each path's stream.
    offsets: Vec<u64>,
    /// Packets since the last key update.
    sealed_in_phase: u64,
    application: Duration,
}

/// What a stretch took.
struct Stretch {
    packets: u64,
    bytes: u64,
    time: Duration,
    application: Duration,
    costs: Option<Costs>,
}

impl<'a> Stretches<'a> {
    fn new(
        world: &'a World,
        stand: &'a Stand,
        reading: &'a Reading,
        told: &'a Receiver<Done>,
    ) -> Result<Self, Failure> {
        let channels = &world.link.channels;
        channels.iter().for_each(|channel| channel.set_manner(Manner::InPlace));
        let pattern = Bytes::from(vec![7; CHUNK_LEN]);
        let (application, offsets, sealed_in_phase) = (Duration::ZERO, vec![0; channels.len()], 0);
        // Said on one path for all of them.
        ask_for_few_acks(&channels[0]).map_err(Failure::Error)?;
        Ok(Self { world, stand, reading, told, pattern, offsets, sealed_in_phase, application })
    }

    fn run(&mut self, span: Span, cancel: &CancelToken) -> Result<Outcome, Failure> {
        let mut warm = Duration::ZERO;
        // One at least: it opens the stream and fills the caches.
        while warm.is_zero() || warm < span.warm_up {
            warm += self.stretch(cancel)?.time;
        }
        let mut sum = Outcome::default();
        while sum.time.is_zero() || sum.time < span.time {
            let begin = busy(&self.world.endpoint);
            let stretch = self.stretch(cancel)?;
            add_busy(&mut sum.busy, &begin, &busy(&self.world.endpoint));
            sum.packets += stretch.packets as f64;
            sum.bytes += stretch.bytes as f64;
            sum.time += stretch.time;
            sum.application += stretch.application;
            sum.costs.extend(stretch.costs);
        }
        Ok(sum)
    }

    fn stretch(&mut self, cancel: &CancelToken) -> Result<Stretch, Failure> {
        let written = |offsets: &[u64]| offsets.iter().sum::<u64>();
        let from = written(&self.offsets);
        let channels = &self.world.link.channels;
        if self.sealed_in_phase >= KEY_UPDATE_EVERY && self.world.link.update_keys().map_err(Failure::Error)? {
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
        let costs = self.world.endpoint.costs();
        self.reading.target.store(to, Ordering::Release);
        let began_at = self.reading.clock.now();
        all.into_iter().for_each(|(channel, items)| channel.feed(items));
        let done = self.wait(began_at, cancel)?;
        let application = done.application.saturating_sub(self.application);
        self.application = done.application;
        let costs = self.world.endpoint.costs().zip(costs).map(|(end, begin)| end.since(&begin));
        let time = done.at.saturating_since(began_at);
        Ok(Stretch { packets, bytes: to - from, time, application, costs })
    }

    fn wait(&self, began_at: Instant, cancel: &CancelToken) -> Result<Done, Failure> {
        loop {
            match self.told.recv_timeout(LOOK_INTERVAL.into()) {
                Ok(done) => return Ok(done),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Error("the reading thread has ended".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            self.world.check()?;
            if self.world.endpoint.stage_stats().is_some_and(|stats| stats.batches_lost > 0) {
                let words =
                    "a processor was away for so long that what it had was given up: stop other programs and repeat";
                return Err(Failure::Error(words.to_owned()));
            }
            if self.reading.clock.now().saturating_since(began_at) > STRETCH_TIME_MAX {
                return Err(Failure::Error("some bytes of the script never arrived".to_owned()));
            }
        }
    }

    /// Decides what a stretch consists of on a path: as much as on the others.
    fn plan(&mut self, path: usize, channel: &Channel) -> Result<Vec<Step>, String> {
        let share = STRETCH_BYTES / self.offsets.len() as u64;
        let mut writing = Writing {
            id: StreamId::new(QuicSide::Server, Dir::Uni, path as u64),
            offset: &mut self.offsets[path],
            pattern: &self.pattern,
            size: self.stand.datagram_size,
            batches_per_ack: BATCHES_PER_ACK,
        };
        channel.with_script(|script| writing.plan(script, share))
    }
}
