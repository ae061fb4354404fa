//! DATA_BLOCKED, STREAM_DATA_BLOCKED and STREAMS_BLOCKED.

use wire::quic::{Dir, StreamId};

use super::{DeliveryState, SendStreams};

/// Streams whose STREAM_DATA_BLOCKED is repeated at a time: one packet's worth, enough to keep the
/// connection alive and to show which streams wait.
const REPEATS_MAX: usize = 32;

impl SendStreams {
    /// The next STREAM_DATA_BLOCKED that is due, if the stream is still blocked at that limit.
    pub(crate) fn pop_stream_blocked(&mut self) -> Option<(StreamId, u64)> {
        while let Some(id) = self.blocked.pop_front() {
            if let Some(stream) = self.map.get(&id)
                && let Some(limit) = stream.blocked_at
                && stream.max_data == limit
            {
                return Some((id, limit));
            }
        }
        None
    }

    pub(crate) fn on_stream_blocked_lost(&mut self, id: StreamId) {
        self.blocked.push_back(id);
    }

    /// The DATA_BLOCKED that is due, if the connection is still blocked.
    pub(crate) fn pop_data_blocked(&mut self) -> Option<u64> {
        if self.data_blocked != DeliveryState::Due {
            return None;
        }
        self.data_blocked = DeliveryState::Sent;
        (self.data_blocked_at == Some(self.max_data)).then_some(self.max_data)
    }

    pub(crate) fn on_data_blocked_lost(&mut self) {
        self.data_blocked = DeliveryState::Due;
    }

    /// The STREAMS_BLOCKED that is due, if the limit is still exhausted.
    pub(crate) fn pop_streams_blocked(&mut self) -> Option<(Dir, u64)> {
        for dir in Dir::ALL {
            let kind = dir.index();
            if self.streams_blocked[kind] == DeliveryState::Due {
                self.streams_blocked[kind] = DeliveryState::Sent;
                if self.streams_blocked_at[kind] == Some(self.max_streams[kind]) {
                    return Some((dir, self.max_streams[kind]));
                }
            }
        }
        None
    }

    pub(crate) fn on_streams_blocked_lost(&mut self, dir: Dir) {
        self.streams_blocked[dir.index()] = DeliveryState::Due;
    }

    /// True if data wait that possibly only the peer's credit blocks.
    pub(crate) fn is_flow_blocked(&self) -> bool {
        !self.limited.is_empty() || !self.credit_blocked.is_empty()
    }

    /// Queues the BLOCKED frames again, if credit still blocks us.
    pub(crate) fn repeat_blocked(&mut self) {
        // Streams that were reset meanwhile are no longer blocked.
        for _ in 0..self.credit_blocked.len() {
            let Some(id) = self.credit_blocked.pop_front() else { break };
            match self.map.get_mut(&id) {
                Some(stream) if stream.reset == DeliveryState::Unset => self.credit_blocked.push_back(id),
                Some(stream) => stream.credit_blocked = false,
                None => {}
            }
        }
        if !self.credit_blocked.is_empty() && self.data_blocked_at == Some(self.max_data) {
            self.data_blocked = DeliveryState::Due;
        }
        for id in self.limited.iter().take(REPEATS_MAX) {
            self.blocked.push_back(*id);
        }
    }
}
