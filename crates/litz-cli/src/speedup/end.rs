//! The measured end of a connection, whatever its protocol: [`End`], [`SendEnd`], [`ReceiveEnd`].

use bytes::Bytes;
use litz::{Costs, WorkerPoolStats};

use super::failure::Failure;
use super::pins::Pins;

/// The measured end of a connection.
pub(super) trait End: Sync {
    /// The processors of the application's threads.
    fn pins(&self) -> &Pins;

    /// The metered time so far; none without the meter.
    fn costs(&self) -> Option<Costs>;

    /// Counters of the other processors; none if there are none.
    fn workers(&self) -> Option<WorkerPoolStats>;

    /// Whether the connection is well.
    ///
    /// # Errors
    /// The reason if it has ended, or if the peer has found a fault.
    fn check(&self) -> Result<(), Failure>;

    /// Ends the connection. A thread that waits for it gets an error.
    fn close(&self);
}

/// Writes a chunk, and waits for space.
pub(super) type Writer<'a> = Box<dyn FnMut(Bytes) -> Result<(), String> + 'a>;

/// An end that sends.
pub(super) trait SendEnd: End {
    /// Opens a stream.
    ///
    /// # Errors
    /// A message for the user, if the connection has ended.
    fn writer(&self) -> Result<Writer<'_>, String>;

    /// Number of full data packets sent so far.
    fn packets_sent(&self) -> u64;

    /// Packets that the sender declared lost, although none is.
    fn packets_lost(&self) -> u64;
}

/// Reads and drops the next bytes; returns their number.
pub(super) type Reader<'a> = Box<dyn FnMut() -> Result<usize, String> + 'a>;

/// An end that receives.
pub(super) trait ReceiveEnd: End {
    /// Waits for the streams of the peer. The error means nothing after [`End::close`].
    ///
    /// # Errors
    /// A message for the user, if the connection has ended.
    fn reader(&self) -> Result<Reader<'_>, String>;

    /// Packets that failed authentication, although none is forged.
    fn unauthentic(&self) -> u64;

    /// What the peer sends.
    ///
    /// # Errors
    /// A message for the user.
    fn source(&self) -> Result<Box<dyn Source<'_> + '_>, Failure>;
}

/// What the peer sends, made in advance.
pub(super) trait Source<'a> {
    /// Makes the next round on all processors.
    ///
    /// # Errors
    /// A message for the user.
    fn make(&mut self) -> Result<Round<'a>, Failure>;
}

/// Packets that were made in advance.
pub(super) struct Round<'a> {
    pub(super) packets: u64,
    /// Bytes of the application in them.
    pub(super) bytes: u64,
    /// How many of these are measured.
    pub(super) measured_bytes: u64,
    /// Lets the peer send them.
    pub(super) feed: Box<dyn FnOnce() + 'a>,
}
