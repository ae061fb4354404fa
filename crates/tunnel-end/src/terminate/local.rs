//! [`StackConnection`]: a connection of our TCP, as it is carried.

use std::future::pending;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use forwarding::carry::{Local, ReadBuffer, StreamClass};
use quic_endpoint::StridedBytes;
use tcp_stack::{CloseReason, Closed, TcpStream, WriteError};
use tunnel::meter::Turn;

use super::class::FlowClass;
use super::pace::Pace;
use crate::meters::Meters;

/// A connection of our TCP. Dropping it before [`close`](Local::close) resets it.
pub struct StackConnection {
    stream: Arc<TcpStream>,
    /// If a stream carries it.
    class: Option<Arc<FlowClass>>,
    /// The rates of what is read and of what is written, if the peer has one.
    read_pace: Option<Pace>,
    write_pace: Option<Pace>,
    is_over: bool,
}

impl StackConnection {
    /// A connection at no rate, whose data go elsewhere than into a stream.
    pub fn new(stream: TcpStream) -> Self {
        Self { stream: Arc::new(stream), class: None, read_pace: None, write_pace: None, is_over: false }
    }

    /// A connection that a stream of this class carries, at the rates of the peer.
    pub(crate) fn with_class(stream: Arc<TcpStream>, class: FlowClass, meters: &Meters) -> Self {
        let (outward, inward) = meters.turns();
        let pace = |turn: Turn| Pace::new(meters.clock, turn);
        let (read_pace, write_pace) = (outward.map(pace), inward.map(pace));
        Self { stream, class: Some(Arc::new(class)), read_pace, write_pace, is_over: false }
    }
}

impl Local for StackConnection {
    /// By reference to the memory that the packet was received in.
    async fn read(&self, _buffer: &mut ReadBuffer) -> io::Result<Option<Bytes>> {
        let read = self.stream.read_chunk_async();
        match &self.read_pace {
            Some(pace) => pace.next(read).await,
            None => read.await,
        }
        .map_err(io::Error::other)
    }

    /// In one piece: the kernel gets it as one, and a copy costs less than the references to so many.
    async fn write(&self, bytes: &mut StridedBytes) -> io::Result<()> {
        if let Some(pace) = &self.write_pace {
            pace.pass(bytes.len()).await;
        }
        let whole = std::mem::take(bytes).to_bytes();
        self.stream.write_chunk_async(whole).await.map_err(io::Error::other)
    }

    fn finish(&self) -> io::Result<()> {
        self.stream.finish();
        Ok(())
    }

    async fn failed(&self) -> io::Error {
        match self.stream.closed_async().await {
            // What was received is still to be read.
            Closed::Tcp(CloseReason::Finished) => pending().await,
            closed => io::Error::other(WriteError::Closed(closed)),
        }
    }

    fn class_of(&self, len: usize) -> StreamClass {
        self.class.as_ref().map_or(StreamClass::Usual, |class| class.of_data(len))
    }

    fn close(mut self) {
        self.is_over = true;
    }
}

impl Drop for StackConnection {
    fn drop(&mut self) {
        if !self.is_over {
            self.stream.reset();
        }
    }
}
