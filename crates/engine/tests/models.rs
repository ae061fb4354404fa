//! Sleeping and waking, explored exhaustively: every order of steps that the memory model allows, of the very source that the
//! engine is built from, with loom's atomics and threads in place of the real ones. A lost wake-up shows as a deadlock.
//!
//! The models are small because their number of orders is not: one who publishes, one who sleeps, two or three items. A thread
//! is interrupted [`PREEMPTIONS_MAX`] times at most where it could go on.

/// What `src/primitives.rs` is to the engine.
mod primitives {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};
    pub(crate) use loom::thread::{Thread, current, park};
}

#[path = "../src/asleep.rs"]
mod asleep;
#[path = "../src/stage/doze.rs"]
mod doze;

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use self::asleep::Asleep;
use self::doze::Doze;

/// Enough for every fault that was put into the source to test the models; without a bound they do not end within a minute.
const PREEMPTIONS_MAX: usize = 3;

/// Tries all orders within that bound.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

/// A ring as far as sleeping is concerned: the publisher's count, stored with release and loaded with acquire, as `rtrb` does,
/// and whether the publisher is gone.
#[derive(Default)]
struct Ring {
    published: AtomicUsize,
    abandoned: AtomicBool,
}

impl Ring {
    fn push(&self) {
        // One writer.
        self.published.store(self.published.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    fn len(&self) -> usize {
        self.published.load(Ordering::Acquire)
    }
}

/// A worker takes items until its ring is abandoned, and sleeps while there are none.
fn worker_takes(ring: &Ring, doze: &Doze) -> usize {
    doze.settle();
    loop {
        let taken = ring.len();
        if ring.abandoned.load(Ordering::Acquire) {
            // All that was published before it was abandoned.
            return ring.len();
        }
        doze.sleep_unless(|| ring.len() > taken || ring.abandoned.load(Ordering::Acquire));
    }
}

#[test]
fn a_worker_that_dozes_misses_no_job_and_no_end() {
    for items in 1..=2 {
        explore(move || {
            let (ring, doze) = (Arc::new(Ring::default()), Arc::new(Doze::default()));
            let worker = {
                let (ring, doze) = (Arc::clone(&ring), Arc::clone(&doze));
                thread::spawn(move || worker_takes(&ring, &doze))
            };
            for _ in 0..items {
                ring.push();
                doze.wake();
            }
            // As when the stage is dropped: the ring is abandoned, then the worker is woken.
            ring.abandoned.store(true, Ordering::Release);
            doze.wake();
            assert_eq!(worker.join().expect("the worker ends"), items);
        });
    }
}

/// What `mio::Waker` is to its poll: a wake-up that stays until it is taken.
#[derive(Default)]
struct Poll {
    woken: Mutex<bool>,
    signal: Condvar,
}

impl Poll {
    fn wake(&self) {
        *self.woken.lock().expect("nobody panics with it") = true;
        self.signal.notify_one();
    }

    /// Waits for a wake-up without a deadline, or only takes one that is there.
    fn wait(&self, is_busy: bool) {
        let mut woken = self.woken.lock().expect("nobody panics with it");
        while !*woken && !is_busy {
            woken = self.signal.wait(woken).expect("nobody panics with it");
        }
        *woken = false;
    }
}

/// The driver and those who wake it.
#[derive(Default)]
struct Engine {
    asleep: Asleep,
    poll: Poll,
}

impl Engine {
    /// As `EngineWaker::wake`.
    fn wake(&self) {
        if self.asleep.take() {
            self.poll.wake();
        }
    }

    /// As the driver and the processors of paths rest: announce, look, sleep, withdraw.
    fn rest_unless(&self, has_work: impl Fn() -> bool) {
        self.asleep.announce();
        let is_busy = has_work();
        self.poll.wait(is_busy);
        self.asleep.withdraw();
    }
}

#[test]
fn a_driver_that_sleeps_misses_nothing_that_a_worker_gives_back() {
    for items in 1..=3 {
        explore(move || {
            let (ring, engine) = (Arc::new(Ring::default()), Arc::new(Engine::default()));
            let worker = {
                let (ring, engine) = (Arc::clone(&ring), Arc::clone(&engine));
                thread::spawn(move || {
                    for _ in 0..items {
                        ring.push();
                        engine.wake();
                    }
                })
            };
            let mut taken = 0;
            while taken < items {
                taken = ring.len();
                if taken < items {
                    engine.rest_unless(|| ring.len() > taken);
                }
            }
            worker.join().expect("the worker ends");
        });
    }
}

#[test]
fn a_driver_that_sleeps_misses_neither_of_two_who_wake_it() {
    explore(|| {
        let rings = [Arc::new(Ring::default()), Arc::new(Ring::default())];
        let engine = Arc::new(Engine::default());
        let workers = rings.each_ref().map(|ring| {
            let (ring, engine) = (Arc::clone(ring), Arc::clone(&engine));
            thread::spawn(move || {
                ring.push();
                engine.wake();
            })
        });
        while rings.iter().any(|ring| ring.len() == 0) {
            let before = rings.each_ref().map(|ring| ring.len());
            engine.rest_unless(|| rings.each_ref().map(|ring| ring.len()) != before || before == [1, 1]);
        }
        for worker in workers {
            worker.join().expect("the worker ends");
        }
    });
}
