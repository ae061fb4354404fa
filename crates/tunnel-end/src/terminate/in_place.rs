//! [`in_place`]: a future that is polled by the threads that wake it.
//!
//! The data of a terminated connection pass from one driver to the other. A task of a runtime would move them on a
//! third thread, whose wake-up costs more than the little there is to do, and the data would wait for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Polls in a row on a thread that has other work. After these the runtime polls.
const POLLS_MAX: usize = 4;

/// Nothing polls the future.
const IDLE: u8 = 0;
/// A thread polls it.
const RUNNING: u8 = 1;
/// A thread polls it, and will poll again: it was woken meanwhile.
const WOKEN: u8 = 2;

/// Runs a future in the threads that wake it, but for threads of a runtime: these run it as a task. None of them holds
/// a lock that the future needs. It is dropped with the result of this function, as a future that is awaited is. None
/// if it has panicked.
pub(crate) async fn in_place<F>(future: F) -> Option<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (task, output) = Task::new(future);
    let guard = DropGuard(Arc::clone(&task));
    task.wake();
    let output = output.await.ok();
    drop(guard);
    output
}

struct Task {
    /// Taken when it is ready, has panicked or is dropped.
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    state: AtomicU8,
    runtime: Handle,
}

impl Task {
    /// A task of this future, which the caller wakes, and the future's output.
    fn new<F>(future: F) -> (Arc<Self>, oneshot::Receiver<F::Output>)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (done, output) = oneshot::channel();
        let future = async move {
            // It is not awaited any more if that fails.
            let _result = done.send(future.await);
        };
        let (future, state) = (Mutex::new(Some(Box::pin(future) as _)), AtomicU8::new(IDLE));
        (Arc::new(Self { future, state, runtime: Handle::current() }), output)
    }

    /// Polls until the future waits, by the thread that has set [`RUNNING`].
    fn run(self: &Arc<Self>) {
        let _context = self.runtime.enter();
        for _ in 0..POLLS_MAX {
            self.state.store(RUNNING, Ordering::SeqCst);
            self.poll();
            if self.state.compare_exchange(RUNNING, IDLE, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                return;
            }
        }
        self.run_in_runtime();
    }

    fn run_in_runtime(self: &Arc<Self>) {
        let task = Arc::clone(self);
        self.runtime.spawn(async move { task.run() });
    }

    fn poll(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        let mut future = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = &mut *future else { return };
        let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(&mut Context::from_waker(&waker))));
        if !matches!(polled, Ok(Poll::Pending)) {
            *future = None;
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let awake = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |state| match state {
            IDLE => Some(RUNNING),
            RUNNING => Some(WOKEN),
            _ => None,
        });
        if awake != Ok(IDLE) {
            return;
        }
        // A runtime wakes where it cannot run a future: it may be among its own structures.
        if Handle::try_current().is_ok() { self.run_in_runtime() } else { self.run() }
    }
}

/// Drops the future.
struct DropGuard(Arc<Task>);

impl Drop for DropGuard {
    fn drop(&mut self) {
        *self.0.future.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};

    use tokio::sync::mpsc;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime")
    }

    #[expect(clippy::disallowed_methods, reason = "the test is about threads")]
    fn here() -> ThreadId {
        thread::current().id()
    }

    #[test]
    fn the_thread_that_wakes_it_runs_it() {
        let runtime = runtime();
        let (send, mut receive) = mpsc::unbounded_channel();
        let waiting = async move {
            let first = here();
            receive.recv().await;
            (first, here())
        };
        let (task, output) = {
            let _context = runtime.enter();
            Task::new(waiting)
        };
        let first = thread::scope(|scope| {
            let other = scope.spawn(|| {
                task.wake_by_ref();
                here()
            });
            other.join().expect("no panic")
        });
        send.send(()).expect("the future receives");
        assert_eq!(runtime.block_on(output).expect("it is ready"), (first, here()));
    }

    #[test]
    fn no_wake_up_of_several_threads_is_lost() {
        const EACH: usize = 50_000;
        let (send, mut receive) = mpsc::unbounded_channel();
        let runtime = runtime();
        let sum = runtime.spawn(in_place(async move {
            let mut sum = 0;
            while let Some(number) = receive.recv().await {
                sum += number;
            }
            sum
        }));
        thread::scope(|scope| {
            for _ in 0..3 {
                let send = send.clone();
                scope.spawn(move || (0..EACH).for_each(|_| send.send(1).expect("the future receives")));
            }
        });
        drop(send);
        assert_eq!(runtime.block_on(sum).expect("it does not panic"), Some(3 * EACH));
    }

    #[test]
    fn a_future_that_is_always_ready_for_more_does_not_keep_the_thread() {
        let (send, mut receive) = mpsc::unbounded_channel::<()>();
        let runtime = runtime();
        let polls = Arc::new(Mutex::new(Vec::new()));
        let polled = Arc::clone(&polls);
        let done = runtime.spawn(in_place(async move {
            receive.recv().await;
            for _ in 0..100 {
                polled.lock().expect("no panic").push(here());
                tokio::task::yield_now().await;
            }
        }));
        send.send(()).expect("the future receives");
        assert_eq!(runtime.block_on(done).expect("it does not panic"), Some(()));
        let (polls, ours) = (polls.lock().expect("no panic"), here());
        assert_eq!(polls.len(), 100);
        assert!(polls.iter().filter(|thread| **thread == ours).count() <= POLLS_MAX);
    }

    #[test]
    fn a_panic_is_an_end_and_a_task_that_is_dropped_drops_it() {
        let runtime = runtime();
        assert_eq!(runtime.block_on(runtime.spawn(in_place(async { panic!("on purpose") }))).ok(), Some(None::<()>));
        let held = Arc::new(());
        let inner = Arc::clone(&held);
        let task = runtime.spawn(in_place(async move {
            let _inner = inner;
            std::future::pending::<()>().await;
        }));
        task.abort();
        assert!(runtime.block_on(task).expect_err("it was aborted").is_cancelled());
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
