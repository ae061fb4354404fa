//! Streams while a client sends 0-RTT: under the limits that the server had on an earlier
//! connection (RFC 9000, section 7.4.1).

use wire::quic::{Dir, StreamId, TransportParameters};

use super::{DeliveryState, SendStreams};
use crate::event::{Event, Events};
use crate::exchange::Exchange;
use crate::queue::Queue;

impl SendStreams {
    /// The server has taken 0-RTT: the streams have the initial credit of today, which is no
    /// smaller.
    pub(crate) fn raise_initial_credit(&mut self, parameters: &TransportParameters, events: &mut Events) {
        for id in self.early_ids() {
            let max = match id.dir() {
                Dir::Uni => parameters.initial_max_stream_data_uni,
                Dir::Bi => parameters.initial_max_stream_data_bidi_remote,
            };
            self.raise_max_stream_data(id, max);
        }
        // Reported when the handshake is complete, as without 0-RTT, even if the limits are the same.
        for dir in [Dir::Bi, Dir::Uni] {
            if self.left(dir) > 0 {
                events.push(Event::StreamsAvailable(dir));
            }
        }
    }

    /// The streams that were opened so far, some of which may be over.
    fn early_ids(&self) -> Vec<StreamId> {
        let of = |dir: Dir| (0..self.next_index[dir.index()]).map(move |index| StreamId::new(self.side, dir, index));
        of(Dir::Bi).chain(of(Dir::Uni)).collect()
    }

    /// The server has not taken 0-RTT: no stream was opened, and no limit is known.
    pub(crate) fn forget_early(&mut self) {
        self.end_plan();
        // The receive half forgets all streams by itself.
        let mut ignored = Exchange::default();
        for id in self.early_ids() {
            self.retire(id, &mut ignored);
        }
        for queue in [&mut self.resets, &mut self.blocked, &mut self.credit_blocked, &mut self.waiting] {
            *queue = Queue::new();
        }
        self.next_index = [0; 2];
        self.max_streams = [0; 2];
        self.streams_blocked = [DeliveryState::Unset; 2];
        self.streams_blocked_at = [None; 2];
        (self.max_data, self.data_sent) = (0, 0);
        (self.data_blocked, self.data_blocked_at) = (DeliveryState::Unset, None);
    }
}
