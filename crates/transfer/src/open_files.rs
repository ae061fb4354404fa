//! A limit on simultaneously open files, shared by the transfers of a process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Number of files that several receiving transfers together may have open. Further files wait.
/// Transfers share the limit if their options have clones of one value.
///
/// A transfer gets another file while it has fewer than are left, so that transfers that begin
/// later also get some. Each may always have one, beyond the limit if need be: no transfer waits
/// for another.
#[derive(Clone, Debug)]
pub struct OpenFiles(Arc<Shared>);

/// Largest number of descriptors of one file: the part file, its journal and its directory.
pub const DESCRIPTORS_PER_FILE: usize = 3;

#[derive(Debug)]
struct Shared {
    left: Mutex<Left>,
    changed: Condvar,
}

#[derive(Debug)]
struct Left {
    files: usize,
    /// Number of threads waiting for a file. A notification is a system call, even if no thread
    /// waits.
    waiting: usize,
}

/// Files of one transfer.
#[derive(Debug)]
pub(crate) struct TransferFiles {
    shared: Arc<Shared>,
    open: Arc<AtomicUsize>,
}

/// Permission to have one file open, until it is dropped.
#[derive(Debug)]
pub(crate) struct FilePermit {
    shared: Arc<Shared>,
    open: Arc<AtomicUsize>,
    /// Whether this counts towards the limit, unlike the one file that a transfer may always have.
    is_shared: bool,
}

impl OpenFiles {
    /// Creates a limit of `files` files, plus one for each transfer.
    pub fn new(files: usize) -> Self {
        Self(Arc::new(Shared { left: Mutex::new(Left { files, waiting: 0 }), changed: Condvar::new() }))
    }

    /// Returns the files of a new transfer.
    pub(crate) fn transfer(&self) -> TransferFiles {
        TransferFiles { shared: Arc::clone(&self.0), open: Arc::default() }
    }
}

impl TransferFiles {
    /// Returns the permission to open another file, if one is available now.
    pub(crate) fn try_acquire(&self) -> Option<Arc<FilePermit>> {
        self.grant(&mut self.shared.left.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until another file may be opened. Returns `None` if `is_stopping`, which is checked at
    /// intervals.
    pub(crate) fn acquire(&self, is_stopping: impl Fn() -> bool) -> Option<Arc<FilePermit>> {
        let mut left = self.shared.left.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if is_stopping() {
                return None;
            }
            if let Some(permit) = self.grant(&mut left) {
                return Some(permit);
            }
            left.waiting += 1;
            left = self.shared.changed.wait_timeout(left, TICK).unwrap_or_else(PoisonError::into_inner).0;
            left.waiting -= 1;
        }
    }

    fn grant(&self, left: &mut Left) -> Option<Arc<FilePermit>> {
        let open = self.open.load(Ordering::SeqCst);
        let is_shared = open < left.files;
        if !is_shared && open > 0 {
            return None;
        }
        left.files -= usize::from(is_shared);
        self.open.fetch_add(1, Ordering::SeqCst);
        let (shared, open) = (Arc::clone(&self.shared), Arc::clone(&self.open));
        Some(Arc::new(FilePermit { shared, open, is_shared }))
    }
}

impl Drop for FilePermit {
    fn drop(&mut self) {
        let mut left = self.shared.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.files += usize::from(self.is_shared);
        self.open.fetch_sub(1, Ordering::SeqCst);
        if left.waiting > 0 {
            self.shared.changed.notify_all();
        }
    }
}

/// Limit on files with a plan and without a result. With fewer, a path with a long round trip would
/// be idle between small files. [`OpenFiles`] may limit them further.
pub(crate) const FILES_AHEAD: usize = 256;

/// Limit on such small files if both ends support `litz/1.3`: a small file is not open before its
/// bytes have arrived, so more of them may wait, and a path of 50 ms carries 80,000 in a second.
pub(crate) const SMALL_FILES_AHEAD: usize = 4096;

/// Interval at which a waiting thread checks whether its transfer stops.
const TICK: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(transfer: &TransferFiles) -> Vec<Arc<FilePermit>> {
        let mut permits = Vec::new();
        while transfer.open.load(Ordering::SeqCst) < transfer.shared.left.lock().unwrap().files
            || transfer.open.load(Ordering::SeqCst) == 0
        {
            permits.extend(transfer.acquire(|| false));
        }
        permits
    }

    #[test]
    fn transfers_that_begin_later_get_files_too() {
        let files = OpenFiles::new(100);
        let transfers: Vec<_> = (0..20).map(|_| files.transfer()).collect();
        let permits: Vec<_> = transfers.iter().map(take_all).collect();
        let counts: Vec<_> = permits.iter().map(Vec::len).collect();
        assert_eq!(counts[..4], [50, 25, 13, 6]);
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
        drop(permits);
        assert_eq!(files.0.left.lock().unwrap().files, 100);
    }

    #[test]
    fn a_file_waits_for_another_to_be_closed() {
        let files = OpenFiles::new(0);
        let transfer = files.transfer();
        let first = transfer.acquire(|| false).unwrap();
        assert!(transfer.acquire(|| true).is_none(), "the wait ends with the transfer");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| transfer.acquire(|| false).is_some());
            drop(first);
            assert!(second.join().unwrap());
        });
    }
}
