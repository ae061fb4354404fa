//! A known pattern sent through one stream, written only when the stream is writable.

use quic::{Connection, Dir, Event};
use units::Instant;

use crate::support::{Node, apps};

/// The writing and the reading application of one stream.
pub(crate) struct Flow {
    pub(crate) writer: apps::Writer,
    pub(crate) reader: apps::Reader,
    /// Each attempt to write generates a chunk of the pattern, so writes are attempted only after
    /// the connection reported space.
    may_write: bool,
}

impl Flow {
    /// Opens a stream of connection `index` of `node`.
    pub(crate) fn open(node: &mut Node, index: usize, total: u64) -> Self {
        let id = node.connection(index).open(Dir::Uni).expect("the peer allows streams");
        Self { writer: apps::Writer::new(id, total), reader: apps::Reader::new(id), may_write: true }
    }

    /// Writes what the stream accepts, if the connection is alive.
    pub(crate) fn write(&mut self, node: &mut Node, index: usize) {
        let id = self.writer.id;
        self.may_write |= node.take_event(index, |event| *event == Event::Writable(id)).is_some();
        if self.may_write
            && let Some(connection) = established(node, index)
        {
            self.writer.pump(connection);
            self.may_write = false;
        }
    }

    /// Reads what is available, if the connection is alive.
    pub(crate) fn read(&mut self, now: Instant, node: &mut Node, index: usize) {
        if let Some(connection) = established(node, index) {
            self.reader.pump_if_known(now, connection);
        }
    }

    /// Everything was read.
    pub(crate) fn is_done(&self) -> bool {
        self.reader.ended
    }
}

fn established(node: &mut Node, index: usize) -> Option<&mut Connection> {
    node.connections.get_mut(index)?.as_mut().filter(|connection| connection.is_established())
}
