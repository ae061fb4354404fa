//! [`FlowClass`]: differentiated services of a terminated connection (RFC 2474).
//!
//! ```text
//!  program ── packets with a DSCP ──▶ our TCP ══ stream of a class ══▶ our TCP ── the same DSCP ──▶ target
//!                                         └───── Class, if it changes ────▲
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use forward::message::Message;
use forwarding::carry::StreamClass;
use forwarding::frames::{self, FrameError};
use quic_endpoint::{OpenError, ReadError, StreamId, WriteError};
use tcp_stack::TcpStream;
use tokio::time::{sleep, timeout};

use super::choice::Choice;
use super::side::{STREAM_TIME, Side};
use crate::peers::Peer;

/// How often the peer is told of another DSCP, at most: a stream carries each message.
const TELL_INTERVAL: Duration = Duration::from_millis(100);

/// The class of a connection's stream, and what the peer is told of it.
pub(crate) struct FlowClass {
    side: Arc<Side>,
    peer: Arc<Peer>,
    /// The address of the program, and the one that it is connected to.
    source: SocketAddr,
    target: SocketAddr,
    stream: StreamId,
    choice: Choice,
    /// The DSCP of the program's packets when data came last, and the one that the peer knows.
    dscp: AtomicU8,
    told: AtomicU8,
    is_telling: AtomicBool,
}

/// Why the peer does not know another DSCP.
#[derive(Debug, thiserror::Error)]
enum NotUpdated {
    #[error("the peer has too many connections")]
    NoStream,
    #[error("{0}")]
    Open(OpenError),
    #[error("{0}")]
    Message(FrameError),
    #[error("{0}")]
    Finish(WriteError),
    #[error("{0}")]
    Read(ReadError),
    #[error("the peer has refused")]
    Refused,
    #[error("the peer did not answer in time")]
    TimedOut,
}

impl FlowClass {
    /// Of a connection whose data a stream carries. The peer takes `told` for the DSCP.
    pub(crate) fn new(side: &Arc<Side>, peer: &Arc<Peer>, connection: &TcpStream, stream: StreamId, told: u8) -> Self {
        Self {
            side: Arc::clone(side),
            peer: Arc::clone(peer),
            source: connection.peer_addr(),
            target: connection.local_addr(),
            stream,
            choice: Choice::default(),
            dscp: AtomicU8::new(told),
            told: AtomicU8::new(told),
            is_telling: AtomicBool::new(false),
        }
    }

    /// The class of the stream, now that the program has sent so many bytes. Lets the peer know of another DSCP.
    pub(crate) fn of_data(self: &Arc<Self>, len: usize) -> StreamClass {
        let (source, target) = (self.source, self.target);
        // A connection that has ended has none; the last one counts for the rest of its data.
        let dscp = self.side.stack.dscp_of_peer(source, target).unwrap_or_else(|| self.dscp.load(Ordering::SeqCst));
        self.dscp.store(dscp, Ordering::SeqCst);
        if dscp != self.told.load(Ordering::SeqCst) && !self.is_telling.swap(true, Ordering::SeqCst) {
            tokio::spawn(Arc::clone(self).tell());
        }
        let is_urgent = self.side.urgent.has_flow(dscp, [source.port(), target.port()]);
        self.choice.next(&self.peer.urgent_streams, (dscp, is_urgent), len)
    }

    /// Tells the peer the last DSCP, and those that follow meanwhile.
    async fn tell(self: Arc<Self>) {
        loop {
            let dscp = self.dscp.load(Ordering::SeqCst);
            if dscp == self.told.load(Ordering::SeqCst) {
                self.is_telling.store(false, Ordering::SeqCst);
                // Data that came before that, with another one, have found this task running.
                let is_last = self.dscp.load(Ordering::SeqCst) == dscp;
                if is_last || self.is_telling.swap(true, Ordering::SeqCst) {
                    return;
                }
                continue;
            }
            if let Err(error) = self.send(dscp).await {
                // The connection has ended there, or the peer does not know the message. It is not asked again.
                tracing::info!(%error, stream = %self.stream, "the peer does not take another DSCP");
                return;
            }
            self.told.store(dscp, Ordering::SeqCst);
            sleep(TELL_INTERVAL).await;
        }
    }

    /// Sends a message, and waits until the peer has applied it: then the next one cannot overtake it.
    async fn send(&self, dscp: u8) -> Result<(), NotUpdated> {
        let opened = timeout(STREAM_TIME, self.peer.connection.open_bi_async()).await;
        let opened = opened.map_err(|_| NotUpdated::NoStream)?;
        let (mut send, mut recv) = opened.map_err(NotUpdated::Open)?;
        frames::send(&mut send, &Message::Class { stream: self.stream.raw(), dscp })
            .await
            .map_err(NotUpdated::Message)?;
        send.finish().map_err(NotUpdated::Finish)?;
        match timeout(frames::PROMPT, recv.read_chunk_async()).await {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(_))) => Err(NotUpdated::Refused),
            Ok(Err(error)) => Err(NotUpdated::Read(error)),
            Err(_) => Err(NotUpdated::TimedOut),
        }
    }
}
