//! When a path needs a PING.

/// After this many packets with nothing but acknowledgements, one carries a PING. The peer's
/// acknowledgement shows which ranges need not be repeated (RFC 9000, section 13.2.4).
const ACK_ONLY_PACKETS_MAX: u8 = 16;

/// The PING frames of one path, except for those of probe timeouts.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    /// A PING is due, to measure the round trip, unless another ack-eliciting packet leaves first.
    pub(crate) is_due: bool,
    /// Packets with nothing but acknowledgements since the last ack-eliciting one.
    ack_only_count: u8,
}

impl Pings {
    /// A packet is planned that has nothing but acknowledgements so far. Returns whether it needs a PING.
    pub(crate) fn is_due_after_ack_only(&mut self) -> bool {
        self.ack_only_count = self.ack_only_count.saturating_add(1);
        self.ack_only_count >= ACK_ONLY_PACKETS_MAX
    }

    /// An ack-eliciting packet is planned.
    pub(crate) fn on_eliciting(&mut self) {
        self.ack_only_count = 0;
    }
}
