//! Cells: the state that application threads and the driver share, behind short locks. A lock is
//! taken once per chunk, never per packet.
//!
//! ```text
//!  writer ─▶ SendCell (outbox) ─┐                 ┌─▶ RecvCell (inbox) ─▶ reader
//!                               ├─▶ driver, conn ─┤
//!  open, close, … ─▶ Requests ──┘                 └─▶ ConnectionCell (accepted, messages, …) ─▶ waiters
//! ```
//!
//! A handle changes a cell, adds the cell to the connection's [`Requests`](connection::Requests),
//! adds the connection to the driver's list of connections with requests, and wakes the driver.
//! Flags in the cells ensure that each list holds each entry at most once, so the lists are bounded
//! by the number of streams and connections. Locks are taken one at a time, and no waker is called
//! while a lock is held. A waiter stores its waker under the lock under which it checked the
//! condition, so no change is missed.

pub(crate) mod connection;
mod message_queue;
pub(crate) mod recv;
pub(crate) mod reply;
pub(crate) mod send;

pub use connection::ConnectionCell;
pub(crate) use connection::{ConnectionState, Interest, MessageMode};
pub(crate) use message_queue::{MessageQueues, OutgoingMessage, QueueKind};
pub(crate) use recv::RecvCell;
pub(crate) use reply::{ReplyReceiver, ReplySender, reply_channel};
pub(crate) use send::SendCell;

use std::sync::Arc;

/// The cells of one stream. Which of them exist depends on its direction and its initiator.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamCells {
    pub(crate) send: Option<Arc<SendCell>>,
    pub(crate) recv: Option<Arc<RecvCell>>,
}

impl StreamCells {
    /// The stream's ID, if there is a cell.
    pub(crate) fn id(&self) -> Option<quic::StreamId> {
        self.send.as_ref().map(|cell| cell.id).or_else(|| self.recv.as_ref().map(|cell| cell.id))
    }
}

/// A cell with a change that the driver has not processed.
#[derive(Debug)]
pub(crate) enum StreamRequest {
    Send(Arc<SendCell>),
    Recv(Arc<RecvCell>),
}
