//! Sending the pieces of a file of unknown length: the workers take turns reading pieces, and send
//! them concurrently.

use super::stream::OutgoingStream;
use super::{Session, connection};
use crate::error::{FileError, TransferError};
use crate::message::Message;
use crate::record::RecordWriter;
use crate::segment::FileHash;
use crate::stream::{PIECE_LEN, hash_piece};

/// Sends pieces until the input ends. Returns errors of the connection; an error of the input is
/// sent to the receiver.
pub(super) fn run(
    session: &Session<'_>,
    stream: &OutgoingStream,
    writer: &mut RecordWriter,
    buffer: &mut [u8],
) -> Result<(), TransferError> {
    let mut on_stream = 0;
    loop {
        let (number, len) = match stream.read(session.cancel, buffer) {
            Ok(Some(read)) => read,
            Ok(None) => break,
            Err(error) => {
                stream.stop();
                return session.control.send(&Message::FileAbort { index: 0, error: FileError::source(&error) });
            }
        };
        let bytes = &buffer[..len];
        let hash = hash_piece(number, bytes);
        writer.begin(|| session.link.open_uni(), 0, number).map_err(connection)?;
        let copied = writer.chunk(
            len,
            |chunk| {
                chunk.copy_from_slice(bytes);
                Ok::<_, ()>(())
            },
            |_| {},
        );
        let _infallible = copied.map_err(connection)?;
        writer.end(&hash.value).map_err(connection)?;
        // The next piece may take long, and the receiver waits for this one.
        writer.push().map_err(connection)?;
        on_stream += 1;
        if on_stream == PIECES_ON_STREAM {
            on_stream = 0;
            writer.finish().map_err(connection)?;
        }
        session.progress.add_moved(len as u64);
        send_end(session, stream.count(Some((number, hash, len))))?;
    }
    writer.finish().map_err(connection)?;
    send_end(session, stream.count(None))
}

fn send_end(session: &Session<'_>, end: Option<(u64, FileHash)>) -> Result<(), TransferError> {
    let Some((size, hash)) = end else { return Ok(()) };
    session.control.send(&Message::StreamEnd { index: 0, size, hash })
}

/// Number of pieces on one data stream: as many bytes as a segment of the usual length.
const PIECES_ON_STREAM: u32 = 16;

const _: () = assert!(PIECE_LEN << 4 == 1 << crate::segment::BASE_LOG2_DEFAULT);
