//! Whether a connection has 0-RTT.

/// The state of 0-RTT on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EarlyState {
    /// There is none: no session is continued, or one side does not want it.
    Unavailable,
    /// At a client: it can be sent, and the server has not decided.
    Possible,
    /// The server has taken it.
    Accepted,
    /// The server has not taken it: see [`Event::EarlyRejected`](crate::Event::EarlyRejected).
    Rejected,
}
