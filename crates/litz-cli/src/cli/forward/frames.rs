//! Messages on streams.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use forward::message::{Failure, HEADER_LEN, Header, Message, Reason};
use forward::spec::Listen;
use litz::{RecvStream, SendStream};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

/// The time for a message that the other side sends without waiting for anything.
pub(crate) const PROMPT: Duration = Duration::from_secs(15);

/// The time for an answer that may wait for a name and a target: more than the other side takes
/// ([`DIAL_TIME`](super::dial::DIAL_TIME)).
pub(super) const ANSWER: Duration = Duration::from_secs(40);

/// Sends a message. It has to fit into what the stream takes at once, as the first ones do.
pub(crate) async fn send(stream: &mut SendStream, message: &Message) -> Result<(), String> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    stream.write_chunk_async(bytes.into()).await.map_err(|error| error.to_string())
}

/// The next message, if it comes in time. What follows it on the stream stays there.
pub(crate) async fn receive(stream: &mut RecvStream, within: Duration) -> Result<Message, String> {
    match timeout(within, read(stream)).await {
        Ok(message) => message,
        Err(_) => Err("the other side did not answer in time".to_owned()),
    }
}

/// The next message. The end of a stream is an error.
pub(crate) async fn read(stream: &mut RecvStream) -> Result<Message, String> {
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header).await.map_err(|error| error.to_string())?;
    let malformed = |error: forward::Malformed| format!("the other side sent something else than a message: {error}");
    let header = Header::parse(header).map_err(malformed)?;
    let mut body = vec![0; header.body_len];
    stream.read_exact(&mut body).await.map_err(|error| error.to_string())?;
    Message::decode(header, &body).map_err(malformed)
}

/// The answer to a request that this end has sent: the address of the far socket.
pub(super) async fn answer(stream: &mut RecvStream) -> Result<Option<SocketAddr>, Failure> {
    match reply(stream).await? {
        Message::Connected { local } => Ok(local),
        _ => Err(Failure::new(Reason::Other, ANOTHER)),
    }
}

/// The answer to a request for the addresses of a name: at least one.
pub(super) async fn addresses(stream: &mut RecvStream) -> Result<Vec<IpAddr>, Failure> {
    match reply(stream).await? {
        Message::Addresses(addresses) => Ok(addresses),
        _ => Err(Failure::new(Reason::Other, ANOTHER)),
    }
}

/// The answer to a request to listen with this number, on a stream of its own: where the other side listens.
pub(super) async fn listening(stream: &mut RecvStream, id: u32) -> Result<Listen, Failure> {
    match receive(stream, PROMPT).await {
        Ok(Message::Listening { id: answered, listen }) if answered == id => Ok(listen),
        Ok(Message::NotListening { id: answered, failure }) if answered == id => Err(failure),
        // A server that does not know this use of the request.
        Ok(Message::Failed(failure)) => Err(failure),
        Ok(_) => Err(Failure::new(Reason::Other, ANOTHER)),
        Err(error) => Err(Failure::new(Reason::Other, &error)),
    }
}

const ANOTHER: &str = "the other side answered with another message";

/// The next message, if it is no failure.
async fn reply(stream: &mut RecvStream) -> Result<Message, Failure> {
    match receive(stream, ANSWER).await {
        Ok(Message::Failed(failure)) => Err(failure),
        Ok(message) => Ok(message),
        Err(error) => Err(Failure::new(Reason::Other, &error)),
    }
}
