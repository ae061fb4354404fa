//! The 1-RTT keys of the open stage, and which of them opens a packet (RFC 9001, section 6).

use std::sync::Arc;

use wire::quic::PathId;

use crate::session::{HeaderKey, PacketKey};

/// The 1-RTT keys that open packets: of the present key phase and its neighbours (RFC 9001, section
/// 6).
#[derive(Clone)]
pub(crate) struct OneRttKeys {
    pub(crate) header: Arc<dyn HeaderKey>,
    pub(crate) current: Arc<dyn PacketKey>,
    /// The number of the phase of `current`; its lowest bit is the phase bit.
    pub(crate) epoch: u64,
    /// The lowest number seen in the current phase on the path whose packets are opened; none
    /// before the first.
    pub(crate) phase_from: Option<u64>,
    pub(crate) previous: Option<Arc<dyn PacketKey>>,
    /// Made in advance, so that a key update takes no longer than any other packet (section 6.3).
    /// None after an update, until control supplies the next key.
    pub(crate) next: Option<Arc<dyn PacketKey>>,
}

impl OneRttKeys {
    /// Opens a packet. Returns its length, and whether it shows that the peer has updated its keys.
    pub(super) fn open(
        &self,
        path: PathId,
        phase: bool,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Option<(usize, bool)> {
        let open = |key: &Arc<dyn PacketKey>, payload: &mut [u8]| key.open(path, number, header, payload).ok();
        if phase == self.phase() {
            return open(&self.current, payload).map(|len| (len, false));
        }
        // The other bit means the previous phase for numbers below the present phase, and the next
        // phase otherwise. Each path has its own numbers. A path without packets of the present
        // phase may be late, or may have been quiet for a whole phase (multipath draft-21, section
        // 2.5, relies on the peer to wait here, but the peer measures other round trips). So a
        // packet that is not of the previous phase is tried with the next key, from a copy, since a
        // failed attempt destroys the payload.
        let (is_older, may_be_newer) = match self.phase_from {
            Some(from) => (number < from, number >= from),
            None => (self.previous.is_some(), true),
        };
        let copy = (is_older && may_be_newer).then(|| payload.to_vec());
        if is_older && let Some(len) = self.previous.as_ref().and_then(|key| open(key, payload)) {
            return Some((len, false));
        }
        if !may_be_newer {
            return None;
        }
        if let Some(copy) = copy {
            payload.copy_from_slice(&copy);
        }
        self.next.as_ref().and_then(|key| open(key, payload)).map(|len| (len, true))
    }

    /// The phase bit that goes with `current`.
    pub(crate) fn phase(&self) -> bool {
        self.epoch % 2 == 1
    }

    pub(super) fn note(&mut self, advances: bool, number: u64, phase: bool) {
        if advances {
            let next = self.next.take().expect("the packet was opened with it");
            self.previous = Some(std::mem::replace(&mut self.current, next));
            self.epoch += 1;
            self.phase_from = Some(number);
        } else if phase == self.phase() {
            self.phase_from = Some(self.phase_from.map_or(number, |from| from.min(number)));
        }
    }
}
