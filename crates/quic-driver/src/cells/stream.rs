//! The cells of a stream, and requests that concern them.

use std::sync::Arc;

use super::recv::RecvCell;
use super::send::SendCell;

/// The cells of one stream. Its direction and its initiator determine which cells exist.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamCells {
    pub(crate) send: Option<Arc<SendCell>>,
    pub(crate) recv: Option<Arc<RecvCell>>,
}

impl StreamCells {
    /// Returns the stream's ID, if there is a cell.
    pub(crate) fn id(&self) -> Option<quic::StreamId> {
        self.send.as_ref().map(|cell| cell.id).or_else(|| self.recv.as_ref().map(|cell| cell.id))
    }
}

/// A request for a cell with a change that the driver has not processed.
#[derive(Debug)]
pub(crate) enum StreamRequest {
    Send(Arc<SendCell>),
    Recv(Arc<RecvCell>),
}
