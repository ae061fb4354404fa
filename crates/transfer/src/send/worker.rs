//! A worker of the sending side: reads and hashes segments, and sends those that the receiver does
//! not hold.

use super::outgoing::{Job, Outgoing};
use super::{Session, connection};
use crate::error::{FileError, TransferError};
use crate::extent::Extent;
use crate::manifest::Entry;
use crate::message::Message;
use crate::record::{CHUNK_LEN_MAX, RecordWriter};
use crate::segment::{FileHash, HashTree, SegmentHasher, ZEROS_STEP};
use crate::source_file::SourceFile;

/// Works until the queue is closed. Returns errors of the connection; errors of files are sent to
/// the receiver.
pub(super) fn run(session: &Session<'_>) -> Result<(), TransferError> {
    let mut writer = RecordWriter::new();
    let mut buffer = vec![0; CHUNK_LEN_MAX];
    while let Some(jobs) = session.work.take() {
        for job in &jobs {
            if session.cancel.is_cancelled() {
                // The coordinator sees it as well and closes the queue.
                break;
            }
            if !job.outgoing.is_given_up() {
                one(session, job, &mut writer, &mut buffer)?;
            }
        }
        writer.finish().map_err(connection)?;
        session.control.flush()?;
    }
    if let Some(stream) = session.work.stream() {
        super::pieces::run(session, &stream, &mut writer, &mut buffer)?;
        session.work.wait_closed();
    }
    Ok(())
}

/// Does one job and sends its result to the receiver.
fn one(session: &Session<'_>, job: &Job, writer: &mut RecordWriter, buffer: &mut [u8]) -> Result<(), TransferError> {
    let outgoing = &job.outgoing;
    let index = outgoing.index;
    match process(session, job, writer, buffer)? {
        Ok(None) => Ok(()),
        Ok(Some(hash)) => session.control.queue(&Message::FileDone { index, hash }),
        // Several workers may fail on one file; the receiver gets the first error.
        Err(error) if outgoing.give_up() => session.control.queue(&Message::FileAbort { index, error }),
        Err(_) => Ok(()),
    }
}

/// Reads, hashes and, if the receiver lacks it, sends the job's segment. Returns the file's hash if
/// that completes it. The outer error is the connection's, the inner one the file's.
fn process(
    session: &Session<'_>,
    job: &Job,
    writer: &mut RecordWriter,
    buffer: &mut [u8],
) -> Result<Result<Option<FileHash>, FileError>, TransferError> {
    let outgoing = &job.outgoing;
    let source = session.source();
    let entry = &source.entries()[outgoing.index as usize];
    let content = source.content(outgoing.index);
    let file = match outgoing.file(&source.disk_path(outgoing.index), entry, content) {
        Ok(file) => file,
        Err(error) => return Ok(Err(error)),
    };
    let Some(segment) = job.segment else {
        return Ok(finish(session, outgoing, &file, HashTree::new(outgoing.layout).root()));
    };
    let value = if outgoing.is_held(segment) {
        hash_held(session, outgoing, &file, segment, buffer)
    } else {
        let sent = send(session, outgoing, &file, segment, entry, writer)?;
        if session.knows_small_files() && outgoing.layout.count() == 1 {
            // The sent data show that the file is complete.
            return Ok(sent.map(|_| None));
        }
        sent
    };
    Ok(match value {
        Ok(Some(value)) => finish(session, outgoing, &file, outgoing.on_segment(segment, value)),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    })
}

/// Ensures that the file with this hash was the same from the first to the last byte. Returns
/// `None` without a hash, or if the transfer stops.
fn finish(
    session: &Session<'_>,
    outgoing: &Outgoing,
    file: &SourceFile,
    hash: Option<FileHash>,
) -> Result<Option<FileHash>, FileError> {
    let Some(hash) = hash else { return Ok(None) };
    let is_same = || {
        let mut buffer = vec![0; CHUNK_LEN_MAX];
        for segment in 0..outgoing.layout.count() {
            let Some(value) = hash_segment(session, outgoing, file, segment, &mut buffer, &|_| {})? else {
                return Ok(None);
            };
            // A file of one segment that is sent at once has no recorded value: its value is the
            // hash.
            if value != outgoing.value(segment).unwrap_or(*hash.as_bytes()) {
                return Ok(Some(false));
            }
        }
        Ok(Some(true))
    };
    if !file.confirm(&is_same)? {
        return Ok(None);
    }
    outgoing.set_hash(hash);
    Ok(Some(hash))
}

/// Hashes a segment that the receiver holds, and returns its value. Returns `None` if the file or
/// the transfer was abandoned.
fn hash_held(
    session: &Session<'_>,
    outgoing: &Outgoing,
    file: &SourceFile,
    segment: u32,
    buffer: &mut [u8],
) -> Result<Option<[u8; 32]>, FileError> {
    hash_segment(session, outgoing, file, segment, buffer, &|bytes| {
        session.progress.add_resumed(bytes);
        outgoing.count(bytes);
    })
}

/// Reads a segment to compute its value. Returns `None` if the file or the transfer was abandoned.
fn hash_segment(
    session: &Session<'_>,
    outgoing: &Outgoing,
    file: &SourceFile,
    segment: u32,
    buffer: &mut [u8],
    on_hashed: &dyn Fn(u64),
) -> Result<Option<[u8; 32]>, FileError> {
    let (mut offset, mut left) = outgoing.layout.range(segment);
    let mut hasher = outgoing.layout.hasher(segment);
    while left > 0 {
        if outgoing.is_given_up() || session.cancel.is_cancelled() {
            return Ok(None);
        }
        let bytes = &mut buffer[..left.min(CHUNK_LEN_MAX as u64) as usize];
        file.read_at(bytes, offset)?;
        hasher.update(bytes);
        on_hashed(bytes.len() as u64);
        offset += bytes.len() as u64;
        left -= bytes.len() as u64;
    }
    Ok(Some(hasher.finish()))
}

/// Sends a segment. Returns `None` if the file or the transfer was abandoned half-way, which the
/// stream reports, too.
fn send(
    session: &Session<'_>,
    outgoing: &Outgoing,
    file: &SourceFile,
    segment: u32,
    entry: &Entry,
    writer: &mut RecordWriter,
) -> Result<Result<Option<[u8; 32]>, FileError>, TransferError> {
    let (mut offset, mut left) = outgoing.layout.range(segment);
    let mut hasher = outgoing.layout.hasher(segment);
    writer.begin(|| session.link.open_uni(), outgoing.index, segment).map_err(connection)?;
    while left > 0 {
        if outgoing.is_given_up() || session.cancel.is_cancelled() {
            writer.abort().map_err(connection)?;
            return Ok(Ok(None));
        }
        let len = match if entry.data().is_some() { file.extent_at(offset) } else { Extent::Data(left) } {
            Extent::Hole(len) => {
                let len = len.min(left).min(ZEROS_STEP);
                writer.hole(len as u32).map_err(connection)?;
                hasher.update_with_zeros(len);
                len
            }
            Extent::Data(len) => {
                let len = len.min(left).min(CHUNK_LEN_MAX as u64);
                if let Err(error) = send_chunk(writer, file, offset, len as usize, &mut hasher)? {
                    writer.abort().map_err(connection)?;
                    return Ok(Err(error));
                }
                len
            }
        };
        session.progress.add_moved(len);
        outgoing.count(len);
        offset += len;
        left -= len;
    }
    let value = hasher.finish();
    if session.knows_small_files() && outgoing.layout.count() == 1 {
        match finish(session, outgoing, file, Some(FileHash::from_bytes(value))) {
            Ok(Some(_)) => {}
            other => {
                writer.abort().map_err(connection)?;
                return Ok(other.map(|_| None));
            }
        }
    }
    writer.end(&value).map_err(connection)?;
    Ok(Ok(Some(value)))
}

fn send_chunk(
    writer: &mut RecordWriter,
    file: &SourceFile,
    offset: u64,
    len: usize,
    hasher: &mut SegmentHasher,
) -> Result<Result<(), FileError>, TransferError> {
    let sent = writer.chunk(len, |bytes| file.read_at(bytes, offset), |bytes| hasher.update(bytes));
    sent.map_err(connection)
}
