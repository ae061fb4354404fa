//! The peer's urgent data (RFC 9293, section 3.8.5), which stay in line in the stream (RFC 6093,
//! section 4).

use super::ReceiveHalf;

impl ReceiveHalf {
    /// Processes a segment at this position with an urgent pointer of `pointer` bytes. Returns true
    /// if the urgent part of the data has grown.
    pub(crate) fn note_urgent(&mut self, position: u64, pointer: u16) -> bool {
        let end = position + u64::from(pointer);
        let has_advanced = end > self.urgent_end.max(self.read_end());
        if has_advanced {
            self.urgent_end = end;
        }
        has_advanced
    }

    /// Returns the number of bytes to read until the end of the urgent data.
    pub(crate) fn urgent_left(&self) -> u64 {
        self.urgent_end.saturating_sub(self.read_end())
    }

    /// Returns the position after the last byte read.
    pub(super) fn read_end(&self) -> u64 {
        self.received.nxt - u64::from(self.is_fin_received()) - u64::from(self.received.unread)
    }
}
