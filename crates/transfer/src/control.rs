//! The control stream: framing, and the end of a transfer.

use std::io::{self, BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::error::TransferError;
use super::link::{CancelToken, Link, SendStream};
use super::message::{FRAME_LEN_MAX, Message, StopCode};
use super::peer_waits::PeerWaits;
use super::queue::{Popped, Queue};

/// The writing half, shared by all threads of one side.
pub(crate) struct ControlWriter {
    /// `None` once finished.
    stream: Mutex<Option<Outbox>>,
    waits: PeerWaits,
}

/// The stream and the messages not passed to it yet.
struct Outbox {
    stream: Box<dyn SendStream>,
    queued: Vec<u8>,
}

/// Events for the coordinating thread of either side.
pub(crate) enum Input {
    /// A message from the peer.
    Message(Message),
    /// The peer's half of the control stream ended or failed; nothing more comes.
    ControlEnded(TransferError),
    /// The peer's data streams are done.
    DataEnded,
    /// A thread of this side has failed.
    Fatal(TransferError),
}

impl ControlWriter {
    pub(crate) fn new(stream: Box<dyn SendStream>) -> Self {
        Self { stream: Mutex::new(Some(Outbox { stream, queued: Vec::new() })), waits: PeerWaits::new() }
    }

    /// Returns the tracker of blocking waits for the peer, which end if the transfer is cancelled.
    pub(crate) fn waits(&self) -> &PeerWaits {
        &self.waits
    }

    /// Sends one complete message, after the queued ones. Blocks while flow control permits no
    /// more.
    pub(crate) fn send(&self, message: &Message) -> Result<(), TransferError> {
        self.write(Some(message), 0)
    }

    /// Queues a message: it leaves with the next one sent, with [`flush`](Self::flush), or when
    /// [`QUEUED_MAX`] bytes are queued. Otherwise each short message would cost a packet. May block
    /// like [`send`](Self::send).
    pub(crate) fn queue(&self, message: &Message) -> Result<(), TransferError> {
        self.write(Some(message), QUEUED_MAX)
    }

    /// Sends the queued messages. A thread that queues messages calls it before it waits for
    /// anything.
    pub(crate) fn flush(&self) -> Result<(), TransferError> {
        self.write(None, 0)
    }

    /// Adds `message`, and passes everything to the stream if it is longer than `keep`.
    fn write(&self, message: Option<&Message>, keep: usize) -> Result<(), TransferError> {
        self.waits
            .during(|| {
                let mut outbox = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(outbox) = outbox.as_mut() else {
                    return message.map_or(Ok(()), |_| Err(io::Error::from(io::ErrorKind::NotConnected)));
                };
                if let Some(message) = message {
                    message.encode(&mut outbox.queued);
                }
                if outbox.queued.len() <= keep {
                    return Ok(());
                }
                let written = outbox.stream.write_all(&outbox.queued).and_then(|()| outbox.stream.flush());
                outbox.queued.clear();
                written
            })
            .map_err(TransferError::Connection)
    }

    /// Ends our half: the peer reads the sent messages, then the end.
    pub(crate) fn finish(&self) {
        if let Some(mut outbox) = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The connection may be closed already; then the end cannot be sent.
            let _ = outbox.stream.write_all(&outbox.queued).and_then(|()| outbox.stream.finish());
        }
    }
}

/// Reads messages into `inbox` until the stream ends or the inbox is closed; then closes the inbox. After a
/// malformed message it only reads to the end: a peer that ends its half has read why the transfer ended.
pub(crate) fn read_messages(reader: Box<dyn Read + Send>, inbox: &Queue<Input>) {
    let mut reader = BufReader::with_capacity(READ_LEN, reader);
    let ended = loop {
        match read_batch(&mut reader) {
            Ok(batch) => {
                if !inbox.push_all(batch) {
                    return;
                }
            }
            Err((batch, error)) => {
                if !batch.is_empty() && !inbox.push_all(batch) {
                    return;
                }
                break error;
            }
        }
    };
    let is_malformed = matches!(ended, TransferError::Protocol(_));
    inbox.push(Input::ControlEnded(ended));
    if is_malformed {
        // It fails when the connection is closed.
        let _failed = io::copy(&mut reader, &mut io::sink());
    }
    inbox.close();
}

/// Returns the next message and those that arrived with it. An error comes with the messages before
/// it.
fn read_batch(reader: &mut BufReader<Box<dyn Read + Send>>) -> Result<Vec<Input>, (Vec<Input>, TransferError)> {
    let mut batch = Vec::new();
    loop {
        match read_message(reader) {
            Ok(Some(message)) => batch.push(Input::Message(message)),
            Ok(None) => {
                let ended = io::Error::new(io::ErrorKind::UnexpectedEof, "the other host ended the transfer");
                return Err((batch, TransferError::Connection(ended)));
            }
            Err(error) => return Err((batch, error)),
        }
        if !has_frame(reader.buffer()) {
            return Ok(batch);
        }
    }
}

/// Returns whether `bytes` begins with a whole frame, so that reading it does not wait.
fn has_frame(bytes: &[u8]) -> bool {
    let length = bytes.first_chunk().map(|length| u32::from_be_bytes(*length) as usize);
    length.is_some_and(|length| bytes.len() - 4 >= length)
}

/// Returns the next message; `None` at an end between two messages.
pub(crate) fn read_message(reader: &mut dyn Read) -> Result<Option<Message>, TransferError> {
    let mut length = [0; 4];
    if !read_exact_or_end(reader, &mut length).map_err(TransferError::Connection)? {
        return Ok(None);
    }
    let length = u32::from_be_bytes(length) as usize;
    if length == 0 || length > FRAME_LEN_MAX {
        return Err(TransferError::Protocol("a message of invalid length"));
    }
    let mut frame = vec![0; length];
    reader.read_exact(&mut frame).map_err(TransferError::Connection)?;
    Message::decode(&frame).map(Some).map_err(|malformed| TransferError::Protocol(malformed.0))
}

/// Fills `buffer`; returns false if the stream ended before its first byte.
pub(crate) fn read_exact_or_end(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Returns the error that a Stop from the peer stands for.
fn stopped(code: StopCode, reason: String) -> TransferError {
    match code {
        StopCode::Cancelled => TransferError::CancelledByPeer,
        StopCode::Failed => TransferError::Peer(reason),
    }
}

/// Returns the reason in the peer's Stop, if it sent one: after `error` ended a data stream or a
/// write, the control stream may still hold a Stop. Any other error is returned unchanged. The
/// duration is bounded whatever the peer does.
pub(crate) fn prefer_peers_reason(error: TransferError, inbox: &Queue<Input>, cancel: &CancelToken) -> TransferError {
    if !matches!(error, TransferError::Connection(_)) {
        return error;
    }
    within(END_MAX, |is_over| {
        let (mut idle, mut messages) = (0, 0);
        while idle < GRACE_TICKS && messages < MESSAGES_AFTER_END_MAX && !is_over() {
            if cancel.is_cancelled() {
                return TransferError::Cancelled;
            }
            match inbox.pop_timeout(TICK) {
                Popped::Item(Input::Message(Message::Stop { code, reason })) => return stopped(code, reason),
                Popped::Item(Input::ControlEnded(TransferError::Connection(_))) | Popped::Closed => return error,
                Popped::Item(Input::ControlEnded(ended)) => return ended,
                Popped::Timeout => idle += 1,
                Popped::Item(_) => messages += 1,
            }
        }
        error
    })
}

/// Runs `body` with a function that reports whether `limit` has passed.
fn within<T>(limit: Duration, body: impl FnOnce(&dyn Fn() -> bool) -> T) -> T {
    let (is_over, is_done) = (AtomicBool::new(false), Queue::<()>::new(1));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if matches!(is_done.pop_timeout(limit), Popped::Timeout) {
                is_over.store(true, Ordering::Relaxed);
            }
        });
        let outcome = body(&|| is_over.load(Ordering::Relaxed));
        is_done.close();
        outcome
    })
}

/// Ends a transfer that failed with `error`: sends the reason unless the peer knows it, waits until
/// the peer has read it, and closes the connection. The duration is bounded whatever the peer does.
pub(crate) fn abandon(error: &TransferError, control: &ControlWriter, inbox: &Queue<Input>, link: &dyn Link) {
    let code = match error {
        // A silent peer may have a bad path. It gets no Stop, because a Stop means not to try
        // again.
        TransferError::Connection(_)
        | TransferError::CancelledByPeer
        | TransferError::Peer(_)
        | TransferError::Silence => {
            link.close("transfer ended");
            return;
        }
        // The refusal itself was the last message, in one direction or the other.
        TransferError::Refused(_) => {
            control.finish();
            wait_for_end(inbox);
            link.close("refused");
            return;
        }
        TransferError::Cancelled => StopCode::Cancelled,
        _ => StopCode::Failed,
    };
    let stop = Message::Stop { code, reason: error.to_string() };
    std::thread::scope(|scope| {
        // In a separate thread, because a peer that does not read would block the write forever;
        // closing the link ends it.
        scope.spawn(|| {
            if control.send(&stop).is_ok() {
                control.finish();
            }
        });
        wait_for_end(inbox);
        link.close("transfer ended");
    });
}

/// Ends a completed transfer: both halves of the control stream finish, and the connection stays
/// open.
pub(crate) fn conclude(control: &ControlWriter, inbox: &Queue<Input>, link: &dyn Link) {
    control.finish();
    if !wait_for_end(inbox) {
        // A peer that does not finish would block the reading thread forever.
        link.close("transfer complete");
    }
}

/// Waits until the peer's half of the control stream ends, for a limited time and number of messages.
/// Returns false if it did not end.
fn wait_for_end(inbox: &Queue<Input>) -> bool {
    within(END_MAX, |is_over| {
        let (mut idle, mut messages) = (0, 0);
        while idle < GRACE_TICKS && messages < MESSAGES_AFTER_END_MAX && !is_over() {
            match inbox.pop_timeout(TICK) {
                Popped::Item(Input::ControlEnded(_)) | Popped::Closed => return true,
                Popped::Timeout => idle += 1,
                Popped::Item(_) => messages += 1,
            }
        }
        false
    })
}

/// Returns the next event for the coordinating thread, or why it must stop. Returns `None` at
/// intervals, so that the caller can check other conditions.
pub(crate) fn next_input(inbox: &Queue<Input>, cancel: &CancelToken) -> Result<Option<Input>, TransferError> {
    if cancel.is_cancelled() {
        return Err(TransferError::Cancelled);
    }
    match inbox.pop_timeout(TICK) {
        Popped::Item(Input::Message(Message::Stop { code, reason })) => Err(stopped(code, reason)),
        Popped::Item(Input::ControlEnded(error)) => Err(error),
        Popped::Item(Input::Fatal(error)) => Err(prefer_peers_reason(error, inbox, cancel)),
        Popped::Item(input) => Ok(Some(input)),
        Popped::Timeout => Ok(None),
        Popped::Closed => Err(TransferError::Connection(io::ErrorKind::NotConnected.into())),
    }
}

/// Number of queued messages at which reading pauses until the coordinating thread has taken some.
/// The last read may exceed it by the messages in [`READ_LEN`] bytes.
pub(crate) const INBOX_LEN: usize = 64;

/// Number of bytes read from the control stream at a time.
const READ_LEN: usize = 32 * 1024;

/// Bytes of messages that wait to leave together: about a hundred plans or results.
const QUEUED_MAX: usize = 4096;

/// Interval at which a waiting coordinator checks for cancellation.
const TICK: Duration = Duration::from_millis(50);

/// Longest wait for the peer to read the end: two seconds.
const GRACE_TICKS: u32 = 40;

/// Longest wait for the end of a peer that keeps sending, however slowly.
const END_MAX: Duration = Duration::from_secs(5);

/// Limit on messages in flight when this side stops; a peer that sends more is not stopping.
const MESSAGES_AFTER_END_MAX: u32 = 10_000;
