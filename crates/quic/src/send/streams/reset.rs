//! Resetting streams, at the request of the application or of the peer (RFC 9000, section 3.5).

use wire::quic::StreamId;

use super::{DeliveryState, SendStreams, WriteError};
use crate::event::{Event, Events};
use crate::exchange::Exchange;

impl SendStreams {
    /// Resets the stream: nothing more is sent or retransmitted except RESET_STREAM.
    pub(crate) fn reset(&mut self, id: StreamId, code: u64, events: &mut Events) -> Result<(), WriteError> {
        let stream = self.map.get_mut(&id).ok_or(WriteError::Closed)?;
        // Once all data and the FIN are acknowledged, a reset has no effect (RFC 9000, section
        // 3.1).
        if stream.reset != DeliveryState::Unset {
            return Err(WriteError::Closed);
        }
        stream.reset = DeliveryState::Due;
        stream.reset_code = code;
        stream.reset_size = stream.buffer.unsent();
        self.held_bytes -= stream.buffer.held_bytes();
        stream.buffer.discard();
        if stream.blocked_at.take().is_some() {
            self.limited.remove(&id);
        }
        self.resets.push_back(id);
        if stream.connection_limited {
            // Other streams may have waited because of its bytes.
            self.release_connection_limited();
        }
        self.wake_writers(events);
        Ok(())
    }

    /// The peer sent STOP_SENDING: reset the stream with the same code (RFC 9000, section 3.5).
    pub(crate) fn on_stop_sending(&mut self, id: StreamId, code: u64, events: &mut Events) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        if stream.stopped.is_some() {
            return;
        }
        stream.stopped = Some(code);
        events.push(Event::Stopped { id, code });
        // If the stream was reset before, nothing remains to do. If all data were sent and only
        // acknowledgements are missing, a reset adds no information, but a peer that discards our
        // data needs it to close the stream.
        let _already_reset = self.reset(id, code, events);
    }

    /// The next RESET_STREAM that is due.
    pub(crate) fn pop_reset(&mut self) -> Option<(StreamId, u64, u64)> {
        while let Some(id) = self.resets.pop_front() {
            if let Some(stream) = self.map.get_mut(&id)
                && stream.reset == DeliveryState::Due
            {
                stream.reset = DeliveryState::Sent;
                return Some((id, stream.reset_code, stream.reset_size));
            }
        }
        None
    }

    pub(crate) fn on_reset_acked(&mut self, id: StreamId, exchange: &mut Exchange) {
        if self.map.get(&id).is_some_and(|stream| stream.reset != DeliveryState::Unset) {
            self.retire(id, exchange);
        }
    }

    pub(crate) fn on_reset_lost(&mut self, id: StreamId) {
        if let Some(stream) = self.map.get_mut(&id)
            && stream.reset == DeliveryState::Sent
        {
            stream.reset = DeliveryState::Due;
            self.resets.push_back(id);
        }
    }
}
