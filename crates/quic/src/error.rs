//! What can go wrong with a connection, and whose fault it is.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use wire::quic::ErrorCode;
use wire::quic::frame::FrameError;

/// The peer broke the protocol, or we must tell it that we cannot go on (RFC 9000, section 11). Maps to exactly one
/// CONNECTION_CLOSE frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportError {
    /// The code on the wire.
    pub code: ErrorCode,
    /// The type of the frame at fault, zero if it was none.
    pub frame_type: u64,
    /// For people.
    pub reason: Cow<'static, str>,
}

impl TransportError {
    /// An error that no particular frame is to blame for.
    pub fn new(code: ErrorCode, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { code, frame_type: 0, reason: reason.into() }
    }

    /// The peer did what RFC 9000 forbids.
    pub fn violation(reason: &'static str) -> Self {
        Self::new(ErrorCode::PROTOCOL_VIOLATION, reason)
    }
}

impl From<FrameError> for TransportError {
    fn from(error: FrameError) -> Self {
        Self { code: error.code, frame_type: error.frame_type, reason: error.reason.into() }
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)
    }
}

impl std::error::Error for TransportError {}

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionError {
    /// We closed it because the peer broke the protocol.
    PeerMisbehaved(TransportError),
    /// The peer's transport closed it.
    ClosedByPeerTransport(TransportError),
    /// The peer's application closed it.
    ClosedByPeer {
        /// The application's code.
        code: u64,
        /// The application's words, as they came.
        reason: Bytes,
    },
    /// Our own application closed it.
    ClosedLocally,
    /// Nothing was heard for the idle timeout (RFC 9000, section 10.1).
    TimedOut,
    /// The peer speaks none of our versions (RFC 9000, section 6.2).
    VersionMismatch,
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerMisbehaved(error) => write!(f, "closed because of the peer: {error}"),
            Self::ClosedByPeerTransport(error) => write!(f, "the peer closed the connection: {error}"),
            Self::ClosedByPeer { code, reason } => {
                write!(f, "the peer's application closed the connection (code {code})")?;
                if !reason.is_empty() {
                    write!(f, ": {}", String::from_utf8_lossy(reason))?;
                }
                Ok(())
            }
            Self::ClosedLocally => f.write_str("closed by this side"),
            Self::TimedOut => f.write_str("the peer has not answered for the idle timeout"),
            Self::VersionMismatch => f.write_str("the peer does not speak QUIC version 1"),
        }
    }
}

impl std::error::Error for ConnectionError {}
