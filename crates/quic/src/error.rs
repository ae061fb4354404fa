//! Errors of a connection.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use wire::quic::ErrorCode;
use wire::quic::frame::FrameError;

/// A protocol violation of the peer, or a failure that we must report to it (RFC 9000, section 11).
/// Maps to exactly one CONNECTION_CLOSE frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportError {
    /// The code on the wire.
    pub code: ErrorCode,
    /// The type of the frame at fault, zero if it was none.
    pub frame_type: u64,
    /// A description for people.
    pub reason: Cow<'static, str>,
}

impl TransportError {
    /// An error without a particular frame.
    pub fn new(code: ErrorCode, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { code, frame_type: 0, reason: reason.into() }
    }

    /// A violation of RFC 9000.
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
    /// We closed it because the peer violated the protocol.
    PeerMisbehaved(TransportError),
    /// The peer's transport closed it.
    ClosedByPeerTransport(TransportError),
    /// The peer's application closed it.
    ClosedByPeer {
        /// The application's code.
        code: u64,
        /// The application's reason, as received.
        reason: Bytes,
    },
    /// Our own application closed it.
    ClosedLocally,
    /// Nothing was received for the idle timeout (RFC 9000, section 10.1).
    TimedOut,
    /// The handshake was not complete when its time was over
    /// ([`TransportConfig::handshake_timeout`](crate::TransportConfig::handshake_timeout)).
    HandshakeTimedOut,
    /// The peer does not support the version in which we began (RFC 9000, section 6.2).
    VersionMismatch,
    /// The peer has lost the connection's state, by a restart for instance, and said so with a
    /// stateless reset (RFC 9000, section 10.3).
    Reset,
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
            Self::HandshakeTimedOut => f.write_str(
                "the handshake was not complete in time: the peer is too slow, or packets are lost on the way; \
                 try again, or allow more time",
            ),
            Self::Reset => f.write_str("the peer lost the connection's state"),
            Self::VersionMismatch => {
                f.write_str("the peer does not speak the version of QUIC in which this side began")
            }
        }
    }
}

impl std::error::Error for ConnectionError {}
