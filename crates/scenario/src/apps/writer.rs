//! Writes one thing into its stream.

use bytes::Bytes;
use quic::{StreamId, WriteError};

use super::Streams;
use crate::content::Name;
use crate::recorder::Recorder;
use crate::world::Stages;

/// Bytes made at a time: enough for a batch of datagrams.
const PIECE_BYTES: u64 = 64 << 10;

/// What stands for payload that nobody looks at.
static NOTHING: [u8; PIECE_BYTES as usize] = [0; PIECE_BYTES as usize];

#[derive(Debug)]
pub(super) struct Writer {
    name: Name,
    /// `None` is without end.
    len: Option<u64>,
    priority: i32,
    /// Bytes made so far.
    made: u64,
    /// Of those, what the connection has not taken.
    rest: Bytes,
    is_first: bool,
    /// All was written, and the end said.
    is_finished: bool,
    stages: Stages,
}

/// How far it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// To the end, and nothing of it waits before the connection; or the stream takes no more.
    All,
    /// Until no more was taken.
    Part,
}

impl Writer {
    pub(super) fn new(name: Name, len: Option<u64>, priority: i32, stages: Stages) -> Self {
        Self { name, len, priority, made: 0, rest: Bytes::new(), is_first: true, is_finished: false, stages }
    }

    pub(super) const fn name(&self) -> Name {
        self.name
    }

    /// Writes until blocked.
    pub(super) fn pump(&mut self, id: StreamId, connection: &mut dyn Streams, recorder: &mut Recorder) -> Written {
        if std::mem::take(&mut self.is_first) && self.priority != 0 {
            // It cannot be closed already; if the connection is, the next write says so.
            connection.set_priority(id, self.priority);
        }
        loop {
            if self.rest.is_empty() && !self.make() {
                if !std::mem::replace(&mut self.is_finished, true) {
                    // Closed meanwhile: then the run ends, and says why.
                    connection.finish(id);
                }
                return if connection.is_taken(id) { Written::All } else { Written::Part };
            }
            let before = self.rest.len();
            let result = connection.write(id, &mut self.rest);
            let taken = (before - self.rest.len()) as u64;
            if !self.name.is_answer {
                recorder.on_sent(usize::from(self.name.part), taken);
            }
            match result {
                Ok(()) => {}
                Err(WriteError::Blocked) => return Written::Part,
                // Stopped or closed: nothing more can be written, and what is missing will be counted.
                Err(_) => return Written::All,
            }
        }
    }

    /// Makes the next piece; false at the end.
    fn make(&mut self) -> bool {
        let len = self.len.map_or(PIECE_BYTES, |len| (len - self.made).min(PIECE_BYTES));
        if len == 0 {
            return false;
        }
        if self.stages == Stages::Lengths && self.made > 0 {
            // Nobody looks at what follows the header.
            self.made += len;
            self.rest = Bytes::from_static(&NOTHING).slice(..len as usize);
            return true;
        }
        let mut piece = vec![0; len as usize];
        self.name.fill(self.made, &mut piece);
        self.made += len;
        self.rest = Bytes::from(piece);
        true
    }
}
