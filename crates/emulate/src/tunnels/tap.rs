//! Observation of the packets of a link.

use std::sync::Arc;

use units::Instant;

/// A packet at one end of a link.
#[derive(Debug)]
pub struct TappedPacket<'a> {
    /// Time on the clock with which the links were started.
    pub at: Instant,
    /// Whether it travels from left to right.
    pub is_forward: bool,
    /// Whether it enters the link; otherwise it leaves it.
    pub is_sent: bool,
    /// The IP packet. If the kernel has not completed its checksum, that is incomplete.
    pub ip: &'a [u8],
}

/// Receives every packet of a link at both ends, on the thread of the link, which waits for it.
pub type Tap = Arc<dyn Fn(&TappedPacket<'_>) + Send + Sync>;
