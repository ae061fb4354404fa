//! A file of unknown length that is being received, shared by the threads that read its pieces.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::part_file::PartFile;
use crate::stream::Assembly;
use crate::stream_io::OpenOutput;

/// A stream between its plan and its result.
pub(super) struct IncomingStream {
    state: Mutex<StreamState>,
    /// Target, locked by the thread that writes. Other threads leave their pieces to it.
    pub(super) target: Mutex<StreamTarget>,
    is_part: bool,
}

pub(super) struct StreamState {
    pub(super) assembly: Assembly,
    /// Whether it has its result.
    pub(super) is_settled: bool,
}

/// Destination of the bytes.
pub(super) enum StreamTarget {
    Part(Box<PartFile>),
    Output(OpenOutput),
}

impl IncomingStream {
    pub(super) fn new(target: StreamTarget) -> Self {
        let is_part = matches!(target, StreamTarget::Part(_));
        let state = StreamState { assembly: Assembly::new(), is_settled: false };
        Self { state: Mutex::new(state), target: Mutex::new(target), is_part }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes data written to a part file: it cannot be resumed.
    pub(super) fn discard(&self) {
        // The lock of an output may be held for as long as its reader reads nothing.
        if self.is_part
            && let StreamTarget::Part(part) = &*self.target.lock().unwrap_or_else(PoisonError::into_inner)
        {
            part.discard();
        }
    }
}
