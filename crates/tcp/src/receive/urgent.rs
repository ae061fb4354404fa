//! Urgent data of the peer (RFC 9293, section 3.8.5): they stay in the stream, where they are (RFC 6093,
//! section 4).

use super::ReceiveHalf;

impl ReceiveHalf {
    /// A segment with this sequence number says that urgent data end `pointer` bytes after it. True if
    /// more of the data are urgent than before.
    pub(crate) fn note_urgent(&mut self, position: u64, pointer: u16) -> bool {
        let end = position + u64::from(pointer);
        let has_advanced = end > self.urgent_end.max(self.read_end());
        if has_advanced {
            self.urgent_end = end;
        }
        has_advanced
    }

    /// Bytes to be read until the end of the urgent data.
    pub(crate) fn urgent_left(&self) -> u64 {
        self.urgent_end.saturating_sub(self.read_end())
    }

    /// The position after the last byte that was read.
    pub(super) fn read_end(&self) -> u64 {
        self.received.nxt - u64::from(self.is_fin_received()) - u64::from(self.received.unread)
    }
}
