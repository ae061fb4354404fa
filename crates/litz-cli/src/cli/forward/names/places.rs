//! How many queries are answered at a time, and how many wait until others are answered.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Queries that wait: some seconds of a busy browser. Each takes at most
/// [`QUERY_LEN_MAX`](super::QUERY_LEN_MAX) bytes.
const WAITING_MAX: usize = 256;

/// How long a query waits: the C library asks again after 5 seconds.
const WAITING_TIME: Duration = Duration::from_secs(4);

pub(super) struct Places {
    free: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// The right to a place, or to wait for one.
pub(super) struct Turn {
    place: Option<OwnedSemaphorePermit>,
    _waiting: Option<OwnedSemaphorePermit>,
}

impl Places {
    pub(super) fn new(count: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(count)), waiting: Arc::new(Semaphore::new(WAITING_MAX)) }
    }

    /// The turn of a query. `None` if too many wait already.
    pub(super) fn turn(&self) -> Option<Turn> {
        if let Ok(place) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(Turn { place: Some(place), _waiting: None });
        }
        let waiting = Arc::clone(&self.waiting).try_acquire_owned().ok()?;
        Some(Turn { place: None, _waiting: Some(waiting) })
    }

    /// The place of a query. `None` if none becomes free in time.
    pub(super) async fn place(&self, turn: Turn) -> Option<OwnedSemaphorePermit> {
        if turn.place.is_some() {
            return turn.place;
        }
        timeout(WAITING_TIME, Arc::clone(&self.free).acquire_owned()).await.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn queries_wait_for_a_place_up_to_a_bound() {
        let places = Places::new(1);
        let first = places.place(places.turn().expect("it is free")).await.expect("it is free");
        let mut waiting: Vec<_> = std::iter::from_fn(|| places.turn()).collect();
        assert_eq!(waiting.len(), WAITING_MAX);
        drop(first);
        let next = places.place(waiting.pop().expect("many wait")).await;
        assert!(next.is_some() && places.turn().is_some(), "one more may wait");
    }
}
