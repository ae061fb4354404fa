//! [`Event`]: an event that the application may wait for.

use crate::results::CloseReason;

/// An event that the application may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is complete.
    Connected,
    /// Data can be read, or the peer has finished.
    Readable,
    /// More data can be written.
    Writable,
    /// The urgent part of the stream has grown: see
    /// [`Connection::urgent_left`](crate::Connection::urgent_left).
    Urgent,
    /// A problem, perhaps a transient one (RFC 9293, section 3.9.1.8). The connection continues.
    SoftError(SoftError),
    /// The connection has ended.
    Closed(CloseReason),
}

/// A problem that may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SoftError {
    /// A router reports that the peer is unreachable.
    Unreachable,
    /// The peer's host, or a forger, reports that it accepts no segments of the connection.
    Refused,
    /// The peer has not answered for several retransmissions (RFC 9293, section 3.8.3, R1).
    Silent,
    /// Consecutive segments of the peer are dropped because their timestamps are older than earlier
    /// ones (RFC 7323, section 5.3): its clock has gone back, or others send in its name.
    OldTimestamps,
}

/// Pending events. Each occurs at most once.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) connected: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) urgent: bool,
    pub(crate) soft_error: bool,
    pub(crate) closed: bool,
}

impl Events {
    /// Returns whether any event is pending. A single branch, since most calls find none.
    pub(crate) const fn has_any(&self) -> bool {
        let Self { connected, readable, writable, urgent, soft_error, closed } = *self;
        connected | readable | writable | urgent | soft_error | closed
    }
}
