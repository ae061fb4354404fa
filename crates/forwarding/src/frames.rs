//! Messages on streams.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use forward::Malformed;
use forward::message::{Failure, HEADER_LEN, Header, Message, Reason};
use forward::spec::Listen;
use quic_endpoint::{RecvStream, SendStream, WriteError};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

/// The time for a message that the other side sends without waiting for anything.
pub const PROMPT: Duration = Duration::from_secs(15);

/// The time for an answer that may wait for a name and a target: more than the other side takes.
const ANSWER: Duration = Duration::from_secs(40);

/// Why a message was not sent or received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The stream takes nothing more: the other side stopped it, or the connection has ended.
    #[error("{0}")]
    Write(WriteError),
    /// The stream has ended before a whole message, was reset, or the connection has ended.
    #[error("{0}")]
    Read(io::Error),
    /// No message came in time.
    #[error("the other side did not answer in time")]
    TimedOut,
    /// The bytes are no message.
    #[error("the other side sent something else than a message: {0}")]
    Malformed(Malformed),
}

/// Sends a message. It has to fit into what the stream takes at once, as the first ones do.
///
/// # Errors
/// [`FrameError::Write`].
pub async fn send(stream: &mut SendStream, message: &Message) -> Result<(), FrameError> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    stream.write_chunk_async(bytes.into()).await.map_err(FrameError::Write)
}

/// Receives the next message, if it comes in time. What follows it on the stream stays there.
///
/// # Errors
/// Same errors as [`read`], and [`FrameError::TimedOut`] after `within`.
pub async fn receive(stream: &mut RecvStream, within: Duration) -> Result<Message, FrameError> {
    timeout(within, read(stream)).await.unwrap_or(Err(FrameError::TimedOut))
}

/// Receives the next message.
///
/// # Errors
/// [`FrameError::Read`], also at the end of the stream, and [`FrameError::Malformed`].
pub async fn read(stream: &mut RecvStream) -> Result<Message, FrameError> {
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header).await.map_err(FrameError::Read)?;
    let header = Header::parse(header).map_err(FrameError::Malformed)?;
    let mut body = vec![0; header.body_len];
    stream.read_exact(&mut body).await.map_err(FrameError::Read)?;
    Message::decode(header, &body).map_err(FrameError::Malformed)
}

/// Receives the answer to a request that this end has sent: the address of the far socket.
///
/// # Errors
/// The other side's failure, or one that says why no answer came.
pub async fn answer(stream: &mut RecvStream) -> Result<Option<SocketAddr>, Failure> {
    match reply(stream).await? {
        Message::Connected { local } => Ok(local),
        _ => Err(Failure::new(Reason::Other, ANOTHER)),
    }
}

/// Receives the answer to a request for the addresses of a name: at least one.
///
/// # Errors
/// Same errors as [`answer`].
pub async fn addresses(stream: &mut RecvStream) -> Result<Vec<IpAddr>, Failure> {
    match reply(stream).await? {
        Message::Addresses(addresses) => Ok(addresses),
        _ => Err(Failure::new(Reason::Other, ANOTHER)),
    }
}

/// Receives the answer to a request to listen with this number, on a stream of its own: where the other side listens.
///
/// # Errors
/// Same errors as [`answer`].
pub async fn listening(stream: &mut RecvStream, id: u32) -> Result<Listen, Failure> {
    match receive(stream, PROMPT).await {
        Ok(Message::Listening { id: answered, listen }) if answered == id => Ok(listen),
        Ok(Message::NotListening { id: answered, failure }) if answered == id => Err(failure),
        // A server that does not know this use of the request.
        Ok(Message::Failed(failure)) => Err(failure),
        Ok(_) => Err(Failure::new(Reason::Other, ANOTHER)),
        Err(error) => Err(Failure::new(Reason::Other, &error.to_string())),
    }
}

const ANOTHER: &str = "the other side answered with another message";

/// The next message, if it is no failure.
async fn reply(stream: &mut RecvStream) -> Result<Message, Failure> {
    match receive(stream, ANSWER).await {
        Ok(Message::Failed(failure)) => Err(failure),
        Ok(message) => Ok(message),
        Err(error) => Err(Failure::new(Reason::Other, &error.to_string())),
    }
}
