//! Why calls fail.

use std::{fmt, io};

use quic::{BeginError, ConnectionError, SendDatagramError, TransportError};

/// Why a connection is over, or never was.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closed {
    /// This side closed it.
    Local,
    /// The peer's application closed it.
    ByPeer {
        /// The application's code.
        code: u64,
        /// The application's words; what is not UTF-8 in them is replaced.
        reason: String,
    },
    /// Nothing was heard for the idle timeout (RFC 9000, section 10.1).
    TimedOut,
    /// Nobody answered, or the handshake took longer than the configured time.
    HandshakeTimedOut {
        /// What the system last said when a packet was to be sent, if it said anything.
        last_send_error: Option<String>,
    },
    /// TLS failed: the peer is not who it should be, or has nothing in common with us (RFC 9001, section 4.8).
    Tls {
        /// The peer said so; otherwise we did.
        by_peer: bool,
        /// The TLS alert (RFC 8446, section 6).
        alert: u8,
        /// For people.
        reason: String,
    },
    /// We closed it because the peer broke the protocol.
    PeerMisbehaved(TransportError),
    /// The peer's transport closed it.
    ByPeerTransport(TransportError),
    /// The peer speaks no version of ours (RFC 9000, section 6.2).
    VersionMismatch,
    /// It could not begin, in words.
    Configuration(String),
    /// There are as many connections as the configuration allows.
    TooMany,
    /// No socket of the endpoint speaks the address's family.
    NoSocket,
    /// A connection was to have a processor that is not there.
    NoProcessor {
        /// The one that was asked for, counted from zero.
        processor: usize,
        /// How many the placement has to choose from.
        count: usize,
    },
    /// The endpoint is gone.
    EndpointClosed,
    /// The processor that had the connection, or the last of its paths, has failed: a fault of ours. Other connections go on.
    ProcessorGone,
}

/// The codes that stand for TLS alerts (RFC 9001, section 4.8).
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
            ConnectionError::VersionMismatch => Self::VersionMismatch,
            _ => Self::Local,
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
            Self::Local => f.write_str("closed by this side"),
            Self::ByPeer { code, reason } => {
                write!(f, "the peer closed the connection (code {code})")?;
                if reason.is_empty() { Ok(()) } else { write!(f, ": {reason}") }
            }
            Self::TimedOut => f.write_str("nothing was heard from the peer for the idle timeout"),
            Self::HandshakeTimedOut { last_send_error: None } => {
                f.write_str("nobody answered at this address, or the handshake took too long")
            }
            Self::HandshakeTimedOut { last_send_error: Some(error) } => {
                write!(f, "the handshake took too long; sending failed: {error}")
            }
            Self::Tls { by_peer: false, alert, reason } => write!(f, "TLS refused the peer (alert {alert}): {reason}"),
            Self::Tls { by_peer: true, alert, reason } => {
                write!(f, "the peer's TLS refused us (alert {alert})")?;
                if reason.is_empty() { Ok(()) } else { write!(f, ": {reason}") }
            }
            Self::PeerMisbehaved(error) => write!(f, "closed because of the peer: {error}"),
            Self::ByPeerTransport(error) => write!(f, "the peer's transport closed the connection: {error}"),
            Self::VersionMismatch => f.write_str("the peer does not speak QUIC version 1"),
            Self::Configuration(words) => f.write_str(words),
            Self::TooMany => f.write_str("there are as many connections as the configuration allows"),
            Self::NoSocket => f.write_str("no socket of this endpoint speaks the address family"),
            Self::NoProcessor { processor, count: 1 } => write!(
                f,
                "there is no processor {processor} for connections, only 0: placement connection(n) has n of them"
            ),
            Self::NoProcessor { processor, count } => write!(
                f,
                "there is no processor {processor} for connections: placement connection({count}) has 0 to {}",
                count - 1
            ),
            Self::EndpointClosed => f.write_str("the endpoint is closed"),
            Self::ProcessorGone => {
                f.write_str("the processor that had the connection has failed: an error of this program")
            }
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
            Closed::ByPeer { .. } => ConnectionReset,
            Closed::TimedOut | Closed::HandshakeTimedOut { .. } => TimedOut,
            Closed::Tls { .. } | Closed::VersionMismatch | Closed::TooMany => ConnectionRefused,
            Closed::PeerMisbehaved(_) | Closed::ByPeerTransport(_) | Closed::EndpointClosed | Closed::ProcessorGone => {
                ConnectionAborted
            }
            Closed::Configuration(_) | Closed::NoProcessor { .. } => InvalidInput,
            Closed::NoSocket => AddrNotAvailable,
        };
        Self::new(kind, error)
    }
}

/// Why nothing was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// The peer asked us to stop, with this code.
    Stopped(u64),
    /// The stream was finished or reset by us.
    Closed,
    /// To wait for the peer to have everything, finish the stream first.
    NotFinished,
    /// The connection is over.
    ConnectionClosed(Closed),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(code) => write!(f, "the peer stopped reading this stream (code {code})"),
            Self::Closed => f.write_str("the stream is finished or reset"),
            Self::NotFinished => f.write_str("the stream is not finished"),
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
        };
        Self::new(kind, error)
    }
}

/// Why nothing was read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// The peer gave the stream up, with this code.
    Reset(u64),
    /// We asked the peer to stop.
    Stopped,
    /// The connection is over.
    ConnectionClosed(Closed),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset(code) => write!(f, "the peer reset this stream (code {code})"),
            Self::Stopped => f.write_str("this side has stopped reading the stream"),
            Self::ConnectionClosed(closed) => closed.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        let kind = match error {
            ReadError::ConnectionClosed(closed) => return closed.into(),
            ReadError::Reset(_) => io::ErrorKind::ConnectionReset,
            ReadError::Stopped => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// Why a stream was not opened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// As many callers wait for the peer to allow another stream as may wait.
    TooManyWaiting,
    /// The connection is over.
    ConnectionClosed(Closed),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyWaiting => f.write_str("too many callers wait for a stream"),
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

/// Why no stream of the peer was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcceptStreamError {
    /// Unidirectional streams are taken as messages on this connection, because a message was asked for first.
    MessageMode,
    /// The connection is over.
    ConnectionClosed(Closed),
}

impl fmt::Display for AcceptStreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MessageMode => f.write_str("unidirectional streams are taken as messages on this connection"),
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

/// Why a message was not sent or taken.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageError {
    /// It is longer than the configuration allows.
    TooLong {
        /// The most bytes a message may have.
        len_max: usize,
    },
    /// Unidirectional streams are accepted as streams on this connection, because one was asked for first.
    StreamMode,
    /// The connection is over.
    ConnectionClosed(Closed),
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { len_max } => write!(f, "the message is longer than {len_max} bytes"),
            Self::StreamMode => f.write_str("unidirectional streams are accepted as streams on this connection"),
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

/// Why a datagram was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramError {
    /// The peer takes none.
    Unsupported,
    /// It fits into no packet.
    TooLarge {
        /// The most bytes a datagram may have now.
        len_max: usize,
    },
    /// Too many wait to be sent; datagrams are not worth waiting for.
    QueueFull,
    /// The connection is over.
    ConnectionClosed(Closed),
}

impl From<SendDatagramError> for DatagramError {
    fn from(error: SendDatagramError) -> Self {
        match error {
            SendDatagramError::Unsupported => Self::Unsupported,
            SendDatagramError::TooLarge(len_max) => Self::TooLarge { len_max },
            SendDatagramError::QueueFull => Self::QueueFull,
        }
    }
}

impl fmt::Display for DatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("the peer takes no datagrams"),
            Self::TooLarge { len_max } => write!(f, "the datagram is too large: at most {len_max} bytes fit"),
            Self::QueueFull => f.write_str("too many datagrams are waiting to be sent"),
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

/// The engine could not be started.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration cannot work, in words.
    Configuration(String),
    /// The operating system refused something: what, and what it said.
    System(&'static str, io::Error),
}

impl From<StartError> for io::Error {
    fn from(error: StartError) -> Self {
        let kind = match &error {
            StartError::Configuration(_) => io::ErrorKind::InvalidInput,
            StartError::System(_, error) => error.kind(),
        };
        Self::new(kind, error)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration(words) => f.write_str(words),
            Self::System(what, error) => write!(f, "cannot {what}: {error}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System(_, error) => Some(error),
            Self::Configuration(_) => None,
        }
    }
}
