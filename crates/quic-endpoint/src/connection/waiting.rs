//! Waiting for a connection: blocking calls block the calling thread, asynchronous calls suspend
//! their task.

use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use engine::Placement;
use quic_driver::error::{Closed, OpenError};

use super::Connection;
use crate::runtime::{Engine, PendingOpen, RecvHandle, SendHandle};

/// Result of a wait without a deadline that ends without an outcome. This does not happen, but must
/// not panic.
pub(crate) const GONE: Closed = Closed::EndpointClosed;

/// Fails under [`Placement::Inline`], because no thread would ever wake a task.
pub(crate) fn not_inline(engine: &Engine) -> Result<(), Closed> {
    match engine.placement() {
        Placement::Inline => Err(Closed::Configuration(
            "asynchronous calls need an endpoint with a thread, but the placement is Inline: \
             use the blocking calls or another placement"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

impl Connection {
    /// Waits until `poll` is ready. Never returns `None` in practice: see [`GONE`].
    pub(crate) fn wait<T>(&self, poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        self.handle.runtime().block_on(None, poll)
    }

    /// Like [`wait`](Self::wait), but returns `None` if `poll` is not ready within `timeout`.
    pub(super) fn wait_for<T>(&self, timeout: Duration, poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        let engine = self.handle.runtime();
        engine.block_on(Some(engine.now() + timeout.into()), poll)
    }

    /// Fails if asynchronous calls cannot work.
    pub(crate) fn can_async(&self) -> Result<(), Closed> {
        not_inline(self.handle.runtime())
    }

    /// Waits until a stream is open.
    pub(super) fn opened(&self, mut opening: PendingOpen) -> Result<(SendHandle, Option<RecvHandle>), OpenError> {
        self.wait(|waker| opening.poll(waker)).unwrap_or(Err(OpenError::ConnectionClosed(GONE)))
    }

    /// Asynchronous form of [`opened`](Self::opened).
    pub(super) async fn opened_async(
        &self,
        mut opening: PendingOpen,
    ) -> Result<(SendHandle, Option<RecvHandle>), OpenError> {
        self.can_async().map_err(OpenError::ConnectionClosed)?;
        poll_fn(|context| opening.poll(context.waker())).await
    }
}
