//! A file on its way in, shared by the threads that bring it.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::transfer::error::FileErrorKind;
use crate::transfer::part_file::PartFile;
use crate::transfer::segment::{FileHash, HashTree, Layout, SegmentSet};

/// One file between its plan and its result.
pub(super) struct Incoming {
    pub(super) index: u32,
    pub(super) layout: Layout,
    pub(super) target: Target,
    state: Mutex<State>,
    /// Bytes that the progress counts for it.
    counted: AtomicU64,
}

/// Where its bytes are.
pub(super) enum Target {
    /// Beside its place.
    Part(PartFile),
    /// In its place already, if the sender's hash agrees. The directory it is in.
    InPlace(Arc<OwnedFd>),
}

struct State {
    /// Verified segments.
    tree: HashTree,
    /// Segments that are verified or being written: none is written by two threads.
    claimed: SegmentSet,
    /// What the sender says the whole is.
    hash: Option<FileHash>,
    failed: bool,
}

/// What a worker may do with a segment that begins to arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// Write it.
    Write,
    /// Drop it: the file has failed.
    Drop,
    /// It is no segment, or one too many.
    Forbidden,
}

impl Incoming {
    pub(super) fn new(index: u32, layout: Layout, target: Target, tree: HashTree) -> Self {
        let claimed = tree.known().clone();
        let state = Mutex::new(State { tree, claimed, hash: None, failed: false });
        Self { index, layout, target, state, counted: AtomicU64::new(0) }
    }

    pub(super) fn count(&self, bytes: u64) {
        self.counted.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// The segments that are verified.
    pub(super) fn known(&self) -> SegmentSet {
        self.lock().tree.known().clone()
    }

    /// A segment begins to arrive.
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

    /// A segment that was claimed is verified, written and recorded. True if nothing is missing any more: then, once,
    /// the file is to be finished.
    pub(super) fn on_segment(&self, segment: u32, value: [u8; 32]) -> bool {
        let mut state = self.lock();
        state.tree.insert(segment, value) && !state.failed && state.hash.is_some() && state.tree.root().is_some()
    }

    /// The sender says what the whole is. True if nothing is missing any more: then, once, the file is to be finished.
    /// `None` if it said so before.
    pub(super) fn on_hash(&self, hash: FileHash) -> Option<bool> {
        let mut state = self.lock();
        if state.hash.replace(hash).is_some() {
            return None;
        }
        Some(!state.failed && state.tree.root().is_some())
    }

    /// The hash of what is here, if it is what the sender says.
    pub(super) fn agreed_hash(&self) -> Option<FileHash> {
        let state = self.lock();
        state.tree.root().filter(|root| state.hash == Some(*root))
    }

    /// Nothing more is written. What is verified stays, unless `kind` says that it is of no use.
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
