//! The receiving side: authorises the sender, plans, receives segments on several threads, and
//! moves verified files into place.
//!
//! ```text
//!   coordinator ◀── reading thread ◀── control
//!        │ hash of a file                   ▲ Plan
//!        │                 planner ─────────┘  opens, reserves, verifies remains; at most FILES_AHEAD files ahead
//!        │                    │ Incoming
//!        │   acceptor ──▶ n workers: write, hash, journal
//!        ▼                    ▼ complete
//!      n finishers: compare, sync, rename ──▶ Done | Failed
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Scope;

use self::incoming::Incoming;
use self::incoming_stream::IncomingStream;
use self::list::List;
use super::authorise::Authoriser;
use super::control::{
    ControlWriter, INBOX_LEN, Input, abandon, conclude, next_input, prefer_peers_reason, read_messages,
};
use super::error::{FileError, TransferError};
use super::events::{Events, Summary, TransferEvent};
use super::left_out::LeftOutCounts;
use super::limits::VERSION;
use super::link::{Control, Link};
use super::message::Message;
use super::open_files::{FILES_AHEAD, SMALL_FILES_AHEAD, TransferFiles};
use super::progress::Progress;
use super::proof::ProofContext;
use super::queue::Queue;
use super::record::RecordReader;
use super::revision::Revision;
use super::segment::{FileHash, Layout, SegmentSet};
use super::transport::STREAMS_MAX;
use super::tree::TargetTree;

mod data;
mod delete;
mod directories;
mod finisher;
mod incoming;
mod incoming_stream;
mod left_out;
mod links;
mod list;
mod options;
mod planner;
mod stream;
mod whole;

pub use options::ReceiveOptions;

/// Receives into `directory` over `link`, whose `control` stream the sender opened, if `authoriser`
/// accepts the sender. `context` is made from the connection's exporter and keys. Returns when the
/// transfer has ended on both sides. The connection stays open if the transfer completed and is
/// closed otherwise.
///
/// A sender that is not authorised occupies one thread for at most ten seconds; serve other senders
/// meanwhile.
///
/// # Errors
/// Returns the reason why the transfer did not complete. Failures of single files are no errors
/// here: see [`Summary`].
pub fn run(
    link: &dyn Link,
    control: Control,
    context: &ProofContext,
    directory: &Path,
    options: &ReceiveOptions,
    authoriser: &mut dyn Authoriser,
    events: &dyn Events,
) -> Result<Summary, TransferError> {
    let tree = match options.output {
        Some(_) => Ok(None),
        None => match TargetTree::open(directory, options.umask, Arc::clone(&options.disk)) {
            // A missing directory has no entries.
            Err(error) if options.dry_run && error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some).map_err(|error| TransferError::Directory(directory.to_owned(), error)),
        },
    };
    let session = Session {
        link,
        control: ControlWriter::new(control.writer),
        inbox: Queue::new(INBOX_LEN),
        streams: Queue::new(STREAMS_MAX),
        finished: Queue::new(FILES_AHEAD),
        open_files: options.open_files.transfer(),
        revision: link.revision(),
        options,
        context,
        directory: directory.to_owned(),
        // Without a directory the receiver still answers the sender, to report the error.
        tree: OnceLock::new(),
        list: OnceLock::new(),
        stream: OnceLock::new(),
        progress: Progress::new(events),
        events,
        state: Mutex::new(SessionState::default()),
        changed: Condvar::new(),
        stopping: AtomicBool::new(false),
        files_done: AtomicU64::new(0),
        failed: AtomicU64::new(0),
    };
    let reader = control.reader;
    std::thread::scope(|scope| {
        let guard = EndGuard(&session);
        scope.spawn(|| read_messages(reader, &session.inbox));
        scope.spawn(|| session.control.waits().watch(&options.cancel, link));
        // A write may fail before the sender's reason is read.
        let outcome = session
            .coordinate(scope, authoriser, tree)
            .map_err(|error| prefer_peers_reason(error, &session.inbox, &options.cancel));
        session.control.waits().end_watch();
        session.stop();
        match &outcome {
            Ok(_) => conclude(&session.control, &session.inbox, link),
            Err(error) => abandon(error, &session.control, &session.inbox, link),
        }
        drop(guard);
        let is_output_used = options.output.is_some() && session.stream.get().is_some();
        outcome.map_err(|error| if is_output_used { error.of_stream() } else { error })
    })
    .inspect_err(|_| session.discard_empty())
}

/// The state that the threads of one transfer share.
struct Session<'a> {
    link: &'a dyn Link,
    control: ControlWriter,
    inbox: Queue<Input>,
    /// Data streams that wait for a worker.
    streams: Queue<RecordReader>,
    /// Files whose segments have all arrived.
    finished: Queue<Arc<Incoming>>,
    open_files: TransferFiles,
    revision: Revision,
    options: &'a ReceiveOptions,
    context: &'a ProofContext,
    directory: PathBuf,
    tree: OnceLock<TargetTree>,
    list: OnceLock<List>,
    /// The one stream of a transfer without files.
    stream: OnceLock<IncomingStream>,
    progress: Progress<'a>,
    events: &'a dyn Events,
    state: Mutex<SessionState>,
    /// Notified when the number of active files decreases, or the transfer stops.
    changed: Condvar,
    stopping: AtomicBool,
    files_done: AtomicU64,
    failed: AtomicU64,
}

/// Entries in progress and settled ones.
#[derive(Default)]
struct SessionState {
    /// Files in progress, at most [`Session::files_ahead`]. Files that are not small are open.
    active: BTreeMap<u32, Arc<Incoming>>,
    settled: SegmentSet,
    /// Whether the planner waits for fewer active files.
    is_planner_waiting: bool,
    /// Counts of entries left out.
    left_out: LeftOutCounts,
    /// Files in place, and those left out because they are newer.
    placed: SegmentSet,
    /// Directories that this transfer or an earlier attempt created, and those that it may change,
    /// in list order.
    made: Vec<u32>,
}

/// Wakes the other threads when the coordinator ends, also by a panic: otherwise the scope would
/// wait forever.
struct EndGuard<'s, 'a>(&'s Session<'a>);

impl Drop for EndGuard<'_, '_> {
    fn drop(&mut self) {
        self.0.stop();
        self.0.control.waits().end_watch();
        self.0.inbox.close();
        if std::thread::panicking() {
            self.0.link.close("internal fault");
        }
    }
}

impl<'a> Session<'a> {
    fn coordinate<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        authoriser: &mut dyn Authoriser,
        tree: Result<Option<TargetTree>, TransferError>,
    ) -> Result<Summary, TransferError> {
        let base_log2 = self.authenticate(authoriser)?;
        // Only an authorised sender is notified that the directory is unusable.
        let list = tree.and_then(|tree| {
            if let Some(tree) = tree {
                let _ = self.tree.set(tree);
            }
            self.take_list(base_log2)
        });
        let list = list.inspect_err(|error| release_if_refused(authoriser, error))?;
        let totals = list.totals;
        self.progress.set_total(totals.bytes);
        self.events.event(TransferEvent::Started { files: totals.files, bytes: totals.bytes });
        if list.skipped.total() > 0 {
            self.events.event(TransferEvent::NotSent { skipped: list.skipped });
        }
        let _ = self.list.set(list);
        scope.spawn(|| self.plan());
        scope.spawn(|| self.accept());
        for _ in 0..STREAMS_MAX {
            scope.spawn(|| self.take_streams());
        }
        for _ in 0..self.options.threads.max(1) {
            scope.spawn(|| self.finish_files());
        }
        self.serve()?;
        let deletions = self.delete_unlisted()?;
        // The name of a stream, which the planner did not wait for.
        self.sync_directories(&[])?;
        self.forget_directories();
        let left_out = self.lock().left_out;
        let dry_run = self.options.dry_run;
        let summary = Summary {
            files: totals.files,
            bytes: if self.stream.get().is_some() { self.progress.moved() } else { totals.bytes },
            files_done: self.files_done.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            skipped: self.list().skipped.total(),
            bytes_moved: self.progress.moved(),
            bytes_resumed: self.progress.resumed(),
            newer: left_out.newer,
            dry_run,
            unchanged: left_out.unchanged,
            would_receive: left_out.would_receive,
            would_receive_bytes: left_out.would_receive_bytes,
            deleted: deletions.done,
            not_deleted: deletions.failed,
        };
        // The ticket is marked as spent before the sender is informed. After a crash in between,
        // the sender is notified that the transfer is complete.
        let noted = if summary.is_complete() && !dry_run { authoriser.complete() } else { Ok(()) };
        self.control.send(&Message::Bye)?;
        self.events.event(TransferEvent::Finished { summary: &summary });
        noted.map_err(TransferError::State).map(|()| summary)
    }

    /// Waits for Hello and answers it. Reveals nothing about this host before the sender is
    /// authorised.
    fn authenticate(&self, authoriser: &mut dyn Authoriser) -> Result<u8, TransferError> {
        for _ in 0..HELLO_TICKS {
            let Some(input) = next_input(&self.inbox, &self.options.cancel)? else { continue };
            let Input::Message(Message::Hello { version, base_log2, proof, run }) = input else {
                return Err(TransferError::Protocol("a message other than Hello"));
            };
            authoriser.on_run_id(run);
            let answer = match authoriser.authorise(self.context, proof.as_ref()) {
                Ok(proof) => proof,
                Err(refusal) => {
                    self.control.send(&Message::Refused { code: refusal.code() })?;
                    return Err(TransferError::Refused(refusal));
                }
            };
            self.control.send(&Message::Accepted { version: VERSION, proof: answer })?;
            if version != VERSION {
                let error = TransferError::Version(version);
                release_if_refused(authoriser, &error);
                return Err(error);
            }
            Layout::new(0, base_log2).ok_or(TransferError::Protocol("a segment length out of range"))?;
            return Ok(base_log2);
        }
        Err(TransferError::Silence)
    }

    /// Handles the sender's messages about files until it finishes and its data streams end.
    fn serve(&self) -> Result<(), TransferError> {
        let (mut finish, mut data_ended) = (false, false);
        while !(finish && data_ended) {
            match next_input(&self.inbox, &self.options.cancel)? {
                Some(Input::Message(Message::FileDone { index, hash })) => self.on_file_done(index, hash)?,
                Some(Input::Message(Message::StreamEnd { index, size, hash })) => {
                    self.on_stream_end(index, size, hash)?;
                }
                Some(Input::Message(Message::FileAbort { index, error })) => self.on_file_abort(index, error)?,
                Some(Input::Message(Message::Finish)) => finish = true,
                Some(Input::DataEnded) => data_ended = true,
                Some(_) => return Err(TransferError::Protocol("a message out of place")),
                None => {}
            }
        }
        if self.lock().settled.len() as usize == self.list().entries.len() {
            Ok(())
        } else {
            Err(TransferError::Protocol("it finished before everything had a result"))
        }
    }

    fn on_file_done(&self, index: u32, hash: FileHash) -> Result<(), TransferError> {
        let Some(incoming) = self.find(index)? else { return Ok(()) };
        match incoming.on_hash(hash) {
            Some(true) => {
                self.finished.push(incoming);
                Ok(())
            }
            Some(false) => Ok(()),
            None => Err(TransferError::Protocol("a file has two hashes")),
        }
    }

    fn on_file_abort(&self, index: u32, error: FileError) -> Result<(), TransferError> {
        if let Some(stream) = self.stream.get().filter(|_| index == 0) {
            return self.abort_stream(stream, &error);
        }
        if let Some(incoming) = self.find(index)? {
            self.settle_failed(&incoming, &error)?;
        }
        Ok(())
    }

    /// Returns the file with the sender's index `index`; `None` if it is settled, so that late
    /// messages are dropped.
    fn find(&self, index: u32) -> Result<Option<Arc<Incoming>>, TransferError> {
        let state = self.lock();
        match state.active.get(&index) {
            Some(incoming) => Ok(Some(Arc::clone(incoming))),
            None if state.settled.contains(index) => Ok(None),
            None => Err(TransferError::Protocol("data or a result for a file that has no plan")),
        }
    }

    /// Settles a file as failed, once: repeated calls do nothing.
    fn settle_failed(&self, incoming: &Incoming, error: &FileError) -> Result<(), TransferError> {
        incoming.fail(error.kind);
        self.settle(incoming.index, Err(error))
    }

    /// Records and reports the result of an entry. Repeated calls for an entry do nothing.
    fn settle(&self, index: u32, outcome: Result<Option<FileHash>, &FileError>) -> Result<(), TransferError> {
        self.settle_queued(index, outcome)?;
        self.control.flush()
    }

    /// Does the same as [`settle`](Self::settle), but the sender is notified with the next message
    /// sent.
    fn settle_queued(&self, index: u32, outcome: Result<Option<FileHash>, &FileError>) -> Result<(), TransferError> {
        if !self.lock().settled.insert(index) {
            return Ok(());
        }
        let path = &self.list().entries[index as usize].path;
        let message = match outcome {
            Ok(hash) => {
                if let Some(hash) = hash {
                    self.lock().placed.insert(index);
                    self.files_done.fetch_add(1, Ordering::Relaxed);
                    self.progress.report();
                    self.events.event(TransferEvent::FileDone { path, hash });
                }
                Message::Done { index, hash }
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                self.events.event(TransferEvent::FileFailed { path, error });
                Message::Failed { index, error: error.clone() }
            }
        };
        let sent = self.control.queue(&message);
        // The planner may continue only after this, so that the unread results stay bounded as
        // well.
        let mut state = self.lock();
        state.active.remove(&index);
        // A notification is a system call, even if no thread waits.
        if state.is_planner_waiting && state.active.len() <= self.files_resumed() {
            self.changed.notify_one();
        }
        sent
    }

    /// Makes every thread end soon. Verified data stay for the next attempt.
    fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.streams.close();
        self.finished.close();
        // Under the lock, because a planner between its check and its wait would miss the wakeup.
        let _state = self.lock();
        self.changed.notify_all();
    }

    /// Returns the maximum number of files with a plan and no result.
    fn files_ahead(&self) -> usize {
        if self.knows_small_files() { SMALL_FILES_AHEAD } else { FILES_AHEAD }
    }

    /// Returns the number of files in progress at which a waiting planner continues: a wakeup for
    /// each file would cost more than the file.
    fn files_resumed(&self) -> usize {
        self.files_ahead() * 3 / 4
    }

    fn knows_small_files(&self) -> bool {
        self.revision >= Revision::SmallFiles
    }

    fn knows_left_out(&self) -> bool {
        self.revision >= Revision::LeftOut
    }

    fn knows_links(&self) -> bool {
        self.revision >= Revision::Links
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire) || self.options.cancel.is_cancelled()
    }

    /// Removes part files without verified data after a failed transfer.
    fn discard_empty(&self) {
        for incoming in self.lock().active.values() {
            incoming.discard_if_empty();
        }
        if let Some(stream) = self.stream.get() {
            stream.discard();
        }
    }

    /// Reports the error of a thread that cannot continue.
    fn fatal(&self, error: TransferError) {
        self.inbox.push(Input::Fatal(error));
    }

    fn tree(&self) -> &TargetTree {
        self.tree.get().expect("set before any thread that needs it is started")
    }

    fn list(&self) -> &List {
        self.list.get().expect("set before any thread that needs it is started")
    }

    fn lock(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Frees the ticket for another sender if the receiver itself refuses the transfer, before any byte
/// is stored. After a lost connection or a fault of the sender, the ticket stays bound.
fn release_if_refused(authoriser: &mut dyn Authoriser, error: &TransferError) {
    let is_refused = matches!(
        error,
        TransferError::TooLarge(..)
            | TransferError::NoRoom(..)
            | TransferError::StreamOnly
            | TransferError::LeftOutUnsupported
            | TransferError::Unrequested(_)
            | TransferError::Directory(..)
            | TransferError::Version(_)
    );
    if is_refused {
        // If the state cannot be written, the ticket stays bound. The refusal is the error to report.
        let _ = authoriser.release();
    }
}

/// Time for a sender to send Hello: 200 checks at 50 ms.
const HELLO_TICKS: usize = 200;
