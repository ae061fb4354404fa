//! The window that the peer grants (RFC 9293, section 3.8.6).

use units::Seq32;

/// Limit set by the peer on our data.
#[derive(Debug)]
pub(super) struct PeerWindow {
    /// Position after the last one that may be sent.
    edge: u64,
    /// The largest window so far, bytes.
    max: u64,
    /// Sequence number and acknowledgement of the segment that set the window (RFC 9293, section
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

    /// Processes a segment with sequence number `seq` that acknowledges `ack` and grants `window`
    /// bytes. An older segment must not revoke what a newer one granted. Returns true if the window
    /// has changed.
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
        // The peer may revoke what it granted (section 3.8.6).
        assert!(window.update(Seq32::new(6), 501, 0));
        assert_eq!((window.edge(), window.max()), (501, 1000));
    }
}
