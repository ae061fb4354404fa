//! `Records`: the cipher above TCP of one connection. The serial step numbers records and finds
//! them in the received stream; [`RecordJob`]s seal and open them on any processor.
//!
//! ```text
//!   cell ──▶ Seal ──▶ (any processor) ──▶ in order ──▶ connection.write
//!   cell ◀── in order ◀── (any processor) ◀── Open ◀── records ◀── connection.read
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use driver::protocol::Job;
use layers::secret::{Direction, SALT_LEN, Salt};
use layers::{CipherLayer, Record, RecordError, RecordKey, RecordKind, RecordReader};
use tcp::{CloseReason, Connection, Read, WriteError};

use crate::application::TcpCell;
use crate::layers::{Layers, cipher_work};

/// Work of a job. Passing a job on costs about a microsecond, and the fastest cipher takes four for
/// this many bytes. Larger jobs would spread short transfers less evenly over processors.
const JOB_WORK: usize = 16 << 10;

/// Returns the number of application bytes in a job, unless a single record is longer.
const fn job_len(layer: CipherLayer) -> usize {
    JOB_WORK / cipher_work(layer)
}

/// Limit on the bytes read from the connection at a time.
const READ_MAX: usize = 16 << 10;

/// The cipher above TCP of a connection.
pub(crate) struct Records {
    layers: Arc<Layers>,
    layer: CipherLayer,
    /// Salt at the start of this side's stream.
    salt: Salt,
    sealing: Sealing,
    opening: Opening,
    /// Whether the last job was an opening one: the directions take turns.
    has_opened_last: bool,
}

#[derive(Default)]
struct Sealing {
    /// Key; known once the peer's sequence number is.
    key: Option<Arc<RecordKey>>,
    /// Number of the next record.
    next: u64,
    /// Bytes of the records in jobs, for which the send buffer had space.
    in_jobs: usize,
    /// Sealed records for which the send buffer, which may have shrunk since, has no space.
    waiting: VecDeque<Bytes>,
    /// Whether the end record is in a job, sealed or sent.
    has_ended: bool,
}

#[derive(Default)]
struct Opening {
    reader: RecordReader,
    /// Key; known once the peer's salt is.
    key: Option<Arc<RecordKey>>,
    /// Number of the next record.
    next: u64,
    /// Upper bound of the application bytes in jobs.
    in_jobs: usize,
    /// Whether the end record was found. It may not be opened yet.
    has_found_end: bool,
    /// Whether the FIN was read, behind the end record.
    is_fin_read: bool,
}

/// Records to seal or to open.
pub struct RecordJob {
    key: Arc<RecordKey>,
    /// Number of the first record.
    first: u64,
    /// See [`cipher_work`].
    work_factor: usize,
    content: Content,
}

enum Content {
    Seal {
        /// Salt to write before the first record.
        salt: Option<Salt>,
        pieces: Vec<Bytes>,
        len: usize,
        /// Application bytes in the first record; the others have `record_len`, except the last.
        first_len: usize,
        record_len: usize,
        has_end: bool,
        sealed_len: usize,
    },
    Open {
        records: Vec<Record>,
        len: usize,
    },
}

/// Output of a [`RecordJob`].
#[derive(Debug, Default)]
pub struct RecordOutput {
    bytes: Vec<u8>,
    error: Option<RecordError>,
}

/// Outcome of a finished job.
pub(crate) enum Finished {
    Going,
    /// The peer has ended its stream.
    PeerEnded,
    Failed(RecordError),
}

impl RecordJob {
    /// Returns an upper bound of the number of application bytes.
    pub fn data_len(&self) -> usize {
        match &self.content {
            Content::Seal { len, .. } | Content::Open { len, .. } => *len,
        }
    }
}

impl Job for RecordJob {
    type Output = RecordOutput;

    fn work_bytes(&self) -> usize {
        self.work_factor * self.data_len()
    }

    fn run(&self, out: &mut RecordOutput) {
        out.bytes.clear();
        out.error = None;
        match &self.content {
            Content::Seal { salt, pieces, len, first_len, record_len, has_end, sealed_len } => {
                out.bytes.reserve_exact(*sealed_len);
                out.bytes.extend(salt.iter().flatten());
                let (mut number, mut at, mut limit) = (self.first, 0, *first_len);
                while at < *len {
                    let end = (at + limit).min(*len);
                    self.key.seal(number, RecordKind::Data, parts(pieces, at, end), &mut out.bytes);
                    (number, at, limit) = (number + 1, end, *record_len);
                }
                if *has_end {
                    self.key.seal(number, RecordKind::End, [].into_iter(), &mut out.bytes);
                }
            }
            Content::Open { records, len } => {
                out.bytes.reserve_exact(*len);
                for (number, record) in (self.first..).zip(records) {
                    if let Err(error) = self.key.open(number, record, &mut out.bytes) {
                        out.error = Some(error);
                        return;
                    }
                }
            }
        }
    }
}

/// Returns the bytes from `start` to `end` of all pieces.
fn parts(pieces: &[Bytes], start: usize, end: usize) -> impl Iterator<Item = &[u8]> + Clone {
    let mut at = 0;
    pieces.iter().filter_map(move |piece| {
        let from = at;
        at += piece.len();
        let part = start.max(from)..end.min(at);
        (part.start < part.end).then(|| &piece[part.start - from..part.end - from])
    })
}

impl Records {
    /// Creates the state; returns `None` if the stack has no cipher. `salt` must be unique for each
    /// connection.
    pub(crate) fn new(layers: Option<&Arc<Layers>>, salt: impl FnOnce() -> Salt) -> Option<Box<Self>> {
        let layers = Arc::clone(layers?);
        let layer = layers.stack().cipher?;
        let (sealing, opening) = (Sealing::default(), Opening::default());
        Some(Box::new(Self { layers, layer, salt: salt(), sealing, opening, has_opened_last: false }))
    }

    /// Returns the next job.
    ///
    /// # Errors
    /// Fails if the peer has sent an invalid record.
    pub(crate) fn poll_job(
        &mut self,
        connection: &mut Connection,
        cell: &TcpCell,
        reads: bool,
    ) -> Result<Option<RecordJob>, RecordError> {
        self.begin(connection);
        self.sealing.write(connection);
        for _ in 0..2 {
            self.has_opened_last = !self.has_opened_last;
            let job = match self.has_opened_last {
                true if reads => self.opening_job(connection, cell)?,
                true => None,
                false => self.sealing_job(connection, cell),
            };
            if job.is_some() {
                return Ok(job);
            }
        }
        Ok(None)
    }

    /// Derives the key once the peer's sequence number is known.
    fn begin(&mut self, connection: &Connection) {
        if self.sealing.key.is_some() || !connection.state().is_synchronized() {
            return;
        }
        let Some(peer) = connection.peer_initial_sequence() else { return };
        let direction = Direction {
            salt: self.salt,
            sender_initial: connection.initial_sequence().get(),
            receiver_initial: peer.get(),
        };
        self.sealing.key = Some(Arc::new(self.layers.secret().record_key(self.layer, &direction)));
    }

    fn sealing_job(&mut self, connection: &Connection, cell: &TcpCell) -> Option<RecordJob> {
        let sealing = &mut self.sealing;
        let key = sealing.key.as_ref().filter(|_| !sealing.has_ended && connection.close_reason().is_none())?;
        let record_len = self.layers.record_len();
        // The salt leaves with the first record, and together they are as long as another record,
        // so that each record fits into one segment of that length.
        let salt = (sealing.next == 0).then_some(self.salt);
        let salt_len = salt.map_or(0, |salt| salt.len());
        let first_len = record_len - salt_len;
        let others = (job_len(self.layer) / record_len).saturating_sub(1);
        let len_max = first_len + others * record_len;
        let sealed_len = |len: usize| {
            let first = RecordKey::sealed_len(self.layer, len.min(first_len));
            let rest = len.saturating_sub(first_len);
            let (full, last) = (rest / record_len, rest % record_len);
            let last_len = if last > 0 { RecordKey::sealed_len(self.layer, last) } else { 0 };
            first + full * RecordKey::sealed_len(self.layer, record_len) + last_len
        };
        let end_len = RecordKey::sealed_len(self.layer, 0);
        if !sealing.waiting.is_empty()
            || connection.send_space() < sealing.in_jobs + salt_len + sealed_len(len_max) + end_len
        {
            return None;
        }
        let (mut pieces, mut len) = (Vec::new(), 0);
        let has_end = cell.take_written(len_max, |piece| {
            len += piece.len();
            pieces.push(piece);
        });
        if len == 0 && !has_end {
            return None;
        }
        let records_len = if len > 0 { sealed_len(len) } else { 0 };
        let sealed_len = salt_len + records_len + if has_end { end_len } else { 0 };
        let first = sealing.next;
        let count = usize::from(len > 0) + len.saturating_sub(first_len).div_ceil(record_len);
        sealing.next += count as u64 + u64::from(has_end);
        sealing.in_jobs += sealed_len;
        sealing.has_ended = has_end;
        let content = Content::Seal { salt, pieces, len, first_len, record_len, has_end, sealed_len };
        Some(RecordJob { key: Arc::clone(key), first, work_factor: cipher_work(self.layer), content })
    }

    fn opening_job(&mut self, connection: &mut Connection, cell: &TcpCell) -> Result<Option<RecordJob>, RecordError> {
        let opening = &mut self.opening;
        // As without a cipher, all received data are passed on at the end.
        let has_ended = connection.close_reason().is_some();
        let space = if has_ended { usize::MAX } else { cell.inbox_space().saturating_sub(opening.in_jobs) };
        let (mut records, mut len) = (Vec::new(), 0);
        while len < space.min(job_len(self.layer)) {
            match opening.next_record(connection, self.layer, &self.layers) {
                Ok(Some(record)) => {
                    len += record.len();
                    records.push(record);
                }
                Ok(None) => break,
                // Data received before are passed on first, under every placement.
                Err(_) if opening.in_jobs > 0 || !records.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        let Some(key) = opening.key.as_ref().filter(|_| !records.is_empty()) else { return Ok(None) };
        let first = opening.next;
        opening.next += records.len() as u64;
        opening.in_jobs += len;
        let content = Content::Open { records, len };
        Ok(Some(RecordJob { key: Arc::clone(key), first, work_factor: cipher_work(self.layer), content }))
    }

    /// Takes the output of a job.
    pub(crate) fn finish_job(
        &mut self,
        connection: &mut Connection,
        cell: &TcpCell,
        job: &RecordJob,
        output: &mut RecordOutput,
    ) -> Finished {
        let bytes = Bytes::from(std::mem::take(&mut output.bytes));
        match &job.content {
            Content::Seal { sealed_len, .. } => {
                debug_assert_eq!(bytes.len(), *sealed_len);
                self.sealing.in_jobs -= sealed_len;
                self.sealing.waiting.push_back(bytes);
                self.sealing.write(connection);
            }
            Content::Open { records, len } => {
                self.opening.in_jobs -= len;
                if !bytes.is_empty() {
                    cell.deliver(bytes);
                }
                if let Some(error) = output.error {
                    return Finished::Failed(error);
                }
                if records.last().is_some_and(|record| record.kind == RecordKind::End) {
                    return Finished::PeerEnded;
                }
            }
        }
        Finished::Going
    }

    /// Returns whether all written data, and the end, are in the connection.
    pub(crate) fn has_sent_end(&self) -> bool {
        self.sealing.has_sent_end()
    }

    /// Returns whether more of the peer's data will be passed on.
    pub(crate) fn is_passing(&self, connection: &Connection) -> bool {
        let has_unread_end = connection.close_reason() == Some(CloseReason::Finished) && !self.opening.is_fin_read;
        self.opening.in_jobs > 0 || connection.readable() > 0 || has_unread_end
    }
}

impl Sealing {
    fn has_sent_end(&self) -> bool {
        self.has_ended && self.in_jobs == 0 && self.waiting.is_empty()
    }

    /// Passes sealed records to the connection while it has space, followed by the end.
    fn write(&mut self, connection: &mut Connection) {
        while let Some(first) = self.waiting.front_mut() {
            match connection.write(first) {
                Ok(()) if first.is_empty() => drop(self.waiting.pop_front()),
                Ok(()) | Err(WriteError::Blocked) => return,
                // The handles are notified that the connection has ended.
                Err(WriteError::Finished | WriteError::Closed(_)) => return self.waiting.clear(),
            }
        }
        if self.has_sent_end() {
            connection.finish();
        }
    }
}

impl Opening {
    /// Returns the next record received. Errors repeat.
    fn next_record(
        &mut self,
        connection: &mut Connection,
        layer: CipherLayer,
        layers: &Layers,
    ) -> Result<Option<Record>, RecordError> {
        loop {
            if self.key.is_none()
                && let Some(peer) = connection.peer_initial_sequence()
                && let Some(salt) = self.reader.take_array::<SALT_LEN>()
            {
                let receiver_initial = connection.initial_sequence().get();
                let direction = Direction { salt, sender_initial: peer.get(), receiver_initial };
                self.key = Some(Arc::new(layers.secret().record_key(layer, &direction)));
            }
            if self.key.is_some()
                && let Some(record) = self.reader.next_record()?
            {
                self.has_found_end = record.kind == RecordKind::End;
                return Ok(Some(record));
            }
            // The data read are at most as long as the peer may send before an acknowledgement.
            match connection.read(READ_MAX) {
                Read::Bytes(bytes) => self.reader.push(bytes),
                Read::End => {
                    self.is_fin_read = self.has_found_end && self.reader.is_empty();
                    return if self.is_fin_read { Ok(None) } else { Err(RecordError::Truncated) };
                }
                Read::Blocked | Read::Closed(_) => return Ok(None),
            }
        }
    }
}
