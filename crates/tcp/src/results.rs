//! Results of application calls: data read, reasons for their absence, and the end of a connection.

use bytes::Bytes;

/// Reason for the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// Both sides have finished.
    Finished,
    /// The peer reset it.
    Reset,
    /// The peer refused it.
    Refused,
    /// The peer did not answer.
    TimedOut,
    /// The peer did not answer, and a router reported it unreachable.
    Unreachable,
    /// This side reset it.
    Aborted,
}

impl std::fmt::Display for CloseReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Finished => "both sides have finished",
            Self::Reset => "the peer has reset the connection",
            Self::Refused => "the peer has refused the connection",
            Self::TimedOut => "the peer did not answer",
            Self::Unreachable => "the peer did not answer, and a router has reported that it cannot be reached",
            Self::Aborted => "this side has reset the connection",
        })
    }
}

/// Result of [`Connection::read`](crate::Connection::read).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// The next bytes.
    Bytes(Bytes),
    /// The peer has finished, and all of its data were read.
    End,
    /// No data yet.
    Blocked,
    /// The connection ended before the peer had finished.
    Closed(CloseReason),
}

/// Reason why [`Connection::write`](crate::Connection::write) took nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteError {
    /// The send buffer is full: [`Event::Writable`](crate::Event::Writable) follows.
    Blocked,
    /// [`Connection::finish`](crate::Connection::finish) was called.
    Finished,
    /// The connection has ended.
    Closed(CloseReason),
}
