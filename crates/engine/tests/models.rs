//! Loom models of sleeping and waking. They compile the engine's own source with loom's atomics and
//! threads and explore every order of steps that the memory model permits. A lost wake-up shows as
//! a deadlock.
//!
//! The models are small because the number of orders grows quickly: one publisher, one sleeper, two
//! or three items, and at most [`PREEMPTIONS_MAX`] preemptions of a thread.

/// Replaces `src/primitives.rs` of the engine.
mod primitives {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};
    pub(crate) use loom::thread::{Thread, current, park};
}

#[path = "../src/sleep_flag.rs"]
mod sleep_flag;
#[path = "../src/worker/thread_park.rs"]
mod thread_park;

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use self::sleep_flag::SleepFlag;
use self::thread_park::ThreadPark;

/// Preemption limit with which the models find every fault that was put into the source to test
/// them. Without a limit the models take longer than a minute.
const PREEMPTIONS_MAX: usize = 3;

/// Explores all orders within that limit.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

/// A ring, reduced to what sleeping depends on: the publisher's count, stored with release and
/// loaded with acquire ordering as in `rtrb`, and whether the publisher has dropped its end.
#[derive(Default)]
struct Ring {
    published: AtomicUsize,
    abandoned: AtomicBool,
}

impl Ring {
    fn push(&self) {
        // There is one writer.
        self.published.store(self.published.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    fn len(&self) -> usize {
        self.published.load(Ordering::Acquire)
    }
}

/// Runs a worker that takes items until its ring is abandoned, and sleeps while there are none.
fn worker_takes(ring: &Ring, park: &ThreadPark) -> usize {
    park.register();
    loop {
        let taken = ring.len();
        if ring.abandoned.load(Ordering::Acquire) {
            // Everything that was published before the ring was abandoned.
            return ring.len();
        }
        park.sleep_unless(|| ring.len() > taken || ring.abandoned.load(Ordering::Acquire));
    }
}

#[test]
fn a_parked_worker_is_woken_for_every_job_and_for_its_end() {
    for items in 1..=2 {
        explore(move || {
            let (ring, park) = (Arc::new(Ring::default()), Arc::new(ThreadPark::default()));
            let worker = {
                let (ring, park) = (Arc::clone(&ring), Arc::clone(&park));
                thread::spawn(move || worker_takes(&ring, &park))
            };
            for _ in 0..items {
                ring.push();
                park.unpark();
            }
            // This is the order when the driver is dropped: the ring is abandoned, then the worker
            // is woken.
            ring.abandoned.store(true, Ordering::Release);
            park.unpark();
            assert_eq!(worker.join().expect("the worker ends"), items);
        });
    }
}

/// A poll with a `mio::Waker`: a wake-up stays until it is taken.
#[derive(Default)]
struct Poll {
    woken: Mutex<bool>,
    signal: Condvar,
}

impl Poll {
    fn wake(&self) {
        *self.woken.lock().expect("no thread panics while it holds the lock") = true;
        self.signal.notify_one();
    }

    /// Waits for a wake-up without a deadline. If busy, only takes a wake-up that has already
    /// arrived.
    fn wait(&self, is_busy: bool) {
        let mut woken = self.woken.lock().expect("no thread panics while it holds the lock");
        while !*woken && !is_busy {
            woken = self.signal.wait(woken).expect("no thread panics while it holds the lock");
        }
        *woken = false;
    }
}

/// The state between a driver and the threads that wake it.
#[derive(Default)]
struct Engine {
    flag: SleepFlag,
    poll: Poll,
}

impl Engine {
    /// Wakes like `EngineWaker::wake`.
    fn wake(&self) {
        if self.flag.take() {
            self.poll.wake();
        }
    }

    /// Sleeps as drivers and path workers do: announce, check for work, sleep, withdraw.
    fn sleep_unless(&self, has_work: impl Fn() -> bool) {
        self.flag.announce();
        let is_busy = has_work();
        self.poll.wait(is_busy);
        self.flag.withdraw();
    }
}

#[test]
fn a_sleeping_driver_is_woken_for_everything_that_a_worker_returns() {
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
                    engine.sleep_unless(|| ring.len() > taken);
                }
            }
            worker.join().expect("the worker ends");
        });
    }
}

#[test]
fn a_sleeping_driver_is_woken_by_each_of_two_workers() {
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
            engine.sleep_unless(|| rings.each_ref().map(|ring| ring.len()) != before || before == [1, 1]);
        }
        for worker in workers {
            worker.join().expect("the worker ends");
        }
    });
}
