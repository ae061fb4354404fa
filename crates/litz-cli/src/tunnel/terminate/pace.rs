//! [`Pace`]: the rate of one direction of a terminated connection.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use net::MonotonicClock;
use tokio::time::sleep;
use tunnel::meter::Turn;

/// Lets data pass at the rate that the connection shares with all else of its peer. Data that wait were read, so what is
/// not read yet waits in the window of the sender.
pub(super) struct Pace {
    clock: MonotonicClock,
    turn: Mutex<Turn>,
    /// Data that were read and may not pass yet.
    held: Mutex<Option<Bytes>>,
}

impl Pace {
    pub(super) fn new(clock: MonotonicClock, turn: Turn) -> Self {
        Self { clock, turn: Mutex::new(turn), held: Mutex::default() }
    }

    /// The next data of `read` that may pass. Nothing is lost if the future is dropped.
    pub(super) async fn next<E>(
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
    pub(super) async fn pass(&self, bytes: usize) {
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
                sleep(until.saturating_since(now).into()).await;
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
