//! [`JournalFolder`]: writes the journal of each connection to a file, on a separate thread.
//!
//! ```text
//!   driver: Connection ── blocks ──▶ bounded queue ──▶ writer ──▶ 0001-client.journal
//!                                                             ──▶ 0002-client.journal
//! ```
//!
//! A driver never waits for the disk. If the queue is full or the file cannot be written, the
//! journal ends there and the connection continues. [`JournalFolder::take_errors`] reports the
//! errors.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use journal::{JournalSink, JournalSource, Side};

/// Maximum number of blocks that wait for the disk. Blocks have about 16 KiB, so this is 16 MiB,
/// which a transfer at 10 Gb/s fills in a few seconds.
const QUEUE_MAX: usize = 1024;

/// Maximum number of files in a folder, because every client that connects creates one.
const FILES_MAX: u64 = 10_000;

/// Maximum number of stored error messages. Further messages are dropped.
const ERRORS_MAX: usize = 8;

/// A folder of journals. Clones refer to the same folder.
#[derive(Clone)]
pub struct JournalFolder {
    shared: Arc<Folder>,
    queue: SyncSender<WriterCommand>,
}

struct Folder {
    path: PathBuf,
    /// The number of the last file. The next one has a larger number.
    count: AtomicU64,
    errors: Mutex<Vec<String>>,
}

/// One journal.
struct Log {
    side: Side,
    /// Whether writing has failed, so that nothing more can be written.
    has_failed: AtomicBool,
    /// The file, created with the first block. Only the writer uses it.
    file: Mutex<Option<NamedFile>>,
}

struct NamedFile {
    file: File,
    path: PathBuf,
}

/// Callback that receives the path of each journal whose connection has ended.
type OnEnded = Box<dyn FnMut(&Path) + Send>;

/// A command for the writer.
enum WriterCommand {
    Write(Arc<Log>, Vec<u8>),
    /// End a journal: nothing more is written to it.
    End(Arc<Log>),
    /// Report that all earlier commands are processed.
    Confirm(SyncSender<()>),
}

struct Sink {
    log: Arc<Log>,
    folder: Arc<Folder>,
    queue: SyncSender<WriterCommand>,
}

impl JournalSink for Sink {
    fn take(&mut self, bytes: &[u8]) -> bool {
        if self.log.has_failed.load(Ordering::Relaxed) {
            return false;
        }
        let is_taken = self.queue.try_send(WriterCommand::Write(Arc::clone(&self.log), bytes.to_vec())).is_ok();
        if !is_taken {
            self.folder.report_error("the disk is slower than the connection: a journal is incomplete");
        }
        is_taken
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // The driver must not wait. A journal whose end goes unreported is complete nevertheless.
        if self.queue.try_send(WriterCommand::End(Arc::clone(&self.log))).is_err() {
            tracing::debug!("the queue of journals is full: the end of one is not noticed");
        }
    }
}

impl JournalFolder {
    /// Creates the folder, accessible only to its owner, and starts the writer. Existing files are
    /// kept.
    ///
    /// # Errors
    /// If the folder cannot be created or written to, or the system refuses a thread.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::create_with(path, |_| {})
    }

    /// Creates a folder like [`create`](Self::create). `on_ended` receives the path of each journal
    /// after its last block: its connection has ended, or the journal was abandoned. It is called
    /// on the writer's thread, so it must not take long. If a connection ends while the queue of
    /// blocks is full, it is not called for its journal.
    ///
    /// # Errors
    /// Same errors as [`create`](Self::create).
    #[expect(clippy::disallowed_methods, reason = "drivers must not wait for a disk")]
    pub fn create_with(path: &Path, on_ended: impl FnMut(&Path) + Send + 'static) -> io::Result<Self> {
        let on_ended: OnEnded = Box::new(on_ended);
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        // An unusable folder fails now and not with the first connection.
        let probe = path.join(format!(".probe-{}", std::process::id()));
        match private_file(&probe) {
            // Another endpoint of this process probes at the same time.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => drop(made?),
        }
        match std::fs::remove_file(&probe) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let folder = Folder { path: path.to_owned(), count: AtomicU64::new(0), errors: Mutex::default() };
        let shared = Arc::new(folder);
        let (queue, commands) = sync_channel(QUEUE_MAX);
        let of_writer = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("litz-journal".to_owned())
            .spawn(move || of_writer.write_all(&commands, on_ended))?;
        Ok(Self { shared, queue })
    }

    /// Returns the value for the field `journal` of a protocol's configuration. Each connection
    /// gets a file `NUMBER-SIDE.journal` that only its owner may read.
    pub fn source(&self) -> JournalSource {
        let Self { shared, queue } = self.clone();
        JournalSource(Arc::new(move |side| {
            let log = Log { side, has_failed: AtomicBool::new(false), file: Mutex::new(None) };
            let (folder, queue) = (Arc::clone(&shared), queue.clone());
            Some(Box::new(Sink { log: Arc::new(log), folder, queue }))
        }))
    }

    /// Blocks until all blocks queued so far are written to their files. After the endpoints are
    /// dropped, these are the complete journals of all their connections.
    pub fn wait(&self) {
        let (confirm, written) = sync_channel(1);
        if self.queue.send(WriterCommand::Confirm(confirm)).is_ok() {
            // The writer does not end before it has processed this command.
            let _ = written.recv();
        }
    }

    /// Returns the number of files created so far.
    pub fn file_count(&self) -> u64 {
        self.shared.count.load(Ordering::Relaxed)
    }

    /// Takes the descriptions of the errors since the last call.
    pub fn take_errors(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.errors.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Folder {
    /// Runs the writer's thread. It ends when all senders of commands are dropped.
    fn write_all(&self, commands: &Receiver<WriterCommand>, mut on_ended: OnEnded) {
        for command in commands {
            match command {
                WriterCommand::Write(log, bytes) => self.write(&log, &bytes),
                WriterCommand::End(log) => {
                    let ended = log.file.lock().unwrap_or_else(PoisonError::into_inner).take();
                    if let Some(NamedFile { path, .. }) = ended {
                        on_ended(&path);
                    }
                }
                // The caller may have stopped waiting.
                WriterCommand::Confirm(written) => drop(written.send(())),
            }
        }
    }

    fn write(&self, log: &Log, bytes: &[u8]) {
        if log.has_failed.load(Ordering::Relaxed) {
            return;
        }
        let mut file = log.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match &mut *file {
            Some(begun) => begun.file.write_all(bytes),
            none => self.begin(log.side).and_then(|begun| none.insert(begun).file.write_all(bytes)),
        };
        if let Err(error) = written {
            log.has_failed.store(true, Ordering::Relaxed);
            self.report_error(&format!("a journal in {} is incomplete: {error}", self.path.display()));
        }
    }

    /// Creates the file with the next free number.
    fn begin(&self, side: Side) -> io::Result<NamedFile> {
        loop {
            let number = self.count.load(Ordering::Relaxed) + 1;
            if number > FILES_MAX {
                return Err(io::Error::other(format!("there are {FILES_MAX} journals")));
            }
            self.count.store(number, Ordering::Relaxed);
            let path = self.path.join(format!("{number:04}-{side}.journal"));
            match private_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                opened => return opened.map(|file| NamedFile { file, path }),
            }
        }
    }

    fn report_error(&self, text: &str) {
        tracing::warn!("{text}");
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() < ERRORS_MAX && !errors.iter().any(|known| known == text) {
            errors.push(text.to_owned());
        }
    }
}

/// Creates a file that only its owner may read.
fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

impl std::fmt::Debug for JournalFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("JournalFolder").field(&self.shared.path).finish()
    }
}
