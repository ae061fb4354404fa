//! The send side: an application writes as fast as it can, and the script acknowledges.

use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use litz::Costs;
use litz::transfer::CancelToken;
use net::MonotonicClock;
use units::{Duration, Instant};

use super::Failure;
use super::run::{CHUNK_LEN, LOOK_INTERVAL, Outcome, Span, add_busy, busy, payload_len};
use super::world::{Stand, Work, World, thread_time};

/// Where a run stands: the application looks, the conductor sets.
#[derive(Default)]
struct Phase(AtomicU8);

impl Phase {
    // Zero is the warm-up.
    const MEASURE: u8 = 1;
    const OVER: u8 = 2;

    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, phase: u8) {
        self.0.store(phase, Ordering::Relaxed);
    }
}

struct Sample {
    at: Instant,
    packets: u64,
    costs: Option<Costs>,
    busy: Vec<Duration>,
}

pub(super) fn run(stand: &Stand, span: Span, cancel: &CancelToken) -> Result<Outcome, Failure> {
    let world = World::new(stand, cancel)?;
    let phase = Phase::default();
    let (measured, application) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&world, &phase));
        let measured = conduct(&world, span, &phase, cancel, || writer.is_finished());
        phase.set(Phase::OVER);
        let packets_lost = world.connection.stats().send.packets_lost;
        // A writer that waits for room gets an error.
        world.endpoint.close();
        (measured.map(|measured| (measured, packets_lost)), writer.join())
    });
    let application = application.map_err(|_| Failure::Error("the writing thread panicked".to_owned()))?;
    let ((begin, end), packets_lost) = measured?;
    let application = application.map_err(Failure::Error)?;
    let packets = (end.packets - begin.packets) as f64;
    if packets < 1.0 {
        return Err(Failure::Error("a run was too short to send anything: give it a longer --time".to_owned()));
    }
    let mut spent = Vec::new();
    add_busy(&mut spent, &begin.busy, &end.busy);
    Ok(Outcome {
        packets,
        bytes: packets * payload_len(stand.datagram_size) as f64,
        time: end.at.saturating_since(begin.at),
        application,
        costs: end.costs.zip(begin.costs).map(|(end, begin)| end.since(&begin)).into_iter().collect(),
        stage: world.endpoint.stage_stats(),
        busy: spent,
        packets_lost,
        ways: None,
    })
}

/// Writes the same chunk by reference until the run is over; processor time of the measured part.
fn write(world: &World, phase: &Phase) -> Result<Duration, String> {
    world.take_place(Work::Writing)?;
    let mut stream = world.connection.open_uni().map_err(|error| error.to_string())?;
    let chunk = Bytes::from(vec![7; CHUNK_LEN]);
    let mut began_at = None;
    while phase.get() != Phase::OVER {
        if began_at.is_none() && phase.get() == Phase::MEASURE {
            began_at = Some(thread_time());
        }
        if let Err(error) = stream.write_chunk(chunk.clone()) {
            if phase.get() == Phase::OVER {
                break;
            }
            return Err(format!("the connection broke off: {error}"));
        }
    }
    Ok(began_at.map_or(Duration::ZERO, |began_at| thread_time().saturating_sub(began_at)))
}

/// Moves the phases on by the clock, and takes samples between them.
fn conduct(
    world: &World,
    span: Span,
    phase: &Phase,
    cancel: &CancelToken,
    is_over: impl Fn() -> bool,
) -> Result<(Sample, Sample), Failure> {
    let clock = MonotonicClock::start();
    let sample = || Sample {
        at: clock.now(),
        packets: world.packets_sent(),
        costs: world.endpoint.costs(),
        busy: busy(&world.endpoint),
    };
    let wait = |time: Duration| {
        let until = clock.now() + time;
        loop {
            let left = until.saturating_since(clock.now());
            if cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            world.check()?;
            if left.is_zero() || is_over() {
                return Ok(());
            }
            #[expect(clippy::disallowed_methods, reason = "the measured threads have the processors meanwhile")]
            std::thread::sleep(left.min(LOOK_INTERVAL).into());
        }
    };
    wait(span.warm_up)?;
    phase.set(Phase::MEASURE);
    let begin = sample();
    wait(span.time)?;
    Ok((begin, sample()))
}
