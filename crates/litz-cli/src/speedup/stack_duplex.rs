//! Both sides of a stack of TCP/IP at once, as in document 002: one thread of the application writes
//! while another reads, round by round. The scripted peer keeps both directions in step, so every
//! placement does the same work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use transfer::CancelToken;
use units::Duration;

use super::end::{End, SendEnd};
use super::failure::Failure;
use super::pins::{Work, thread_time};
use super::receive::{Opposite, Sent, run_beside};
use super::run::{CHUNK_LEN, Outcome, Span};
use super::stack_bed::StackBed;

/// The writing direction.
struct Writing<'a> {
    bed: &'a StackBed,
    /// CPU time of its thread, in nanoseconds.
    spent_ns: AtomicU64,
    phase: Mutex<Phase>,
    has_changed: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Between rounds the scripted peer makes packets on all processors.
    Between,
    Round,
    Over,
}

impl Opposite for Writing<'_> {
    fn begin_round(&self) {
        self.set(Phase::Round);
    }

    fn end_round(&self) {
        self.set(Phase::Between);
    }

    fn sent(&self) -> Sent {
        let packets = self.bed.packets_sent();
        Sent {
            packets,
            bytes: packets * self.bed.payload() as u64,
            writing: Duration::from_nanos(self.spent_ns.load(Ordering::Relaxed)),
            receiver: self.bed.receive_worker().map_or(Duration::ZERO, |(busy, _)| busy),
        }
    }
}

impl Writing<'_> {
    fn set(&self, phase: Phase) {
        *lock(&self.phase) = phase;
        self.has_changed.notify_all();
    }

    /// Waits for a round. False if the run is over.
    fn await_round(&self) -> bool {
        let phase = self.has_changed.wait_while(lock(&self.phase), |phase| *phase == Phase::Between);
        *phase.unwrap_or_else(PoisonError::into_inner) == Phase::Round
    }

    /// Writes the same chunk by reference in every round.
    fn write(&self) -> Result<(), String> {
        self.bed.pins().pin_thread(Work::Writing)?;
        let mut write = self.bed.writer()?;
        let chunk = Bytes::from(vec![7; CHUNK_LEN]);
        while self.await_round() {
            match write(chunk.clone()) {
                // The run ends by closing the connection, after its last round.
                Err(_) if *lock(&self.phase) != Phase::Round => return Ok(()),
                written => written.map_err(|error| format!("the connection failed: {error}"))?,
            }
            self.spent_ns.store(thread_time().as_nanos(), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Measures one run of `bed`.
pub(super) fn run(bed: &StackBed, span: Span, cancel: &CancelToken) -> Result<Outcome, Failure> {
    let (phase, has_changed) = (Mutex::new(Phase::Between), Condvar::new());
    let writing = Writing { bed, spent_ns: AtomicU64::new(0), phase, has_changed };
    let (measured, written) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| writing.write());
        let measured = run_beside(bed, Some(&writing), span, cancel);
        writing.set(Phase::Over);
        // A writer that waits for space gets an error.
        bed.close();
        (measured, writer.join())
    });
    let written = written.map_err(|_| Failure::Error("the writing thread panicked".to_owned()))?;
    let mut outcome = measured?;
    written.map_err(Failure::Error)?;
    if bed.receive_worker().is_some_and(|(_, is_detached)| !is_detached) {
        return Err(Failure::Error("the receive half of the connection was not detached".to_owned()));
    }
    outcome.packets_lost = bed.packets_lost();
    Ok(outcome)
}

/// A thread that panicked leaves a phase that is still valid.
fn lock(phase: &Mutex<Phase>) -> MutexGuard<'_, Phase> {
    phase.lock().unwrap_or_else(PoisonError::into_inner)
}
