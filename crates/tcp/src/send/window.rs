//! The window that the peer grants (RFC 9293, section 3.8.6).

use units::Seq32;

/// How far the peer lets us send.
#[derive(Debug)]
pub(super) struct PeerWindow {
    /// The position after the last that may be sent.
    edge: u64,
    /// The largest window so far, bytes.
    max: u64,
    /// Sequence number and acknowledgement of the segment that the window is from (RFC 9293, section
    /// 3.10.7.4, SND.WL1 and SND.WL2).
    from: Option<(Seq32, u64)>,
}

impl PeerWindow {
    pub(super) const fn new() -> Self {
        Self { edge: 0, max: 0, from: None }
    }

    pub(super) const fn edge(&self) -> u64 {
        self.edge
    }

    pub(super) const fn max(&self) -> u64 {
        self.max
    }

    /// A segment with sequence number `seq` acknowledges `ack` and grants `window` bytes. An old one
    /// must not take back what a newer one granted. True if the window has changed.
    pub(super) fn update(&mut self, seq: Seq32, ack: u64, window: u64) -> bool {
        let is_new = self.from.is_none_or(|(of, last_ack)| of.is_before(seq) || (of == seq && last_ack <= ack));
        if !is_new {
            return false;
        }
        let before = std::mem::replace(&mut self.edge, ack + window);
        (self.from, self.max) = (Some((seq, ack)), self.max.max(window));
        before != self.edge
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_segment_does_not_take_back_the_window() {
        let mut window = PeerWindow::new();
        assert!(window.update(Seq32::new(5), 1, 1000));
        assert!(window.update(Seq32::new(5), 501, 1000));
        assert!(!window.update(Seq32::new(5), 1, 1000), "an older acknowledgement");
        assert!(!window.update(Seq32::new(4), 900, 5000), "an older segment");
        assert_eq!((window.edge(), window.max()), (1501, 1000));
        // The peer may take back what it granted (section 3.8.6).
        assert!(window.update(Seq32::new(6), 501, 0));
        assert_eq!((window.edge(), window.max()), (501, 1000));
    }
}
