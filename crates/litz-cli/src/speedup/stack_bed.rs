//! A stack of TCP/IP over a device in memory, connected and idle.

use litz::tcp::CipherLayer;
use litz::{Costs, Placement, WorkerPoolStats};
use scripted_peer::round::ROUND_BYTES;
use scripted_peer::tcp::{Feeder, TcpEnd, TcpScript, TcpSetup, lock_step};

use units::Duration;

use super::end::{End, Reader, ReceiveEnd, Round, SendEnd, Source, Writer};
use super::failure::Failure;
use super::pins::Pins;
use super::settings::{AppCore, MeasuredStack};

/// Bytes of the application in a run in lock-step: a dozen jobs for each processor.
const LOCK_STEP_BYTES: usize = 1 << 20;

/// Bytes of the application in a round of the receive side, as for QUIC; with DES a fraction of a second.
const SLOW_ROUND_BYTES: u64 = 8 << 20;

/// Bytes of the application that the scripted peer has sent and the reader has not taken, at most: those
/// of the inbox and of the receive buffer, and their headers and records.
const UNREAD_MAX: u64 = 16 << 20;

/// Measured bytes in a round of both directions: what the writing one may be ahead of the reader, 17 MiB
/// with the send buffer and the lead of the script, is less than a quarter of it.
const DUPLEX_ROUND_BYTES: u64 = ROUND_BYTES + UNREAD_MAX;

/// The order of the processors' turns in lock-step. Any order gives the same stream.
const LOCK_STEP_SEED: u64 = 1;

/// The measured stack and its scripted peer.
pub(crate) struct StackBed {
    end: TcpEnd,
    payload: usize,
    /// It has DES, of which a second is a few megabytes.
    is_slow: bool,
    /// Both directions transfer the same at the same time.
    is_duplex: bool,
    pins: Pins,
}

impl MeasuredStack {
    /// What runs the stack.
    pub(super) fn setup(self, placement: Placement, cores: Vec<usize>, metered: bool) -> TcpSetup {
        TcpSetup { stack: self.stack, payload: self.payload, placement, cores, metered }
    }

    /// A digest of what `placement` sends in lock-step, after every digest and record of it was
    /// verified. Equal for all placements.
    ///
    /// # Errors
    /// A message for the user, if anything arrives that was not written.
    pub(super) fn wire_digest(self, placement: Placement) -> Result<String, Failure> {
        let setup = self.setup(placement, Vec::new(), false);
        lock_step::wire_digest(&setup, LOCK_STEP_BYTES, LOCK_STEP_SEED)
            .map_err(|error| Failure::Error(format!("{} under {placement}: {error}", self.stack)))
    }

    /// The length of a packet.
    pub(super) fn packet_len(self) -> usize {
        self.setup(Placement::Thread, Vec::new(), false).packet_len()
    }
}

impl StackBed {
    /// Connects.
    pub(crate) fn new(setup: &TcpSetup, app_core: AppCore, is_duplex: bool) -> Result<Self, Failure> {
        let end = TcpEnd::start(setup, None).map_err(Failure::Error)?;
        let is_slow = setup.stack.cipher.is_some_and(CipherLayer::is_historical);
        Ok(Self { end, payload: setup.payload, is_slow, is_duplex, pins: Pins::new(app_core, &setup.cores) })
    }
}

impl End for StackBed {
    fn pins(&self) -> &Pins {
        &self.pins
    }

    fn costs(&self) -> Option<Costs> {
        self.end.costs()
    }

    fn workers(&self) -> Option<WorkerPoolStats> {
        self.end.worker_pool_stats()
    }

    fn check(&self) -> Result<(), Failure> {
        self.end.check().map_err(Failure::Error)
    }

    fn close(&self) {
        self.end.close();
    }
}

impl SendEnd for StackBed {
    fn writer(&self) -> Result<Writer<'_>, String> {
        Ok(Box::new(|chunk| self.end.write(chunk)))
    }

    fn packets_sent(&self) -> u64 {
        self.end.packets_sent()
    }

    fn packets_lost(&self) -> u64 {
        self.end.packets_repeated()
    }
}

impl ReceiveEnd for StackBed {
    fn reader(&self) -> Result<Reader<'_>, String> {
        Ok(Box::new(|| self.end.read().map(|bytes| bytes.len())))
    }

    /// A packet with a wrong digest is dropped, and never arrives.
    fn unauthentic(&self) -> u64 {
        0
    }

    fn source(&self) -> Result<Box<dyn Source<'_> + '_>, Failure> {
        let feeder = self.end.feeder(self.payload).map_err(Failure::Error)?;
        let bytes = match (self.is_slow, self.is_duplex) {
            (true, _) => SLOW_ROUND_BYTES,
            (false, true) => DUPLEX_ROUND_BYTES,
            (false, false) => ROUND_BYTES,
        };
        Ok(Box::new(StackSource { end: &self.end, feeder, bytes, is_duplex: self.is_duplex }))
    }
}

impl StackBed {
    /// Active time of the receive worker, if there is one, and whether it has the receive half.
    pub(super) fn receive_worker(&self) -> Option<(Duration, bool)> {
        self.end.receive_worker_stats().map(|stats| (stats.busy, stats.detached > 0))
    }

    /// Bytes of the application in a packet.
    pub(super) const fn payload(&self) -> usize {
        self.payload
    }
}

struct StackSource<'a> {
    end: &'a TcpEnd,
    feeder: Feeder,
    /// Bytes of the application in a round.
    bytes: u64,
    is_duplex: bool,
}

impl<'a> Source<'a> for StackSource<'a> {
    fn make(&mut self) -> Result<Round<'a>, Failure> {
        let before = self.feeder.bytes();
        if self.is_duplex {
            self.feeder.set_ack(self.end.device().with_script(TcpScript::ack));
        }
        // With both directions, there are packets until the reader has taken what is measured.
        let rest = if self.is_duplex { UNREAD_MAX } else { 0 };
        let packets = self.feeder.make(self.bytes + rest);
        let (bytes, count) = (self.feeder.bytes() - before, packets.len() as u64);
        let measured_bytes = bytes - rest;
        let (device, is_duplex) = (self.end.device(), self.is_duplex);
        let feed = move || if is_duplex { device.feed_in_step(packets) } else { device.feed(packets) };
        Ok(Round { packets: count, bytes, measured_bytes, feed: Box::new(feed) })
    }
}
