//! A worker of the sending side: reads segments, hashes them, and sends those that the receiver does not hold.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::outgoing::{Job, Outgoing};
use super::{Session, connection};
use crate::transfer::error::{FileError, FileErrorKind, TransferError};
use crate::transfer::manifest::Entry;
use crate::transfer::message::Message;
use crate::transfer::record::{CHUNK_LEN_MAX, RecordBuffer, RecordWriter};
use crate::transfer::segment::FileHash;

/// Works until the queue is closed. An error is the connection's; a file's own troubles go to the receiver.
pub(super) fn run(session: &Session<'_>) -> Result<(), TransferError> {
    let mut sending = RecordBuffer::new();
    let mut hashing = vec![0; CHUNK_LEN_MAX];
    while let Some(jobs) = session.work.take() {
        let mut stream = None;
        for job in &jobs {
            if session.cancel.is_cancelled() {
                break;
            }
            if job.outgoing.is_given_up() {
                continue;
            }
            let sends = job.segment.is_some_and(|segment| !job.outgoing.is_held(segment));
            if sends && stream.is_none() {
                // Opened late, as a batch of held segments needs none.
                let opened = session.link.open_uni().map_err(connection)?;
                // The buffer is free: a stream that was finished is flushed.
                stream = Some(opened);
            }
            if sends {
                break;
            }
        }
        match stream {
            Some(stream) => {
                let mut writer = RecordWriter::new(stream, &mut sending);
                for job in &jobs {
                    one(session, job, Some(&mut writer), &mut hashing)?;
                }
                writer.finish().map_err(connection)?;
            }
            None => {
                for job in &jobs {
                    one(session, job, None, &mut hashing)?;
                }
            }
        }
    }
    Ok(())
}
