//! Reading what the peer of a script really sends, to prove that it is what its application wrote.

use std::fmt;

use wire::quic::{PathId, Space, StreamId};

use super::{ScriptKeys, ScriptedPeer};
use crate::control::ids::LOCAL_ID_LEN;
use crate::open::{OpenContext, OpenJob, Record};

/// Packets that cannot be opened or hold no frames, and how many they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unopened(pub u64);

impl fmt::Display for Unopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets for the script did not open", self.0)
    }
}

impl std::error::Error for Unopened {}

/// Opens what arrives on one path, for those who want to look at it. Costs what opening costs, so scripts do without.
pub struct ScriptReader {
    job: OpenJob,
}

impl ScriptKeys {
    /// A reader of what arrives on the path of `peer` from now on; none if keys were updated already. It does not follow updates:
    /// what comes after one is [`Unopened`].
    pub fn reader(&self, peer: &ScriptedPeer) -> Option<ScriptReader> {
        if self.phase != self.ring.epoch {
            return None;
        }
        let context = OpenContext {
            local_id_len: LOCAL_ID_LEN,
            levels: [None, None],
            data: Some(self.ring.clone()),
            largest: Space::ALL.map(|space| peer.ear.largest.filter(|_| space == Space::Data)),
            path: peer.path,
            max_path: peer.is_multipath.then_some(PathId(u32::MAX)),
            ignore_fixed_bit: true,
        };
        Some(ScriptReader { job: OpenJob { context: Some(context), ..OpenJob::default() } })
    }
}

impl ScriptReader {
    /// Opens the datagrams of a batch, all `stride` bytes long but the last, in place. Tells `each` of the stream data in them,
    /// in their order: stream, offset, bytes, and whether they are the last of their stream.
    ///
    /// # Errors
    /// If there was something that did not open; it is told of the rest.
    pub fn read(
        &mut self,
        batch: &mut [u8],
        stride: usize,
        mut each: impl FnMut(StreamId, u64, &[u8], bool),
    ) -> Result<(), Unopened> {
        self.job.stride = stride.max(1);
        self.job.open(batch);
        let opened = &self.job.opened;
        for record in &opened.records {
            let Record::Stream { id, offset, fin, data } = record else { continue };
            let mut at = *offset;
            for index in 0..data.count {
                let start = data.piece(index).start;
                let is_last = index + 1 == data.count;
                each(*id, at, &batch[start..start + data.len], *fin && is_last);
                at += data.len as u64;
            }
        }
        let broken = opened.packets.iter().filter(|packet| packet.error.is_some()).count() as u64;
        match opened.unauthentic_count + opened.dropped_count + broken {
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
