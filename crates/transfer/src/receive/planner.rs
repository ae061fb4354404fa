//! The planner of the receiving side: walks the list, checks which data exist already, and sends
//! the plan, the segments that the sender must send.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Session;
use super::incoming::{Incoming, Target};
use crate::error::{FileError, FileErrorKind, TransferError};
use crate::events::TransferEvent;
use crate::journal::{JournalKey, Recorded};
use crate::left_out::LeftOutReason;
use crate::manifest::{Entry, EntryKind};
use crate::message::Message;
use crate::open_files::FilePermit;
use crate::part_file::{Found, PartFile, discard_remains, look};
use crate::record::CHUNK_LEN_MAX;
use crate::segment::{HashTree, Layout};
use crate::stamp::{Change, Stamp};

/// Result of hashing the existing data of a file.
enum Hashed {
    /// Values of all readable segments.
    Values(Vec<(u32, [u8; 32])>),
    /// The transfer stops.
    Stopped,
}

impl Session<'_> {
    /// Runs the planner's thread.
    pub(super) fn plan(&self) {
        if let Err(error) = self.plan_all() {
            self.fatal(error);
        }
    }

    fn plan_all(&self) -> Result<(), TransferError> {
        for index in 0..self.list().entries.len() as u32 {
            if !self.wait_below_limit()? {
                return Ok(());
            }
            self.plan_one(index)?;
        }
        if self.options.dry_run {
            return self.control.flush();
        }
        if !self.wait_for_files()? || !self.make_links()? {
            return Ok(());
        }
        self.settle_directories()?;
        self.control.flush()
    }

    /// Waits while the number of files in progress is at its limit. Returns false if the transfer
    /// stops.
    fn wait_below_limit(&self) -> Result<bool, TransferError> {
        if self.lock().active.len() >= self.files_ahead() {
            self.control.flush()?;
            let full =
                |state: &mut super::SessionState| state.active.len() > self.files_resumed() && !self.is_stopping();
            let mut state = self.lock();
            state.is_planner_waiting = true;
            let mut state = self.changed.wait_while(state, full).unwrap_or_else(PoisonError::into_inner);
            state.is_planner_waiting = false;
        }
        Ok(!self.is_stopping())
    }

    fn plan_one(&self, index: u32) -> Result<(), TransferError> {
        let entry = &self.list().entries[index as usize];
        if self.options.dry_run {
            return self.plan_dry(index, entry);
        }
        if let Some(kept) = self.newer_here(entry) {
            // An interrupted attempt to replace it is not continued.
            discard_remains(&kept.directory, &kept.name);
            return self.leave_out(index, LeftOutReason::Newer);
        }
        let size = match &entry.kind {
            EntryKind::File { size } | EntryKind::SparseFile { size, .. } => *size,
            EntryKind::Directory => return self.plan_directory(index, entry),
            EntryKind::Stream => return self.plan_stream(index, entry),
            EntryKind::SymbolicLink { .. } | EntryKind::HardLink { .. } => return Ok(()),
        };
        let layout =
            Layout::new(size, self.list().base_log2).ok_or(TransferError::Protocol("a segment length out of range"))?;
        if self.is_small(layout) {
            match self.find_free(entry) {
                Ok(Some(directory)) => {
                    if let Err(error) = self.take_room(entry) {
                        return self.settle_queued(index, Err(&error));
                    }
                    return self.announce_small(index, layout, directory);
                }
                Ok(None) => {}
                Err(error) => return self.settle_queued(index, Err(&error)),
            }
        }
        // The next step may take long.
        self.control.flush()?;
        let Some(permit) = self.open_files.acquire(|| self.is_stopping()) else { return Ok(()) };
        match self.open(index, entry, layout, permit) {
            Ok(Some(incoming)) => self.announce(incoming),
            Ok(None) => Ok(()),
            Err(error) => self.settle(index, Err(&error)),
        }
    }

    /// Restarts a file whose existing data is unusable.
    pub(super) fn plan_again(&self, incoming: &Incoming) -> Result<(), TransferError> {
        let (index, layout) = (incoming.index, incoming.layout);
        let entry = &self.list().entries[index as usize];
        self.progress.take_back_resumed(incoming.counted());
        // A file that was hashed was opened with a permit.
        let Some(permit) = incoming.permit.as_ref().map(Arc::clone) else { return Ok(()) };
        match self.open_part(index, entry, layout, permit) {
            Ok(Some(incoming)) => self.announce(incoming),
            Ok(None) => Ok(()),
            Err(error) => self.settle(index, Err(&error)),
        }
    }

    /// Announces the file to the workers, then to the sender.
    fn announce(&self, incoming: Incoming) -> Result<(), TransferError> {
        self.announce_queued(incoming)?;
        self.control.flush()
    }

    /// Does the same as [`announce`](Self::announce), but the sender is notified with the next
    /// message sent.
    pub(super) fn announce_queued(&self, incoming: Incoming) -> Result<(), TransferError> {
        let index = incoming.index;
        let held = incoming.known();
        let bytes_resumed = held.iter().map(|segment| incoming.layout.range(segment).1).sum();
        incoming.count(bytes_resumed);
        self.progress.add_resumed(bytes_resumed);
        let path = &self.list().entries[index as usize].path;
        let bytes = incoming.layout.size();
        self.events.event(TransferEvent::FileStarted { path, bytes, bytes_resumed });
        self.lock().active.insert(index, Arc::new(incoming));
        self.control.queue(&Message::Plan { index, held: held.as_bytes().to_vec() })
    }

    /// Checks which data of a file exist. Returns `None` if the transfer stops.
    fn open(
        &self,
        index: u32,
        entry: &Entry,
        layout: Layout,
        permit: Arc<FilePermit>,
    ) -> Result<Option<Incoming>, FileError> {
        let (directory, name) = self.tree().parent(&entry.path)?;
        let Found::Same(file) = look(&directory, name, entry, self.options.overwrite)? else {
            return self.open_part(index, entry, layout, permit);
        };
        let stamp = || file.metadata().map(|found| Stamp::of(&found)).map_err(|error| FileError::target(&error));
        let before = stamp()?;
        let segments: Vec<u32> = (0..layout.count()).collect();
        let Hashed::Values(values) = self.hash(index, &file, layout, &segments) else { return Ok(None) };
        if before.change_to(&stamp()?) != Change::None {
            return Err(FileError::new(FileErrorKind::Target, "the existing file changed while it was compared"));
        }
        let mut tree = HashTree::new(layout);
        for (segment, value) in values {
            tree.insert(segment, value);
        }
        if tree.root().is_none() {
            return Err(FileError::target(&io::Error::other("cannot read the existing file")));
        }
        Ok(Some(Incoming::new(index, layout, Target::InPlace(directory), Some(permit), tree)))
    }

    fn open_part(
        &self,
        index: u32,
        entry: &Entry,
        layout: Layout,
        permit: Arc<FilePermit>,
    ) -> Result<Option<Incoming>, FileError> {
        self.take_room(entry)?;
        let (directory, name) = self.tree().parent(&entry.path)?;
        let key = JournalKey {
            base_log2: self.list().base_log2,
            size: layout.size(),
            modified: entry.modified,
            sender: self.context.sender(),
        };
        let open = || PartFile::open(self.tree(), Arc::clone(&directory), name, &key, layout, entry.data());
        let (part, recorded) = self.when_free(&open)?;
        let Some(tree) = self.verify(index, &part, layout, &recorded) else { return Ok(None) };
        Ok(Some(Incoming::new(index, layout, Target::Part(part), Some(permit), tree)))
    }

    /// Opens a file, retrying while another transfer writes it, if the options say to wait.
    #[expect(clippy::disallowed_methods, reason = "the end of another process's lock is not signalled")]
    fn when_free<T>(&self, open: &dyn Fn() -> Result<T, FileError>) -> Result<T, FileError> {
        let mut left = self.options.busy_wait;
        loop {
            match open() {
                Err(error) if error.kind == FileErrorKind::Busy && !left.is_zero() && !self.is_stopping() => {
                    std::thread::sleep(BUSY_STEP);
                    left = left.saturating_sub(BUSY_STEP);
                }
                outcome => return outcome,
            }
        }
    }

    /// Returns the segments in the journal that the part file actually holds: after a power loss,
    /// the journal may be ahead. Returns `None` if the transfer stops.
    fn verify(&self, index: u32, part: &PartFile, layout: Layout, recorded: &Recorded) -> Option<HashTree> {
        let segments: Vec<u32> = recorded.keys().copied().collect();
        let Hashed::Values(values) = self.hash(index, part.file(), layout, &segments) else { return None };
        let mut tree = HashTree::new(layout);
        for (segment, value) in values {
            if recorded.get(&segment) == Some(&value) {
                tree.insert(segment, value);
            }
        }
        Some(tree)
    }

    /// Hashes `segments` of a file of entry `index` on one thread per worker, and reports the
    /// progress.
    fn hash(&self, index: u32, file: &File, layout: Layout, segments: &[u32]) -> Hashed {
        if segments.is_empty() {
            return Hashed::Values(Vec::new());
        }
        let bytes_total: u64 = segments.iter().map(|segment| layout.range(*segment).1).sum();
        let path = &self.list().entries[index as usize].path;
        let bytes_done = AtomicU64::new(0);
        let on_hashed = |bytes: u64| {
            let before = bytes_done.fetch_add(bytes, Ordering::Relaxed);
            let done = before + bytes;
            if before / VERIFYING_STEP == done / VERIFYING_STEP && done != bytes_total {
                return;
            }
            self.events.event(TransferEvent::Verifying { path, bytes_done: done, bytes_total });
            // The sender only waits; if it is gone, sending the plan fails.
            let _ = self.control.send(&Message::Verifying { index, bytes_done: done, bytes_total });
        };
        let next = AtomicUsize::new(0);
        let stopped = AtomicBool::new(false);
        let values = Mutex::new(Vec::with_capacity(segments.len()));
        let worker = || {
            let mut buffer = vec![0; CHUNK_LEN_MAX];
            while let Some(segment) = segments.get(next.fetch_add(1, Ordering::Relaxed)) {
                if self.is_stopping() {
                    stopped.store(true, Ordering::Relaxed);
                    return;
                }
                // A segment that cannot be read counts as missing.
                if let Ok(value) = hash_segment(file, layout, *segment, &mut buffer, &on_hashed) {
                    values.lock().unwrap_or_else(PoisonError::into_inner).push((*segment, value));
                }
            }
        };
        let threads = self.options.threads.clamp(1, segments.len());
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(worker);
            }
            worker();
        });
        if stopped.into_inner() {
            return Hashed::Stopped;
        }
        Hashed::Values(values.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

fn hash_segment(
    file: &File,
    layout: Layout,
    segment: u32,
    buffer: &mut [u8],
    on_hashed: &dyn Fn(u64),
) -> io::Result<[u8; 32]> {
    let (mut offset, mut left) = layout.range(segment);
    let mut hasher = layout.hasher(segment);
    while left > 0 {
        let bytes = &mut buffer[..left.min(CHUNK_LEN_MAX as u64) as usize];
        file.read_exact_at(bytes, offset)?;
        hasher.update(bytes);
        offset += bytes.len() as u64;
        left -= bytes.len() as u64;
        on_hashed(bytes.len() as u64);
    }
    Ok(hasher.finish())
}

/// Interval of tries for a file that another transfer writes.
const BUSY_STEP: Duration = Duration::from_millis(100);

/// Bytes between two progress reports on hashing existing data: about 20 reports per second on one
/// core.
const VERIFYING_STEP: u64 = 64 << 20;
