//! [`SendError`]: reasons why packets were not sent.

use std::fmt;

/// Reason why packets were not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The socket's buffer is full.
    WouldBlock,
    /// A queue below the socket is full.
    NoBuffers,
    /// The packets are larger than the path MTU.
    TooLarge,
    /// The system refused to send; the text is its error.
    Refused(String),
}

impl SendError {
    /// Returns whether the same packets may be sent later.
    pub const fn is_temporary(&self) -> bool {
        matches!(self, Self::WouldBlock | Self::NoBuffers)
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("the socket's send buffer is full"),
            Self::NoBuffers => f.write_str("a queue below the socket is full"),
            Self::TooLarge => f.write_str("the packets are larger than the route allows"),
            Self::Refused(words) => f.write_str(words),
        }
    }
}

impl std::error::Error for SendError {}
