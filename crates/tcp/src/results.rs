//! Results of calls of the application: what was read, why not, and how a connection has ended.

use bytes::Bytes;

/// Why a connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// Both sides have finished.
    Finished,
    /// The peer has reset it.
    Reset,
    /// The peer has refused it.
    Refused,
    /// The peer did not answer.
    TimedOut,
    /// The peer did not answer, and a router has reported that it cannot be reached.
    Unreachable,
    /// This side has reset it.
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

/// What [`Connection::read`](crate::Connection::read) has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// The next bytes.
    Bytes(Bytes),
    /// The peer has finished, and all of its data were read.
    End,
    /// Nothing yet.
    Blocked,
    /// The connection has ended before the peer had finished.
    Closed(CloseReason),
}

/// Why [`Connection::write`](crate::Connection::write) has taken nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteError {
    /// The send buffer is full: [`Event::Writable`](crate::Event::Writable) follows.
    Blocked,
    /// [`Connection::finish`](crate::Connection::finish) was called.
    Finished,
    /// The connection has ended.
    Closed(CloseReason),
}
