//! Opening of the packets of a script's peer, to check that they contain its application's data.

use std::fmt;

use quic::StreamId;
use quic::dismantle::PacketReader;

use super::{ScriptKeys, ScriptedPeer};

/// Number of packets that cannot be opened or hold no frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unopened(pub u64);

impl fmt::Display for Unopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets for the script did not open", self.0)
    }
}

impl std::error::Error for Unopened {}

/// Opens the packets that arrive on one path. It costs as much as any receiver, so measurements run
/// without it.
pub struct ScriptReader {
    packets: PacketReader,
}

impl ScriptKeys {
    /// Creates a reader of packets that arrive on the path of `peer` from now on; returns `None` if
    /// keys were already updated. It does not follow updates: later packets are [`Unopened`].
    pub fn reader(&self, peer: &ScriptedPeer) -> Option<ScriptReader> {
        let reader = || self.open.reader(peer.path, peer.is_multipath, peer.observer.largest);
        (self.phase == self.open.phase()).then(|| ScriptReader { packets: reader() })
    }
}

impl ScriptReader {
    /// Opens the datagrams of a batch, all `stride` bytes long except the last, in place. Calls
    /// `each` for the stream data in them, in order: stream, offset, bytes, and whether they are
    /// the last of their stream.
    ///
    /// # Errors
    /// Fails if a packet did not open; `each` is called for the rest.
    pub fn read(
        &mut self,
        batch: &mut [u8],
        stride: usize,
        each: impl FnMut(StreamId, u64, &[u8], bool),
    ) -> Result<(), Unopened> {
        match self.packets.read(batch, stride, each) {
            0 => Ok(()),
            count => Err(Unopened(count)),
        }
    }
}

impl fmt::Debug for ScriptReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptReader").finish_non_exhaustive()
    }
}
