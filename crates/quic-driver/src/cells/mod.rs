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
pub(crate) mod message_queue;
pub(crate) mod recv;
pub(crate) mod reply;
pub(crate) mod send;
pub(crate) mod stream;

pub use connection::ConnectionCell;
