//! Flow-control credit that the receive half granted and that is to be announced to the peer.
//!
//! A grant is a level, not an event: every transmission, and every retransmission after a loss,
//! carries the latest value.

use wire::quic::{Dir, StreamId};

use crate::queue::Queue;
use crate::stream_map::StreamMap;

/// The latest limits granted to the peer, and which of them are due.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    max_data: u64,
    max_data_due: bool,
    max_streams: [u64; 2],
    max_streams_due: [bool; 2],
    stream_data: StreamMap<StreamGrant>,
    streams_due: Queue<StreamId>,
}

#[derive(Debug)]
struct StreamGrant {
    max: u64,
    due: bool,
}

impl Grants {
    pub(crate) fn grant_data(&mut self, max: u64) {
        self.max_data = max;
        self.max_data_due = true;
    }

    pub(crate) fn grant_streams(&mut self, dir: Dir, max: u64) {
        self.max_streams[dir.index()] = max;
        self.max_streams_due[dir.index()] = true;
    }

    pub(crate) fn grant_stream_data(&mut self, id: StreamId, max: u64) {
        let grant = self.stream_data.entry(id).or_insert(StreamGrant { max, due: false });
        grant.max = max;
        if !grant.due {
            grant.due = true;
            self.streams_due.push_back(id);
        }
    }

    /// The stream needs no more credit: all of it has arrived, or the application stopped reading.
    pub(crate) fn forget_stream(&mut self, id: StreamId) {
        self.stream_data.remove(&id);
    }

    pub(crate) fn pop_data(&mut self) -> Option<u64> {
        std::mem::take(&mut self.max_data_due).then_some(self.max_data)
    }

    pub(crate) fn pop_streams(&mut self) -> Option<(Dir, u64)> {
        Dir::ALL.into_iter().find_map(|dir| {
            std::mem::take(&mut self.max_streams_due[dir.index()]).then_some((dir, self.max_streams[dir.index()]))
        })
    }

    pub(crate) fn pop_stream_data(&mut self) -> Option<(StreamId, u64)> {
        while let Some(id) = self.streams_due.pop_front() {
            if let Some(grant) = self.stream_data.get_mut(&id) {
                grant.due = false;
                return Some((id, grant.max));
            }
        }
        None
    }

    pub(crate) fn on_data_lost(&mut self) {
        self.max_data_due = true;
    }

    pub(crate) fn on_streams_lost(&mut self, dir: Dir) {
        self.max_streams_due[dir.index()] = true;
    }

    pub(crate) fn on_stream_data_lost(&mut self, id: StreamId) {
        if let Some(grant) = self.stream_data.get(&id) {
            self.grant_stream_data(id, grant.max);
        }
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        self.stream_data.shrink_to_fit();
        self.streams_due.shrink();
    }

    pub(crate) fn is_due(&self) -> bool {
        self.max_data_due || self.max_streams_due.contains(&true) || !self.streams_due.is_empty()
    }
}
