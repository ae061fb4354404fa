//! What application threads and the driver share: cells behind short locks, touched once per chunk, never per packet.
//!
//! ```text
//!  writer ─▶ SendCell (outbox) ─┐                 ┌─▶ RecvCell (inbox) ─▶ reader
//!                               ├─▶ driver, conn ─┤
//!  open, close, … ─▶ todo ──────┘                 └─▶ ConnectionCell (accepted, messages, …) ─▶ waiters
//! ```
//!
//! An application puts work into a cell, then names the cell in the connection's todo list, then names the connection in
//! the engine's list, then wakes the driver; each list names each thing at most once, so their lengths are bounded by what
//! exists. Locks are taken one at a time, and wakers are called when none is held. A waiter leaves its waker under the same
//! lock under which it looked, so nothing can happen in between unnoticed.

pub(crate) mod connection;
mod message_queue;
pub(crate) mod recv;
pub(crate) mod reply;
pub(crate) mod send;

pub(crate) use connection::{ConnectionCell, ConnectionState, Interest, MessageMode};
pub(crate) use message_queue::{Lane, MessageQueues, OutMessage};
pub(crate) use recv::RecvCell;
pub(crate) use reply::{Answer, Reply, question};
pub(crate) use send::SendCell;

use std::sync::Arc;

/// The cells of one stream; which exist depends on its direction and on who opened it.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamCells {
    pub(crate) send: Option<Arc<SendCell>>,
    pub(crate) recv: Option<Arc<RecvCell>>,
}

impl StreamCells {
    /// Which stream's they are; none if there are none.
    pub(crate) fn id(&self) -> Option<quic::StreamId> {
        self.send.as_ref().map(|cell| cell.id).or_else(|| self.recv.as_ref().map(|cell| cell.id))
    }
}

/// A stream whose cell has work for the driver.
#[derive(Debug)]
pub(crate) enum StreamTask {
    Send(Arc<SendCell>),
    Recv(Arc<RecvCell>),
}
