//! A file that is being received, shared by the threads that write it.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::FileErrorKind;
use crate::open_files::FilePermit;
use crate::part_file::PartFile;
use crate::segment::{FileHash, HashTree, Layout, SegmentSet};

/// A file between its plan and its result.
pub(super) struct Incoming {
    pub(super) index: u32,
    pub(super) layout: Layout,
    pub(super) target: Target,
    /// Permission to have it open, if it is open.
    pub(super) permit: Option<Arc<FilePermit>>,
    state: Mutex<IncomingState>,
    /// Bytes counted for it in the progress.
    counted: AtomicU64,
    /// Whether it has been moved to its name.
    is_placed: AtomicBool,
}

/// Location of its bytes.
pub(super) enum Target {
    /// A part file.
    Part(PartFile),
    /// Memory until they are complete: a small file. Holds its directory.
    Unopened(Arc<OwnedFd>),
    /// The final file, if the sender's hash matches. Holds its directory.
    InPlace(Arc<OwnedFd>),
}

struct IncomingState {
    /// Verified segments.
    tree: HashTree,
    /// Segments that are verified or being written: no segment is written by two threads.
    claimed: SegmentSet,
    /// The sender's hash of the whole file.
    hash: Option<FileHash>,
    failed: bool,
}

/// Action for a segment that begins to arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// Write the segment.
    Write,
    /// Drop the segment: the file has failed.
    Drop,
    /// There is no such segment, or it was received already.
    Forbidden,
}

impl Incoming {
    pub(super) fn new(
        index: u32,
        layout: Layout,
        target: Target,
        permit: Option<Arc<FilePermit>>,
        tree: HashTree,
    ) -> Self {
        let claimed = tree.known().clone();
        let state = Mutex::new(IncomingState { tree, claimed, hash: None, failed: false });
        let is_placed = AtomicBool::new(false);
        Self { index, layout, target, permit, state, counted: AtomicU64::new(0), is_placed }
    }

    pub(super) fn count(&self, bytes: u64) {
        self.counted.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// Marks it as moved to its name.
    pub(super) fn set_placed(&self) {
        self.is_placed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_placed(&self) -> bool {
        self.is_placed.load(Ordering::Relaxed)
    }

    /// Returns the verified segments.
    pub(super) fn known(&self) -> SegmentSet {
        self.lock().tree.known().clone()
    }

    /// Claims a segment that begins to arrive.
    pub(super) fn claim(&self, segment: u32) -> Claim {
        let mut state = self.lock();
        if segment >= self.layout.count() {
            Claim::Forbidden
        } else if state.failed {
            Claim::Drop
        } else if state.claimed.insert(segment) {
            Claim::Write
        } else {
            Claim::Forbidden
        }
    }

    /// Marks a claimed segment as verified, written and journaled. Returns true, once, when
    /// nothing is missing and the file must be finished.
    pub(super) fn on_segment(&self, segment: u32, value: [u8; 32]) -> bool {
        let mut state = self.lock();
        state.tree.insert(segment, value) && !state.failed && state.hash.is_some() && state.tree.root().is_some()
    }

    /// Records the sender's hash of the whole file. Returns true, once, when nothing is missing and
    /// the file must be finished; `None` if the hash was recorded before.
    pub(super) fn on_hash(&self, hash: FileHash) -> Option<bool> {
        let mut state = self.lock();
        if state.hash.replace(hash).is_some() {
            return None;
        }
        Some(!state.failed && state.tree.root().is_some())
    }

    /// Returns the hash of the received file, if it matches the sender's.
    pub(super) fn agreed_hash(&self) -> Option<FileHash> {
        let state = self.lock();
        state.tree.root().filter(|root| state.hash == Some(*root))
    }

    /// Stops writing. Verified data stay, unless `kind` means that they are unusable.
    pub(super) fn fail(&self, kind: FileErrorKind) {
        self.lock().failed = true;
        if kind == FileErrorKind::SourceChanged {
            self.discard();
        } else {
            self.discard_if_empty();
        }
    }

    pub(super) fn is_failed(&self) -> bool {
        self.lock().failed
    }

    /// Removes the part file if nothing in it is verified.
    pub(super) fn discard_if_empty(&self) {
        if self.lock().tree.known().len() == 0 {
            self.discard();
        }
    }

    fn discard(&self) {
        if let Target::Part(part) = &self.target {
            part.discard();
        }
    }

    fn lock(&self) -> MutexGuard<'_, IncomingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
