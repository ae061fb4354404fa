//! The receiving side: lets the sender in, plans, takes segments from several threads, and puts verified files in
//! place.
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
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Scope;

use self::incoming::Incoming;
use super::authorise::Authoriser;
use super::control::{
    ControlWriter, INBOX_LEN, Input, abandon, conclude, next_input, prefer_peers_reason, read_messages,
};
use super::error::{FileError, TransferError};
use super::events::{Events, Summary, TransferEvent};
use super::link::{CancelToken, Control, Link};
use super::manifest::{Entry, Limits, Totals};
use super::message::{Message, VERSION};
use super::progress::Progress;
use super::queue::Queue;
use super::record::RecordReader;
use super::segment::{FileHash, Layout, SegmentSet};
use super::send::default_threads;
use super::transport::STREAMS_MAX;
use super::tree::TargetTree;
use crate::identity::ProofContext;

mod data;
mod finisher;
mod incoming;
mod planner;

/// How to receive.
#[derive(Clone, Debug)]
pub struct ReceiveOptions {
    /// Threads that sync and rename. Default: the processors, 1 to 8. Beside them [`STREAMS_MAX`] threads take and write
    /// data, each with 256 KiB of its own.
    pub threads: usize,
    /// Whether a file may replace another of the same name. Default: no. A directory is never replaced, and nothing is
    /// touched before the new file is complete and verified.
    pub overwrite: bool,
    /// Permission bits that nothing gets, whatever the sender says. Default: 022.
    pub umask: u32,
    /// Bytes that one transfer may announce. Default: no bound but the disk's.
    pub bytes_max: Option<u64>,
    /// Ends the transfer when used.
    pub cancel: CancelToken,
}

impl Default for ReceiveOptions {
    fn default() -> Self {
        Self { threads: default_threads(), overwrite: false, umask: 0o022, bytes_max: None, cancel: CancelToken::new() }
    }
}

/// Receives into `directory` over `link`, whose `control` stream the sender opened, if `authoriser` lets the sender in.
/// `context` is made from the connection's exporter and keys. Returns when the transfer is over for both sides. The
/// connection stays open if it ran to its end and is closed otherwise.
///
/// A sender that is let in nowhere costs at most ten seconds and one thread; serve others meanwhile.
///
/// # Errors
/// Why the transfer did not run to its end. Failures of single files are no error here: see [`Summary`].
pub fn run(
    link: &dyn Link,
    control: Control,
    context: &ProofContext,
    directory: &Path,
    options: &ReceiveOptions,
    authoriser: &mut dyn Authoriser,
    events: &dyn Events,
) -> Result<Summary, TransferError> {
    let tree = TargetTree::open(directory, options.umask)
        .map_err(|error| TransferError::Directory(directory.to_owned(), error));
    let session = Session {
        link,
        control: ControlWriter::new(control.writer),
        inbox: Queue::new(INBOX_LEN),
        streams: Queue::new(STREAMS_MAX),
        finished: Queue::new(FILES_AHEAD),
        options,
        context,
        directory: directory.to_owned(),
        // Without a directory we still talk to the sender, to tell it.
        tree: OnceLock::new(),
        list: OnceLock::new(),
        progress: Progress::new(events),
        events,
        state: Mutex::new(State::default()),
        changed: Condvar::new(),
        stopping: AtomicBool::new(false),
        files_done: AtomicU64::new(0),
        failed: AtomicU64::new(0),
    };
    let reader = control.reader;
    std::thread::scope(|scope| {
        let guard = Ender(&session);
        scope.spawn(|| read_messages(reader, &session.inbox));
        // A write may fail before we read why the sender left.
        let outcome =
            session.coordinate(scope, authoriser, tree).map_err(|error| prefer_peers_reason(error, &session.inbox));
        session.stop();
        match &outcome {
            Ok(_) => conclude(&session.control, &session.inbox, link),
            Err(error) => abandon(error, &session.control, &session.inbox, link),
        }
        drop(guard);
        outcome
    })
    .inspect_err(|_| session.discard_empty())
}

/// All that the threads of one transfer share.
struct Session<'a> {
    link: &'a dyn Link,
    control: ControlWriter,
    inbox: Queue<Input>,
    /// Data streams that no worker has taken.
    streams: Queue<RecordReader>,
    /// Files of which everything is there.
    finished: Queue<Arc<Incoming>>,
    options: &'a ReceiveOptions,
    context: &'a ProofContext,
    directory: PathBuf,
    tree: OnceLock<TargetTree>,
    list: OnceLock<List>,
    progress: Progress<'a>,
    events: &'a dyn Events,
    state: Mutex<State>,
    /// The number of active files fell, or we stop.
    changed: Condvar,
    stopping: AtomicBool,
    files_done: AtomicU64,
    failed: AtomicU64,
}

/// What the sender wants to send.
struct List {
    entries: Vec<Entry>,
    totals: Totals,
    base_log2: u8,
}

/// Which entries are under way and which are through.
#[derive(Default)]
struct State {
    /// At most [`FILES_AHEAD`]: each holds two open files.
    active: BTreeMap<u32, Arc<Incoming>>,
    settled: SegmentSet,
    /// Directories that we made, in this order.
    made: Vec<u32>,
}

/// Wakes the other threads when the coordinator ends, also by a panic: otherwise the scope would wait for ever.
struct Ender<'s, 'a>(&'s Session<'a>);

impl Drop for Ender<'_, '_> {
    fn drop(&mut self) {
        self.0.stop();
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
        tree: Result<TargetTree, TransferError>,
    ) -> Result<Summary, TransferError> {
        let base_log2 = self.authenticate(authoriser)?;
        // An unusable directory is told to those only who may know of it.
        let _ = self.tree.set(tree?);
        let list = self.take_list(base_log2)?;
        let totals = list.totals;
        self.progress.set_total(totals.bytes);
        self.events.event(TransferEvent::Started { files: totals.files, bytes: totals.bytes });
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
        self.settle_directories();
        self.tree()
            .sync()
            .map_err(|error| TransferError::Directory(self.directory.clone(), std::io::Error::other(error)))?;
        let summary = Summary {
            files: totals.files,
            bytes: totals.bytes,
            files_done: self.files_done.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            skipped: 0,
            bytes_moved: self.progress.moved(),
            bytes_resumed: self.progress.resumed(),
        };
        // Spent before the sender hears of it: if we die in between, it is told that all is complete already.
        let noted = if summary.is_complete() { authoriser.complete() } else { Ok(()) };
        self.control.send(&Message::Bye)?;
        self.events.event(TransferEvent::Finished { summary: &summary });
        noted.map_err(TransferError::State).map(|()| summary)
    }

    /// Waits for Hello and answers it. Nothing about this host is said before the sender is let in.
    fn authenticate(&self, authoriser: &mut dyn Authoriser) -> Result<u8, TransferError> {
        for _ in 0..HELLO_TICKS {
            let Some(input) = next_input(&self.inbox, &self.options.cancel)? else { continue };
            let Input::Message(Message::Hello { version, base_log2, proof }) = input else {
                return Err(TransferError::Protocol("something else came in place of Hello"));
            };
            let answer = match authoriser.authorise(self.context, proof.as_ref()) {
                Ok(proof) => proof,
                Err(refusal) => {
                    self.control.send(&Message::Refused { code: refusal.code() })?;
                    return Err(TransferError::Refused(refusal));
                }
            };
            self.control.send(&Message::Accepted { version: VERSION, proof: answer })?;
            if version != VERSION {
                return Err(TransferError::Version(version));
            }
            Layout::new(0, base_log2).ok_or(TransferError::Protocol("a segment length out of range"))?;
            return Ok(base_log2);
        }
        Err(TransferError::Silence)
    }

    fn take_list(&self, base_log2: u8) -> Result<List, TransferError> {
        let mut limits = Limits::default();
        let mut entries = Vec::new();
        loop {
            match next_input(&self.inbox, &self.options.cancel)? {
                Some(Input::Message(Message::Entries(batch))) => {
                    batch.iter().try_for_each(|entry| limits.admit(entry))?;
                    entries.extend(batch);
                }
                Some(Input::Message(Message::EntriesEnd { count })) if count as usize == entries.len() => break,
                Some(_) => return Err(TransferError::Protocol("the list of files is faulty")),
                None => {}
            }
        }
        let totals = limits.totals();
        if let Some(bytes_max) = self.options.bytes_max.filter(|bytes_max| totals.bytes > *bytes_max) {
            return Err(TransferError::TooLarge(totals.bytes, bytes_max));
        }
        Ok(List { entries, totals, base_log2 })
    }

    /// Takes the sender's word on files until it says that it is through, and its data streams end.
    fn serve(&self) -> Result<(), TransferError> {
        let (mut finish, mut data_ended) = (false, false);
        while !(finish && data_ended) {
            match next_input(&self.inbox, &self.options.cancel)? {
                Some(Input::Message(Message::FileDone { index, hash })) => self.on_file_done(index, hash)?,
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
        if let Some(incoming) = self.find(index)? {
            self.settle_failed(&incoming, &error)?;
        }
        Ok(())
    }

    /// The file under way that the sender calls `index`; `None` if it is through, so that what comes late is dropped.
    fn find(&self, index: u32) -> Result<Option<Arc<Incoming>>, TransferError> {
        let state = self.lock();
        match state.active.get(&index) {
            Some(incoming) => Ok(Some(Arc::clone(incoming))),
            None if state.settled.contains(index) => Ok(None),
            None => Err(TransferError::Protocol("data or a result for a file that has no plan")),
        }
    }

    /// Ends a file's way without a file, once: repeated calls do nothing.
    fn settle_failed(&self, incoming: &Incoming, error: &FileError) -> Result<(), TransferError> {
        incoming.fail(error.kind);
        self.settle(incoming.index, Err(error))
    }

    /// Notes what became of an entry, and tells everybody. Once for each: repeated calls do nothing.
    fn settle(&self, index: u32, outcome: Result<Option<FileHash>, &FileError>) -> Result<(), TransferError> {
        if !self.lock().settled.insert(index) {
            return Ok(());
        }
        let path = &self.list().entries[index as usize].path;
        let message = match outcome {
            Ok(hash) => {
                if let Some(hash) = hash {
                    self.files_done.fetch_add(1, Ordering::Relaxed);
                    self.progress.tell();
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
        let sent = self.control.send(&message);
        // Only now may the planner go on: so what is told and not yet read stays bounded as well.
        self.lock().active.remove(&index);
        self.changed.notify_all();
        sent
    }

    /// Gives the directories we made their permissions and times, innermost first. All content is in.
    fn settle_directories(&self) {
        let made = std::mem::take(&mut self.lock().made);
        for index in made.into_iter().rev() {
            let entry = &self.list().entries[index as usize];
            if let Err(error) = self.tree().settle_directory(&entry.path, entry.mode, entry.modified) {
                self.failed.fetch_add(1, Ordering::Relaxed);
                self.events.event(TransferEvent::FileFailed { path: &entry.path, error: &error });
            }
        }
    }

    /// Has every thread end soon. What is verified stays for the next attempt.
    fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.streams.close();
        self.finished.close();
        // Under the lock, or a planner between its look and its wait would miss it.
        let _state = self.lock();
        self.changed.notify_all();
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire) || self.options.cancel.is_cancelled()
    }

    /// After a failed transfer: removes part files that nothing could go on from.
    fn discard_empty(&self) {
        for incoming in self.lock().active.values() {
            incoming.discard_if_empty();
        }
    }

    /// What a thread that cannot go on has to say.
    fn fatal(&self, error: TransferError) {
        self.inbox.push(Input::Fatal(error));
    }

    fn tree(&self) -> &TargetTree {
        self.tree.get().expect("set before any thread that needs it is started")
    }

    fn list(&self) -> &List {
        self.list.get().expect("set before any thread that needs it is started")
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Files that have a plan and no result, at most. Each holds two open files (a process may usually have 1024); fewer
/// would leave a long line empty between small files, as this many are on their way in one round trip.
const FILES_AHEAD: usize = 256;

/// How long a sender may take to say Hello: 200 looks at 50 ms.
const HELLO_TICKS: usize = 200;
