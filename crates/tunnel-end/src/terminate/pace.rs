//! [`Pace`]: the rate of one direction of a terminated connection.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use net::MonotonicClock;
use tunnel::meter::Turn;
use units::{Duration, Instant};

/// Lets data pass at the rate that the connection shares with all else of its peer. Data that wait were read, so what is
/// not read yet waits in the window of the sender.
pub(crate) struct Pace<T = MonotonicClock> {
    clock: T,
    turn: Mutex<Turn>,
    /// Data that were read and may not pass yet.
    held: Mutex<Option<Bytes>>,
}

/// The time of a pace, which tests set.
pub(crate) trait Time {
    fn now(&self) -> Instant;

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send;
}

impl Time for MonotonicClock {
    fn now(&self) -> Instant {
        Self::now(self)
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(duration.into())
    }
}

impl<T: Time> Pace<T> {
    pub(crate) fn new(clock: T, turn: Turn) -> Self {
        Self { clock, turn: Mutex::new(turn), held: Mutex::default() }
    }

    /// The next data of `read` that may pass. Nothing is lost if the future is dropped.
    pub(crate) async fn next<E>(
        &self,
        read: impl Future<Output = Result<Option<Bytes>, E>>,
    ) -> Result<Option<Bytes>, E> {
        if self.held().is_none() {
            let (mut read, mut has_waited) = (pin!(read), false);
            let chunk = poll_fn(|context| {
                let polled = read.as_mut().poll(context);
                has_waited |= polled.is_pending();
                polled
            });
            let Some(chunk) = chunk.await? else { return Ok(None) };
            if has_waited {
                self.turn().rest();
            }
            *self.held() = Some(chunk);
        }
        let available = self.wait().await;
        let mut held = self.held();
        let mut chunk = held.take();
        if let Some(first) = &mut chunk
            && first.len() > available
        {
            *held = Some(first.split_off(available));
        }
        self.turn().spend(chunk.as_ref().map_or(0, Bytes::len));
        Ok(chunk)
    }

    /// Waits until data may pass, and counts `bytes`.
    pub(crate) async fn pass(&self, bytes: usize) {
        self.wait().await;
        self.turn().spend(bytes);
    }

    /// Waits until data may pass. Returns how many bytes.
    async fn wait(&self) -> usize {
        loop {
            let now = self.clock.now();
            let (available, until) = {
                let mut turn = self.turn();
                (turn.available(now), turn.blocked_until())
            };
            if available > 0 {
                return available;
            }
            if let Some(until) = until {
                self.clock.sleep(until.saturating_since(now)).await;
            }
        }
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, Option<Bytes>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Poll, Waker};

    use tunnel::meter::Meter;
    use units::Rate;

    use super::*;

    const RATE: Rate = Rate::from_mbps(20);

    /// How long each connection has data.
    const TIME: Duration = Duration::from_secs(10);

    static DATA: [u8; 256 << 10] = [0; 256 << 10];

    /// A time that passes when all wait for it. Clones are the same.
    #[derive(Clone, Default)]
    struct TestTime(Arc<TestClock>);

    #[derive(Default)]
    struct TestClock {
        now_ns: AtomicU64,
        /// The earliest end of a sleep.
        next_ns: AtomicU64,
        sleeps: AtomicU64,
    }

    impl TestTime {
        fn now_ns(&self) -> u64 {
            self.0.now_ns.load(Ordering::Relaxed)
        }
    }

    impl Time for TestTime {
        fn now(&self) -> Instant {
            Instant::from_nanos(self.now_ns())
        }

        /// Each sleep is too long, by up to 5 ms: timers have a granularity, and threads wait for a
        /// processor.
        fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send {
            let late_us = self.0.sleeps.fetch_add(1, Ordering::Relaxed) * 7919 % 5000;
            let end_ns = self.now_ns() + duration.as_nanos() + late_us * 1000;
            let time = self.clone();
            poll_fn(move |_| {
                if time.now_ns() >= end_ns {
                    return Poll::Ready(());
                }
                time.0.next_ns.fetch_min(end_ns, Ordering::Relaxed);
                Poll::Pending
            })
        }
    }

    /// A direction of a connection that always has data: read at the rate of its sender in chunks
    /// of these sizes, and written at that of its receiver, if one holds the sender to it. Counts
    /// what has passed.
    async fn carry(pace: Pace<TestTime>, receiver: Option<Pace<TestTime>>, sizes: &[usize], passed: &AtomicU64) {
        for size in sizes.iter().cycle() {
            let read = async { Ok::<_, ()>(Some(Bytes::from_static(&DATA[..*size]))) };
            let chunk = pace.next(read).await.ok().flatten().expect("there is always more");
            if let Some(receiver) = &receiver {
                receiver.pass(chunk.len()).await;
            }
            passed.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        }
    }

    /// Lets the time pass, up to `end`.
    fn run(time: &TestTime, mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>, end: Duration) {
        let mut context = Context::from_waker(Waker::noop());
        while time.now_ns() < end.as_nanos() {
            time.0.next_ns.store(u64::MAX, Ordering::Relaxed);
            for task in &mut tasks {
                assert!(task.as_mut().poll(&mut context).is_pending(), "they have no end");
            }
            time.0.now_ns.store(time.0.next_ns.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    #[test]
    fn connections_get_the_rate_in_both_directions_and_no_more() {
        for count in [1, 3, 20] {
            for sizes in [&[1400][..], &[64 << 10], &[1, 256 << 10, 1400], &[100]] {
                for is_policed in [false, true] {
                    let (time, passed) = (TestTime::default(), AtomicU64::new(0));
                    // Both directions have the rate each, and are the same but for the end that
                    // polices.
                    let (sender, receiver) = (Arc::new(Meter::sender(RATE)), Arc::new(Meter::receiver(RATE)));
                    let pace = |meter: &Arc<Meter>| Pace::new(time.clone(), Turn::new(Arc::clone(meter)));
                    let task = |_| -> Pin<Box<dyn Future<Output = ()> + '_>> {
                        Box::pin(carry(pace(&sender), is_policed.then(|| pace(&receiver)), sizes, &passed))
                    };
                    run(&time, (0..count).map(task).collect(), TIME);
                    let share = passed.into_inner() as f64 / RATE.bytes_in(TIME) as f64;
                    assert!((0.97..1.01).contains(&share), "{count} of {sizes:?}, policed: {is_policed}: {share}");
                }
            }
        }
    }

    #[test]
    fn a_receiver_lets_what_comes_pass_at_the_rate_and_little_more() {
        for bytes in [100, 1400, 64 << 10, 256 << 10] {
            let (time, passed) = (TestTime::default(), AtomicU64::new(0));
            let pace = Pace::new(time.clone(), Turn::new(Arc::new(Meter::receiver(RATE))));
            let write = async {
                loop {
                    pace.pass(bytes).await;
                    passed.fetch_add(bytes as u64, Ordering::Relaxed);
                }
            };
            run(&time, vec![Box::pin(write)], TIME);
            let share = passed.into_inner() as f64 / RATE.bytes_in(TIME) as f64;
            // A second of it at once, a twentieth more than the rate, and one more piece.
            assert!((1.0..1.2).contains(&share), "{bytes}: {share}");
        }
    }
}
