//! `--qlog DIR`: journals as qlog files, for qvis.
//!
//! | user | what |
//! |---|---|
//! | `litz send`, `litz recv` | a [`Converter`] converts each journal when its connection has ended |
//! | `litz replay` | [`create`] gives the file that the replay writes |
//! | `litz scenario run` | [`convert`] converts the journals of the recorded run |

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, BufWriter};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use quic::journal::LogEnd;

use crate::provenance::PROGRAM;

/// Bytes that are read and written at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Qlog files of the same name in a folder.
const NAMESAKES_MAX: u32 = 10_000;

/// Messages that are kept until the command shows them. Further ones are dropped.
const ERRORS_MAX: usize = 8;

/// The description in a file that is made from `journal`.
pub(crate) fn about(journal: &Path) -> String {
    format!("{}, from the journal {}", PROGRAM.summary(), journal.display())
}

/// Creates the folder, accessible only to its owner, unless it exists.
///
/// # Errors
/// A message for the user.
pub(crate) fn create_folder(folder: &Path) -> Result<(), String> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    created.map_err(|error| format!("cannot write qlog files into {}: {error}", folder.display()))
}

/// Creates the qlog file of a journal in `folder`, which only its owner may read. It has the name of
/// the journal, and a number if another file has that.
///
/// # Errors
/// A message for the user.
pub(crate) fn create(journal: &Path, folder: &Path) -> Result<(BufWriter<File>, PathBuf), String> {
    let stem = journal.file_stem().unwrap_or_default().to_string_lossy();
    for number in 1..=NAMESAKES_MAX {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let path = folder.join(format!("{stem}{suffix}.{}", observe::EXTENSION));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(format!("cannot write {}: {error}", path.display())),
            Ok(file) => return Ok((BufWriter::with_capacity(BUFFER_BYTES, file), path)),
        }
    }
    Err(format!("{} contains {NAMESAKES_MAX} qlog files named {stem}", folder.display()))
}

/// Converts a journal into a qlog file in `folder`.
///
/// # Errors
/// A message for the user. What could be converted is in the file.
pub(crate) fn convert(journal: &Path, folder: &Path) -> Result<(), String> {
    let log = File::open(journal).map_err(|error| format!("cannot read {}: {error}", journal.display()))?;
    let (file, path) = create(journal, folder)?;
    let converted = observe::convert(BufReader::with_capacity(BUFFER_BYTES, log), file, &about(journal));
    match converted {
        Ok(converted) if converted.end == LogEnd::Complete => Ok(()),
        Ok(_) => Err(format!("{} is incomplete, because its journal {} is", path.display(), journal.display())),
        Err(error) => Err(format!("{} is incomplete: {error}", path.display())),
    }
}

/// Converts journals on a thread of its own, one after the other.
pub(crate) struct Converter {
    jobs: Sender<Job>,
    errors: Arc<Mutex<Vec<String>>>,
}

enum Job {
    Convert(PathBuf),
    /// Reports that all earlier jobs are done.
    Confirm(SyncSender<()>),
}

impl Converter {
    /// Starts the thread, which writes into `folder`. Converted journals are removed unless they are
    /// to be kept.
    ///
    /// # Errors
    /// If the system refuses a thread.
    #[expect(clippy::disallowed_methods, reason = "a transfer must not wait for the conversion of an earlier one")]
    pub(crate) fn start(folder: PathBuf, keeps_journals: bool) -> Result<Self, String> {
        let (jobs, received) = channel();
        let errors = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&errors);
        std::thread::Builder::new()
            .name("litz-qlog".to_owned())
            .spawn(move || work(&received, &folder, keeps_journals, &kept))
            .map_err(|error| format!("cannot start the thread that writes qlog files: {error}"))?;
        Ok(Self { jobs, errors })
    }

    /// Takes the path of a journal whose connection has ended, on any thread.
    pub(crate) fn on_ended(&self) -> impl FnMut(&Path) + Send + 'static {
        let jobs = self.jobs.clone();
        // The thread ends with the command.
        move |journal| drop(jobs.send(Job::Convert(journal.to_owned())))
    }

    /// Waits until the journals that were given so far are converted, and takes the errors.
    pub(crate) fn take_errors(&self) -> Vec<String> {
        let (confirm, done) = sync_channel(1);
        if self.jobs.send(Job::Confirm(confirm)).is_err() || done.recv().is_err() {
            return vec!["a qlog file is incomplete: the thread that writes them has ended".to_owned()];
        }
        std::mem::take(&mut self.errors.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The thread of a converter. Ends when all senders of jobs are dropped.
fn work(jobs: &Receiver<Job>, folder: &Path, keeps_journals: bool, errors: &Mutex<Vec<String>>) {
    for job in jobs {
        let journal = match job {
            Job::Convert(journal) => journal,
            // The command may have stopped waiting.
            Job::Confirm(done) => {
                let _ = done.send(());
                continue;
            }
        };
        let removed = |()| {
            let is_kept = keeps_journals || std::fs::remove_file(&journal).is_ok();
            if is_kept { Ok(()) } else { Err(format!("cannot remove {}", journal.display())) }
        };
        if let Err(error) = convert(&journal, folder).and_then(removed) {
            tracing::warn!("{error}");
            let mut errors = errors.lock().unwrap_or_else(PoisonError::into_inner);
            if errors.len() < ERRORS_MAX {
                errors.push(error);
            }
        }
    }
}
