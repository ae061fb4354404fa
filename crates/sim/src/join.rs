//! Awaiting two futures at once.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Waits until both futures are complete. `first` is polled first.
pub async fn join(first: impl Future, second: impl Future) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut first_done, mut second_done) = (false, false);
    poll_fn(|context| {
        first_done = first_done || first.as_mut().poll(context).is_ready();
        second_done = second_done || second.as_mut().poll(context).is_ready();
        if first_done && second_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
