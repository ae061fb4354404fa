//! [`Event`]: something that the application may wait for.

use crate::results::CloseReason;

/// Something that the application may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is complete.
    Connected,
    /// There is something to read, or the peer has finished.
    Readable,
    /// More can be written.
    Writable,
    /// More of the data in the stream are urgent: see [`Connection::urgent_left`](crate::Connection::urgent_left).
    Urgent,
    /// Something is wrong, perhaps for a moment only (RFC 9293, section 3.9.1.8). The connection goes on.
    SoftError(SoftError),
    /// The connection has ended.
    Closed(CloseReason),
}

/// What may go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SoftError {
    /// A router reports that the peer cannot be reached.
    Unreachable,
    /// The peer's host, or someone in its name, reports that it takes no segments of the connection.
    Refused,
    /// The peer has not answered for several retransmissions (RFC 9293, section 3.8.3, R1).
    Silent,
    /// Segment after segment of the peer is dropped, because its timestamps are older than earlier ones
    /// (RFC 7323, section 5.3): its clock has gone back, or others send in its name.
    OldTimestamps,
}

/// Events that were not taken. Each is there at most once.
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
    /// A single branch: most calls find none.
    pub(crate) const fn has_any(&self) -> bool {
        let Self { connected, readable, writable, urgent, soft_error, closed } = *self;
        connected | readable | writable | urgent | soft_error | closed
    }
}
