//! The files to send, and the order of their segments.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::stream::OutgoingStream;
use crate::error::FileError;
use crate::manifest::Entry;
use crate::measure::Content;
use crate::segment::{FileHash, HashTree, Layout, SegmentSet};
use crate::source_file::SourceFile;

/// A file that the receiver is ready for.
pub(super) struct Outgoing {
    pub(super) index: u32,
    pub(super) layout: Layout,
    /// Segments that the receiver holds: hashed here, not sent.
    held: SegmentSet,
    state: Mutex<OutgoingState>,
    /// Whether the file is settled.
    given_up: AtomicBool,
    /// Bytes counted for it in the progress.
    counted: AtomicU64,
}

struct OutgoingState {
    /// Source, open from the first segment taken to the last one hashed.
    file: Option<Arc<SourceFile>>,
    tree: HashTree,
    /// Hash sent to the receiver.
    hash: Option<FileHash>,
}

/// One job for a worker.
pub(super) struct Job {
    pub(super) outgoing: Arc<Outgoing>,
    /// Segment; `None` for an empty file, of which only the end is sent.
    pub(super) segment: Option<u32>,
}

/// Files waiting for workers. At most two for each file that has a plan; none is open before its
/// turn.
pub(super) struct Work {
    state: Mutex<WorkState>,
    changed: Condvar,
    /// Number of bytes after which a batch is closed.
    batch_bytes: u64,
}

#[derive(Default)]
struct WorkState {
    /// Each file with its next segment.
    files: VecDeque<(Arc<Outgoing>, u32)>,
    /// Stream sent instead of files.
    stream: Option<Arc<OutgoingStream>>,
    closed: bool,
}

impl Outgoing {
    pub(super) fn new(index: u32, layout: Layout, held: SegmentSet) -> Self {
        Self {
            index,
            layout,
            held,
            state: Mutex::new(OutgoingState { file: None, tree: HashTree::new(layout), hash: None }),
            given_up: AtomicBool::new(false),
            counted: AtomicU64::new(0),
        }
    }

    pub(super) fn is_held(&self, segment: u32) -> bool {
        self.held.contains(segment)
    }

    /// Returns whether the receiver claims to hold every segment.
    pub(super) fn is_held_in_full(&self) -> bool {
        self.held.len() == self.layout.count()
    }

    /// Makes workers skip the rest of the file. Returns true the first time.
    pub(super) fn give_up(&self) -> bool {
        self.lock().file = None;
        !self.given_up.swap(true, Ordering::AcqRel)
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    pub(super) fn count(&self, bytes: u64) {
        self.counted.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// Returns the hash that was sent to the receiver.
    pub(super) fn hash(&self) -> Option<FileHash> {
        self.lock().hash
    }

    /// Returns the source, opened on the first call and checked against `entry`.
    pub(super) fn file(&self, path: &Path, entry: &Entry, content: Content) -> Result<Arc<SourceFile>, FileError> {
        let mut state = self.lock();
        if let Some(file) = &state.file {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(SourceFile::open(path, entry, content)?);
        state.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Records the value of a segment. Returns the file's hash, once, if that was the last one missing.
    pub(super) fn on_segment(&self, segment: u32, value: [u8; 32]) -> Option<FileHash> {
        let mut state = self.lock();
        if state.tree.insert(segment, value) { state.tree.root() } else { None }
    }

    /// Returns the recorded value of a segment.
    pub(super) fn value(&self, segment: u32) -> Option<[u8; 32]> {
        self.lock().tree.value(segment)
    }

    /// Records the hash, before it is sent to the receiver. Closes the source.
    pub(super) fn set_hash(&self, hash: FileHash) {
        let mut state = self.lock();
        state.hash = Some(hash);
        state.file = None;
    }

    fn lock(&self) -> MutexGuard<'_, OutgoingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    pub(super) fn new(batch_bytes: u64) -> Self {
        Self { state: Mutex::new(WorkState::default()), changed: Condvar::new(), batch_bytes }
    }

    /// Adds files at the end.
    pub(super) fn push_all(&self, files: impl ExactSizeIterator<Item = Arc<Outgoing>>) {
        if files.len() > 0 {
            self.lock().files.extend(files.map(|outgoing| (outgoing, 0)));
            self.changed.notify_one();
        }
    }

    /// Sets the stream to send instead of files. Every worker gets it.
    pub(super) fn set_stream(&self, stream: Arc<OutgoingStream>) {
        self.lock().stream = Some(stream);
        self.changed.notify_all();
    }

    /// Returns the stream to send instead of files, if there is one.
    pub(super) fn stream(&self) -> Option<Arc<OutgoingStream>> {
        self.lock().stream.clone()
    }

    /// Waits until the queue is closed.
    pub(super) fn wait_closed(&self) {
        let open = |state: &mut WorkState| !state.closed;
        drop(self.changed.wait_while(self.lock(), open).unwrap_or_else(PoisonError::into_inner));
    }

    /// Closes the queue and drops the waiting files.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.files.clear();
        if let Some(stream) = &state.stream {
            stream.stop();
        }
        self.changed.notify_all();
    }

    /// Returns the jobs for one data stream: consecutive segments up to the size of one segment, so
    /// that small files share a stream. Waits for work; returns `None` after the close, or if there
    /// is a stream.
    pub(super) fn take(&self) -> Option<Vec<Job>> {
        let idle = |state: &mut WorkState| !state.closed && state.files.is_empty() && state.stream.is_none();
        let mut state = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        if state.closed || state.stream.is_some() {
            return None;
        }
        let mut jobs = Vec::new();
        let mut bytes = 0;
        while bytes < self.batch_bytes && jobs.len() < JOBS_MAX {
            let Some((outgoing, next)) = state.files.front_mut() else { break };
            let segment = (*next < outgoing.layout.count()).then_some(*next);
            bytes += segment.map_or(0, |segment| outgoing.layout.range(segment).1);
            jobs.push(Job { outgoing: Arc::clone(outgoing), segment });
            *next += 1;
            if *next >= outgoing.layout.count() {
                state.files.pop_front();
            }
        }
        if !state.files.is_empty() {
            // Other workers may sleep.
            self.changed.notify_one();
        }
        Some(jobs)
    }

    fn lock(&self) -> MutexGuard<'_, WorkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Limit on segments on one stream: small files share a stream, but not all files share one.
pub(super) const JOBS_MAX: usize = 256;
