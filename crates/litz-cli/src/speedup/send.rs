//! The send side: an application writes as fast as it can, and the scripted peer acknowledges.

use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use litz::Costs;
use net::MonotonicClock;
use transfer::CancelToken;
use units::{Duration, Instant};

use super::end::SendEnd;
use super::failure::Failure;
use super::pins::{Work, process_time, thread_time};
use super::run::{CHUNK_LEN, LOOK_INTERVAL, Outcome, Span, add_busy, busy};

/// The phase of a run: `conduct` sets it, the application reads it.
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
    process: Duration,
    costs: Option<Costs>,
    busy: Vec<Duration>,
}

/// Measures one run of `end`, with `payload_len` bytes of the application in a packet.
pub(super) fn run(end: &dyn SendEnd, payload_len: usize, span: Span, cancel: &CancelToken) -> Result<Outcome, Failure> {
    let phase = Phase::default();
    let (measured, application) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(end, &phase));
        let measured = conduct(end, span, &phase, cancel, || writer.is_finished());
        phase.set(Phase::OVER);
        let packets_lost = end.packets_lost();
        end.close();
        (measured.map(|measured| (measured, packets_lost)), writer.join())
    });
    let application = application.map_err(|_| Failure::Error("the writing thread panicked".to_owned()))?;
    let ((begin, late), packets_lost) = measured?;
    let application = application.map_err(Failure::Error)?;
    let packets = (late.packets - begin.packets) as f64;
    if packets < 1.0 {
        return Err(Failure::Error("a run was too short to send data: use a longer --time".to_owned()));
    }
    let mut spent = Vec::new();
    add_busy(&mut spent, &begin.busy, &late.busy);
    Ok(Outcome {
        packets,
        bytes: packets * payload_len as f64,
        time: late.at.saturating_since(begin.at),
        application,
        process: late.process.saturating_sub(begin.process),
        costs: late.costs.zip(begin.costs).map(|(late, begin)| late.since(&begin)).into_iter().collect(),
        stage: end.workers(),
        busy: spent,
        packets_lost,
        directions: None,
    })
}

/// Writes the same chunk by reference until the run is over; returns the CPU time of the measured
/// part.
fn write(end: &dyn SendEnd, phase: &Phase) -> Result<Duration, String> {
    end.pins().pin_thread(Work::Writing)?;
    let mut write = end.writer()?;
    let chunk = Bytes::from(vec![7; CHUNK_LEN]);
    let mut began_at = None;
    while phase.get() != Phase::OVER {
        if began_at.is_none() && phase.get() == Phase::MEASURE {
            began_at = Some(thread_time());
        }
        if let Err(error) = write(chunk.clone()) {
            if phase.get() == Phase::OVER {
                break;
            }
            return Err(format!("the connection failed: {error}"));
        }
    }
    Ok(began_at.map_or(Duration::ZERO, |began_at| thread_time().saturating_sub(began_at)))
}

/// Advances the phases by the clock, and takes samples between them.
fn conduct(
    end: &dyn SendEnd,
    span: Span,
    phase: &Phase,
    cancel: &CancelToken,
    is_over: impl Fn() -> bool,
) -> Result<(Sample, Sample), Failure> {
    let clock = MonotonicClock::start();
    let sample = || Sample {
        at: clock.now(),
        packets: end.packets_sent(),
        process: process_time(),
        costs: end.costs(),
        busy: busy(end.workers()),
    };
    let wait = |time: Duration| {
        let until = clock.now() + time;
        loop {
            let left = until.saturating_since(clock.now());
            if cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            end.check()?;
            if left.is_zero() || is_over() {
                return Ok(());
            }
            #[expect(clippy::disallowed_methods, reason = "the measured threads use the processors meanwhile")]
            std::thread::sleep(left.min(LOOK_INTERVAL).into());
        }
    };
    wait(span.warm_up)?;
    phase.set(Phase::MEASURE);
    let begin = sample();
    wait(span.time)?;
    Ok((begin, sample()))
}
