//! A worker of the sending side: reads segments, hashes them, and sends those that the receiver
//! does not hold.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::outgoing::{Job, Outgoing};
use super::{Session, connection};
use crate::error::{FileError, FileErrorKind, TransferError};
use crate::extent::Extent;
use crate::manifest::Entry;
use crate::message::Message;
use crate::record::{CHUNK_LEN_MAX, RecordWriter};
use crate::segment::{FileHash, SegmentHasher, ZEROS_STEP};

/// Works until the queue is closed. An error is the connection's; errors of files are sent to the
/// receiver.
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

/// Reads, hashes and, if the receiver lacks it, sends the job's segment. The file's hash if that
/// completes it. The outer error is the connection's, the inner one the file's.
fn process(
    session: &Session<'_>,
    job: &Job,
    writer: &mut RecordWriter,
    buffer: &mut [u8],
) -> Result<Result<Option<FileHash>, FileError>, TransferError> {
    let outgoing = &job.outgoing;
    let entry = &session.source().entries()[outgoing.index as usize];
    let file = match outgoing.file(&session.source().disk_path(outgoing.index), entry) {
        Ok(file) => file,
        Err(error) => return Ok(Err(error)),
    };
    let Some(segment) = job.segment else { return Ok(outgoing.on_empty(entry)) };
    let value = if outgoing.is_held(segment) {
        hash_only(session, outgoing, &file, segment, buffer)
    } else {
        let sent = send(session, outgoing, &file, segment, entry, writer)?;
        if session.knows_small_files() && outgoing.layout.count() == 1 {
            // What was sent says that the file is complete.
            return Ok(sent.map(|_| None));
        }
        sent
    };
    Ok(match value {
        Ok(Some(value)) => outgoing.on_segment(segment, value, entry),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    })
}

/// The value of a segment that the receiver holds. `None` if the file or the transfer was
/// abandoned.
fn hash_only(
    session: &Session<'_>,
    outgoing: &Outgoing,
    file: &File,
    segment: u32,
    buffer: &mut [u8],
) -> Result<Option<[u8; 32]>, FileError> {
    let (mut offset, mut left) = outgoing.layout.range(segment);
    let mut hasher = outgoing.layout.hasher(segment);
    while left > 0 {
        if outgoing.is_given_up() || session.cancel.is_cancelled() {
            return Ok(None);
        }
        let bytes = &mut buffer[..left.min(CHUNK_LEN_MAX as u64) as usize];
        read_at(file, bytes, offset)?;
        hasher.update(bytes);
        session.progress.add_resumed(bytes.len() as u64);
        outgoing.count(bytes.len() as u64);
        offset += bytes.len() as u64;
        left -= bytes.len() as u64;
    }
    Ok(Some(hasher.finish()))
}

/// Sends a segment. `None` if the file or the transfer was abandoned half-way, which the stream
/// reports too.
fn send(
    session: &Session<'_>,
    outgoing: &Outgoing,
    file: &File,
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
        let len = match if entry.data().is_some() { Extent::at(file, offset) } else { Extent::Data(left) } {
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
    if session.knows_small_files()
        && outgoing.layout.count() == 1
        && let Err(error) = outgoing.on_whole(value, entry)
    {
        writer.abort().map_err(connection)?;
        return Ok(Err(error));
    }
    writer.end(&value).map_err(connection)?;
    Ok(Ok(Some(value)))
}

fn send_chunk(
    writer: &mut RecordWriter,
    file: &File,
    offset: u64,
    len: usize,
    hasher: &mut SegmentHasher,
) -> Result<Result<(), FileError>, TransferError> {
    let sent = writer.chunk(len, |bytes| read_at(file, bytes, offset), |bytes| hasher.update(bytes));
    sent.map_err(connection)
}

/// Fills `bytes` from `offset`. A file that ends before was truncated after it was listed.
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> Result<(), FileError> {
    file.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => FileError::new(FileErrorKind::SourceChanged, "it became shorter"),
        _ => FileError::source(&error),
    })
}
