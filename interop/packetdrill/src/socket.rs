//! What a descriptor stands for.

use std::collections::VecDeque;
use std::net::SocketAddr;

use tcp::{CloseReason, Connection};

use crate::options::Options;

/// An error of a call: the system's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// The result of a call that may have to wait.
pub(crate) enum Outcome<T> {
    Done(T),
    Failed(Errno),
    Waits,
}

/// A socket of packetdrill.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) kind: Kind,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) is_nonblocking: bool,
    pub(crate) options: Options,
    /// No more is read.
    pub(crate) is_read_closed: bool,
    /// The error that a call has not reported.
    pub(crate) error: Option<Errno>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Fresh,
    Listening { waiting: VecDeque<u64>, backlog: usize },
    Stream(u64),
}

/// A connection and its descriptor's place in its life.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) connection: Connection,
    /// The listening socket that it came to, until it is accepted.
    pub(crate) listener: Option<i32>,
    /// A call has learned that it is connected, or that it is not.
    pub(crate) is_connect_reported: bool,
}

/// The error that a call reports for the end of a connection.
pub(crate) const fn errno_of(reason: CloseReason) -> Errno {
    Errno(match reason {
        CloseReason::Refused => libc::ECONNREFUSED,
        CloseReason::TimedOut => libc::ETIMEDOUT,
        CloseReason::Reset => libc::ECONNRESET,
        CloseReason::Aborted => libc::ECONNABORTED,
        _ => libc::EPIPE,
    })
}
