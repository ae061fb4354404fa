//! The sending side: sends the requested files, segment by segment, on several threads.
//!
//! ```text
//!   coordinator ── plans ──▶ Work (files, segment by segment) ──▶ n workers: read, hash, send ──▶ data streams
//!        ▲                                                             │
//!        └── results ── reading thread ◀── control ◀── FileDone ───────┘
//! ```

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use self::outgoing::{JOBS_MAX, Outgoing, Work};
use self::stream::OutgoingStream;
use super::authorise::Credential;
use super::control::{
    ControlWriter, INBOX_LEN, Input, abandon, conclude, next_input, prefer_peers_reason, read_messages,
};
use super::error::{FileError, TransferError};
use super::events::{Events, Summary, TransferEvent};
use super::left_out::{LeftOutCounts, LeftOutReason};
use super::limits::{ENTRIES_MAX, VERSION};
use super::link::{CancelToken, Control, Link};
use super::manifest::Source;
use super::message::{ENTRIES_LEN, Message, entry_len};
use super::open_files::{FILES_AHEAD, SMALL_FILES_AHEAD};
use super::progress::Progress;
use super::proof::{ProofContext, Role};
use super::queue::Queue;
use super::record::write_last;
use super::revision::Revision;
use super::run_id::RunId;
use super::segment::{BASE_LOG2_DEFAULT, FileHash, Layout, SegmentSet};
use super::store::Refusal;

mod outgoing;
mod pieces;
mod stream;
mod worker;

/// Options for sending.
///
/// More fields may be added: begin with [`default`](Self::default), and set others with the `with_`
/// methods or by assignment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SendOptions {
    /// Number of threads that read, hash and write, and so of streams in flight. Default: the
    /// number of processors, 1 to 8. Each has a buffer of 256 KiB and reuses the buffers that it
    /// passed to the connection: up to 16 MiB if that much was in flight at once.
    pub threads: usize,
    /// Number of bytes in a segment: a power of two from 1 KiB to 1 GiB. Default: 4 MiB. An
    /// interrupted transfer repeats at most one segment for each thread; after a change of this
    /// value, unfinished files start over.
    pub segment_bytes: u64,
    /// Run id sent in `Hello` to a receiver that reads it; it identifies the sender when it
    /// reconnects, and lets the receiver refuse another one with the same ticket meanwhile.
    /// Default: none.
    pub run_id: Option<RunId>,
    /// Cancels the transfer.
    pub cancel: CancelToken,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self {
            threads: default_threads(),
            segment_bytes: 1 << BASE_LOG2_DEFAULT,
            run_id: None,
            cancel: CancelToken::new(),
        }
    }
}

impl SendOptions {
    /// Sets [`threads`](Self::threads).
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets [`segment_bytes`](Self::segment_bytes).
    #[must_use]
    pub fn with_segment_bytes(mut self, segment_bytes: u64) -> Self {
        self.segment_bytes = segment_bytes;
        self
    }

    /// Sets [`run_id`](Self::run_id).
    #[must_use]
    pub fn with_run_id(mut self, run_id: impl Into<Option<RunId>>) -> Self {
        self.run_id = run_id.into();
        self
    }

    /// Sets [`cancel`](Self::cancel).
    #[must_use]
    pub fn with_cancel(mut self, cancel: CancelToken) -> Self {
        self.cancel = cancel;
        self
    }
}

/// Sends everything in `source` over `link`, whose `control` stream this side opened. `context` is
/// made from the connection's exporter and keys. Returns when the receiver has every file on disk
/// or has reported the failure. The connection stays open if the transfer completed and is closed
/// otherwise.
///
/// # Errors
/// Returns the reason why the transfer did not complete. Failures of single files are no errors
/// here: see [`Summary`].
pub fn run(
    link: &dyn Link,
    control: Control,
    context: &ProofContext,
    credential: &Credential,
    source: &Source,
    options: &SendOptions,
    events: &dyn Events,
) -> Result<Summary, TransferError> {
    run_deferred(link, control, context, credential, &|| Ok(source), options, events)
}

/// Does the same as [`run`], but calls `source` for the list once both ends are authenticated. So a
/// ticket is bound to this sender before a large tree is scanned, and no other host can use it
/// meanwhile.
///
/// # Errors
/// Same errors as [`run`], and the error of `source`, which ends the transfer on both sides.
pub fn run_deferred<'a>(
    link: &dyn Link,
    control: Control,
    context: &ProofContext,
    credential: &Credential,
    source: &dyn Fn() -> Result<&'a Source, TransferError>,
    options: &SendOptions,
    events: &dyn Events,
) -> Result<Summary, TransferError> {
    let base_log2 = options.base_log2()?;
    let session = Session {
        link,
        control: ControlWriter::new(control.writer),
        inbox: Queue::new(INBOX_LEN),
        work: Work::new(1 << base_log2),
        source: OnceLock::new(),
        base_log2,
        run_id: options.run_id.filter(|_| link.revision() >= Revision::RunId),
        revision: link.revision(),
        progress: Progress::new(events),
        events,
        cancel: &options.cancel,
        workers: AtomicUsize::new(options.threads.max(1)),
    };
    let reader = control.reader;
    std::thread::scope(|scope| {
        let guard = EndGuard(&session);
        scope.spawn(|| read_messages(reader, &session.inbox));
        scope.spawn(|| session.control.waits().watch(&options.cancel, link));
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| session.work());
        }
        let outcome = session
            .coordinate(context, credential, &|| source())
            .map_err(|error| prefer_peers_reason(error, &session.inbox, &options.cancel));
        session.control.waits().end_watch();
        session.work.close();
        match &outcome {
            Ok(_) => conclude(&session.control, &session.inbox, link),
            Err(error) => abandon(error, &session.control, &session.inbox, link),
        }
        drop(guard);
        let has_read = session.work.stream().is_some();
        outcome.map_err(|error| if has_read { error.of_stream() } else { error })
    })
}

impl SendOptions {
    fn base_log2(&self) -> Result<u8, TransferError> {
        let log2 = self.segment_bytes.trailing_zeros() as u8;
        if self.segment_bytes.is_power_of_two() && Layout::new(0, log2).is_some() {
            Ok(log2)
        } else {
            Err(TransferError::Option("the segment length must be a power of two from 1 KiB to 1 GiB"))
        }
    }
}

/// Returns the number of processors, because hashing and the link's cipher dominate the work.
pub(crate) fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).clamp(1, THREADS_DEFAULT_MAX)
}

/// The state that the threads of one transfer share.
struct Session<'a> {
    link: &'a dyn Link,
    control: ControlWriter,
    inbox: Queue<Input>,
    work: Work,
    /// Files to send; set once both ends are authenticated.
    source: OnceLock<&'a Source>,
    base_log2: u8,
    run_id: Option<RunId>,
    revision: Revision,
    progress: Progress<'a>,
    events: &'a dyn Events,
    cancel: &'a CancelToken,
    /// Number of workers that have not ended.
    workers: AtomicUsize,
}

/// Wakes the other threads when the coordinator ends, also by a panic: otherwise the scope would
/// wait forever.
struct EndGuard<'s, 'a>(&'s Session<'a>);

impl Drop for EndGuard<'_, '_> {
    fn drop(&mut self) {
        self.0.work.close();
        self.0.control.waits().end_watch();
        self.0.inbox.close();
        if std::thread::panicking() {
            self.0.link.close("internal fault");
        }
    }
}

/// The coordinator's state of the entries.
#[derive(Default)]
struct CoordinatorState {
    /// Files that the receiver has planned and not settled.
    active: BTreeMap<u32, Arc<Outgoing>>,
    settled: SegmentSet,
    /// Files with a second plan.
    planned_again: SegmentSet,
    /// Files for the workers whose plans arrived together.
    planned: Vec<Arc<Outgoing>>,
    files_done: u64,
    failed: u64,
    left_out: LeftOutCounts,
    is_dry_run: bool,
    deleted: u64,
    not_deleted: u64,
    deletions_refused: u64,
}

impl<'a> Session<'a> {
    fn coordinate(
        &self,
        context: &ProofContext,
        credential: &Credential,
        source: &dyn Fn() -> Result<&'a Source, TransferError>,
    ) -> Result<Summary, TransferError> {
        self.authenticate(context, credential)?;
        let source = source()?;
        if source.input().is_some() && self.revision < Revision::Streams {
            return Err(TransferError::StreamUnsupported);
        }
        if self.revision < Revision::Links && source.needs_links() {
            return Err(TransferError::KeepUnsupported);
        }
        let _ = self.source.set(source);
        let totals = source.totals();
        self.progress.set_total(totals.bytes);
        for (path, error) in source.skipped() {
            self.events.event(TransferEvent::Skipped { path: path.display().to_string(), error });
        }
        self.events.event(TransferEvent::Started { files: totals.files, bytes: totals.bytes });
        self.send_entries()?;
        let mut standing = self.serve_plans()?;
        self.finish(&mut standing)?;
        let summary = Summary {
            files: totals.files,
            bytes: if source.input().is_some() { self.progress.moved() } else { totals.bytes },
            files_done: standing.files_done,
            failed: standing.failed,
            skipped: source.skipped_count(),
            bytes_moved: self.progress.moved(),
            bytes_resumed: self.progress.resumed(),
            newer: standing.left_out.newer,
            dry_run: standing.is_dry_run,
            unchanged: standing.left_out.unchanged,
            would_receive: standing.left_out.would_receive,
            would_receive_bytes: standing.left_out.would_receive_bytes,
            deleted: standing.deleted,
            not_deleted: standing.not_deleted,
        };
        self.events.event(TransferEvent::Finished { summary: &summary });
        Ok(summary)
    }

    /// Authenticates this side and the receiver. Reveals nothing about files before it returns.
    fn authenticate(&self, context: &ProofContext, credential: &Credential) -> Result<(), TransferError> {
        let proof = match credential {
            Credential::Ticket(secret) => Some(context.prove(secret, Role::Sender)),
            Credential::Key => None,
        };
        let run = self.run_id;
        self.send(&Message::Hello { version: VERSION, base_log2: self.base_log2, proof, run })?;
        match self.next_message()? {
            Message::Refused { code } => Err(TransferError::Refused(Refusal::from_code(code))),
            Message::Accepted { version, .. } if version != VERSION => Err(TransferError::Version(version)),
            Message::Accepted { proof, .. } => {
                let proven = match (credential, proof) {
                    (Credential::Ticket(secret), Some(proof)) => context.verify(secret, Role::Receiver, &proof),
                    (Credential::Ticket(_), None) => return Err(TransferError::KeysOnly),
                    (Credential::Key, _) => true,
                };
                if proven { Ok(()) } else { Err(TransferError::ReceiverUnproven) }
            }
            _ => Err(TransferError::Protocol("a message other than an answer to Hello")),
        }
    }

    fn send_entries(&self) -> Result<(), TransferError> {
        let mut batch = Vec::new();
        let mut batch_len = 0;
        for entry in self.source().entries() {
            batch_len += entry_len(entry);
            batch.push(entry.clone());
            if batch_len > ENTRIES_LEN {
                self.send(&Message::Entries(std::mem::take(&mut batch)))?;
                batch_len = 0;
                if self.cancel.is_cancelled() {
                    return Err(TransferError::Cancelled);
                }
            }
        }
        if !batch.is_empty() {
            self.send(&Message::Entries(batch))?;
        }
        let skipped = (self.revision >= Revision::Links).then(|| self.source().skipped_counts());
        self.send(&Message::EntriesEnd { count: self.source().entries().len() as u32, skipped })
    }

    /// Passes planned files to the workers and handles results, until every entry has one.
    fn serve_plans(&self) -> Result<CoordinatorState, TransferError> {
        let mut standing = CoordinatorState::default();
        while (standing.settled.len() as usize) < self.source().entries().len() {
            match self.next_message()? {
                Message::Plan { index, held } => self.on_plan(&mut standing, index, &held)?,
                Message::Credit { index: 0, pieces } if self.grant(pieces) => {}
                Message::Done { index, hash } => self.on_done(&mut standing, index, hash)?,
                Message::Failed { index, error } => self.on_failed(&mut standing, index, &error)?,
                Message::LeftOut { index, reason } if self.revision >= Revision::LeftOut => {
                    self.on_left_out(&mut standing, index, reason)?;
                }
                Message::Verifying { index, bytes_done, bytes_total } => {
                    let path = &self.unsettled(&standing, index)?.path;
                    self.events.event(TransferEvent::Verifying { path, bytes_done, bytes_total });
                }
                _ => return Err(TransferError::Protocol("a message out of place")),
            }
            if standing.planned.len() >= JOBS_MAX || self.inbox.is_empty() {
                self.work.push_all(standing.planned.drain(..));
            }
        }
        Ok(standing)
    }

    fn on_plan(&self, standing: &mut CoordinatorState, index: u32, held: &[u8]) -> Result<(), TransferError> {
        let entry = self.unsettled(standing, index)?;
        if entry.is_stream() {
            return self.on_stream_plan(entry, held);
        }
        let size = entry.size().ok_or(TransferError::Protocol("a plan for a directory"))?;
        let layout =
            Layout::new(size, self.base_log2).ok_or(TransferError::Protocol("a segment length out of range"))?;
        let held = SegmentSet::from_bytes(held, layout.count())
            .ok_or(TransferError::Protocol("a plan with segments that the file does not have"))?;
        let bytes_resumed = held.iter().map(|segment| layout.range(segment).1).sum();
        if let Some(earlier) = standing.active.get(&index) {
            // The receiver believed that it held the whole file, but it held a different one. More
            // plans would only make this side allocate and read.
            if !earlier.is_held_in_full() || !standing.planned_again.insert(index) {
                return Err(TransferError::Protocol("more than one plan for a file"));
            }
        } else if standing.active.len() >= if self.knows_small_files() { SMALL_FILES_AHEAD } else { FILES_AHEAD } {
            return Err(TransferError::Protocol("plans for too many files at a time"));
        }
        let outgoing = Arc::new(Outgoing::new(index, layout, held));
        if let Some(earlier) = standing.active.insert(index, Arc::clone(&outgoing)) {
            earlier.give_up();
            self.progress.take_back_resumed(earlier.counted());
        }
        self.events.event(TransferEvent::FileStarted { path: &entry.path, bytes: size, bytes_resumed });
        standing.planned.push(outgoing);
        Ok(())
    }

    fn on_stream_plan(&self, entry: &super::manifest::Entry, held: &[u8]) -> Result<(), TransferError> {
        let input = self.source().input().and_then(|input| input.open()).filter(|_| held.is_empty());
        let input = input.ok_or(TransferError::Protocol("a plan for a stream that it cannot have"))?;
        self.events.event(TransferEvent::FileStarted { path: &entry.path, bytes: 0, bytes_resumed: 0 });
        self.work.set_stream(Arc::new(OutgoingStream::new(input)));
        Ok(())
    }

    fn on_done(
        &self,
        standing: &mut CoordinatorState,
        index: u32,
        hash: Option<FileHash>,
    ) -> Result<(), TransferError> {
        let entry = self.unsettled(standing, index)?;
        let outgoing = standing.active.remove(&index);
        standing.settled.insert(index);
        let sent = if entry.is_stream() {
            self.work.stream().and_then(|stream| stream.hash())
        } else if entry.size().is_some() {
            outgoing.and_then(|outgoing| outgoing.hash())
        } else {
            return Ok(());
        };
        match (sent, hash) {
            (Some(ours), Some(theirs)) if ours == theirs => {
                standing.files_done += 1;
                self.progress.report();
                self.events.event(TransferEvent::FileDone { path: &entry.path, hash: ours });
                Ok(())
            }
            _ => Err(TransferError::Protocol("the receiver claims a file that it cannot have")),
        }
    }

    fn on_failed(&self, standing: &mut CoordinatorState, index: u32, error: &FileError) -> Result<(), TransferError> {
        let entry = self.unsettled(standing, index)?;
        if let Some(outgoing) = standing.active.remove(&index) {
            outgoing.give_up();
        }
        if let Some(stream) = self.work.stream() {
            stream.stop();
        }
        standing.settled.insert(index);
        standing.failed += 1;
        self.events.event(TransferEvent::FileFailed { path: &entry.path, error });
        Ok(())
    }

    fn on_left_out(
        &self,
        standing: &mut CoordinatorState,
        index: u32,
        reason: LeftOutReason,
    ) -> Result<(), TransferError> {
        let entry = self.unsettled(standing, index)?;
        if standing.active.contains_key(&index) || (entry.is_stream() && self.work.stream().is_some()) {
            return Err(TransferError::Protocol("the receiver leaves out a file that it has planned"));
        }
        standing.settled.insert(index);
        standing.is_dry_run |= reason != LeftOutReason::Newer;
        let bytes = entry.size().unwrap_or(0);
        if entry.size().is_some() || entry.is_stream() {
            standing.left_out.count(reason, bytes);
        }
        self.events.event(TransferEvent::LeftOut { path: &entry.path, bytes, reason });
        Ok(())
    }

    fn unsettled(&self, standing: &CoordinatorState, index: u32) -> Result<&super::manifest::Entry, TransferError> {
        let entry = self.source().entries().get(index as usize).filter(|_| !standing.settled.contains(index));
        entry.ok_or(TransferError::Protocol("a message about an entry that is settled or was never sent"))
    }

    fn source(&self) -> &'a Source {
        self.source.get().expect("set before anything is planned")
    }

    /// Ends the data streams after the last result, and waits until the receiver has synced.
    fn finish(&self, standing: &mut CoordinatorState) -> Result<(), TransferError> {
        self.work.close();
        while !matches!(next_input(&self.inbox, self.cancel)?, Some(Input::DataEnded)) {}
        let last = || self.link.open_uni().and_then(write_last);
        self.control.waits().during(last).map_err(TransferError::Connection)?;
        self.send(&Message::Finish)?;
        loop {
            match self.next_message()? {
                Message::Bye => return Ok(()),
                // The receiver may have granted it just when the stream failed.
                Message::Credit { index: 0, pieces } if self.grant(pieces) => {}
                message if self.revision >= Revision::LeftOut => self.on_deletion(standing, &message)?,
                _ => return Err(TransferError::Protocol("a message other than Bye")),
            }
        }
    }

    /// Handles the receiver's reports on its deletions.
    fn on_deletion(&self, standing: &mut CoordinatorState, message: &Message) -> Result<(), TransferError> {
        match message {
            Message::Deleted { is_dry_run, path } => {
                standing.deleted += 1;
                self.events.event(TransferEvent::Deleted { path, dry_run: *is_dry_run });
            }
            Message::NotDeleted { path, error } => {
                standing.not_deleted += 1;
                self.events.event(TransferEvent::NotDeleted { path, error });
            }
            Message::NothingDeleted { reason } if standing.deleted + standing.not_deleted == 0 => {
                standing.deletions_refused += 1;
                self.events.event(TransferEvent::NothingDeleted { reason: *reason });
            }
            _ => return Err(TransferError::Protocol("a message other than Bye")),
        }
        let is_bounded = standing.deleted + standing.not_deleted <= DELETIONS_MAX && standing.deletions_refused <= 1;
        is_bounded.then_some(()).ok_or(TransferError::Protocol("too many messages about deletions"))
    }

    fn knows_small_files(&self) -> bool {
        self.revision >= Revision::SmallFiles
    }

    /// Handles the receiver's grant of pieces of the stream; returns false if there is no stream,
    /// or if the grant does not increase.
    fn grant(&self, pieces: u32) -> bool {
        self.work.stream().is_some_and(|stream| stream.grant(pieces))
    }

    fn send(&self, message: &Message) -> Result<(), TransferError> {
        self.control.send(message)
    }

    fn next_message(&self) -> Result<Message, TransferError> {
        loop {
            // Other events need no action: a worker that ends before `finish` closes the queue
            // reports its error.
            if let Some(Input::Message(message)) = next_input(&self.inbox, self.cancel)? {
                return Ok(message);
            }
        }
    }

    /// Runs a worker thread.
    fn work(&self) {
        if let Err(error) = worker::run(self) {
            self.inbox.push(Input::Fatal(error));
        }
        if self.workers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.inbox.push(Input::DataEnded);
        }
    }
}

/// Converts an error of a data stream.
fn connection(error: io::Error) -> TransferError {
    TransferError::Connection(error)
}

/// Limit on reported deletions. It ends a receiver that would report for ever.
const DELETIONS_MAX: u64 = 100 * ENTRIES_MAX as u64;

/// Limit on default threads: more seldom speed up one disk.
const THREADS_DEFAULT_MAX: usize = 8;
