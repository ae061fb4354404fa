//! The errors of the handles.

use std::{fmt, io};

use quic::{BeginError, ConnectionError, ErrorCode, TransportError};

/// Reason why a connection is closed or could not be begun.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closed {
    /// This side closed the connection.
    Local,
    /// The peer's application closed the connection.
    ByPeer {
        /// The application error code.
        code: u64,
        /// The reason phrase. Bytes that are not UTF-8 are replaced.
        reason: String,
    },
    /// No packet was received for the idle timeout (RFC 9000, section 10.1).
    TimedOut,
    /// The peer did not answer, or the handshake took longer than the configured time.
    HandshakeTimedOut {
        /// The last error that the system reported for an outgoing packet, if any.
        last_send_error: Option<String>,
    },
    /// The TLS handshake failed: authentication failed, or the two sides support no common
    /// parameters (RFC 9001, section 4.8).
    Tls {
        /// Whether the peer reported the alert; otherwise this side did.
        by_peer: bool,
        /// The TLS alert (RFC 8446, section 6).
        alert: u8,
        /// A description for users.
        reason: String,
    },
    /// This side closed the connection because the peer violated the protocol.
    PeerMisbehaved(TransportError),
    /// The peer's transport closed the connection with an error.
    ByPeerTransport(TransportError),
    /// The peer has lost the connection's state, for instance by a restart (RFC 9000, section
    /// 10.3).
    Reset,
    /// The peer supports no common QUIC version (RFC 9000, section 6.2).
    VersionMismatch,
    /// The connection could not be begun, for the reason in the text.
    Configuration(String),
    /// The configured limit of connections is reached.
    TooMany,
    /// The endpoint has no such socket, or none for the address family.
    NoSocket,
    /// The requested processor does not exist.
    NoProcessor {
        /// The index of the requested processor.
        processor: usize,
        /// The number of processors of the placement.
        count: usize,
    },
    /// The endpoint is closed.
    EndpointClosed,
    /// The processor that ran the connection or its last path has failed. This is a fault of this
    /// program. Other connections are not affected.
    ProcessorGone,
}

/// The error codes of TLS alerts (RFC 9001, section 4.8).
const CRYPTO_ERRORS: std::ops::RangeInclusive<u64> = 0x0100..=0x01ff;

impl From<ConnectionError> for Closed {
    fn from(error: ConnectionError) -> Self {
        let tls = |by_peer, error: &TransportError| {
            let alert = CRYPTO_ERRORS.contains(&error.code.0).then_some(error.code.0 as u8)?;
            Some(Self::Tls { by_peer, alert, reason: error.reason.to_string() })
        };
        match error {
            ConnectionError::PeerMisbehaved(error) => tls(false, &error).unwrap_or(Self::PeerMisbehaved(error)),
            ConnectionError::ClosedByPeerTransport(error) => tls(true, &error).unwrap_or(Self::ByPeerTransport(error)),
            ConnectionError::ClosedByPeer { code, reason } => {
                Self::ByPeer { code, reason: String::from_utf8_lossy(&reason).into_owned() }
            }
            ConnectionError::TimedOut => Self::TimedOut,
            ConnectionError::HandshakeTimedOut => Self::HandshakeTimedOut { last_send_error: None },
            ConnectionError::Reset => Self::Reset,
            ConnectionError::VersionMismatch => Self::VersionMismatch,
            _ => Self::Local,
        }
    }
}

impl From<driver::EndReason> for Closed {
    fn from(reason: driver::EndReason) -> Self {
        use driver::EndReason;
        match reason {
            EndReason::ProcessorGone => Self::ProcessorGone,
            EndReason::TooMany => Self::TooMany,
            EndReason::NoSocket => Self::NoSocket,
            _ => Self::EndpointClosed,
        }
    }
}

impl From<BeginError> for Closed {
    fn from(error: BeginError) -> Self {
        Self::Configuration(error.to_string())
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("this side closed the connection"),
            Self::ByPeer { code, reason } => {
                write!(f, "the peer closed the connection (code {code})")?;
                if reason.is_empty() { Ok(()) } else { write!(f, ": {reason}") }
            }
            Self::TimedOut => {
                f.write_str("nothing was received from the peer for the idle timeout: the network or the peer is gone")
            }
            Self::HandshakeTimedOut { last_send_error: None } => f.write_str(
                "no answer from this address, or the handshake took too long: check that the peer runs there",
            ),
            Self::HandshakeTimedOut { last_send_error: Some(error) } => {
                write!(f, "the handshake took too long, and this system could not send packets: {error}")
            }
            Self::Tls { by_peer: false, alert, reason } => {
                write!(f, "the TLS handshake failed (alert {alert}): {reason}")
            }
            Self::Tls { by_peer: true, alert, reason } => {
                write!(f, "the peer rejected the TLS handshake (alert {alert})")?;
                if reason.is_empty() { Ok(()) } else { write!(f, ": {reason}") }
            }
            Self::PeerMisbehaved(error) => write!(f, "closed because the peer violated the protocol: {error}"),
            Self::ByPeerTransport(error) if error.code == ErrorCode::CONNECTION_REFUSED => f.write_str(
                "the peer accepts no connections at the moment: it has as many as it allows, or it is closing; try \
                 again later",
            ),
            Self::ByPeerTransport(error) => write!(f, "the peer's transport closed the connection: {error}"),
            Self::Reset => {
                f.write_str("the peer lost the connection's state: it was restarted, most likely; connect again")
            }
            Self::VersionMismatch => f.write_str("the peer does not support the version of QUIC in which this side began: update the peer, or choose other versions"),
            Self::Configuration(text) => f.write_str(text),
            Self::TooMany => f.write_str(
                "this side has as many connections or requests as its configuration allows: close some or wait",
            ),
            Self::NoSocket => {
                f.write_str("this endpoint has no such socket, or none for the address family: configure one")
            }
            Self::NoProcessor { processor, count: 1 } => write!(
                f,
                "there is no processor {processor} for connections, only 0: placement connection(n) has n of them"
            ),
            Self::NoProcessor { processor, count } => write!(
                f,
                "there is no processor {processor} for connections: placement connection({count}) has 0 to {}",
                count - 1
            ),
            Self::EndpointClosed => f.write_str("this side closed the endpoint"),
            Self::ProcessorGone => f.write_str(
                "the processor that ran the connection has failed, which is a fault of this program: connect again",
            ),
        }
    }
}

impl std::error::Error for Closed {}

impl From<Closed> for io::Error {
    fn from(error: Closed) -> Self {
        use io::ErrorKind::{
            AddrNotAvailable, ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected,
            TimedOut,
        };
        let kind = match &error {
            Closed::Local => NotConnected,
            Closed::ByPeer { .. } | Closed::Reset => ConnectionReset,
            Closed::TimedOut | Closed::HandshakeTimedOut { .. } => TimedOut,
            Closed::Tls { .. } | Closed::VersionMismatch | Closed::TooMany => ConnectionRefused,
            Closed::ByPeerTransport(error) if error.code == ErrorCode::CONNECTION_REFUSED => ConnectionRefused,
            Closed::PeerMisbehaved(_) | Closed::ByPeerTransport(_) | Closed::EndpointClosed | Closed::ProcessorGone => {
                ConnectionAborted
            }
            Closed::Configuration(_) | Closed::NoProcessor { .. } => InvalidInput,
            Closed::NoSocket => AddrNotAvailable,
        };
        Self::new(kind, error)
    }
}

/// Message for streams whose 0-RTT was rejected.
const EARLY_REJECTED: &str = "the server did not take the 0-RTT data of this stream: open another one and ask again";

/// Reason why a write failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// The peer requested an end of sending, with this code.
    Stopped(u64),
    /// This side has finished or reset the stream.
    Closed,
    /// The caller waits for the acknowledgement of a stream that is not finished.
    NotFinished,
    /// The stream was opened for 0-RTT, and the server has rejected it: the written data is lost.
    EarlyRejected,
    /// The connection is closed.
    ConnectionClosed(Closed),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(code) => {
                write!(f, "the peer stopped reading this stream (code {code}): send nothing more on it")
            }
            Self::Closed => f.write_str("this side has finished or reset the stream: open another one to send more"),
            Self::NotFinished => {
                f.write_str("this side has not finished the stream: finish it before waiting for the peer")
            }
            Self::EarlyRejected => f.write_str(EARLY_REJECTED),
            Self::ConnectionClosed(closed) => closed.fmt(f),
        }
    }
}

impl std::error::Error for WriteError {}

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> Self {
        let kind = match error {
            WriteError::ConnectionClosed(closed) => return closed.into(),
            WriteError::Stopped(_) => io::ErrorKind::BrokenPipe,
            WriteError::Closed | WriteError::NotFinished => io::ErrorKind::InvalidInput,
            WriteError::EarlyRejected => io::ErrorKind::ConnectionReset,
        };
        Self::new(kind, error)
    }
}

/// Reason why a read failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// The peer reset the stream, with this code.
    Reset(u64),
    /// This side asked the peer to stop sending.
    Stopped,
    /// The stream was opened for 0-RTT, and the server has rejected it: there is no answer.
    EarlyRejected,
    /// The connection is closed.
    ConnectionClosed(Closed),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset(code) => write!(f, "the peer reset this stream (code {code})"),
            Self::Stopped => f.write_str("this side has stopped reading the stream: nothing more can be read from it"),
            Self::EarlyRejected => f.write_str(EARLY_REJECTED),
            Self::ConnectionClosed(closed) => closed.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        let kind = match error {
            ReadError::ConnectionClosed(closed) => return closed.into(),
            ReadError::Reset(_) | ReadError::EarlyRejected => io::ErrorKind::ConnectionReset,
            ReadError::Stopped => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// Reason why a stream was not opened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// Too many callers wait until the peer permits another stream.
    TooManyWaiting,
    /// The connection is closed.
    ConnectionClosed(Closed),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyWaiting => {
                f.write_str("too many callers of this side wait for a stream: wait until the peer permits more")
            }
            Self::ConnectionClosed(closed) => closed.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        let kind = match error {
            OpenError::ConnectionClosed(closed) => return closed.into(),
            OpenError::TooManyWaiting => io::ErrorKind::QuotaExceeded,
        };
        Self::new(kind, error)
    }
}

/// Reason why no stream of the peer was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcceptStreamError {
    /// The peer's unidirectional streams are received as messages, because the first call requested
    /// a message.
    MessageMode,
    /// The connection is closed.
    ConnectionClosed(Closed),
}

impl fmt::Display for AcceptStreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MessageMode => {
                f.write_str("this side receives the connection's unidirectional streams as messages: use recv_message")
            }
            Self::ConnectionClosed(closed) => closed.fmt(f),
        }
    }
}

impl std::error::Error for AcceptStreamError {}

impl From<AcceptStreamError> for io::Error {
    fn from(error: AcceptStreamError) -> Self {
        let kind = match error {
            AcceptStreamError::ConnectionClosed(closed) => return closed.into(),
            AcceptStreamError::MessageMode => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// Reason why a message was not sent or received.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageError {
    /// The message is longer than the configuration permits.
    TooLong {
        /// The maximum length of a message.
        len_max: usize,
    },
    /// The peer's unidirectional streams are accepted as streams, because the first call requested
    /// a stream.
    StreamMode,
    /// The connection is closed.
    ConnectionClosed(Closed),
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { len_max } => {
                write!(f, "the message is longer than this side allows: send at most {len_max} bytes")
            }
            Self::StreamMode => {
                f.write_str("this side accepts the connection's unidirectional streams as streams: use accept_uni")
            }
            Self::ConnectionClosed(closed) => closed.fmt(f),
        }
    }
}

impl std::error::Error for MessageError {}

impl From<MessageError> for io::Error {
    fn from(error: MessageError) -> Self {
        let kind = match error {
            MessageError::ConnectionClosed(closed) => return closed.into(),
            MessageError::TooLong { .. } => io::ErrorKind::InvalidInput,
            MessageError::StreamMode => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// Reason why a datagram was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramError {
    /// The peer does not accept datagrams.
    Unsupported,
    /// The datagram does not fit into a packet.
    TooLarge {
        /// The current maximum length of a datagram.
        len_max: usize,
    },
    /// The queue of outgoing datagrams is full.
    QueueFull,
    /// The connection is closed.
    ConnectionClosed(Closed),
}

impl fmt::Display for DatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("the peer does not accept datagrams: use messages or streams"),
            Self::TooLarge { len_max } => {
                write!(f, "the datagram does not fit into a packet: send at most {len_max} bytes")
            }
            Self::QueueFull => {
                f.write_str("this side has too many datagrams waiting to be sent: send them more slowly")
            }
            Self::ConnectionClosed(closed) => closed.fmt(f),
        }
    }
}

impl std::error::Error for DatagramError {}

impl From<DatagramError> for io::Error {
    fn from(error: DatagramError) -> Self {
        let kind = match error {
            DatagramError::ConnectionClosed(closed) => return closed.into(),
            DatagramError::Unsupported => io::ErrorKind::Unsupported,
            DatagramError::TooLarge { .. } => io::ErrorKind::InvalidInput,
            DatagramError::QueueFull => io::ErrorKind::WouldBlock,
        };
        Self::new(kind, error)
    }
}
