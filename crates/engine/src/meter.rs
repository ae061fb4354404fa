//! Where a driver's time goes, by stage.
//!
//! One processor runs a driver at a time, so one hand that moves from stage to stage is enough: at the end of each, the
//! clock is read once and the time since the last reading is booked. That happens a few times for a batch of packets and
//! never for a packet. Readers on other threads see each figure whole, and the figures of one batch perhaps not all.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Clock;
use net::RecvMeta;
use units::{Duration, Instant};

/// A stage that lasts longer was interrupted. A full batch takes a tenth of it in every stage on a slow machine; those who
/// have to share a processor wait at least twice as long for their next turn.
pub const LAP_MAX: Duration = Duration::from_millis(1);

/// What the driver's processor is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Between the driver's turns: with [`Placement::Inline`](crate::Placement::Inline) the application itself and its
    /// calls, otherwise next to nothing.
    Application,
    /// Taking over what the application asked for: written chunks, opened streams, credit for what was read.
    Serve,
    /// System calls that receive.
    RecvCall,
    /// Receive buffers, and finding the connection that a batch belongs to.
    Route,
    /// Opening the packets of a batch (parallel) and absorbing what they said (serial).
    OpenAbsorb,
    /// Timers.
    Timers,
    /// Telling the application: events, what was read for it, the next deadline.
    HandOver,
    /// Deciding what to send.
    Plan,
    /// Copying, encrypting, protecting headers.
    Seal,
    /// Reporting a sealed batch as emitted.
    Report,
    /// System calls that send, and what the kernel does inside them.
    SendCall,
    /// System calls that only look whether a socket is ready.
    Poll,
    /// Asleep, going to sleep and waking up. No work.
    Waiting,
    /// Whatever took longer than [`LAP_MAX`]: no stage does, so somebody else had the processor. Between turns it may be
    /// the application that was busy with something else.
    TakenAway,
}

/// What may run a stage of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StageKind {
    /// One processor at a time.
    Serial,
    /// Any number of processors.
    Parallel,
    /// A part of each; see the stage.
    Both,
    /// The operating system: one processor a socket.
    System,
    /// Nobody.
    Idle,
}

impl Stage {
    /// Every stage, in the order of a turn.
    pub const ALL: [Self; 14] = [
        Self::Application,
        Self::Serve,
        Self::RecvCall,
        Self::Route,
        Self::OpenAbsorb,
        Self::Timers,
        Self::HandOver,
        Self::Plan,
        Self::Seal,
        Self::Report,
        Self::SendCall,
        Self::Poll,
        Self::Waiting,
        Self::TakenAway,
    ];

    /// Its name in files, and in words.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Application => ("application", "application and its calls"),
            Self::Serve => ("serve", "take the application's data and wishes"),
            Self::RecvCall => ("recv_call", "receive system call"),
            Self::Route => ("route", "buffers, find the connection"),
            Self::OpenAbsorb => ("open_absorb", "open and absorb"),
            Self::Timers => ("timers", "timers"),
            Self::HandOver => ("hand_over", "hand over to the application"),
            Self::Plan => ("plan", "plan"),
            Self::Seal => ("seal", "seal"),
            Self::Report => ("report", "report as emitted"),
            Self::SendCall => ("send_call", "send system call"),
            Self::Poll => ("poll", "look for ready sockets"),
            Self::Waiting => ("waiting", "waiting"),
            Self::TakenAway => ("taken_away", "the processor was another's"),
        }
    }

    /// Its name in files: never changes.
    pub const fn id(self) -> &'static str {
        self.names().0
    }

    /// Its name for people.
    pub const fn label(self) -> &'static str {
        self.names().1
    }

    /// What may run it.
    pub const fn kind(self) -> StageKind {
        match self {
            Self::Seal => StageKind::Parallel,
            Self::OpenAbsorb => StageKind::Both,
            Self::RecvCall | Self::SendCall | Self::Poll => StageKind::System,
            Self::Waiting | Self::TakenAway => StageKind::Idle,
            _ => StageKind::Serial,
        }
    }
}

/// What one direction of an engine's sockets did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// System calls, those included that found nothing.
    pub calls: u64,
    /// Batches: what one segmented send takes, or one receive buffer holds.
    pub batches: u64,
    /// Datagrams in them.
    pub datagrams: u64,
    /// Their bytes, as UDP payload.
    pub bytes: u64,
}

/// Where the time went since an engine was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Costs {
    spent_ns: [u64; Stage::ALL.len()],
    /// Readings of the clock: what measuring itself costs, times the cost of one.
    pub readings: u64,
    /// What was sent.
    pub sent: Traffic,
    /// What was received.
    pub received: Traffic,
}

impl Costs {
    /// Time spent in `stage`.
    pub fn spent(&self, stage: Stage) -> Duration {
        Duration::from_nanos(self.spent_ns[stage as usize])
    }

    /// This and what another driver did.
    #[must_use]
    pub(crate) fn and(&self, other: &Self) -> Self {
        let traffic = |one: &Traffic, other: &Traffic| Traffic {
            calls: one.calls + other.calls,
            batches: one.batches + other.batches,
            datagrams: one.datagrams + other.datagrams,
            bytes: one.bytes + other.bytes,
        };
        Self {
            spent_ns: std::array::from_fn(|index| self.spent_ns[index] + other.spent_ns[index]),
            readings: self.readings + other.readings,
            sent: traffic(&self.sent, &other.sent),
            received: traffic(&self.received, &other.received),
        }
    }

    /// What was added since `earlier`, a reading of the same engine.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let traffic = |late: &Traffic, early: &Traffic| Traffic {
            calls: late.calls - early.calls,
            batches: late.batches - early.batches,
            datagrams: late.datagrams - early.datagrams,
            bytes: late.bytes - early.bytes,
        };
        Self {
            spent_ns: std::array::from_fn(|index| self.spent_ns[index] - earlier.spent_ns[index]),
            readings: self.readings - earlier.readings,
            sent: traffic(&self.sent, &earlier.sent),
            received: traffic(&self.received, &earlier.received),
        }
    }
}

/// A figure with one writer at a time: adding is a load and a store, without a bus lock.
#[derive(Debug, Default)]
struct Figure(AtomicU64);

impl Figure {
    fn add(&self, amount: u64) {
        self.0.store(self.get() + amount, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct Direction {
    calls: Figure,
    batches: Figure,
    datagrams: Figure,
    bytes: Figure,
}

impl Direction {
    fn add(&self, batches: u64, datagrams: u64, bytes: u64) {
        self.calls.add(1);
        self.batches.add(batches);
        self.datagrams.add(datagrams);
        self.bytes.add(bytes);
    }

    fn read(&self) -> Traffic {
        Traffic {
            calls: self.calls.get(),
            batches: self.batches.get(),
            datagrams: self.datagrams.get(),
            bytes: self.bytes.get(),
        }
    }
}

/// Books time to stages. Written by whoever runs the driver, read by anybody.
#[derive(Debug)]
pub(crate) struct Meter {
    clock: Clock,
    /// When the last stage ended, in nanoseconds.
    last_ns: AtomicU64,
    spent_ns: [Figure; Stage::ALL.len()],
    readings: Figure,
    sent: Direction,
    received: Direction,
}

impl Meter {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            last_ns: AtomicU64::new(clock.now().as_nanos()),
            clock,
            spent_ns: Default::default(),
            readings: Figure::default(),
            sent: Direction::default(),
            received: Direction::default(),
        }
    }

    /// `stage` ends now.
    pub(crate) fn lap(&self, stage: Stage) {
        self.readings.add(1);
        self.lap_at(stage, self.clock.now());
    }

    /// `stage` ended at `now`, which the caller has read anyway.
    pub(crate) fn lap_at(&self, stage: Stage, now: Instant) {
        let now_ns = now.as_nanos();
        // The next thread that runs the driver may have read the clock a little before the last one did.
        let spent_ns = now_ns.saturating_sub(self.last_ns.load(Ordering::Relaxed));
        self.last_ns.store(now_ns, Ordering::Relaxed);
        let interrupted = spent_ns > LAP_MAX.as_nanos() && stage != Stage::Waiting;
        let stage = if interrupted { Stage::TakenAway } else { stage };
        self.spent_ns[stage as usize].add(spent_ns);
    }

    /// One call sent a batch.
    pub(crate) fn count_sent(&self, datagrams: usize, bytes: usize) {
        self.sent.add(1, datagrams as u64, bytes as u64);
    }

    /// One call received these batches.
    pub(crate) fn count_received(&self, metas: &[RecvMeta]) {
        let datagrams = metas.iter().map(|meta| meta.len.div_ceil(meta.stride.max(1))).sum::<usize>();
        let bytes = metas.iter().map(|meta| meta.len).sum::<usize>();
        self.received.add(metas.len() as u64, datagrams as u64, bytes as u64);
    }

    pub(crate) fn read(&self) -> Costs {
        Costs {
            spent_ns: std::array::from_fn(|index| self.spent_ns[index].get()),
            readings: self.readings.get(),
            sent: self.sent.read(),
            received: self.received.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_numbered_as_they_are_listed_and_have_names_of_their_own() {
        for (index, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, index);
            assert_eq!(Stage::ALL.into_iter().filter(|other| other.id() == stage.id()).count(), 1);
        }
    }

    #[test]
    fn every_nanosecond_is_booked_once() {
        let meter = Meter::new(Clock::start());
        let start = meter.last_ns.load(Ordering::Relaxed);
        let at = |nanos| Instant::from_nanos(start + nanos);
        meter.lap_at(Stage::Plan, at(100));
        meter.lap_at(Stage::Seal, at(350));
        let earlier = meter.read();
        meter.lap_at(Stage::Plan, at(360));
        // Time never goes backwards, whoever reads it.
        meter.lap_at(Stage::Waiting, at(355));
        let costs = meter.read();
        assert_eq!(
            (costs.spent(Stage::Plan), costs.spent(Stage::Seal)),
            (Duration::from_nanos(110), Duration::from_nanos(250))
        );
        let late = costs.since(&earlier);
        assert_eq!(late.spent_ns.iter().sum::<u64>(), 10);
        assert_eq!(late.spent(Stage::Plan), Duration::from_nanos(10));
    }

    #[test]
    fn what_lasts_too_long_was_taken_away_unless_we_waited() {
        let meter = Meter::new(Clock::start());
        let mut now = Instant::from_nanos(meter.last_ns.load(Ordering::Relaxed));
        let mut lap = |stage, spent| {
            now += spent;
            meter.lap_at(stage, now);
        };
        lap(Stage::Plan, LAP_MAX);
        lap(Stage::Plan, LAP_MAX + Duration::from_nanos(1));
        lap(Stage::Waiting, LAP_MAX * 3);
        let costs = meter.read();
        assert_eq!(costs.spent(Stage::Plan), LAP_MAX);
        assert_eq!(costs.spent(Stage::TakenAway), LAP_MAX + Duration::from_nanos(1));
        assert_eq!(costs.spent(Stage::Waiting), LAP_MAX * 3);
    }

    #[test]
    fn the_last_datagram_of_a_batch_may_be_short() {
        let meter = Meter::new(Clock::start());
        let batch = |len, stride| RecvMeta { len, stride, ..RecvMeta::default() };
        meter.count_received(&[batch(2500, 1200), batch(50, 50)]);
        meter.count_received(&[]);
        meter.count_sent(44, 60_000);
        let costs = meter.read();
        assert_eq!(costs.received, Traffic { calls: 2, batches: 2, datagrams: 4, bytes: 2550 });
        assert_eq!(costs.sent, Traffic { calls: 1, batches: 1, datagrams: 44, bytes: 60_000 });
    }
}
