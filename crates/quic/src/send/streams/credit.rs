//! The peer's flow-control credit and limits on streams (RFC 9000, section 4).

use wire::quic::{Dir, StreamId};

use super::SendStreams;
use crate::event::{Event, Events};

impl SendStreams {
    /// Takes the initial credit from the peer's transport parameters.
    pub(crate) fn set_peer_limits(&mut self, peer: &wire::quic::TransportParameters, events: &mut Events) {
        // The peer's "local" streams are those it opens, our "remote" ones (RFC 9000, section
        // 18.2).
        self.initial.bidi_remote = peer.initial_max_stream_data_bidi_local;
        self.initial.bidi_local = peer.initial_max_stream_data_bidi_remote;
        self.initial.uni = peer.initial_max_stream_data_uni;
        self.raise_max_data(peer.initial_max_data);
        self.raise_max_streams(Dir::Bi, peer.initial_max_streams_bidi, events);
        self.raise_max_streams(Dir::Uni, peer.initial_max_streams_uni, events);
    }

    pub(super) fn initial_credit(&self, id: StreamId) -> u64 {
        match (id.dir(), id.initiator() == self.side) {
            (Dir::Uni, _) => self.initial.uni,
            (Dir::Bi, true) => self.initial.bidi_local,
            (Dir::Bi, false) => self.initial.bidi_remote,
        }
    }

    /// The peer sent MAX_DATA.
    pub(crate) fn raise_max_data(&mut self, max: u64) {
        if max <= self.max_data {
            return;
        }
        self.max_data = max;
        while let Some(id) = self.credit_blocked.pop_front() {
            if let Some(stream) = self.map.get_mut(&id) {
                stream.credit_blocked = false;
            }
            self.make_ready(id);
        }
    }

    /// The peer sent MAX_STREAM_DATA.
    pub(crate) fn raise_max_stream_data(&mut self, id: StreamId, max: u64) {
        if let Some(stream) = self.map.get_mut(&id)
            && max > stream.max_data
        {
            stream.max_data = max;
            if stream.blocked_at.take().is_some() {
                self.limited.remove(&id);
            }
            self.make_ready(id);
        }
    }

    /// The peer sent MAX_STREAMS.
    pub(crate) fn raise_max_streams(&mut self, dir: Dir, max: u64, events: &mut Events) {
        let limit = &mut self.max_streams[dir.index()];
        if max > *limit {
            *limit = max;
            events.push(Event::StreamsAvailable(dir));
        }
    }
}
