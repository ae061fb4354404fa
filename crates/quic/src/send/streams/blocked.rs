//! Telling the peer that its credit holds us back.

use wire::quic::{Dir, StreamId};

use super::{Flag, SendStreams};

/// Streams about which it is said again at a time: enough to show that we live and where we wait, in one packet.
const REPEATS_MAX: usize = 32;

impl SendStreams {
    /// The next STREAM_DATA_BLOCKED that is due, if the stream is still blocked there.
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

    /// The DATA_BLOCKED that is due, if still true.
    pub(crate) fn pop_data_blocked(&mut self) -> Option<u64> {
        if self.data_blocked != Flag::Due {
            return None;
        }
        self.data_blocked = Flag::Sent;
        (self.data_blocked_at == Some(self.max_data)).then_some(self.max_data)
    }

    pub(crate) fn on_data_blocked_lost(&mut self) {
        self.data_blocked = Flag::Due;
    }

    /// The STREAMS_BLOCKED that is due, if still true.
    pub(crate) fn pop_streams_blocked(&mut self) -> Option<(Dir, u64)> {
        for dir in Dir::ALL {
            let kind = dir.index();
            if self.streams_blocked[kind] == Flag::Due {
                self.streams_blocked[kind] = Flag::Sent;
                if self.streams_blocked_at[kind] == Some(self.max_streams[kind]) {
                    return Some((dir, self.max_streams[kind]));
                }
            }
        }
        None
    }

    pub(crate) fn on_streams_blocked_lost(&mut self, dir: Dir) {
        self.streams_blocked[dir.index()] = Flag::Due;
    }

    /// True if credit may be all that is missing to send more.
    pub(crate) fn is_held_back(&self) -> bool {
        !self.limited.is_empty() || !self.starved.is_empty()
    }

    /// Says again where we are held back, if we are.
    pub(crate) fn repeat_blocked(&mut self) {
        // Streams that were reset meanwhile wait for nothing.
        for _ in 0..self.starved.len() {
            let Some(id) = self.starved.pop_front() else { break };
            match self.map.get_mut(&id) {
                Some(stream) if stream.reset == Flag::Unset => self.starved.push_back(id),
                Some(stream) => stream.starved = false,
                None => {}
            }
        }
        if !self.starved.is_empty() && self.data_blocked_at == Some(self.max_data) {
            self.data_blocked = Flag::Due;
        }
        for id in self.limited.iter().take(REPEATS_MAX) {
            self.blocked.push_back(*id);
        }
    }
}
