//! A processor of a parallel stage: a thread that takes jobs from one ring and puts them, done, into another.
//!
//! A worker that panics is gone, and gives back what it has not begun. One that hangs keeps what it has; its owner does
//! without, and uses it again once it has given everything back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::clock::Clock;
use rtrb::{Consumer, Producer, RingBuffer};
use units::{Duration, Instant};

use super::doze::Doze;
use super::job::Job;
use super::order::Ticket;
use crate::crew::{self, Crew};
use crate::wake::EngineWaker;

/// Batches a worker has at a time, at most: one that it works on, and enough beside it to bridge what its owner does meanwhile.
/// A batch takes a worker some tens of microseconds, so nothing waits for as long as a millisecond.
pub(crate) const JOBS_MAX: usize = 4;

/// A processor of paths is given batches to seal for others only while it has less than so many of any kind: enough to bridge what its
/// owner does meanwhile, and no more, because its own paths come first.
const HELP_BELOW: usize = 3;

const _: () = assert!(HELP_BELOW <= JOBS_MAX, "a ring has room for what may be in flight");

/// A job with its slot.
struct Errand {
    ticket: Ticket,
    job: Job,
}

/// What became of a job.
pub(crate) enum Fate {
    Done(Job),
    /// It was not begun: the worker is gone.
    Returned(Job),
    /// It was begun and not finished: the worker is gone.
    Broken,
}

/// A job that came back.
pub(crate) struct Returned {
    pub(crate) ticket: Ticket,
    pub(crate) fate: Fate,
}

/// What a worker has done, for people.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    jobs: AtomicU64,
    busy_ns: AtomicU64,
}

impl Tally {
    pub(crate) fn read(&self) -> (u64, Duration) {
        let busy = Duration::from_nanos(self.busy_ns.load(Ordering::Relaxed));
        (self.jobs.load(Ordering::Relaxed), busy)
    }

    fn add(&self, spent: Duration) {
        self.add_some(1, spent);
    }

    /// One writer: a load and a store do.
    pub(crate) fn add_some(&self, jobs: u64, spent: Duration) {
        self.jobs.store(self.jobs.load(Ordering::Relaxed) + jobs, Ordering::Relaxed);
        self.busy_ns.store(self.busy_ns.load(Ordering::Relaxed) + spent.as_nanos(), Ordering::Relaxed);
    }
}

/// Ends the sleep of whoever does the work.
enum Alarm {
    Thread(Arc<Doze>),
    /// A processor of paths, which does it beside its own.
    Processor(Arc<EngineWaker>),
}

impl Alarm {
    fn wake(&self) {
        match self {
            Self::Thread(doze) => doze.wake(),
            Self::Processor(waker) => waker.wake(),
        }
    }
}

/// A worker as its owner sees it.
pub(crate) struct Worker {
    jobs: Producer<Errand>,
    returned: Consumer<Returned>,
    alarm: Alarm,
    thread: Option<JoinHandle<()>>,
    pub(crate) tally: Arc<Tally>,
    /// Batches it may have at a time, and how many other things it has to do.
    jobs_max: usize,
    pub(crate) load: usize,
    /// Jobs it has, those included that came back and were not looked at.
    in_flight: usize,
    /// It takes too long over something: gets nothing more until it has given everything back.
    pub(crate) is_late: bool,
    /// Its thread has ended.
    pub(crate) is_gone: bool,
}

/// What a worker is started with.
pub(crate) struct Start {
    pub(crate) name: String,
    /// The core it stays on, if any.
    pub(crate) core: Option<usize>,
    pub(crate) clock: Clock,
    /// How long it looks for more work before it sleeps.
    pub(crate) busy_poll: Duration,
    /// Wakes its owner.
    pub(crate) owner: Arc<EngineWaker>,
}

/// The worker's own end.
struct Hand {
    start: Start,
    jobs: Consumer<Errand>,
    returned: Producer<Returned>,
    doze: Arc<Doze>,
    tally: Arc<Tally>,
}

/// The end at which a processor of paths finds work of the driver's. If it dies, so does what it has begun; the owner sees to the rest.
pub(crate) struct Helper {
    jobs: Consumer<Errand>,
    returned: Producer<Returned>,
}

impl Helper {
    pub(crate) fn has_work(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Does one job; false if there is none. The owner is to be woken.
    pub(crate) fn serve(&mut self) -> bool {
        let Ok(Errand { ticket, mut job }) = self.jobs.pop() else { return false };
        job.run();
        // Every job came by a ring of the same size. Nobody may be left to take it.
        let _abandoned = self.returned.push(Returned { ticket, fate: Fate::Done(job) });
        true
    }
}

impl Worker {
    /// Starts one.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn start(start: Start, crew: &mut Crew) -> std::io::Result<Self> {
        let (jobs, to_do) = RingBuffer::new(JOBS_MAX);
        let (done, returned) = RingBuffer::new(JOBS_MAX);
        let (doze, tally) = (Arc::new(Doze::default()), Arc::new(Tally::default()));
        let name = start.name.clone();
        let hand = Hand { start, jobs: to_do, returned: done, doze: doze.clone(), tally: tally.clone() };
        let thread = crew.take_on(&name, hand)?;
        Ok(Self::new(jobs, returned, Alarm::Thread(doze), thread, tally, JOBS_MAX))
    }

    /// One without a thread, and the end at which `waker` finds its work.
    pub(crate) fn helped_by(waker: Arc<EngineWaker>) -> (Self, Helper) {
        let (jobs, to_do) = RingBuffer::new(JOBS_MAX);
        let (done, returned) = RingBuffer::new(JOBS_MAX);
        let worker = Self::new(jobs, returned, Alarm::Processor(waker), None, Arc::default(), HELP_BELOW);
        (worker, Helper { jobs: to_do, returned: done })
    }

    fn new(
        jobs: Producer<Errand>,
        returned: Consumer<Returned>,
        alarm: Alarm,
        thread: Option<JoinHandle<()>>,
        tally: Arc<Tally>,
        jobs_max: usize,
    ) -> Self {
        let (in_flight, load, is_late, is_gone) = (0, 0, false, false);
        Self { jobs, returned, alarm, thread, tally, jobs_max, load, in_flight, is_late, is_gone }
    }

    /// Whether it takes another job.
    pub(crate) fn has_room(&self) -> bool {
        !self.is_gone && !self.is_late && self.in_flight + self.load < self.jobs_max
    }

    /// Notices that it is gone, if it did not say so.
    pub(crate) fn look(&mut self) {
        self.is_gone |= self.returned.is_abandoned() && self.returned.is_empty();
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Gives it a job.
    ///
    /// # Panics
    /// If it has no room.
    pub(crate) fn give(&mut self, ticket: Ticket, job: Job) {
        assert!(self.has_room(), "the caller has asked");
        self.in_flight += 1;
        // In flight are fewer than the ring holds.
        assert!(self.jobs.push(Errand { ticket, job }).is_ok(), "a ring has room for what may be in flight");
        self.alarm.wake();
    }

    /// Whether something came back.
    pub(crate) fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }

    /// The next job that came back.
    pub(crate) fn take_back(&mut self) -> Option<Returned> {
        let returned = self.returned.pop().ok()?;
        self.in_flight -= 1;
        self.is_gone |= !matches!(returned.fate, Fate::Done(_));
        self.is_late &= self.in_flight > 0;
        Some(returned)
    }
}

/// The end of a worker that is not needed any more. One that hangs is left to itself.
impl Drop for Worker {
    fn drop(&mut self) {
        // The worker sees that its ring is abandoned.
        let (jobs, _) = RingBuffer::new(1);
        drop(std::mem::replace(&mut self.jobs, jobs));
        self.alarm.wake();
        if let Some(thread) = self.thread.take().filter(|_| !self.is_late) {
            // A panic was told when it happened.
            let _panicked = thread.join();
        }
    }
}

impl crew::Hand for Hand {
    fn run(mut self: Box<Self>) {
        self.doze.settle();
        if let Some(core) = self.start.core
            && let Err(error) = net::processors::stay_on(core)
        {
            tracing::warn!(%error, core, "cannot stay on one processor");
        }
        loop {
            while let Ok(errand) = self.jobs.pop() {
                if !self.serve(errand) {
                    return;
                }
            }
            if self.jobs.is_abandoned() {
                return;
            }
            self.rest();
        }
    }

    fn turn(&mut self) {
        while let Ok(Errand { ticket, mut job }) = self.jobs.pop() {
            job.run();
            self.give_back(Returned { ticket, fate: Fate::Done(job) });
        }
    }

    fn due_at(&self, now: Instant) -> Option<Instant> {
        (!self.jobs.is_empty()).then_some(now)
    }
}

impl Hand {
    /// Does one job; false if that has gone wrong, and the thread is to end.
    fn serve(&mut self, errand: Errand) -> bool {
        let Errand { ticket, mut job } = errand;
        let begun = self.start.clock.now();
        let outcome = catch_unwind(AssertUnwindSafe(|| job.run()));
        self.tally.add(self.start.clock.now().saturating_since(begun));
        if outcome.is_ok() {
            self.give_back(Returned { ticket, fate: Fate::Done(job) });
            return true;
        }
        tracing::error!(worker = %self.start.name, "a worker has panicked: others do its work from now on");
        self.give_back(Returned { ticket, fate: Fate::Broken });
        while let Ok(Errand { ticket, job }) = self.jobs.pop() {
            self.give_back(Returned { ticket, fate: Fate::Returned(job) });
        }
        false
    }

    fn give_back(&mut self, returned: Returned) {
        // Every job came by a ring of the same size. Nobody may be left to take it.
        let _abandoned = self.returned.push(returned);
        self.start.owner.wake();
    }

    /// Nothing to do: looks around for a while if that was asked for, then sleeps.
    fn rest(&self) {
        if !self.start.busy_poll.is_zero() {
            let until: Instant = self.start.clock.now() + self.start.busy_poll;
            while self.start.clock.now() < until {
                if self.has_work() {
                    return;
                }
                std::hint::spin_loop();
            }
        }
        self.doze.sleep_unless(|| self.has_work());
    }

    fn has_work(&self) -> bool {
        !self.jobs.is_empty() || self.jobs.is_abandoned()
    }
}
