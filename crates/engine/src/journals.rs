//! A folder of journals: a file for each connection, written by a thread of its own.
//!
//! ```text
//!   driver: Connection ── blocks ──▶ bounded queue ──▶ writer ──▶ 0001-client.journal
//!                                                             ──▶ 0002-client.journal
//! ```
//!
//! A driver never waits for a disk. A journal whose blocks find the queue full, or whose file cannot be written, ends there: the
//! connection goes on, and what happened is kept to be told.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use quic::{JournalSink, JournalSource, Side};

/// What waits for the disk, at most: blocks of some 16 KiB, so some 16 MiB, which a transfer of 10 Gb/s fills in a few seconds.
const QUEUE_MAX: usize = 1024;

/// Files of one folder, at most: whoever may connect makes some.
const FILES_MAX: u64 = 10_000;

/// Complaints that wait to be told, at most; more say the same.
const COMPLAINTS_MAX: usize = 8;

/// Where journals go. Clones are the same folder.
#[derive(Clone)]
pub struct JournalFolder {
    shared: Arc<Folder>,
    queue: SyncSender<Order>,
}

struct Folder {
    path: PathBuf,
    /// Files that were begun; the next one's number is at least one more.
    count: AtomicU64,
    complaints: Mutex<Vec<String>>,
}

/// A journal on its way to the disk.
struct Log {
    side: Side,
    /// Nothing more can be written.
    has_failed: AtomicBool,
    /// The writer's alone.
    file: Mutex<Option<File>>,
}

enum Order {
    Write(Arc<Log>, Vec<u8>),
    /// Everything before is written.
    Tell(SyncSender<()>),
}

struct Sink {
    log: Arc<Log>,
    folder: Arc<Folder>,
    queue: SyncSender<Order>,
}

impl JournalSink for Sink {
    fn take(&mut self, bytes: &[u8]) -> bool {
        if self.log.has_failed.load(Ordering::Relaxed) {
            return false;
        }
        let is_taken = self.queue.try_send(Order::Write(Arc::clone(&self.log), bytes.to_vec())).is_ok();
        if !is_taken {
            self.folder.complain("the disk is slower than the connection: a journal ends early");
        }
        is_taken
    }
}

impl JournalFolder {
    /// Makes the folder, for its owner only, and starts the thread that writes. Files that are there already stay.
    ///
    /// # Errors
    /// If the folder cannot be made or written to, or the system refuses a thread.
    #[expect(clippy::disallowed_methods, reason = "drivers must not wait for a disk")]
    pub fn create(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        // Told now and not when the first connection is there.
        let probe = path.join(format!(".probe-{}", std::process::id()));
        match private_file(&probe) {
            // Another endpoint of this process is about to find out the same.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => drop(made?),
        }
        match std::fs::remove_file(&probe) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let folder = Folder { path: path.to_owned(), count: AtomicU64::new(0), complaints: Mutex::default() };
        let shared = Arc::new(folder);
        let (queue, orders) = sync_channel(QUEUE_MAX);
        let of_writer = Arc::clone(&shared);
        std::thread::Builder::new().name("litz-journal".to_owned()).spawn(move || of_writer.write_all(&orders))?;
        Ok(Self { shared, queue })
    }

    /// For [`TransportConfig::journal`](quic::TransportConfig::journal): each connection gets a file,
    /// `NUMBER-SIDE.journal`, that only its owner may read.
    pub fn source(&self) -> JournalSource {
        let Self { shared, queue } = self.clone();
        JournalSource(Arc::new(move |side| {
            let log = Log { side, has_failed: AtomicBool::new(false), file: Mutex::new(None) };
            let (folder, queue) = (Arc::clone(&shared), queue.clone());
            Some(Box::new(Sink { log: Arc::new(log), folder, queue }))
        }))
    }

    /// Waits until everything is on its way to the disk that was handed over so far: after the endpoints are gone, the journals of
    /// all their connections. Blocks.
    pub fn wait(&self) {
        let (tell, told) = sync_channel(1);
        if self.queue.send(Order::Tell(tell)).is_ok() {
            // The writer ends with its last order at the earliest.
            let _ = told.recv();
        }
    }

    /// Journals begun so far.
    pub fn file_count(&self) -> u64 {
        self.shared.count.load(Ordering::Relaxed)
    }

    /// What went wrong since the last time this was asked, in words.
    pub fn take_complaints(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.complaints.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Folder {
    /// The thread that writes, until nobody can give it orders any more.
    fn write_all(&self, orders: &Receiver<Order>) {
        for order in orders {
            match order {
                Order::Write(log, bytes) => self.write(&log, &bytes),
                // Whoever asked may have given up waiting.
                Order::Tell(tell) => drop(tell.send(())),
            }
        }
    }

    fn write(&self, log: &Log, bytes: &[u8]) {
        if log.has_failed.load(Ordering::Relaxed) {
            return;
        }
        let mut file = log.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match &mut *file {
            Some(file) => file.write_all(bytes),
            none => self.begin(log.side).and_then(|begun| none.insert(begun).write_all(bytes)),
        };
        if let Err(error) = written {
            log.has_failed.store(true, Ordering::Relaxed);
            self.complain(&format!("a journal in {} ends early: {error}", self.path.display()));
        }
    }

    /// A file of the next number that is free.
    fn begin(&self, side: Side) -> io::Result<File> {
        loop {
            let number = self.count.load(Ordering::Relaxed) + 1;
            if number > FILES_MAX {
                return Err(io::Error::other(format!("there are {FILES_MAX} journals")));
            }
            self.count.store(number, Ordering::Relaxed);
            match private_file(&self.path.join(format!("{number:04}-{side}.journal"))) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                opened => return opened,
            }
        }
    }

    fn complain(&self, words: &str) {
        tracing::warn!("{words}");
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if complaints.len() < COMPLAINTS_MAX && !complaints.iter().any(|known| known == words) {
            complaints.push(words.to_owned());
        }
    }
}

/// A new file that only its owner may read.
fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

impl std::fmt::Debug for JournalFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("JournalFolder").field(&self.shared.path).finish()
    }
}
